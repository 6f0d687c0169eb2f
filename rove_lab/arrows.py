r"""Vectors of the plane as arrows that turn: what a message looks like in one rotary plane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rove_lab.panels import FAINT, axis, panel_axes, square_row, styles, titles
from rove_lab.sliders import Slider, Trace, Values, compose, go, numbers, over_stops, rounded

__all__ = ["arrows"]


def arrows(
    panels: Mapping[str, Mapping[str, Values]],
    *,
    alt: str,
    slider: Slider | None = None,
    origins: Values | None = None,
    x_axis: str | dict[str, Any] | None = None,
    height: int = 280,
) -> go.Figure:
    """Draw vectors of the plane as arrows, in panels side by side; moving ones leave a trail.

    Args:
        panels: Title to named vectors: ``[vectors, 2]``, or ``[stops, vectors, 2]`` for what the
            slider moves. The faint circle is as long as the longest vector of all.
        alt: What the figure shows, in words.
        slider: Moves the vectors that have an axis of stops. A trail runs from the stop shown first
            to the present one: the angle turned.
        origins: Where the arrows start, ``[vectors, 2]``; None is the centre for all of them.
        x_axis: Title under the arrows, or a plotly axis as a dict; None shows no axis.
        height: Height of the plot in pixels.

    Returns:
        A plotly figure.

    Raises:
        TypeError: When values are not real numbers.
        ValueError: When a shape does not fit, a value is infinite, or ``alt`` is empty.

    Example:
        >>> arrows({"plane 0": {"RoPE": [[1.0, 0.0]]}}, alt="One arrow.").data[0].name
        'RoPE'
    """
    names = list(dict.fromkeys(name for named in panels.values() for name in named))
    colours = {name: colour for name, (colour, _) in zip(names, styles(names), strict=True)}
    tails = numbers("origins", [[0.0, 0.0]] if origins is None else origins)
    traces, listed, longest = [], set[str](), 0.0
    for panel, named in enumerate(panels.values()):
        for name, vectors in named.items():
            steps = over_stops(name, vectors, [None, 2], "vectors, 2", slider)
            if tails.shape not in [(1, 2), steps.shape[1:]]:
                raise ValueError(
                    f"origins: expected {list(steps.shape[1:])}, one for each vector of {name!r}, "
                    f"got {list(tails.shape)}"
                )
            style = {
                "name": name,
                "legendgroup": name,
                "xaxis": f"x{panel + 1}",
                "yaxis": f"y{panel + 1}",
                "mode": "lines+markers",
                # The first one broader: two arrows that agree are both seen.
                "line": {
                    "color": colours[name],
                    "width": 5 if name == names[0] != names[-1] else 3,
                },
            }
            if len(steps) > 1 and slider is not None:
                traces.append(_trail(steps, tails, slider.first, style))
            traces.append(_pointers(steps, tails, style | {"showlegend": name not in listed}))
            listed.add(name)
            longest = max(longest, steps.norm(dim=-1).nan_to_num().max().item())
    axes: dict[str, Any] = {}
    for panel in range(len(panels)):
        axes |= _dial_axes(panel, len(panels), tails, longest or 1.0, x_axis)
    circles = [_circle(panel, at, longest) for panel in range(len(panels)) for at in tails.tolist()]
    margin = {"l": 20, "r": 20, "t": 60 if any(panels) else 40, "b": 20 if x_axis is None else 55}
    row = square_row(len(panels), height, margin) if len(tails) == 1 else {"margin": margin}
    return compose(
        traces,
        slider,
        alt=alt,
        height=height,
        shapes=circles,
        annotations=titles(panels),
        **row,
        **axes,
    )


def _pointers(steps: Tensor, tails: Tensor, style: dict[str, Any]) -> Trace:
    """The arrows themselves, from their tails, at each stop."""
    marker = {
        "symbol": ["circle", "arrow", "circle"] * steps.shape[1],  # tail, tip, gap
        "size": [0, 9 + 2 * style["line"]["width"] // (1 if len(tails) == 1 else 2), 0]
        * steps.shape[1],
        "angleref": "previous",
        "color": style["line"]["color"],
        "line": {"width": 0},
        "opacity": 1,
    }
    starts = tails.expand_as(steps[0])
    ends = [_path(torch.stack([starts, starts + vectors], dim=1)) for vectors in steps]
    hover = "(%{x:.2f}, %{y:.2f})"
    return Trace(go.Scatter, style | {"marker": marker, "hovertemplate": hover}, ends)


def _trail(steps: Tensor, tails: Tensor, first: int, style: dict[str, Any]) -> Trace:
    """Where the tips have been between the stop shown first and each stop."""
    faint = {
        "opacity": 0.4,
        "line": style["line"] | {"width": 1.5},
        "marker": {"size": 5},
        "showlegend": False,
        "hoverinfo": "skip",
    }
    walked = [steps[min(first, stop) : max(first, stop) + 1] for stop in range(len(steps))]
    tips = [_path(points.transpose(0, 1) + tails[:, None]) for points in walked]
    return Trace(go.Scatter, style | faint, tips)


def _path(points: Tensor) -> dict[str, Any]:
    """Join the paths ``[paths, points, 2]`` into one line with a gap after each."""
    gap = torch.full_like(points[:, :1], torch.nan)
    x, y = torch.cat([points, gap], dim=1).flatten(0, 1).unbind(-1)
    return {"x": rounded(x), "y": rounded(y)}


def _dial_axes(
    panel: int, panels: int, tails: Tensor, radius: float, x_axis: str | dict[str, Any] | None
) -> dict[str, Any]:
    """Axes with equal units that hold every arrow at every stop."""
    across, down = panel_axes(panel, panels, square=True)
    low = (tails.amin(0) - 1.15 * radius).tolist()
    high = (tails.amax(0) + 1.15 * radius).tolist()
    quiet = {"showgrid": False, "showticklabels": False, "zeroline": True, "zerolinecolor": FAINT}
    label = {} if x_axis is None else {"showticklabels": True, "zeroline": False} | axis(x_axis)
    return {
        f"xaxis{panel + 1}": across | quiet | {"range": [low[0], high[0]]} | label,
        f"yaxis{panel + 1}": down | quiet | {"range": [low[1], high[1]]},
    }


def _circle(panel: int, centre: Sequence[float], radius: float) -> dict[str, Any]:
    """A faint circle in a panel, under its arrows."""
    x, y = centre
    return {
        "type": "circle",
        "layer": "below",
        "line": {"color": FAINT, "width": 1},
        "xref": f"x{panel + 1}",
        "yref": f"y{panel + 1}",
        "x0": x - radius,
        "x1": x + radius,
        "y0": y - radius,
        "y1": y + radius,
    }
