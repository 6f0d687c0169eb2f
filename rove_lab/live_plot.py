r"""A plot of the loss that grows while a model trains."""

from __future__ import annotations

import io
import logging
import math
import time
from collections.abc import Mapping
from typing import Any

from rove_lab.notebook import where
from rove_lab.panels import styles

# A first import of matplotlib lists the fonts and says so; in the book any warning is an error.
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)

try:
    from IPython.display import Image, display
    from matplotlib.figure import Figure
except ImportError as error:
    raise ImportError(
        'a live plot needs matplotlib and IPython: pip install "rove-lab[figures]"'
    ) from error

__all__ = ["LivePlot"]

_GREY = "#7a7a7a"  # reads on a light page and on a dark one
_SHARE_OF_TIME = 0.1  # that drawing may take


class LivePlot:
    """Draws reported losses while they come in; pass it to ``train`` as its callback.

    One picture is updated in place. Drawing takes a tenth of the time at most, and nothing is drawn
    in plain Python, where there is nobody to see it. The finished picture stays in the notebook.

    Args:
        y_axis: Title of the vertical axis, with its unit.
        alt: What the picture shows, in words.
        levels: Name to height of horizontal lines to compare with.
        log: Whether the vertical axis is logarithmic.

    Raises:
        ValueError: If ``alt`` is empty.

    Example:
        >>> plot = LivePlot("loss (nats)", alt="The loss falls.", levels={"guessing": 2.77})
        >>> plot.add("RoVE", 10, 0.5)
        >>> plot.curves
        {'RoVE': ([10], [0.5])}
    """

    def __init__(
        self, y_axis: str, *, alt: str, levels: Mapping[str, float] | None = None, log: bool = False
    ) -> None:
        if not alt.strip():
            raise ValueError("expected alt, what the plot shows in words, got an empty text.")
        self.y_axis, self.alt, self.levels, self.log = y_axis, alt, dict(levels or {}), log
        self.curves: dict[str, tuple[list[int], list[float]]] = {}
        self._handle: Any = None
        self._title = ""
        self._drawn_at, self._drawing_took = -math.inf, 0.0

    def __call__(self, step: Any) -> None:
        """Take a report of ``rove_lab.training`` in: its name, step, loss and time left."""
        self.add(step.name, step.step, step.loss)
        finished = step.step == step.steps
        ending = "done" if finished else f"{step.seconds_left:.0f} s left"
        speed = f"{step.tokens_per_s:,.0f} tokens/s"
        self._title = f"step {step.step} of {step.steps}, {speed}, {ending}"
        place = where()
        pause = self._drawing_took / _SHARE_OF_TIME
        due = place != "book" and time.perf_counter() - self._drawn_at > pause
        if place != "python" and (due or finished):
            self.show()

    def add(self, name: str, step: int, loss: float) -> None:
        """Add a point to a curve, without drawing it."""
        steps, losses = self.curves.setdefault(name, ([], []))
        steps.append(step)
        losses.append(loss)

    def show(self) -> None:
        """Draw what came in so far, in place of what was drawn before."""
        started = time.perf_counter()
        image = Image(data=self.png(), format="png", retina=True, alt=self.alt)
        if self._handle is None:
            self._handle = display(image, display_id=True)
        else:
            self._handle.update(image)
        self._drawn_at = time.perf_counter()
        self._drawing_took = self._drawn_at - started

    def png(self) -> bytes:
        """The picture, transparent, of a size that can be read on a phone: 896 by 512 pixels."""
        figure = Figure(figsize=(5.6, 3.2), dpi=160, layout="constrained")
        axes = figure.subplots()
        for (name, (steps, losses)), (colour, dash) in zip(
            self.curves.items(), styles(self.curves), strict=True
        ):
            style = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}[dash]
            axes.plot(steps, losses, style, color=colour, linewidth=2, label=name)
        for name, height in self.levels.items():
            axes.axhline(height, color=_GREY, linewidth=1, linestyle=":", label=name)
        axes.set(xlabel="step", ylabel=self.y_axis, yscale="log" if self.log else "linear")
        if not self.log:
            axes.set_ylim(bottom=0)
        axes.set_title(self._title, color=_GREY, fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(_GREY)
        axes.tick_params(colors=_GREY)
        axes.xaxis.label.set_color(_GREY)
        axes.yaxis.label.set_color(_GREY)
        if self.curves or self.levels:
            axes.legend(frameon=False, labelcolor=_GREY)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", transparent=True)
        return buffer.getvalue()
