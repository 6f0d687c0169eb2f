"""What does a training step cost? The lab's GPT beside a plainly written one, in one run.

Run it from a clone: `python benchmarks/training_step.py`. Models of one shape take steps in turn,
on the same batch with the same AdamW, so that what else the machine does falls on all of them
alike; then the lab's own loop does. Without a GPU the clock is that of the processor, in one
thread. Peak memory is of a process that trains one model and no other. It takes about six minutes
of one core, and writes results/training_step/record.json.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import torch
import tyro
from plain_gpt import LearnedGPT, RotaryGPT
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rove_lab.model import GPT, GPTConfig
from rove_lab.records import Record, write_record
from rove_lab.surroundings import surroundings
from rove_lab.training import TrainConfig, train_matched

ROOT = Path(__file__).resolve().parents[1]
BESIDE = "plain, rotary"  # what the others are measured against
WARM_UP = 2


@dataclass(frozen=True)
class Shape:
    """A model's sizes, the batch, and how many steps of each model a repetition times."""

    config: GPTConfig
    batch_size: int
    steps: int


DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = {
    "tiny": Shape(GPTConfig.preset("tiny"), 16, 60),
    "small": Shape(GPTConfig.preset("small"), 8, 10),
}
if DEVICE == "cuda":  # a processor would take minutes a step
    SHAPES["gpt2-124m"] = Shape(GPTConfig.preset("gpt2-124m"), 16, 30)
PRECISION = {"bf16": True} if DEVICE == "cuda" else {}
MODELS: dict[str, Callable[[GPTConfig], nn.Module]] = {
    "plain, learned positions": LearnedGPT,
    "plain, rotary": RotaryGPT,
    "RoPE": lambda config: GPT(replace(config, rotate_values=False)),
    "RoVE": GPT,
}
LOOP = {"RoPE": "RoPE, the lab's loop", "RoVE": "RoVE, the lab's loop"}


@dataclass(frozen=True)
class SameBatch:
    """One batch of random tokens, again and again: what it costs to draw data is not asked here."""

    config: GPTConfig
    blind: float = 0.0
    blind_loss: float = 0.0

    @property
    def n_ctx(self) -> int:
        """Positions of a sequence."""
        return self.config.n_ctx

    def batches(self, batch_size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The batch, endlessly."""
        generator = torch.Generator().manual_seed(seed)
        shape = (batch_size, self.n_ctx + 1)
        tokens = torch.randint(0, self.config.d_vocab, shape, generator=generator)
        while True:
            yield tokens[:, :-1], tokens[:, 1:]

    def loss(self, output: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy in nats."""
        return cross_entropy(output.flatten(0, 1), targets.flatten())


class Stepper:
    """A model, and a step of training it as it is plainly written."""

    def __init__(self, name: str, shape: Shape) -> None:
        torch.manual_seed(0)
        self.model = MODELS[name](shape.config).to(DEVICE)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.task = SameBatch(shape.config)
        inputs, targets = next(self.task.batches(shape.batch_size, 0))
        self.inputs, self.targets = inputs.to(DEVICE), targets.to(DEVICE)

    def step(self) -> float:
        """The seconds of one step: forward, backward, clip, AdamW."""
        started = now()
        with torch.autocast(DEVICE, torch.bfloat16, enabled=bool(PRECISION)):
            loss = self.task.loss(self.model(self.inputs), self.targets)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return now() - started


def now() -> float:
    """The clock: of a GPU that has done what it was told, or else of the processor."""
    if DEVICE == "cpu":  # which others may be using too
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def side_by_side(shape: Shape) -> dict[str, list[float]]:
    """The seconds of every step, the models in turn."""
    steppers = {name: Stepper(name, shape) for name in MODELS}
    for stepper in steppers.values():
        for _ in range(WARM_UP):
            stepper.step()
    seconds: dict[str, list[float]] = {name: [] for name in MODELS}
    for _ in range(shape.steps):
        for name, stepper in steppers.items():
            seconds[name].append(stepper.step())
    return seconds


def in_the_loop(shape: Shape) -> dict[str, list[float]]:
    """The seconds of every step of the lab's own loop, from report to report."""
    ends: list[float] = []
    models = {name: replace(shape.config, rotate_values=name == "RoVE") for name in LOOP}
    how = TrainConfig(WARM_UP + shape.steps, shape.batch_size, 1e-3, log_every=1, **PRECISION)
    seconds: dict[str, list[float]] = {}
    for name, model in models.items():
        ends.clear()
        train_matched(
            {name: model},
            how,
            SameBatch(shape.config),
            callback=lambda step: ends.append(now()),
            progress=False,
        )
        taken = [after - before for before, after in pairwise(ends)]
        seconds[LOOP[name]] = taken[WARM_UP - 1 :]
    return seconds


def peak_mb(name: str, shape: Shape) -> float:
    """The most memory that training one model takes, in MB above what this process took before."""
    torch.set_num_threads(1)
    before = most_bytes()
    stepper = Stepper(name, shape)
    for _ in range(WARM_UP):
        stepper.step()
    return (most_bytes() - before) / 1e6


def most_bytes() -> float:
    """The most memory in bytes that this process has held so far, of the GPU where it has one."""
    if DEVICE == "cuda":
        return torch.cuda.max_memory_allocated()
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def memory() -> dict[str, dict[str, float]]:
    """Peak memory of each shape and model, each in a process of its own.

    A process starts with the peak of the one that starts it: so this comes before anything else.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as alone:
        return {
            key: {name: alone.submit(peak_mb, name, shape).result() for name in MODELS}
            for key, shape in SHAPES.items()
        }


def measured(shape: Shape) -> dict[str, dict[str, float]]:
    """One repetition: each model's step, its speed, and what it takes beside the plain one."""
    seconds = side_by_side(shape)
    tokens = shape.batch_size * shape.config.n_ctx
    found = {}
    for name, taken in (seconds | in_the_loop(shape)).items():
        in_turn = zip(taken, seconds[BESIDE], strict=True)
        found[name] = {
            "step_ms": round(1e3 * median(taken), 3),
            "tokens_per_s": round(tokens / median(taken), 1),
            "step / plain rotary": round(median(a / b for a, b in in_turn), 4),
        }
    both = zip(seconds["RoVE"], seconds["RoPE"], strict=True)
    found["RoVE"]["step / RoPE"] = round(median(a / b for a, b in both), 4)
    return found


def config() -> dict[str, Any]:
    """What was set, for the record."""
    return {
        "shapes": {name: asdict(shape) for name, shape in SHAPES.items()},
        "optimizer": "AdamW, lr 1e-3, gradients clipped to norm 1",
        "clock": "wall" if DEVICE == "cuda" else "processor time of one thread",
        "step": "median over a repetition's steps; a ratio is the median of ratios in turn",
        "memory": "peak of a process of its own, above its peak before the model",
        "precision": "bfloat16 by autocast" if PRECISION else "float32",
    }


def main(repetitions: int = 3, folder: Path = ROOT / "results" / "training_step") -> None:
    """Time the steps, and write the record.

    Args:
        repetitions: How often everything is measured, from new models.
        folder: Where record.json goes.
    """
    torch.set_num_threads(1)
    wall, cpu = time.perf_counter(), time.process_time()
    values: dict[str, Any] = {}
    peaks = [memory() for _ in range(repetitions)]
    for repetition, peak in enumerate(peaks):
        for name, shape in SHAPES.items():
            for model, scores in measured(shape).items():
                row = values.setdefault(name, {}).setdefault(model, {})
                if model in peak[name]:
                    scores["peak_mb"] = round(peak[name][model], 1)
                for score, value in scores.items():
                    row.setdefault(score, []).append(value)
                words = ", ".join(f"{score} {value:g}" for score, value in scores.items())
                print(f"[{repetition + 1}/{repetitions}] {name}, {model}: {words}", flush=True)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    record = Record(
        question="What does a training step cost, RoPE and RoVE, beside one plainly written?",
        kind="measurement",
        config=config(),
        seeds=list(range(repetitions)),
        values=values,
        wall_s=round(time.perf_counter() - wall, 1),
        cpu_s=round(time.process_time() - cpu + children.ru_utime + children.ru_stime, 1),
        **surroundings(ROOT),
    )
    print(f"wrote {write_record(record, folder)}", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
