"""What the chapters on training train, on a GPU: with a chapter's own budget, and one larger model.

Seeds, weights and batches are those of the records that were made on a processor; where a GPU adds
numbers in another order, trainings come apart all the same. As many seeds are trained as there is
time for, four at most, and the record is written after each.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import count
from typing import Any

from gpu_parts import ROOT, Run

from rove_lab.experiment import Experiment
from rove_lab.records import Record, write_record
from rove_lab.settings import changed

SEEDS = 4


@dataclass(frozen=True)
class Plan:
    """A training that is repeated on a GPU.

    Args:
        script: Which of experiments/.
        jobs: Which of its jobs; none are all.
        gpu_budget: Whether its larger budget is spent, with the settings beside.
        settings: What is set otherwise.
        tiny: What else is, to see on a processor that it runs.
    """

    script: str
    jobs: tuple[tuple[str, ...], ...] = ()
    gpu_budget: bool = False
    settings: tuple[str, ...] = ()
    tiny: tuple[str, ...] = ()


FEW = ("training.steps=4", "training.batch_size=2")
PLANS = {
    "gpu_training": Plan(
        "training",
        settings=("scored_every=800",),  # the end alone: it reads sequence by sequence
        tiny=(*FEW, "scored_every=4", "held_out_bytes=1024"),
    ),
    "gpu_larger": Plan(
        "training",
        gpu_budget=True,
        settings=("training.steps=1000", "scored_every=1000", "held_out_bytes=65536"),
        tiny=(*FEW, "scored_every=4", "held_out_bytes=1024", "model.n_layers=1"),
    ),
    "gpu_length": Plan(
        "length",
        jobs=(("pair",),),
        tiny=(*FEW, "spans=1", "spans_to_choose=1", "times=[1, 2]", "betas=[1, 2]"),
    ),
    "gpu_retrieval": Plan(
        "retrieval",
        tiny=(
            "model.n_layers=1",
            "model.d_model=16",
            "induction.steps=2",
            "induction.batch_size=2",
            "task.steps=2",
            "task.batch_size=2",
            "times=[1, 2]",
            "beta_fast=[2]",
            "n_sequences=32",
        ),
    ),
    "gpu_induction": Plan(
        "induction",
        jobs=(("2 layers, 2 heads",),),
        tiny=(*FEW, "scored_every=4", "n_sequences=64", "n_looked_at=8"),
    ),
}


def planned(plan: Plan, tiny: bool) -> tuple[Experiment, Any]:
    """The experiment as a measurement of some jobs, and its budget."""
    scripts = str(ROOT / "experiments")
    if scripts not in sys.path:
        sys.path.insert(0, scripts)
    experiment = import_module(plan.script).EXPERIMENT
    budget = experiment.gpu_budget if plan.gpu_budget else experiment.budget
    budget = changed(budget, (*plan.settings, *(plan.tiny if tiny else ())))
    jobs = plan.jobs or tuple(experiment.jobs(budget))
    return replace(experiment, kind="measurement", jobs=lambda budget: jobs), budget


def joined(one: Record | None, other: Record) -> Record:
    """Two records of the same jobs with other seeds, as one."""
    if one is None:
        return other
    return replace(
        other,
        seeds=one.seeds + other.seeds,
        values=beside(one.values, other.values),
        wall_s=round(one.wall_s + other.wall_s, 1),
        cpu_s=round(one.cpu_s + other.cpu_s, 1),
    )


def beside(one: Any, other: Any) -> Any:
    """The lists of both at every name."""
    if isinstance(one, dict):
        return {name: beside(inner, other[name]) for name, inner in one.items()}
    return one + other


def run(given: Run, slug: str) -> None:
    """Trains seed after seed while there is time for one more.

    Raises:
        SystemExit: If there was no time for the first.
    """
    experiment, budget = planned(PLANS[slug], given.tiny)
    record, longest = None, 0.0
    for seed in count():
        if seed == SEEDS or given.left < 1.1 * longest or given.left <= 0:
            break
        started = time.perf_counter()
        record = joined(record, experiment.record(budget, [seed]))
        longest = max(longest, time.perf_counter() - started)
        write_record(record, given.folder / slug)
        words = f"{longest:.1f} s a seed, {max(given.left, 0):.0f} s left"
        print(f"{slug}: seed {seed} done, {words}", flush=True)
    if record is None:
        raise SystemExit(1)
