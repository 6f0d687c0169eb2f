r"""Figures that move: a slider, its stops, and the frames a plotly figure plays without a kernel.

A trace is drawn from what never changes (its style) and what each stop shows (its data). A trace
with one stop's data stays still; the others get one plotly frame a stop. A page of the book plays
the frames; in Jupyter and Colab the kernel shows the same stops (:mod:`rove_lab.live_figure`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rove_lab.live_figure import LiveFigure, go

# What a reader uses; the other names serve the modules that draw. `go` is plotly, if it is there.
__all__ = ["Slider", "go"]

Values = Tensor | Sequence[Any]
_SLIDER_ROOM = 90  # pixels under the plot


@dataclass(frozen=True)
class Slider:
    """A slider under a figure: what it sets, its stops, and the stop shown first.

    Args:
        name: What it sets, with its unit: ``"offset δ (tokens)"``.
        stops: Its values in order, numbers or words.
        start: The stop shown first; None takes the first one.

    Raises:
        ValueError: When there are fewer than two stops, when two read alike, or when ``start`` is
            none of them.

    Example:
        >>> Slider("offset δ (tokens)", [-2, -1, 0], start=0).labels
        ('−2', '−1', '0')
    """

    name: str
    stops: Tensor | Sequence[float | str]
    start: float | str | None = None
    labels: tuple[str, ...] = field(init=False, repr=False)
    first: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        stops = self.stops.tolist() if isinstance(self.stops, Tensor) else list(self.stops)
        labels = tuple(
            stop if isinstance(stop, str) else f"{float(stop):g}".replace("-", "−")
            for stop in stops
        )
        if len(labels) < 2 or len(set(labels)) != len(labels):
            raise ValueError(
                f"a slider needs two stops or more that read differently, got {labels}; "
                "leave the slider out, or pass words that tell the stops apart"
            )
        if self.start is not None and self.start not in stops:
            raise ValueError(f"start={self.start!r} is none of the stops {stops}; pass one of them")
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "first", 0 if self.start is None else stops.index(self.start))


@dataclass
class Trace:
    """One plotly trace: ``style`` for good, ``data`` for each stop, or one entry if it is still."""

    kind: type
    style: dict[str, Any]
    data: list[dict[str, Any]]


def numbers(name: str, values: Values) -> Tensor:
    """``values`` as a float64 tensor on the CPU; NaN is allowed and leaves a gap.

    Raises:
        TypeError: When they are not real numbers.
        ValueError: When one is infinite.
    """
    try:
        given = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"{name}: expected a tensor or a nested list of numbers, got {type(values).__name__} "
            f"({error}); put tensors together with torch.stack first"
        ) from error
    if given.is_complex():
        raise TypeError(
            f"{name}: expected real numbers, got {given.dtype}; pass .real, .imag or .abs()"
        )
    array = given.detach().to("cpu", torch.float64)
    if torch.isinf(array).any():
        raise ValueError(
            f"{name}: an infinite value cannot be drawn; replace it by nan to leave a gap"
        )
    return array


def rounded(array: Tensor, digits: int = 4) -> Any:
    """Nested lists with ``digits`` significant digits, None for NaN: what is looked at, no more."""

    def cut(values: Any) -> Any:
        if isinstance(values, list):
            return [cut(value) for value in values]
        return None if math.isnan(values) else float(f"{values:.{digits}g}")

    return cut(array.tolist())


def over_stops(
    name: str, values: Values, shape: Sequence[int | None], axes: str, slider: Slider | None
) -> Tensor:
    """``values`` with a leading axis of stops, of length 1 for what stays still.

    Args:
        name: What the values are called, for errors.
        values: Of ``shape``, or with one more axis in front for what the slider moves.
        shape: The sizes of one stop; None fits any size.
        axes: The axes' names for errors: ``"points"``, ``"rows, columns"``.
        slider: The figure's slider, or None.

    Raises:
        ValueError: When the shape fits neither.
    """
    array = numbers(name, values)
    moves = array.ndim == len(shape) + 1
    sizes = array.shape[1:] if moves else array.shape
    fits = len(sizes) == len(shape) and all(
        want in (None, size) for want, size in zip(shape, sizes, strict=True)
    )
    stops = 0 if slider is None else len(slider.labels)
    if not fits or 0 in sizes or (moves and len(array) != stops):
        sized = ", ".join(
            str(size or word) for size, word in zip(shape, axes.split(", "), strict=True)
        )
        moving = f" or [{stops} stops, {sized}]" if stops else ""
        hint = (
            "" if stops or not moves else "; pass slider=Slider(...) to move along the first axis"
        )
        raise ValueError(f"{name}: expected shape [{sized}]{moving}, got {list(array.shape)}{hint}")
    return array if moves else array[None]


def compose(
    traces: Sequence[Trace], slider: Slider | None, *, alt: str, height: int, **layout: Any
) -> go.Figure:
    """Make the figure: the traces at the slider's first stop, its frames, the slider, the alt text.

    Raises:
        ValueError: When nothing is drawn, ``alt`` is empty, or a slider moves nothing.
    """
    alt = " ".join(alt.split())
    if not alt:
        raise ValueError("alt is empty; say in a sentence or two what the figure shows")
    if not traces:
        raise ValueError("there is nothing to draw; pass at least one named series")
    moving = [index for index, trace in enumerate(traces) if len(trace.data) > 1]
    if slider is not None and not moving:
        raise ValueError(
            f"the slider {slider.name!r} moves nothing; give one series a leading axis of "
            f"{len(slider.labels)} stops, or leave the slider out"
        )
    first = 0 if slider is None else slider.first
    drawn = [t.kind(**t.style, **t.data[first if len(t.data) > 1 else 0]) for t in traces]
    figure = go.Figure(drawn) if slider is None else LiveFigure(drawn)
    figure.update_layout(
        template="plotly_white",
        height=height,
        margin={"l": 60, "r": 20, "t": 45, "b": 55},
        legend={"orientation": "h", "x": 0, "y": 1, "yref": "container", "yanchor": "top"},
        meta={"alt": alt},
    )
    figure.update_layout(**layout)
    if slider is not None:
        figure.frames = [
            go.Frame(
                name=label,
                data=[traces[index].kind(**traces[index].data[stop]) for index in moving],
                traces=moving,
            )
            for stop, label in enumerate(slider.labels)
        ]
        figure.update_layout(
            height=height + _SLIDER_ROOM,
            margin_b=figure.layout.margin.b + _SLIDER_ROOM,
            # The book puts a slider of its own below the plot and takes this room away again.
            meta={"alt": alt, "slider_room": _SLIDER_ROOM},
            sliders=[_slider(slider)],
            updatemenus=[_play_button()],
        )
    return figure


def _motion(milliseconds: int) -> dict[str, Any]:
    return {
        "mode": "immediate",
        "fromcurrent": True,
        "frame": {"duration": milliseconds, "redraw": True},
        "transition": {"duration": 0},
    }


def _slider(slider: Slider) -> dict[str, Any]:
    return {
        "active": slider.first,
        "currentvalue": {"prefix": f"{slider.name}: "},
        "x": 0.12,
        "len": 0.88,
        "pad": {"t": 55},
        "steps": [
            {"method": "animate", "label": label, "args": [[label], _motion(0)]}
            for label in slider.labels
        ],
    }


def _play_button() -> dict[str, Any]:
    return {
        "type": "buttons",
        "showactive": False,
        "x": 0,
        "xanchor": "left",
        "y": 0,
        "yanchor": "top",
        "pad": {"t": 75},
        "buttons": [{"label": "▶", "method": "animate", "args": [None, _motion(150)]}],
    }
