r"""One training loop, on whatever device Accelerate finds, for one model or for a matched set."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from rove_lab.arguments import check_number, check_size
from rove_lab.progress import ProgressLine, Step
from rove_lab.tasks import Task

try:
    from accelerate import Accelerator
except ImportError as error:
    raise ImportError(
        'training runs on accelerate, which is missing: pip install "rove-lab[training]"'
    ) from error

__all__ = ["ModelConfig", "Run", "TrainConfig", "train", "train_matched"]


class ModelConfig(Protocol):
    """What a model's config must offer: the model, with weights from torch's global generator."""

    def build(self) -> nn.Module:
        """A new model."""


@dataclass(frozen=True)
class TrainConfig:
    """How to train: AdamW at a constant rate after a linear warm-up, gradients clipped.

    Args:
        steps: Optimiser steps.
        batch_size: Sequences a step, over all devices together.
        learning_rate: Of AdamW.
        warmup_steps: Steps over which the rate grows from 0.
        weight_decay: Of AdamW.
        clip: Largest norm of the gradient.
        seed: Of the initial weights and, apart, of the order of the data; below 2³⁰.
        log_every: Steps between two reports.

    Raises:
        TypeError: If a value is not a number.
        ValueError: If a value is out of range.

    Example:
        >>> TrainConfig(steps=100, learning_rate=3e-3).batch_size
        64
    """

    steps: int = 200
    batch_size: int = 64
    learning_rate: float = 1e-2
    warmup_steps: int = 0
    weight_decay: float = 0.0
    clip: float = 1.0
    seed: int = 0
    log_every: int = 10

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "log_every"):
            check_size(name, getattr(self, name))
        for name in ("learning_rate", "clip"):
            if check_number(name, getattr(self, name)) <= 0:
                raise ValueError(f"expected a positive {name}, got {getattr(self, name)}.")
        for name in ("warmup_steps", "weight_decay"):
            if check_number(name, getattr(self, name)) < 0:
                raise ValueError(f"expected {name} of 0 or more, got {getattr(self, name)}.")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise TypeError(f"expected seed to be an integer, got {self.seed!r}: pass a plain int.")
        if not 0 <= self.seed < 2**30:
            raise ValueError(f"expected a seed from 0 to 2**30 - 1, got {self.seed}.")


@dataclass
class Run:
    """What a training leaves.

    Args:
        model: The trained model, on the device it was trained on.
        steps: At which steps the loss was reported.
        losses: The reported losses, in the task's unit.
        wall_s: Seconds this model's own steps took.
        cpu_s: Processor seconds of this process they took.
        interrupted: Whether it was stopped by Ctrl-C.

    Example:
        >>> Run(nn.Identity(), [10], [0.5]).interrupted
        False
    """

    model: nn.Module
    steps: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    wall_s: float = 0.0
    cpu_s: float = 0.0
    interrupted: bool = False


def train(
    model_config: ModelConfig,
    train_config: TrainConfig,
    task: Task,
    *,
    callback: Callable[[Step], None] | None = None,
    progress: bool = True,
) -> Run:
    """Train one model on one task.

    Args:
        model_config: Builds the model.
        train_config: How to train.
        task: Draws the batches and measures the loss.
        callback: Called with every report, such as a ``LivePlot``.
        progress: Whether to print a line with loss, speed and time left now and then.

    Returns:
        The run; Ctrl-C ends it early and keeps what was learned.

    Raises:
        FloatingPointError: If the loss is no longer finite.
        ValueError: If the batch cannot be divided among the devices.

    Example:
        >>> from rove_lab.messenger import MessengerConfig
        >>> from rove_lab.filters import Filter
        >>> config = TrainConfig(steps=2, batch_size=4)
        >>> run = train(MessengerConfig(1, 1, 8, 1, 4), config, Filter.edge(), progress=False)
    """
    runs = train_matched(
        {"model": model_config}, train_config, task, callback=callback, progress=progress
    )
    return runs["model"]


def train_matched(
    model_configs: Mapping[str, ModelConfig],
    train_config: TrainConfig,
    task: Task,
    *,
    callback: Callable[[Step], None] | None = None,
    progress: bool = True,
) -> dict[str, Run]:
    """Train models that start from the same weights and see the same batches, step by step in turn.

    Only what the configs change beside the parameters' shapes can make the runs differ: whether the
    values are rotated, say.

    Args:
        model_configs: Name to config.
        train_config: How to train each of them.
        task: Draws the batches and measures the loss.
        callback: Called with every report of each model.
        progress: Whether to print a line with losses, speed and time left now and then.

    Returns:
        Name to run; Ctrl-C ends all of them within one step and keeps what was learned.

    Raises:
        FloatingPointError: If a loss is no longer finite.
        ValueError: If the models do not start alike, or the batch cannot be divided.

    Example:
        >>> from rove_lab.messenger import MessengerConfig as Config
        >>> from rove_lab.filters import Filter
        >>> arms = {"RoPE": Config(1, 1, 8, rotate_values=False), "RoVE": Config(1, 1, 8)}
        >>> runs = train_matched(arms, TrainConfig(steps=2), Filter.edge(), progress=False)
    """
    accelerator = Accelerator()
    arms = {
        name: _Arm(config, train_config, task, accelerator)
        for name, config in model_configs.items()
    }
    _check_matched({name: arm.run.model for name, arm in arms.items()})
    started = time.perf_counter()
    line = ProgressLine(progress and accelerator.is_main_process)
    step = 0
    try:
        for step in range(1, train_config.steps + 1):
            for arm in arms.values():
                arm.advance()
            if step % train_config.log_every and step < train_config.steps:
                continue
            speed = step / (time.perf_counter() - started)
            left = (train_config.steps - step) / speed
            reports = [
                Step(name, step, train_config.steps, arm.report(name, step), speed, left)
                for name, arm in arms.items()
            ]
            for report in reports:
                if callback is not None:
                    callback(report)
            line.show(reports)
    except KeyboardInterrupt:
        for arm in arms.values():
            arm.run.interrupted = True
        line.end(f"interrupted in step {step} of {train_config.steps}: what was learned is kept")
    for arm in arms.values():
        arm.run.model = accelerator.unwrap_model(arm.model).eval()
    return {name: arm.run for name, arm in arms.items()}


class _Arm:
    """One model being trained."""

    def __init__(
        self, config: ModelConfig, how: TrainConfig, task: Task, accelerator: Accelerator
    ) -> None:
        # Two seeds from one: weights and data must not come from the same stream of numbers. On
        # the CPU, so that every device starts from the same weights.
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.manual_seed(2 * how.seed)
            self.run = Run(config.build())
        self.how, self.task, self.accelerator = how, task, accelerator
        self.batches = task.batches(how.batch_size, 2 * how.seed + 1)
        optimizer = torch.optim.AdamW(
            self.run.model.parameters(), lr=how.learning_rate, weight_decay=how.weight_decay
        )
        self.model, self.optimizer = accelerator.prepare(self.run.model, optimizer)
        self.losses: list[Tensor] = []
        self.taken = 0

    def advance(self) -> None:
        """One step of the optimiser."""
        wall, cpu = time.perf_counter(), time.process_time()
        self.taken += 1
        rate = self.how.learning_rate * min(1.0, self.taken / max(1, self.how.warmup_steps))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        of = self.accelerator
        inputs, targets = (
            share(part, of.process_index, of.num_processes).to(of.device)
            for part in next(self.batches)
        )
        loss = self.task.loss(self.model(inputs), targets)
        self.optimizer.zero_grad()
        of.backward(loss)
        of.clip_grad_norm_(self.model.parameters(), self.how.clip)
        self.optimizer.step()
        self.losses.append(loss.detach())
        self.run.wall_s += time.perf_counter() - wall
        self.run.cpu_s += time.process_time() - cpu

    def report(self, name: str, step: int) -> float:
        """The mean loss since the last report, noted in the run."""
        mean = float(self.accelerator.reduce(torch.stack(self.losses).mean(), "mean"))
        self.losses.clear()
        if not math.isfinite(mean):
            raise FloatingPointError(
                f"expected a finite loss, got {mean} in step {step} of {name}: lower learning_rate "
                f"(now {self.how.learning_rate:g}), or lengthen warmup_steps."
            )
        self.run.steps.append(step)
        self.run.losses.append(mean)
        return mean


def share(batch: Tensor, index: int, count: int) -> Tensor:
    """The part of a batch that process ``index`` of ``count`` works on: all see the same data once.

    Args:
        batch: ``[batch, ...]``.
        index: Of the process.
        count: Processes.

    Returns:
        ``[batch / count, ...]``.

    Raises:
        ValueError: If the batch cannot be divided.
    """
    if len(batch) % count:
        raise ValueError(
            f"expected batch_size divisible by the {count} processes, got {len(batch)}: choose a "
            "multiple."
        )
    return batch[index::count]


def _check_matched(models: Mapping[str, nn.Module]) -> None:
    weights = {name: dict(model.named_parameters()) for name, model in models.items()}
    first = next(iter(weights), None)
    if first is None:
        raise ValueError("expected at least one model config, got none.")
    for name, others in weights.items():
        alike = others.keys() == weights[first].keys() and all(
            torch.equal(others[key], own) for key, own in weights[first].items()
        )
        if not alike:
            raise ValueError(
                f"expected {first} and {name} to start from the same weights, got others: matched "
                "configs have the same sizes, such as those that differ in rotate_values alone."
            )
