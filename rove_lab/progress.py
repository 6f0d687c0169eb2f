r"""How far a training is: one report, and a line that shows it."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["ProgressLine", "Step"]

_SECONDS_BETWEEN_LINES = 10.0


@dataclass(frozen=True)
class Step:
    """One report of a running training.

    Args:
        name: Whose it is.
        step: Steps taken.
        steps: Steps to take.
        loss: Mean over the steps since the last report, in the task's unit.
        steps_per_s: Since the start, all models together.
        seconds_left: At that speed.
        tokens_per_s: Since the start, read by all models together.

    Example:
        >>> Step("RoVE", 50, 200, 0.25, 30.0, 5.0, 15_360.0).loss
        0.25
    """

    name: str
    step: int
    steps: int
    loss: float
    steps_per_s: float
    seconds_left: float
    tokens_per_s: float


class ProgressLine:
    """One line about the progress: rewritten on a terminal, now and then a new one elsewhere.

    Args:
        shown: Whether to print at all.

    Example:
        >>> ProgressLine().show([Step("RoVE", 200, 200, 0.25, 30.0, 0.0, 15_360.0)])
        step 200 of 200: loss RoVE 0.250; 15,360 tokens/s, done
    """

    def __init__(self, shown: bool = True) -> None:
        self.shown, self.terminal = shown, sys.stdout.isatty()
        self.last = time.perf_counter()

    def show(self, reports: Sequence[Step]) -> None:
        """Print reports of one step, one for each model, if a line is due."""
        at = reports[0]
        finished = at.step == at.steps
        losses = ", ".join(f"{report.name} {report.loss:.3f}" for report in reports)
        ending = "done" if finished else f"{at.seconds_left:.0f} s left"
        words = (
            f"step {at.step} of {at.steps}: loss {losses}; "
            f"{at.tokens_per_s:,.0f} tokens/s, {ending}"
        )
        if self.terminal:
            words = f"{_bar(at.step / at.steps)} {words}"
        self.write(words, finished)

    def write(self, words: str, finished: bool = False) -> None:
        """Print any words if a line is due; it always is for the last ones."""
        now = time.perf_counter()
        due = finished or self.terminal or now - self.last >= _SECONDS_BETWEEN_LINES
        if not (self.shown and due):
            return
        self.last = now
        end = "" if self.terminal and not finished else "\n"
        print(f"\r{words}" if self.terminal else words, end=end, flush=True)

    def end(self, words: str) -> None:
        """Close the line with other words."""
        if self.shown:
            print(f"\n{words}" if self.terminal else words, flush=True)


def _bar(share: float, width: int = 20) -> str:
    full = int(share * width)
    return f"[{'=' * full}{' ' * (width - full)}]"
