r"""What a training takes by the clock, so that two can be compared at equal time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rove_lab.arm import ModelConfig, Run
from rove_lab.tasks import Task
from rove_lab.train_config import TrainConfig
from rove_lab.training import train_matched

__all__ = ["given_the_time_of", "milliseconds_a_step", "one_step_first", "seconds_a_step"]


def one_step_first(
    model_configs: Mapping[str, ModelConfig], train_config: TrainConfig, task: Task
) -> None:
    """Take one step of each model and forget it, before a training whose clock is read.

    The first step that a process takes costs more than any other. Without this it would count as
    the first model's, which of a matched pair is RoPE's. What is trained afterwards is the same.

    Args:
        model_configs: As for :func:`rove_lab.training.train_matched`.
        train_config: Likewise.
        task: Likewise.

    Raises:
        ValueError: If the models do not start alike, or the batch cannot be divided.

    Example:
        >>> from rove_lab.filters import Filter
        >>> from rove_lab.messenger import MessengerConfig
        >>> one_step_first({"RoVE": MessengerConfig(1, 1, 8)}, TrainConfig(), Filter.edge())
    """
    train_matched(model_configs, replace(train_config, steps=1), task, progress=False)


def seconds_a_step(run: Run) -> dict[str, float]:
    """What a step took in the mean.

    Args:
        run: The training.

    Returns:
        ``"wall"`` and ``"processor"`` to seconds.

    Raises:
        ValueError: If it took no step to its report.

    Example:
        >>> from torch import nn
        >>> seconds_a_step(Run(nn.Identity(), [10, 20], [0.5, 0.4], wall_s=3.0, cpu_s=5.0))
        {'wall': 0.15, 'processor': 0.25}
    """
    return _a_step(run, 1.0)


def milliseconds_a_step(run: Run) -> dict[str, float]:
    """The same as :func:`seconds_a_step`, in milliseconds.

    Args:
        run: The training.

    Returns:
        ``"wall"`` and ``"processor"`` to milliseconds.

    Raises:
        ValueError: If it took no step to its report.

    Example:
        >>> from torch import nn
        >>> milliseconds_a_step(Run(nn.Identity(), [10, 20], [0.5, 0.4], wall_s=3.0, cpu_s=5.0))
        {'wall': 150.0, 'processor': 250.0}
    """
    return _a_step(run, 1e3)


def given_the_time_of(train_config: TrainConfig, own: Run, other: Run) -> TrainConfig:
    r"""The same training, as long as another took: steps and warm-up times :math:`t'/t`.

    To train on would not do: where the learning rate falls it falls over all steps, so that the
    longer training is another from its beginning.

    Args:
        train_config: How ``own`` was trained.
        own: The run that is to have more time, or less, for its :math:`t` processor seconds.
        other: The run whose :math:`t'` it is given.

    Returns:
        The config to train anew with.

    Raises:
        ValueError: If a run took no time, or the time does not do for a step.

    Example:
        >>> from torch import nn
        >>> rope, rove = (Run(nn.Identity(), cpu_s=seconds) for seconds in (2.0, 3.0))
        >>> given_the_time_of(TrainConfig(steps=100), rope, rove).steps
        150
    """
    if not (own.cpu_s > 0 and other.cpu_s > 0):
        raise ValueError(
            f"expected two runs that took time, got {own.cpu_s:g} and {other.cpu_s:g} processor "
            "seconds: train both first."
        )
    ratio = other.cpu_s / own.cpu_s
    return replace(
        train_config,
        steps=round(train_config.steps * ratio),
        warmup_steps=round(train_config.warmup_steps * ratio),
    )


def _a_step(run: Run, units_a_second: float) -> dict[str, float]:
    if not run.steps:
        raise ValueError("expected a run that came to a report, got one of no steps: train first.")
    n = run.steps[-1]
    return {
        "wall": units_a_second * run.wall_s / n,
        "processor": units_a_second * run.cpu_s / n,
    }
