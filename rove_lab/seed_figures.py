r"""What several seeds say together: a mean with its spread, and differences of matched pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rove_lab.panels import axis, styles, translucent
from rove_lab.sliders import Slider, Trace, Values, compose, go, numbers, over_stops, rounded

__all__ = ["bands", "pair_differences"]

# What hovers over a mean: it, the least and the most seed.
SPREAD = "%{y:.4g} [%{customdata[0]:.4g}, %{customdata[1]:.4g}]"
_FEW_POINTS = 40  # up to so many, each seed is a point of its own
_SYMBOLS = {"solid": "circle", "dash": "circle-open", "dot": "diamond", "dashdot": "diamond-open"}
_ZERO_LINE = "rgba(128, 128, 128, 0.9)"
_PAIRS_COLOUR = "#12936b"  # neither method's
_ROW, _AROUND = 46, 110  # pixels: of a row, and above and below all rows


def bands(
    x: Values,
    curves: Mapping[str, Values],
    *,
    x_axis: str | dict[str, Any],
    y_axis: str | dict[str, Any],
    alt: str,
    slider: Slider | None = None,
    height: int = 380,
) -> go.Figure:
    """Draw the mean over seeds as a line, in a band from the least to the most of them.

    Learning curves, loss by position and loss by length are all drawn so, on the axes they need.
    Where there are few points each seed is a point too.

    Args:
        x: Tensor of shape ``[points]``.
        curves: Name to values: ``[seeds, points]``, or ``[stops, seeds, points]`` for what the
            slider moves; ``[points]`` is one seed. NaN in a seed leaves a gap in all that is drawn
            of them together. A name with RoPE or RoVE in it takes that method's colour.
        x_axis: Title with its unit, or a plotly axis (``{"title": "length", "type": "log"}``).
        y_axis: Likewise; a logarithmic one leaves a gap where a band reaches 0.
        alt: What the figure shows, in words.
        slider: Moves the curves that have an axis of stops.
        height: Height of the plot in pixels.

    Returns:
        A plotly figure.

    Raises:
        TypeError: When values are not real numbers.
        ValueError: When a shape does not fit, a value is infinite, or ``alt`` is empty.

    Example:
        >>> losses, words = {"RoVE": [[3.0, 2.0], [5.0, 4.0]]}, {"x_axis": "step", "y_axis": "nats"}
        >>> [trace.y for trace in bands([0, 1], losses, alt="It falls.", **words).data[-1:]]
        [(4.0, 3.0)]
    """
    across = numbers("x", x)
    if across.ndim != 1:
        raise ValueError(f"x: expected shape [points], got {list(across.shape)}; pass one axis")
    vertical = y_axis if isinstance(y_axis, dict) else {}
    under: list[Trace] = []
    points: list[Trace] = []
    means: list[Trace] = []
    seen = []
    for (name, values), (colour, dash) in zip(curves.items(), styles(curves), strict=True):
        given = numbers(name, values)
        seeds = given[None] if given.ndim == 1 else given
        steps = over_stops(name, seeds, [None, len(across)], "seeds, points", slider)
        group = {"name": name, "legendgroup": name}
        if steps.shape[1] > 1:
            under.append(_band(across, steps, colour, vertical.get("type") == "log", group))
            if len(across) <= _FEW_POINTS:
                marker = {"color": colour, "opacity": 0.7, "symbol": _SYMBOLS[dash]}
                points.append(seed_points(rounded(across, digits=7), steps, marker, group))
        means.append(_mean(across, steps, colour, dash, group, first=not means))
        seen.append(steps.flatten())
    axes = {"xaxis": axis(x_axis, [across]), "yaxis": axis(y_axis, seen, still=bool(slider))}
    traces = under + points + means
    return compose(traces, slider, alt=alt, height=height, hovermode="x unified", **axes)


def pair_differences(
    differences: Mapping[str, Values],
    *,
    x_axis: str | dict[str, Any],
    alt: str,
    slider: Slider | None = None,
    height: int | None = None,
) -> go.Figure:
    """Draw what one method has more than the other, pair by pair: a row a measure, a point a seed.

    Matched pairs share their first weights and their data, so that a difference says more than two
    spreads do. A tick is the mean of a row, the line through all rows is 0: no difference.

    Args:
        differences: Measure to differences ``[seeds]``, such as RoVE − RoPE, or ``[stops, seeds]``
            for what the slider moves; NaN leaves a pair out. All are in the unit of ``x_axis``.
        x_axis: Title with its unit and which way it counts (``"RoVE − RoPE (nats per byte)"``), or
            a plotly axis.
        alt: What the figure shows, in words.
        slider: Moves the rows that have an axis of stops.
        height: Height of the plot in pixels; None is as much as the rows need.

    Returns:
        A plotly figure.

    Raises:
        TypeError: When values are not real numbers.
        ValueError: When a shape does not fit, a value is infinite, or ``alt`` is empty.

    Example:
        >>> pairs = {"1 ×": [-0.04, -0.02], "16 ×": [-0.5, 0.1]}
        >>> pair_differences(pairs, x_axis="RoVE − RoPE (nats)", alt="Below 0.").data[1].x
        (-0.03,)
    """
    traces, seen = [], [torch.zeros(1)]
    for row, (measure, values) in enumerate(differences.items()):
        steps = over_stops(measure, values, [None], "seeds", slider)
        pairs = {
            "name": "a seed",
            "legendgroup": "pairs",
            "showlegend": row == 0,
            "y": [measure] * steps.shape[1],
            "mode": "markers",
            "marker": {"size": 9, "color": _PAIRS_COLOUR, "opacity": 0.65},
            "text": [f"seed {pair}" for pair in range(steps.shape[1])],
            "hovertemplate": "%{y}, %{text}: %{x:.4g}<extra></extra>",
        }
        mean = {
            "name": "mean",
            "legendgroup": "means",
            "showlegend": row == 0,
            "y": [measure],
            "mode": "markers",
            "marker": {
                "symbol": "line-ns",
                "size": 24,
                "color": _PAIRS_COLOUR,
                "line": {"width": 3, "color": _PAIRS_COLOUR},
            },
            "hovertemplate": "%{y}, mean: %{x:.4g}<extra></extra>",
        }
        middle = steps.nanmean(1, keepdim=True)
        traces.append(Trace(go.Scatter, pairs, [{"x": rounded(step)} for step in steps]))
        traces.append(Trace(go.Scatter, mean, [{"x": rounded(step)} for step in middle]))
        seen.append(steps.flatten())
    zero = {"zeroline": True, "zerolinecolor": _ZERO_LINE, "zerolinewidth": 2}
    rows = {"type": "category", "categoryorder": "array", "categoryarray": list(differences)[::-1]}
    return compose(
        traces,
        slider,
        alt=alt,
        height=_AROUND + _ROW * len(differences) if height is None else height,
        xaxis={"rangemode": "tozero"} | zero | axis(x_axis, seen, still=bool(slider)),
        yaxis=rows | {"automargin": True, "range": [-0.6, len(differences) - 0.4]},
    )


def _mean(
    across: Tensor, steps: Tensor, colour: str, dash: str, group: dict[str, Any], *, first: bool
) -> Trace:
    """The line of the means; its hover says the spread."""
    style = group | {
        "x": rounded(across, digits=7),
        "mode": "lines",
        # The first one broader: two curves that agree are both seen.
        "line": {"color": colour, "dash": dash, "width": 4 if first else 2.5},
    }
    middle = steps.mean(1)
    if steps.shape[1] == 1:
        return Trace(go.Scatter, style, [{"y": rounded(step)} for step in middle])
    style["hovertemplate"] = SPREAD
    spread = torch.stack([steps.amin(1), steps.amax(1)], -1)  # [stops, points, 2]
    data = [
        {"y": rounded(step), "customdata": rounded(ends)}
        for step, ends in zip(middle, spread, strict=True)
    ]
    return Trace(go.Scatter, style, data)


def seed_points(
    x: list[Any], steps: Tensor, marker: dict[str, Any], group: dict[str, Any]
) -> Trace:
    """Every seed of ``[stops, seeds, points]`` at every point of x."""
    style = group | {
        "x": x * steps.shape[1],
        "mode": "markers",
        "marker": {"size": 6, **marker},
        "showlegend": False,
        "hoverinfo": "skip",
    }
    return Trace(go.Scatter, style, [{"y": rounded(step.flatten())} for step in steps])


def _band(
    across: Tensor, steps: Tensor, colour: str, logarithmic: bool, group: dict[str, Any]
) -> Trace:
    """The area between the least and the most seed."""
    style = group | {
        "mode": "lines",
        "line": {"color": translucent(colour, 0.45), "width": 1},
        "fill": "toself",
        "fillcolor": translucent(colour, 0.22),
        "showlegend": False,
        "hoverinfo": "skip",
    }
    outlines = [_outline(across, step.amin(0), step.amax(0), logarithmic) for step in steps]
    return Trace(go.Scatter, style, outlines)


def _outline(across: Tensor, low: Tensor, high: Tensor, logarithmic: bool) -> dict[str, Any]:
    """Around each stretch without a gap: along the top, and back along the bottom."""
    there = low.isfinite() & high.isfinite()
    if logarithmic:
        there &= low > 0
    x: list[Any] = []
    y: list[Any] = []
    stretch: list[int] = []
    for point in range(len(across) + 1):
        if point < len(across) and there[point]:
            stretch.append(point)
        elif stretch:
            back = stretch[::-1]
            x += [*rounded(across[stretch], 7), *rounded(across[back], 7), None]
            y += [*rounded(high[stretch]), *rounded(low[back]), None]
            stretch = []
    return {"x": x, "y": y}
