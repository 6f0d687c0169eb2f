r"""One model being trained: its steps, its curve, and what of it a checkpoint holds."""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rove_lab.checkpoints import load_weights, save_weights
from rove_lab.evaluation import logits_of
from rove_lab.tasks import NOT_ASKED, Task
from rove_lab.train_config import TrainConfig
from rove_lab.weight_files import write_tensors

try:
    from accelerate import Accelerator
    from safetensors.torch import load_file
except ImportError as error:
    raise ImportError(
        'training runs on accelerate, which is missing: pip install "rove-lab[training]"'
    ) from error

__all__ = ["Arm", "ModelConfig", "Run", "share"]

_MOMENTS = "optimizer.safetensors"


class ModelConfig(Protocol):
    """What a model's config must offer: the model, with weights from torch's global generator."""

    def build(self) -> nn.Module:
        """A new model."""


@dataclass
class Run:
    """What a training leaves.

    Args:
        model: The trained model, on the device it was trained on.
        steps: At which steps the loss was reported.
        losses: The reported losses, in the task's unit.
        wall_s: Seconds this model's own steps took.
        cpu_s: Processor seconds of this process they took.
        interrupted: Whether it was stopped by Ctrl-C before its last step.

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


class Arm:
    """One model being trained.

    Args:
        config: Builds the model.
        how: How to train it.
        accelerator: Where.

    Example:
        >>> from rove_lab.model import GPTConfig
        >>> Arm(GPTConfig(), TrainConfig(), Accelerator(cpu=True)).run.steps
        []
    """

    def __init__(self, config: ModelConfig, how: TrainConfig, accelerator: Accelerator) -> None:
        # Two seeds from one: weights and data must not come from the same stream of numbers. On
        # the CPU, so that every device starts from the same weights.
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.manual_seed(2 * how.seed)
            self.run = Run(config.build())
        self.how, self.accelerator = how, accelerator
        if how.compile:
            self.run.model.compile()
        parameters = list(self.run.model.parameters())
        groups = [
            {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": how.weight_decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=how.learning_rate,
            betas=(0.9, how.beta2),
            fused=True,
        )
        self.model, self.optimizer = accelerator.prepare(self.run.model, optimizer)
        self.losses: list[Tensor] = []

    def advance(self, step: int, inputs: Tensor, targets: Tensor, task: Task) -> None:
        """One step of the optimiser, on this process's share of the batch."""
        wall, cpu = time.perf_counter(), time.process_time()
        of, how = self.accelerator, self.how
        for group in self.optimizer.param_groups:
            group["lr"] = how.rate(step)
        self.optimizer.zero_grad()
        total = torch.zeros((), device=of.device)
        everything = _asked_for(targets)
        for micro in range(how.accumulate):
            index = micro * of.num_processes + of.process_index
            count = how.accumulate * of.num_processes
            part, wanted = share(inputs, index, count), share(targets, index, count)
            last = micro == how.accumulate - 1
            with (
                nullcontext() if last else of.no_sync(self.model),
                torch.autocast(of.device.type, torch.bfloat16, enabled=how.bf16),
            ):
                loss = task.loss(logits_of(self.model, part.to(of.device)), wanted.to(of.device))
                # A share's mean counts by how much it asks: then shares add up to the batch's mean.
                # Over processes gradients are averaged, hence their number.
                weighed = loss * (_asked_for(wanted) / everything)
                of.backward(weighed * of.num_processes)
            total += weighed.detach()
        of.clip_grad_norm_(self.model.parameters(), how.clip)
        self.optimizer.step()
        self.losses.append(total)
        if of.device.type != "cpu":  # or its work would be counted as that of the next one in turn
            torch.accelerator.synchronize()
        self.run.wall_s += time.perf_counter() - wall
        self.run.cpu_s += time.process_time() - cpu

    def report(self, name: str, step: int) -> float:
        """The mean loss since the last report, noted in the run."""
        mean = float(self.accelerator.reduce(torch.stack(self.losses).mean(), "sum"))
        self.losses.clear()
        self._check_finite(mean, f"the loss of {name}", step)
        self.run.steps.append(step)
        self.run.losses.append(mean)
        return mean

    def pool(self) -> None:
        """Give the main process the losses since the last report in full, the others zeros.

        Each process has its share of them; a checkpoint holds the main one's.
        """
        if self.losses and self.accelerator.num_processes > 1:
            whole = self.accelerator.reduce(torch.stack(self.losses), "sum")
            self._take(whole.tolist())

    def _take(self, whole: list[float]) -> None:
        share_of_it = 1.0 if self.accelerator.is_main_process else 0.0
        device = self.accelerator.device
        self.losses = [torch.tensor(share_of_it * loss, device=device) for loss in whole]

    def save(self, name: str, step: int, folder: Path) -> dict[str, Any]:
        """Write weights and moments; the rest is returned, for JSON."""
        model = self.accelerator.unwrap_model(self.model)
        sound = all(bool(p.isfinite().all()) for p in model.parameters())
        self._check_finite(0.0 if sound else math.nan, f"the weights of {name}", step)
        folder.mkdir()
        save_weights(model, folder)
        moments = self.optimizer.state_dict()["state"]
        flat = {f"{i}.{key}": t for i, state in moments.items() for key, t in state.items()}
        write_tensors(flat, folder / _MOMENTS)
        run = self.run
        return {
            "steps": run.steps,
            "losses": run.losses,
            "since the last report": torch.stack(self.losses).tolist() if self.losses else [],
            "wall_s": run.wall_s,
            "cpu_s": run.cpu_s,
        }

    def restore(self, folder: Path, state: dict[str, Any]) -> None:
        """Take up weights, moments and curve."""
        load_weights(self.accelerator.unwrap_model(self.model), folder)
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in load_file(folder / _MOMENTS).items():
            index, key = name.split(".", 1)
            moments.setdefault(int(index), {})[key] = tensor
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        self.run.steps, self.run.losses = state["steps"], state["losses"]
        self.run.wall_s, self.run.cpu_s = state["wall_s"], state["cpu_s"]
        self._take(state["since the last report"])

    def _check_finite(self, value: float, words: str, step: int) -> None:
        if not math.isfinite(value):
            raise FloatingPointError(
                f"expected {words} finite, got {value} in step {step}: lower learning_rate (now "
                f"{self.how.learning_rate:g}), or lengthen warmup_steps."
            )


def share(batch: Tensor, index: int, count: int) -> Tensor:
    """Part ``index`` of a batch that is shared out among ``count``: each sequence is in one part.

    Args:
        batch: ``[batch, ...]``.
        index: Of the part.
        count: Parts: processes times micro-batches.

    Returns:
        ``[batch / count, ...]``.

    Raises:
        ValueError: If the batch cannot be divided.

    Example:
        >>> share(torch.arange(6), index=1, count=3)
        tensor([1, 4])
    """
    if len(batch) % count:
        raise ValueError(
            f"expected batch_size divisible by {count}, which is processes times accumulate, got "
            f"{len(batch)}: choose a multiple."
        )
    return batch[index::count]


def _asked_for(targets: Tensor) -> int:
    return max(1, int((targets != NOT_ASKED).sum()))
