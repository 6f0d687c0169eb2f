r"""One training loop, on whatever device Accelerate finds, for one model or for a matched set."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rove_lab.arm import Arm, ModelConfig, Run, share
from rove_lab.interruption import held_back
from rove_lab.progress import ProgressLine, Step
from rove_lab.run_folder import RunFolder, read_state
from rove_lab.tasks import Task
from rove_lab.train_config import TrainConfig

try:
    from accelerate import Accelerator
except ImportError as error:
    raise ImportError(
        'training runs on accelerate, which is missing: pip install "rove-lab[training]"'
    ) from error

__all__ = ["ModelConfig", "Run", "TrainConfig", "train", "train_matched"]


def train(
    model_config: ModelConfig,
    train_config: TrainConfig,
    task: Task,
    *,
    folder: Path | str | None = None,
    callback: Callable[[Step], None] | None = None,
    progress: bool = True,
) -> Run:
    """Train one model on one task.

    Args:
        model_config: Builds the model.
        train_config: How to train.
        task: Draws the batches and measures the loss.
        folder: Where to keep checkpoints. A run that was stopped goes on from its last one, on the
            same curve; a finished one is returned at once. None keeps nothing.
        callback: Called with every report, such as a ``LivePlot``.
        progress: Whether to print a line with loss, speed and time left now and then.

    Returns:
        The run; Ctrl-C ends it early, between two steps, and keeps what was learned.

    Raises:
        FloatingPointError: If the loss or a weight is no longer finite; the last checkpoint is
            from before.
        OSError: If there is no room for a checkpoint; the one before is kept.
        ValueError: If the batch cannot be divided among the devices, or the folder belongs to
            another run.

    Example:
        >>> from rove_lab.messenger import MessengerConfig
        >>> from rove_lab.filters import Filter
        >>> config = TrainConfig(steps=2, batch_size=4)
        >>> run = train(MessengerConfig(1, 1, 8, 1, 4), config, Filter.edge(), progress=False)
    """
    runs = train_matched(
        {"model": model_config},
        train_config,
        task,
        folder=folder,
        callback=callback,
        progress=progress,
    )
    return runs["model"]


def train_matched(
    model_configs: Mapping[str, ModelConfig],
    train_config: TrainConfig,
    task: Task,
    *,
    folder: Path | str | None = None,
    callback: Callable[[Step], None] | None = None,
    progress: bool = True,
) -> dict[str, Run]:
    """Train models that start from the same weights and see the same batches, step by step in turn.

    Only what the configs change beside the parameters' shapes can make the runs differ: whether the
    values are rotated, say. Started by ``accelerate launch`` or ``torchrun``, each process works on
    its share of every batch, and the run is the one that a single process would make.

    Args:
        model_configs: Name to config.
        train_config: How to train each of them.
        task: Draws the batches and measures the loss.
        folder: Where to keep checkpoints of all of them, as in :func:`train`.
        callback: Called with every report of each model.
        progress: Whether to print a line with losses, speed and time left now and then.

    Returns:
        Name to run; Ctrl-C ends all of them after the same step and keeps what was learned.

    Raises:
        FloatingPointError: If a loss or a weight is no longer finite.
        OSError: If there is no room for a checkpoint; the one before is kept.
        ValueError: If the models do not start alike, the batch cannot be divided, or the folder
            belongs to another run.

    Example:
        >>> from rove_lab.messenger import MessengerConfig as Config
        >>> from rove_lab.filters import Filter
        >>> arms = {"RoPE": Config(1, 1, 8, rotate_values=False), "RoVE": Config(1, 1, 8)}
        >>> runs = train_matched(arms, TrainConfig(steps=2), Filter.edge(), progress=False)
    """
    # Without `cpu` Accelerate overlooks that torchrun started several processes without a GPU.
    how, accelerator = train_config, Accelerator(cpu=not torch.accelerator.is_available())
    arms = {name: Arm(config, how, accelerator) for name, config in model_configs.items()}
    _check_matched({name: arm.run.model for name, arm in arms.items()})
    # Refused now, before there is a folder, if the batch cannot be shared out.
    share(torch.empty(how.batch_size), 0, how.accumulate * accelerator.num_processes)
    kept = None
    if folder is not None:
        kept = _Kept(folder, _asked(model_configs, how, task, arms), arms, accelerator)
    done = kept.resume() if kept else 0
    batches = islice(task.batches(how.batch_size, 2 * how.seed + 1), done, None)
    line = ProgressLine(progress and accelerator.is_main_process)
    started, tokens, step = time.perf_counter(), 0, done
    try:
        with held_back() as interruption:
            for step in range(done + 1, how.steps + 1):
                batch = next(batches)
                for arm in arms.values():
                    arm.advance(step, *batch, task)
                tokens += len(arms) * batch[0].shape[:2].numel()
                due = not step % how.log_every or step == how.steps
                if due:
                    seconds = time.perf_counter() - started
                    speed = (step - done) / seconds
                    reports = [
                        Step(
                            name,
                            step,
                            how.steps,
                            arm.report(name, step),
                            speed,
                            (how.steps - step) / speed,
                            tokens / seconds,
                        )
                        for name, arm in arms.items()
                    ]
                    for report in reports:
                        if callback is not None:
                            callback(report)
                    line.show(reports)
                # Processes must agree to stop, and meet at the reports only.
                alone = accelerator.num_processes == 1
                stop = (
                    interruption.asked if alone else due and _any(interruption.asked, accelerator)
                )
                if kept and (stop or not step % how.checkpoint_every or step == how.steps):
                    kept.save(step)
                if stop and step < how.steps:
                    raise KeyboardInterrupt
    except KeyboardInterrupt:
        for arm in arms.values():
            arm.run.interrupted = True
        line.end(f"interrupted in step {step} of {how.steps}: what was learned is kept")
    for arm in arms.values():
        arm.run.model = accelerator.unwrap_model(arm.model).eval()
    return {name: arm.run for name, arm in arms.items()}


class _Kept:
    """The checkpoints of a run: the main process writes them, every process reads them."""

    def __init__(
        self,
        folder: Path | str,
        asked: Mapping[str, Any],
        arms: Mapping[str, Arm],
        accelerator: Accelerator,
    ) -> None:
        for name in arms:
            if not name or set(name) & set("/\\:") or name.startswith("."):
                raise ValueError(
                    f"expected names of models that can name folders, got {name!r}: leave out "
                    "slashes and colons."
                )
        self.arms, self.accelerator = arms, accelerator
        with accelerator.main_process_first():
            self.folder = RunFolder(folder, asked)

    def resume(self) -> int:
        """Take up the last checkpoint; the steps it had taken, or 0."""
        self.accelerator.wait_for_everyone()
        place = self.folder.checkpoint()
        if place is None:
            return 0
        state = read_state(place)
        for name, arm in self.arms.items():
            arm.restore(place / name, state["runs"][name])
        return int(state["step"])

    def save(self, step: int) -> None:
        """Write a checkpoint after a step, in place of the one before."""

        def write(place: Path) -> dict[str, Any]:
            runs = {name: arm.save(name, step, place / name) for name, arm in self.arms.items()}
            return {"step": step, "runs": runs}

        if self.accelerator.is_main_process:
            self.folder.save(step, write)
        self.accelerator.wait_for_everyone()


def _asked(
    model_configs: Mapping[str, ModelConfig], how: TrainConfig, task: Task, arms: Mapping[str, Arm]
) -> dict[str, Any]:
    """What determines a run, in words and in hashes: the first batch stands for the data."""
    first = next(task.batches(how.batch_size, 2 * how.seed + 1))
    return {
        "models": {name: _named(config) for name, config in model_configs.items()},
        "first weights": {name: _digest(arm.run.model.parameters()) for name, arm in arms.items()},
        "training": asdict(how),
        "task": _named(task),
        "first batch": _digest(first),
    }


def _named(thing: object) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", repr(thing))  # an address differs from run to run


def _digest(tensors: Iterable[Tensor]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        plain = tensor.detach().cpu().contiguous().flatten()
        digest.update(plain.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _any(asked: bool, accelerator: Accelerator) -> bool:
    mine = torch.tensor(float(asked), device=accelerator.device)
    return bool(accelerator.reduce(mine, "sum") > 0)


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
