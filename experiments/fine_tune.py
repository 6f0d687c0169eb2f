"""RoVE switched on in a trained RoPE model: what does training on win back, beside a control?

Run it from a clone: `python experiments/fine_tune.py`. For each seed it trains a byte model with
RoPE, then trains that model on in four ways, and one model with RoVE from the start; two seeds at a
time with one thread each, about 15 minutes of two idle cores. It writes
results/fine_tune/record.json.
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

from rove_lab.data import standard_library
from rove_lab.evaluation import held_out_scores
from rove_lab.model import GPT, GPTConfig
from rove_lab.records import Record, write_record
from rove_lab.surroundings import surroundings
from rove_lab.training import TrainConfig, train, train_matched
from rove_lab.warm_start import WarmStart

ROOT = Path(__file__).resolve().parents[1]
ROPE = GPTConfig.preset("tiny", rotate_values=False)
PLANES = ROPE.d_model // ROPE.n_heads // 2
ARMS = {
    "RoPE, the control": ROPE,
    "RoVE": replace(ROPE, rotate_values=True),
    "RoVE, slow half": replace(
        ROPE, rotate_values=True, value_planes=tuple(range(PLANES // 2, PLANES))
    ),
    "RoVE, fast half": replace(ROPE, rotate_values=True, value_planes=tuple(range(PLANES // 2))),
}
FIRST = TrainConfig(steps=800, batch_size=16, learning_rate=2e-3, warmup_steps=40)
THEN = TrainConfig(steps=320, batch_size=16, learning_rate=1e-3, warmup_steps=10)
LENGTHS = {"1 x": 1, "16 x": 16}
HELD_OUT_BYTES = 2**18  # scored at each length


def scores(model: GPT) -> dict[str, float]:
    """Nats per byte on held-out text, at each length in windows of it."""
    found = {}
    for name, times in LENGTHS.items():
        text = standard_library(ROPE.n_ctx * times).held_out
        windows = HELD_OUT_BYTES // text.n_ctx
        found[name] = held_out_scores(model, text, windows)["nats per byte"]
    return found


def run(seed: int) -> tuple[dict[str, Any], float]:
    """One seed: the losses of every arm, and the processor seconds they took."""
    torch.set_num_threads(1)
    started = time.process_time()
    text = standard_library(ROPE.n_ctx).train
    first = train(ROPE, replace(FIRST, seed=seed), text, progress=False)
    # Another order of the data than the first training's; the same in every arm.
    then = replace(THEN, seed=seed + 1000)
    starts = {name: WarmStart(config, first.model) for name, config in ARMS.items()}
    at_once = {name: scores(start.build()) for name, start in starts.items()}
    runs = train_matched(starts, then, text, progress=False)
    long = replace(FIRST, seed=seed, steps=FIRST.steps + THEN.steps)
    scratch = train(ARMS["RoVE"], long, text, progress=False)
    if first.interrupted or scratch.interrupted or any(one.interrupted for one in runs.values()):
        raise KeyboardInterrupt
    found = {
        "losses": {
            "at once": at_once,
            "trained on": {name: scores(one.model) for name, one in runs.items()},
        },
        "from the start": {"RoVE": scores(scratch.model)},
        "curve": {
            name: {str(step): loss for step, loss in zip(one.steps, one.losses, strict=True)}
            for name, one in runs.items()
        },
    }
    return found, time.process_time() - started


def config() -> dict[str, Any]:
    """What was set, for the record."""
    return {
        "model": {k: v for k, v in asdict(ROPE).items() if k not in ("rotate_values",)},
        "arms": {
            name: {
                "rotate_values": c.rotate_values,
                "value_planes": c.value_planes and [*c.value_planes],
            }
            for name, c in ARMS.items()
        },
        "first training": {k: v for k, v in asdict(FIRST).items() if k != "seed"},
        "training on": {k: v for k, v in asdict(THEN).items() if k != "seed"},
        "from the start": {"steps": FIRST.steps + THEN.steps, "learning_rate": FIRST.learning_rate},
        "text": "the standard library's sources as bytes, split by file",
        "held out": {"bytes": HELD_OUT_BYTES, "lengths": LENGTHS},
        "curve": "training loss, the mean of log_every steps; every arm sees the same batches",
    }


def merged(parts: list[Any]) -> Any:
    """The same names, with a list over seeds for every number."""
    if isinstance(parts[0], dict):
        return {name: merged([part[name] for part in parts]) for name in parts[0]}
    return [round(part, 5) for part in parts]


def main(seeds: int = 4, workers: int = 2, folder: Path = ROOT / "results" / "fine_tune") -> None:
    """Train every arm and write the record.

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
                after = {
                    name: one["1 x"] for name, one in found[seed]["losses"]["trained on"].items()
                }
                words = ", ".join(f"{name} {loss:.3f}" for name, loss in after.items())
                left = (time.perf_counter() - started) / done * (seeds - done)
                print(f"[{done}/{seeds}] seed {seed}: {words}; {left:.0f} s left", flush=True)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            sys.exit("interrupted: no record was written")
    torch.set_num_threads(1)
    record = Record(
        question="What does training on win back when RoVE is switched on in a trained RoPE model?",
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
