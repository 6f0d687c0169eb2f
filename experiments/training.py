"""How do a RoPE and a RoVE byte model learn from the same start on the same data?

Run it from a clone: `python experiments/training.py`. For each seed it trains a matched pair, step
by step in turn, then RoPE alone for as many processor seconds as RoVE had; two seeds at a time with
one thread each, about 12 minutes of two idle cores. It writes results/training/record.json.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import tyro
from torch import nn

from rove_lab.data import ByteText, standard_library
from rove_lab.evaluation import loss_by_position
from rove_lab.model import GPT, GPTConfig
from rove_lab.progress import Step
from rove_lab.records import Record, write_record
from rove_lab.surroundings import surroundings
from rove_lab.training import TrainConfig, train, train_matched

ROOT = Path(__file__).resolve().parents[1]
ARMS = {
    "RoPE": GPTConfig.preset("tiny", rotate_values=False),
    "RoVE": GPTConfig.preset("tiny", rotate_values=True),
}
TRAINING = TrainConfig(
    steps=800, batch_size=16, learning_rate=2e-3, final_rate=0.1, warmup_steps=40, log_every=20
)
SCORED_EVERY = 100  # steps
HELD_OUT_BYTES = 2**17  # scored each time, the same ones
HELD_OUT = 2**32 - 1  # the seed of their places: no training draws with it


class Watched:
    """A config that keeps the model it builds in reach, to be scored while it trains."""

    def __init__(self, config: GPTConfig) -> None:
        self.config = config

    def build(self) -> GPT:
        """The model; the one and only, for ``model``."""
        self.model = self.config.build()
        return self.model


def groups(n_ctx: int) -> dict[str, slice]:
    """Bytes read before the guess, by powers of two: 1, 2, 3 to 4, ... as slices of positions."""
    found, first = {"1": slice(0, 1)}, 1
    while first < n_ctx:
        last = min(2 * first, n_ctx)
        found[f"{first + 1} to {last}" if last > first + 1 else str(last)] = slice(first, last)
        first = last
    return found


def scores(model: nn.Module, held_out: ByteText) -> dict[str, float]:
    """Nats per byte of held-out text: of all bytes, and by how many were read before."""
    windows = HELD_OUT_BYTES // held_out.n_ctx
    inputs, targets = next(held_out.batches(windows, HELD_OUT))
    losses = loss_by_position(model, torch.cat((inputs, targets[:, -1:]), 1)).double()
    by_position = {name: losses[:, at].mean().item() for name, at in groups(held_out.n_ctx).items()}
    return {"all": losses.mean().item(), **by_position}


def run(seed: int) -> tuple[dict[str, Any], float]:
    """One seed: curves, held-out losses and seconds of every arm; the processor seconds it took."""
    torch.set_num_threads(1)
    started = time.process_time()
    text = standard_library(ARMS["RoPE"].n_ctx)
    arms = {name: Watched(config) for name, config in ARMS.items()}
    held_out: dict[str, dict[str, dict[str, float]]] = {name: {} for name in arms}

    def score(step: Step) -> None:
        if not step.step % SCORED_EVERY:
            model = arms[step.name].model
            held_out[step.name][str(step.step)] = scores(model, text.held_out)

    how = replace(TRAINING, seed=seed)
    # The first step a process takes costs more than any other: it should not count as RoPE's.
    train_matched(ARMS, replace(how, steps=1), text.train, progress=False)
    runs = train_matched(arms, how, text.train, callback=score, progress=False)
    # A learning rate that falls over all its steps: stopping the pair's RoPE later would not do.
    ratio = runs["RoVE"].cpu_s / runs["RoPE"].cpu_s
    longer = replace(
        how, steps=round(how.steps * ratio), warmup_steps=round(how.warmup_steps * ratio)
    )
    alone = train(ARMS["RoPE"], longer, text.train, progress=False)
    if alone.interrupted or any(one.interrupted for one in runs.values()):
        raise KeyboardInterrupt
    found = {
        "curve": {
            name: {str(step): loss for step, loss in zip(one.steps, one.losses, strict=True)}
            for name, one in runs.items()
        },
        "held out": held_out,
        "RoPE for RoVE's time": {
            "steps": longer.steps,
            "processor seconds": alone.cpu_s,
            "held out": scores(alone.model, text.held_out),
        },
        "seconds a step": {
            name: {"wall": one.wall_s / how.steps, "processor": one.cpu_s / how.steps}
            for name, one in runs.items()
        },
    }
    return found, time.process_time() - started


def config() -> dict[str, Any]:
    """What was set, for the record."""
    shared = {k: v for k, v in asdict(ARMS["RoPE"]).items() if k != "rotate_values"}
    return {
        "model": shared,
        "arms": {name: {"rotate_values": arm.rotate_values} for name, arm in ARMS.items()},
        "training": {k: v for k, v in asdict(TRAINING).items() if k != "seed"},
        "text": "the standard library's sources as bytes, split by file",
        "held out": {
            "bytes": HELD_OUT_BYTES,
            "every steps": SCORED_EVERY,
            "groups": "by the bytes read before the guess",
        },
        "curve": "training loss, the mean of log_every steps; both arms see the same batches",
        "RoPE for RoVE's time": (
            "steps and warm-up times the pair's own ratio of processor seconds, the learning rate "
            "falling over all of them"
        ),
    }


def merged(parts: list[Any]) -> Any:
    """The same names, with a list over seeds for every number."""
    if isinstance(parts[0], dict):
        return {name: merged([part[name] for part in parts]) for name in parts[0]}
    return [round(part, 5) for part in parts]


def main(seeds: int = 4, workers: int = 2, folder: Path = ROOT / "results" / "training") -> None:
    """Train every pair and write the record.

    Args:
        seeds: Repetitions, three or more.
        workers: Seeds worked on at a time, one thread each.
        folder: Where record.json goes.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # models this small are faster on a processor's core
    found: dict[int, dict[str, Any]] = {}
    cpu_s, started = 0.0, time.perf_counter()
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(run, seed): seed for seed in range(seeds)}
        try:
            for done, future in enumerate(as_completed(waiting), start=1):
                seed = waiting[future]
                found[seed], seconds = future.result()
                cpu_s += seconds
                last = str(TRAINING.steps)
                words = ", ".join(
                    f"{name} {losses[last]['all']:.3f}"
                    for name, losses in found[seed]["held out"].items()
                )
                left = (time.perf_counter() - started) / done * (seeds - done)
                print(f"[{done}/{seeds}] seed {seed}: {words}; {left:.0f} s left", flush=True)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            sys.exit("interrupted: no record was written")
    torch.set_num_threads(1)
    record = Record(
        question="How do a RoPE and a RoVE byte model learn from the same start on the same data?",
        kind="experiment",
        config=config(),
        seeds=list(range(seeds)),
        values=merged([found[seed] for seed in range(seeds)]),
        wall_s=round(time.perf_counter() - started, 1),
        cpu_s=round(cpu_s, 1),
        **surroundings(ROOT),
    )
    print(f"wrote {write_record(record, folder)}", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
