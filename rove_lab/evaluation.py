r"""How good a model is at what it has not seen."""

from __future__ import annotations

import torch
from torch import nn

from rove_lab.tasks import Task

__all__ = ["held_out_scores"]

_HELD_OUT = 2**32 - 1  # no training draws with this seed: `TrainConfig.seed` is below 2**30


@torch.no_grad()
def held_out_scores(model: nn.Module, task: Task, batch_size: int = 1024) -> dict[str, float]:
    """The task's scores on sequences that no training draws.

    Args:
        model: The trained model.
        task: The task.
        batch_size: Sequences to score.

    Returns:
        Name to score, the headline last.

    Example:
        >>> from rove_lab.messenger import MessengerConfig
        >>> from rove_lab.filters import Filter
        >>> held_out_scores(MessengerConfig(1, 1, 8, 1, 4).build(), Filter.edge())
        {'relative error': ...}
    """
    device = next(model.parameters()).device
    inputs, targets = next(iter(task.batches(batch_size, _HELD_OUT)))
    return task.scores(model(inputs.to(device)), targets.to(device))
