"""Can one head tell how far a message came? Four tasks, RoPE and RoVE, four models, three seeds.

Run it from a clone: `python experiments/messenger.py`. It trains 96 tiny models, two at a time with
one thread each, in about five minutes of two idle cores, and writes results/messenger/record.json.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import tyro

from rove_lab.evaluation import held_out_scores
from rove_lab.filters import Filter
from rove_lab.messenger import MessengerConfig
from rove_lab.records import Record, write_record
from rove_lab.surroundings import surroundings
from rove_lab.tasks import DistanceRecall, OrderedPair, Task
from rove_lab.training import TrainConfig, train

ROOT = Path(__file__).resolve().parents[1]
ARMS = {"RoPE": False, "RoVE": True}


@dataclass(frozen=True)
class Trial:
    """A task, how it is trained, and the model's sizes in each row."""

    task: Task
    training: TrainConfig
    rows: dict[str, dict[str, Any]]


def rows(n_heads: int, **sizes: Any) -> dict[str, dict[str, Any]]:
    """One head, more heads, an MLP after the head, two layers with residual paths."""
    changes: dict[str, dict[str, Any]] = {
        "1 head": {},
        f"{n_heads} heads": {"n_heads": n_heads},
        "1 head, MLP": {"d_mlp": 256},
        "2 layers": {"n_layers": 2, "residual": True},
    }
    return {row: {**sizes, **change} for row, change in changes.items()}


TRIALS = {
    "distance recall": Trial(DistanceRecall(), TrainConfig(300, 32, 1e-2), rows(4)),
    "ordered pair": Trial(OrderedPair(), TrainConfig(150, 32, 1e-2), rows(2, bias_std=1.0)),
    "edge": Trial(Filter.edge(), TrainConfig(200, 32, 1e-2), rows(2, bias_std=1.0, d_head=8)),
    "4 orthogonal taps": Trial(
        Filter.orthogonal(), TrainConfig(300, 32, 3e-3), rows(4, bias_std=1.0)
    ),
}


@dataclass(frozen=True)
class Job:
    """One model to train."""

    trial: str
    arm: str
    row: str
    seed: int


def jobs(seeds: list[int]) -> Iterator[Job]:
    """Every model, the arms of a pair one after the other, so that they run side by side."""
    for trial, plan in TRIALS.items():
        for row in plan.rows:
            for seed in seeds:
                for arm in ARMS:
                    yield Job(trial, arm, row, seed)


def run(job: Job) -> tuple[dict[str, float], float]:
    """The scores of one trained model on held-out data, and the processor seconds it took."""
    torch.set_num_threads(1)
    started = time.process_time()
    plan = TRIALS[job.trial]
    model = MessengerConfig(
        plan.task.d_in, plan.task.d_out, rotate_values=ARMS[job.arm], **plan.rows[job.row]
    )
    done = train(model, replace(plan.training, seed=job.seed), plan.task, progress=False)
    if done.interrupted:
        raise KeyboardInterrupt
    return held_out_scores(done.model, plan.task), time.process_time() - started


def config() -> dict[str, Any]:
    """What was set, for the record."""
    return {
        name: {
            "task": repr(plan.task),
            "blind": plan.task.blind,
            "training": {k: v for k, v in asdict(plan.training).items() if k != "seed"},
            "rows": {
                row: sizes_of(MessengerConfig(plan.task.d_in, plan.task.d_out, **changes))
                for row, changes in plan.rows.items()
            },
        }
        for name, plan in TRIALS.items()
    }


def sizes_of(model: MessengerConfig) -> dict[str, Any]:
    """All that both arms of a row share."""
    return {name: value for name, value in asdict(model).items() if name != "rotate_values"}


def main(seeds: int = 3, workers: int = 2, folder: Path = ROOT / "results" / "messenger") -> None:
    """Train every row with RoPE and with RoVE, and write the record.

    Args:
        seeds: Repetitions of each row, three or more.
        workers: Models trained at a time, one thread each.
        folder: Where record.json goes.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # models this small are faster on a processor's core
    todo = list(jobs(list(range(seeds))))
    scores: dict[Job, dict[str, float]] = {}
    cpu_s, started = 0.0, time.perf_counter()
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(run, job): job for job in todo}
        try:
            for done, future in enumerate(as_completed(waiting), start=1):
                job = waiting[future]
                scores[job], seconds = future.result()
                cpu_s += seconds
                left = (time.perf_counter() - started) / done * (len(todo) - done)
                name, score = list(scores[job].items())[-1]
                words = f"{job.trial}, {job.arm}, {job.row}, seed {job.seed}: {name} {score:.3f}"
                print(f"[{done}/{len(todo)}] {words}; {left:.0f} s left", flush=True)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            sys.exit("interrupted: no record was written")
    values: dict[str, Any] = {}
    for job in todo:
        row = values.setdefault(job.trial, {}).setdefault(job.arm, {}).setdefault(job.row, {})
        for name, score in scores[job].items():
            row.setdefault(name, []).append(round(score, 5))
    torch.set_num_threads(1)
    record = Record(
        question="Can one attention head tell how far away a message was sent?",
        kind="experiment",
        config=config(),
        seeds=list(range(seeds)),
        values=values,
        wall_s=round(time.perf_counter() - started, 1),
        cpu_s=round(cpu_s, 1),
        **surroundings(ROOT),
    )
    print(f"wrote {write_record(record, folder)}", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
