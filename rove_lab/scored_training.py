r"""A matched pair that is scored while it trains: not what it loses, but what it can do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import nn

from rove_lab.arguments import check_size
from rove_lab.arm import ModelConfig, Run
from rove_lab.progress import Step
from rove_lab.tasks import Task
from rove_lab.train_config import TrainConfig
from rove_lab.training import train_matched

__all__ = ["scored_steps", "train_scored"]


def scored_steps(every: int, last: int) -> list[int]:
    """The steps at which a training is scored: every so many, and the last.

    Args:
        every: Steps from one score to the next.
        last: Steps of the training.

    Returns:
        The steps, rising.

    Raises:
        TypeError: If a number is not an integer.
        ValueError: If it is not positive.

    Example:
        >>> scored_steps(100, 250)
        [100, 200, 250]
    """
    check_size("every", every)
    return [*range(every, check_size("last", last), every), last]


def train_scored(
    model_configs: Mapping[str, ModelConfig],
    train_config: TrainConfig,
    task: Task,
    score: Callable[[Any], dict[str, float]],
    steps: Collection[int],
    *,
    callback: Callable[[str, int, dict[str, float]], None] | None = None,
    progress: bool = False,
) -> tuple[dict[str, Run], dict[str, dict[str, dict[str, float]]]]:
    """Train models as :func:`rove_lab.training.train_matched` does, and score them at some steps.

    Scoring draws nothing from the stream of the batches, and its time is no arm's: the runs are
    those that would have been made without it.

    Args:
        model_configs: Name to config.
        train_config: How to train each of them.
        task: Draws the batches and measures the loss.
        score: From a model to its named scores, without gradients.
        steps: When to score: multiples of ``train_config.log_every``, or the last step.
        callback: Called with a model's name, the step and the scores, as they come.
        progress: Whether to print a line with losses and time left now and then.

    Returns:
        Name to run, and name to step to scores, the step as a word, as records have it.

    Raises:
        ValueError: If a step is none that is reported, or there is no step.
        KeyboardInterrupt: On Ctrl-C, once the step is done: half a curve answers nothing.

    Example:
        >>> from rove_lab.messenger import MessengerConfig
        >>> from rove_lab.filters import Filter
        >>> given = {"RoVE": MessengerConfig(1, 1, 8)}, TrainConfig(steps=10), Filter.edge()
        >>> train_scored(*given, lambda model: {"weights": len([*model.parameters()])}, [10])[1]
        {'RoVE': {'10': {'weights': ...}}}
    """
    every, last = train_config.log_every, train_config.steps
    if not steps:
        raise ValueError("expected one step or more to score at, got none: train_matched trains.")
    if odd := [s for s in steps if not 0 < s <= last or (s % every and s != last)]:
        raise ValueError(
            f"expected steps to score at among the reports, every {every} up to {last}, got {odd}: "
            "change them, or log_every."
        )
    arms = {name: _Watched(config) for name, config in model_configs.items()}
    found: dict[str, dict[str, dict[str, float]]] = {name: {} for name in arms}

    def at_report(report: Step) -> None:
        if report.step in steps:
            model = arms[report.name].model
            was_training = model.training
            try:
                with torch.no_grad():
                    scores = score(model.eval())
            finally:
                model.train(was_training)
            found[report.name][str(report.step)] = scores
            if callback is not None:
                callback(report.name, report.step, scores)

    runs = train_matched(arms, train_config, task, callback=at_report, progress=progress)
    if any(run.interrupted for run in runs.values()):
        raise KeyboardInterrupt
    return runs, found


class _Watched:
    """A config that keeps the model it builds in reach."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config

    def build(self) -> nn.Module:
        self.model = self.config.build()
        return self.model
