r"""What figures share: colours that stand for methods, axes, and panels side by side."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

import torch
from torch import Tensor

__all__ = ["ROPE_COLOUR", "ROVE_COLOUR"]  # the other names serve the modules that draw

# Blue and vermilion are told apart by every common kind of colour vision; each colour here stands
# at 3.6 : 1 or more against the book's light page and its dark one.
ROPE_COLOUR = "#1f7fc1"
ROVE_COLOUR = "#d4611a"
_OTHER_COLOURS = ("#12936b", "#a8579f", "#8c6d1f", "#7a7a85", "#7b61c4", "#b8508c")
_DASHES = ("solid", "dash", "dot", "dashdot")
FAINT = "rgba(128, 128, 128, 0.5)"  # for what only guides the eye, on a light page or a dark one
_GAP = 0.08  # between panels, as a share of the width
_LEAST_WIDTH = 400  # in pixels; a slider under the plot needs room


def styles(names: Iterable[str]) -> list[tuple[str, str]]:
    """A colour and a dash for each name: the method's colour where it names one."""
    others, uses = count(), Counter[str]()
    chosen = []
    for name in names:
        if "RoVE" in name:
            colour = ROVE_COLOUR
        elif "RoPE" in name:
            colour = ROPE_COLOUR
        else:
            colour = _OTHER_COLOURS[next(others) % len(_OTHER_COLOURS)]
        chosen.append((colour, _DASHES[uses[colour] % len(_DASHES)]))
        uses[colour] += 1
    return chosen


def translucent(colour: str, opacity: float) -> str:
    """``#rrggbb`` as a colour that a light page and a dark one both show through."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {opacity:g})"


def axis(
    axis: str | dict[str, Any], seen: Sequence[Tensor] = (), *, still: bool = False
) -> dict[str, Any]:
    """A plotly axis for all that will be ``seen`` on it; a ``still`` one stays over the stops."""
    axis = {"title": {"text": axis}} if isinstance(axis, str) else dict(axis)
    logarithmic = axis.get("type") == "log"
    values = torch.cat([step.flatten() for step in seen]) if seen else torch.zeros(0)
    values = values[~values.isnan()]
    if logarithmic:
        values = values[values > 0].log10()
    low, high = (values.min().item(), values.max().item()) if len(values) else (0.0, 0.0)
    if logarithmic:
        # 1, 2 and 5 of each decade while there are few; then powers of ten, ten labels at most. Of
        # less than a decade that would leave one label or none: plotly's own steps are even there.
        if not 0 < high - low < 0.8:
            axis.setdefault("dtick", "D2" if high - low <= 2 else math.ceil((high - low) / 10))
        axis.setdefault("exponentformat", "power")
    if still and len(values) and "range" not in axis:
        room = 0.05 * (high - low or 1.0)
        axis["range"] = [low - room, high + room]
    return axis


def panel_axes(panel: int, panels: int, square: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The x and y axes of one panel of a row; ``square`` keeps the two units equal."""
    width = (1 - _GAP * (panels - 1)) / panels
    left = panel * (width + _GAP)
    across = {"domain": [left, left + width], "anchor": f"y{panel + 1}", "constrain": "domain"}
    down: dict[str, Any] = {"anchor": f"x{panel + 1}", "constrain": "domain", "zeroline": False}
    if square:
        down |= {"scaleanchor": f"x{panel + 1}"}
    return across, down


def square_row(panels: int, height: int, margin: dict[str, int]) -> dict[str, Any]:
    """The layout of a row of square panels: as wide as they need and no wider."""
    side = height - margin["t"] - margin["b"]
    width = margin["l"] + margin["r"] + side * panels / (1 - _GAP * (panels - 1))
    return {"margin": margin, "width": round(max(width, _LEAST_WIDTH))}


def titles(panels: Iterable[str]) -> list[dict[str, Any]]:
    """Each panel's title, above it."""
    titles = list(panels)
    width = (1 - _GAP * (len(titles) - 1)) / len(titles) if titles else 1.0
    return [
        {
            "text": title,
            "x": panel * (width + _GAP) + width / 2,
            "y": 1,
            "xref": "paper",
            "yref": "paper",
            "xanchor": "center",
            "yanchor": "bottom",
            "showarrow": False,
        }
        for panel, title in enumerate(titles)
    ]
