r"""The book's figures: tensors in, one plotly figure out. Nothing is computed here.

Eight kinds, each still or moved by a :class:`Slider`: :func:`lines`, :func:`bars`,
:func:`heatmaps`, :func:`arrows` and :func:`scenes`; for several seeds :func:`bands`,
:func:`seed_bars` and :func:`pair_differences`. RoPE and RoVE keep
their colours from figure to figure, axes and colours stay where they are while a slider moves, and
each figure carries its description in words (``alt``) for those who cannot see it. The figures are
plain plotly, 5.24 or newer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from rove_lab.arrows import arrows
from rove_lab.panels import ROPE_COLOUR, ROVE_COLOUR, axis, panel_axes, square_row, styles, titles
from rove_lab.scenes import scenes
from rove_lab.seed_bars import seed_bars
from rove_lab.seed_figures import bands, pair_differences
from rove_lab.sliders import Slider, Trace, Values, compose, go, numbers, over_stops, rounded

__all__ = [
    "ROPE_COLOUR",
    "ROVE_COLOUR",
    "Slider",
    "arrows",
    "bands",
    "bars",
    "heatmaps",
    "lines",
    "pair_differences",
    "scenes",
    "seed_bars",
]

# Purple below zero, green above: neither is RoPE's colour nor RoVE's.
_SIGNED_SCALE = ("#6b2c86", "#a98bbd", "#f4f4f4", "#7fb98a", "#1b6b3a")


def lines(
    x: Values,
    curves: Mapping[str, Values],
    *,
    x_axis: str | dict[str, Any],
    y_axis: str | dict[str, Any],
    alt: str,
    slider: Slider | None = None,
    height: int = 380,
) -> go.Figure:
    """Draw curves over one axis.

    Args:
        x: Tensor of shape ``[points]``.
        curves: Name to values: ``[points]``, or ``[stops, points]`` for what the slider moves; NaN
            leaves a gap. A name with RoPE or RoVE in it takes that method's colour.
        x_axis: Title with its unit, or a plotly axis (``{"title": "position", "type": "log"}``).
        y_axis: Likewise.
        alt: What the figure shows, in words.
        slider: Moves the curves that have an axis of stops.
        height: Height of the plot in pixels.

    Returns:
        A plotly figure.

    Raises:
        TypeError: When values are not real numbers.
        ValueError: When a shape does not fit, a value is infinite, or ``alt`` is empty.

    Example:
        >>> lines([0, 1], {"RoPE": [1, 1]}, x_axis="δ", y_axis="cosine", alt="Flat.").data[0].name
        'RoPE'
    """
    across = numbers("x", x)
    if across.ndim != 1:
        raise ValueError(f"x: expected shape [points], got {list(across.shape)}; pass one axis")
    traces: list[Trace] = []
    seen = []
    for (name, values), (colour, dash) in zip(curves.items(), styles(curves), strict=True):
        steps = over_stops(name, values, [len(across)], "points", slider)
        style = {
            "name": name,
            "x": rounded(across, digits=7),
            "mode": "lines+markers" if len(across) <= 40 else "lines",
            # The first one broader: two curves that agree are both seen.
            "line": {"color": colour, "dash": dash, "width": 2.5 if traces else 4},
            "marker": {"size": 5, "color": colour},
        }
        traces.append(Trace(go.Scatter, style, [{"y": rounded(step)} for step in steps]))
        seen.append(steps)
    axes = {"xaxis": axis(x_axis, [across]), "yaxis": axis(y_axis, seen, still=bool(slider))}
    return compose(traces, slider, alt=alt, height=height, hovermode="x unified", **axes)


def bars(
    categories: Sequence[Any],
    groups: Mapping[str, Values],
    *,
    x_axis: str | dict[str, Any],
    y_axis: str | dict[str, Any],
    alt: str,
    slider: Slider | None = None,
    height: int = 380,
) -> go.Figure:
    """Draw bars, one colour a group: the share of each plane in each head, say.

    Args:
        categories: What each bar stands for, ``[bars]``.
        groups: Name to values: ``[bars]``, or ``[stops, bars]`` for what the slider moves.
        x_axis: Title, or a plotly axis as a dict.
        y_axis: Title with its unit, or a plotly axis as a dict.
        alt: What the figure shows, in words.
        slider: Moves the groups that have an axis of stops.
        height: Height of the plot in pixels.

    Returns:
        A plotly figure.

    Raises:
        TypeError: When values are not real numbers.
        ValueError: When a shape does not fit, a value is infinite, or ``alt`` is empty.

    Example:
        >>> bars(["m = 0"], {"head 0": [0.5]}, x_axis="plane", y_axis="share", alt="1.").data[0].y
        (0.5,)
    """
    traces, seen = [], [torch.zeros(1)]
    for (name, values), (colour, _) in zip(groups.items(), styles(groups), strict=True):
        steps = over_stops(name, values, [len(categories)], "bars", slider)
        style = {"name": name, "x": list(categories), "marker": {"color": colour}}
        traces.append(Trace(go.Bar, style, [{"y": rounded(step)} for step in steps]))
        seen.append(steps)
    axes = {"xaxis": axis(x_axis), "yaxis": axis(y_axis, seen, still=bool(slider))}
    return compose(traces, slider, alt=alt, height=height, bargap=0.25, **axes)


def heatmaps(
    panels: Mapping[str, Values],
    *,
    x_axis: str | dict[str, Any],
    y_axis: str | dict[str, Any],
    alt: str,
    slider: Slider | None = None,
    height: int = 380,
) -> go.Figure:
    """Draw matrices side by side, row 0 on top: purple is negative, green is positive.

    Args:
        panels: Title to matrix: ``[rows, columns]``, or ``[stops, rows, columns]`` for what the
            slider moves. One range of colours, symmetric about 0, holds for every panel and stop;
            where nothing is negative only its positive half is used.
        x_axis: The columns' title, or a plotly axis as a dict.
        y_axis: The rows' title, or a plotly axis as a dict.
        alt: What the figure shows, in words.
        slider: Moves the panels that have an axis of stops.
        height: Height of the plot in pixels.

    Returns:
        A plotly figure.

    Raises:
        TypeError: When values are not real numbers.
        ValueError: When a shape does not fit, a value is infinite, or ``alt`` is empty.

    Example:
        >>> figure = heatmaps({"A": torch.eye(2)}, x_axis="key", y_axis="query", alt="Identity.")
        >>> figure.layout.coloraxis.cmax
        1.0
    """
    traces, axes, seen, square = [], {}, [], True
    for panel, (title, values) in enumerate(panels.items()):
        steps = over_stops(title, values, [None, None], "rows, columns", slider)
        square = square and 0.5 <= steps.shape[1] / steps.shape[2] <= 2
        style = {
            "coloraxis": "coloraxis",
            "xaxis": f"x{panel + 1}",
            "yaxis": f"y{panel + 1}",
            "name": title,
            "hovertemplate": "row %{y}, column %{x}<br>%{z:.3g}",
        }
        traces.append(Trace(go.Heatmap, style, [{"z": rounded(step, digits=3)} for step in steps]))
        seen.append(steps.flatten())
    for panel in range(len(panels)):
        across, down = panel_axes(panel, len(panels), square)
        named = axis(y_axis) if panel == 0 else {}
        axes[f"xaxis{panel + 1}"] = across | axis(x_axis)
        axes[f"yaxis{panel + 1}"] = down | {"autorange": "reversed"} | named
    values = torch.cat(seen).nan_to_num() if seen else torch.zeros(1)
    limit = float(f"{values.abs().max().clamp_min(1e-12).item():.3g}")
    signed = bool((values < 0).any())
    colours = {
        "cmin": -limit if signed else 0.0,
        "cmax": limit,
        "colorscale": list(_SIGNED_SCALE if signed else _SIGNED_SCALE[2:]),
        "colorbar": {"thickness": 12, "outlinewidth": 0, "len": 1.0},
    }
    margin = {"l": 60, "r": 80, "t": 30, "b": 55}
    row = square_row(len(panels), height, margin) if square else {"margin": margin}
    return compose(
        traces,
        slider,
        alt=alt,
        height=height,
        coloraxis=colours,
        annotations=titles(panels),
        **row,
        **axes,
    )
