r"""When a curve of scores first reaches a level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rove_lab.arguments import check_number

__all__ = ["first_reached"]


def first_reached(
    steps: Tensor | Sequence[float], scores: Tensor | Sequence[Any], level: float
) -> Tensor:
    r"""The step at which each curve first comes up to a level, along the line between two reports.

    :math:`s_{i-1} + (s_i - s_{i-1})\,\frac{\ell - y_{i-1}}{y_i - y_{i-1}}` with i the first report
    of :math:`y_i \ge \ell`. A curve that is there at its first report has that report's step.

    Args:
        steps: Of the reports, ``[points]``, rising; seconds will do.
        scores: ``[..., points]``, more is better; of losses pass −losses and −level.
        level: What is to be reached, in the unit of the scores.

    Returns:
        ``[...]``, float64, in the unit of ``steps``; infinity where a curve never gets there.

    Raises:
        TypeError: If the level is not a number.
        ValueError: If the shapes do not fit, a score is not finite, or the steps do not rise.

    Example:
        >>> first_reached([20, 40, 60], [[0.1, 0.3, 0.7], [0.1, 0.2, 0.3]], level=0.5)
        tensor([50., inf], dtype=torch.float64)
    """
    check_number("level", level)
    at = torch.as_tensor(steps, dtype=torch.float64)
    curves = torch.as_tensor(scores, dtype=torch.float64)
    if at.dim() != 1 or len(at) == 0 or curves.shape[-1:] != at.shape:
        raise ValueError(
            f"expected steps [points] and scores [..., points], one point or more, got "
            f"{list(at.shape)} and {list(curves.shape)}: give one score a step."
        )
    if bool((at.diff() <= 0).any()):
        raise ValueError(f"expected steps that rise, got {at.tolist()}: sort them.")
    if not bool(curves.isfinite().all()):
        raise ValueError("expected finite scores, got some that are not: leave their reports out.")
    there = curves >= level
    after = there.long().argmax(-1, keepdim=True)
    before = (after - 1).clamp_min(0)
    low, high = curves.gather(-1, before), curves.gather(-1, after)
    share = torch.where(after > 0, (level - low) / (high - low), 1.0)
    reached = at[before] + share * (at[after] - at[before])
    return reached.where(there.any(-1, keepdim=True), torch.inf)[..., 0]
