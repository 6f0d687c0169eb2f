r"""Several seeds in each of a few cases: bars of means, every seed a point on its bar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rove_lab.panels import axis, styles, translucent
from rove_lab.seed_figures import SPREAD, seed_points
from rove_lab.sliders import Slider, Trace, Values, compose, go, over_stops, rounded

__all__ = ["seed_bars"]

_GREY = "rgba(128, 128, 128, 0.9)"  # on a light page and on a dark one
_GAP = 0.25  # between two cases


def seed_bars(
    categories: Sequence[Any],
    groups: Mapping[str, Values],
    *,
    x_axis: str | dict[str, Any],
    y_axis: str | dict[str, Any],
    alt: str,
    slider: Slider | None = None,
    height: int = 380,
) -> go.Figure:
    """Draw the means over seeds as bars, a line from the least to the most, each seed a point.

    :meth:`rove_lab.records.Record.curves` gives the values as they are taken here.

    Args:
        categories: What each bar stands for, ``[bars]``.
        groups: Name to values: ``[seeds, bars]``, or ``[stops, seeds, bars]`` for what the slider
            moves. NaN in a seed leaves its bar out. A name with RoPE or RoVE in it takes that
            method's colour.
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
        >>> seeds = {"RoVE": [[1.0, 0.5], [0.5, 0.5]]}
        >>> seed_bars(["1 head", "2"], seeds, x_axis="model", y_axis="share", alt="1.").data[0].y
        (0.75, 0.5)
    """
    under: list[Trace] = []
    points: list[Trace] = []
    seen = [torch.zeros(1)]
    for (name, values), (colour, _) in zip(groups.items(), styles(groups), strict=True):
        steps = over_stops(name, values, [None, len(categories)], "seeds, bars", slider)
        # One group of offsets for a bar and its points: they stand on it.
        group = {"name": name, "legendgroup": name, "offsetgroup": name, "alignmentgroup": "bars"}
        light = {"color": translucent(colour, 0.45), "line": {"color": colour, "width": 1}}
        bar = group | {
            "x": list(categories),
            "marker": light,
            "hovertemplate": SPREAD,
        }
        under.append(Trace(go.Bar, bar, [_bar(step) for step in steps]))
        points.append(seed_points(list(categories), steps, {"color": colour}, group))
        seen.append(steps.flatten())
    axes = {"xaxis": axis(x_axis), "yaxis": axis(y_axis, seen, still=bool(slider))}
    apart: dict[str, Any] = {"bargap": _GAP, "scattermode": "group", "scattergap": _GAP}
    return compose(under + points, slider, alt=alt, height=height, **apart, **axes)


def _bar(seeds: Tensor) -> dict[str, Any]:
    """The means of ``[seeds, bars]``, and how far the least and the most lie from them."""
    mean, least, most = seeds.mean(0), seeds.amin(0), seeds.amax(0)
    return {
        "y": rounded(mean),
        "customdata": rounded(torch.stack([least, most], -1)),
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": rounded(most - mean),
            "arrayminus": rounded(mean - least),
            "color": _GREY,
            "thickness": 1.5,
            "width": 4,
        },
    }
