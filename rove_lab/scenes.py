r"""Arrows that stand and move anywhere: messages over a grid of patches, agents in the plane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rove_lab.panels import FAINT, axis, panel_axes, square_row, styles, titles
from rove_lab.sliders import Slider, Trace, Values, compose, go, over_stops, rounded

__all__ = ["scenes"]

_DOT, _TIP = 9, 8  # pixels


def scenes(
    panels: Mapping[str, Mapping[str, Values]],
    *,
    alt: str,
    slider: Slider | None = None,
    x_axis: str | dict[str, Any] | None = None,
    y_axis: str | dict[str, Any] | None = None,
    height: int = 340,
) -> go.Figure:
    """Draw arrows wherever they stand, in panels side by side that share one range.

    Unlike :func:`arrows`, they may move from place to place, and leave no trail.

    Args:
        panels: Title to named arrows, each its tail and its vector (x, y, dx, dy): ``[arrows, 4]``,
            or ``[stops, arrows, 4]`` for what the slider moves. Where all of a name's vectors are 0
            they are dots; NaN leaves one out.
        alt: What the figure shows, in words.
        slider: Moves the arrows that have an axis of stops.
        x_axis: Title under each panel, or a plotly axis as a dict; None shows no axis.
        y_axis: Likewise, beside the first panel.
        height: Height of the plot in pixels.

    Returns:
        A plotly figure.

    Raises:
        TypeError: When values are not real numbers.
        ValueError: When a shape does not fit, a value is infinite, or ``alt`` is empty.

    Example:
        >>> scenes({"": {"agent": [[0.0, 1.0, 0.5, 0.0]]}}, alt="One, facing east.").data[0].name
        'agent'
    """
    names = list(dict.fromkeys(name for named in panels.values() for name in named))
    colours = {name: colour for name, (colour, _) in zip(names, styles(names), strict=True)}
    traces, listed, corners = [], set[str](), [torch.zeros(0, 2)]
    for panel, named in enumerate(panels.values()):
        for name, arrows in named.items():
            steps = over_stops(name, arrows, [None, 4], "arrows, 4", slider)
            style = {
                "name": name,
                "legendgroup": name,
                "showlegend": name not in listed,
                "xaxis": f"x{panel + 1}",
                "yaxis": f"y{panel + 1}",
                "hovertemplate": "(%{x:.2f}, %{y:.2f})",
            }
            arrows_or_dots = _arrows if steps[..., 2:].nan_to_num().any() else _dots
            traces.append(arrows_or_dots(steps, style, colours[name]))
            listed.add(name)
            tails = steps[..., :2].flatten(0, -2)
            corners += [tails, tails + steps[..., 2:].flatten(0, -2)]
    axes = _shared_axes(len(panels), torch.cat(corners), x_axis, y_axis)
    margin = {"l": 20, "r": 20, "t": 60 if any(panels) else 40, "b": 20}
    margin |= {"b": 55} if x_axis is not None else {}
    margin |= {"l": 60} if y_axis is not None else {}
    row = square_row(len(panels), height, margin)
    return compose(
        traces, slider, alt=alt, height=height, annotations=titles(panels), **row, **axes
    )


def _arrows(steps: Tensor, style: dict[str, Any], colour: str) -> Trace:
    """From tail to tip, then a gap."""
    tails, vectors = steps.split(2, -1)
    points = torch.stack([tails, tails + vectors, torch.full_like(tails, torch.nan)], -2)
    marker = {
        "symbol": ["circle", "arrow", "circle"] * steps.shape[1],
        "size": [0, _TIP, 0] * steps.shape[1],
        "angleref": "previous",
        "color": colour,
        "line": {"width": 0},
        "opacity": 1,
    }
    line = {"color": colour, "width": 2}
    style |= {"mode": "lines+markers", "line": line, "marker": marker}
    return Trace(go.Scatter, style, [_places(step.flatten(0, 1)) for step in points])


def _dots(steps: Tensor, style: dict[str, Any], colour: str) -> Trace:
    """Where something stands that points nowhere."""
    style |= {"mode": "markers", "marker": {"color": colour, "size": _DOT, "line": {"width": 0}}}
    return Trace(go.Scatter, style, [_places(step[:, :2]) for step in steps])


def _places(points: Tensor) -> dict[str, Any]:
    x, y = points.unbind(-1)
    return {"x": rounded(x), "y": rounded(y)}


def _shared_axes(
    panels: int,
    corners: Tensor,
    x_axis: str | dict[str, Any] | None,
    y_axis: str | dict[str, Any] | None,
) -> dict[str, Any]:
    """Axes with equal units, in each panel one range that holds every arrow at every stop."""
    corners = corners[~corners.isnan().any(-1)]
    seen = corners if len(corners) else torch.zeros(1, 2)
    low, high = seen.amin(0), seen.amax(0)
    room = 0.06 * (high - low).amax().clamp_min(1e-9)
    ranges = torch.stack([low - room, high + room], -1).tolist()
    quiet = {"showgrid": False, "zeroline": False, "showline": True, "linecolor": FAINT}
    axes: dict[str, Any] = {}
    for panel in range(panels):
        sides = panel_axes(panel, panels, square=True)
        for letter, side, ends, title in zip("xy", sides, ranges, (x_axis, y_axis), strict=True):
            named = {"showticklabels": False} if title is None else axis(title)
            if letter == "y" and panel:
                named.pop("title", None)
            axes[f"{letter}axis{panel + 1}"] = (
                side | quiet | {"range": ends, "mirror": True} | named
            )
    return axes
