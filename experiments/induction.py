"""Does induction form sooner under RoVE, and how does that depend on heads and depth?

Run it from a clone: `python experiments/induction.py`. For each shape and seed it trains a matched
pair on random segments that return after a random distance, and scores both every 20 steps; two
pairs at a time with one thread each, about 10 minutes of two idle cores. It writes
results/induction/record.json. `--gpu` is a larger model and longer sequences.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rove_lab.evaluation import HELD_OUT_SEED, device_of
from rove_lab.experiment import Experiment
from rove_lab.gpt_patterns import gpt_patterns
from rove_lab.induction import Induction
from rove_lab.matched_pairs import rope_and_rove
from rove_lab.model import GPT, GPTConfig
from rove_lab.scored_training import scored_steps, train_scored
from rove_lab.tasks import NOT_ASKED
from rove_lab.training import TrainConfig
from rove_lab.training_time import milliseconds_a_step, one_step_first


@dataclass(frozen=True)
class Budget:
    """Matched pairs of several shapes on one task."""

    task: Induction
    shapes: dict[str, GPTConfig]
    training: TrainConfig
    distances: tuple[int, ...]  # the first of each group of distances that is scored apart
    scored_every: int = 20  # steps
    n_sequences: int = 256  # scored each time, the same ones
    n_looked_at: int = 64  # of them, for where heads look


def shape(task: Induction, **sizes: Any) -> GPTConfig:
    """A model that reads the task's alphabet."""
    return GPTConfig(d_vocab=task.d_in, n_ctx=task.n_ctx, **sizes)


SHORT = Induction()
LONG = Induction(n_symbols=48, n_ctx=256, n_segment=24)
CPU = Budget(
    task=SHORT,
    shapes={
        "2 layers, 2 heads": shape(SHORT, d_model=64, n_layers=2, n_heads=2),
        "2 layers, 1 head": shape(SHORT, d_model=64, n_layers=2, n_heads=1),
        "2 layers, 4 heads": shape(SHORT, d_model=64, n_layers=2, n_heads=4),
        "3 layers, 2 heads": shape(SHORT, d_model=64, n_layers=3, n_heads=2),
        "1 layer, 2 heads": shape(SHORT, d_model=64, n_layers=1, n_heads=2),
    },
    training=TrainConfig(steps=600, batch_size=32, learning_rate=3e-3),
    distances=(8, 16, 32),
)
GPU = Budget(
    task=LONG,
    shapes={
        "2 layers, 4 heads": shape(LONG, d_model=256, n_layers=2, n_heads=4),
        "2 layers, 1 head": shape(LONG, d_model=256, n_layers=2, n_heads=1),
        "2 layers, 8 heads": shape(LONG, d_model=256, n_layers=2, n_heads=8),
        "6 layers, 4 heads": shape(LONG, d_model=256, n_layers=6, n_heads=4),
        "1 layer, 4 heads": shape(LONG, d_model=256, n_layers=1, n_heads=4),
    },
    training=TrainConfig(steps=4000, batch_size=64, learning_rate=1e-3, warmup_steps=100),
    distances=(24, 48, 96, 192),
    n_sequences=512,
)


def groups(budget: Budget) -> dict[str, tuple[int, int]]:
    """How far back the segment stood before, in groups: name to the first and the last distance."""
    task, starts = budget.task, budget.distances
    ends = [start - 1 for start in starts[1:]] + [task.n_ctx + 1 - task.n_segment]
    return {
        f"{first} to {last} back": (first, last) for first, last in zip(starts, ends, strict=True)
    }


def held_out(budget: Budget) -> tuple[Tensor, Tensor, Tensor]:
    """Sequences that no training draws, what is asked, and how far back each segment stood."""
    inputs, targets = next(budget.task.batches(budget.n_sequences, HELD_OUT_SEED))
    returns = inputs[:, 1:] == inputs[:, :1]  # the segment's first token, when it comes again
    return inputs, targets, returns.int().argmax(1) + 1


@torch.no_grad()
def answers(model: GPT, budget: Budget) -> dict[str, float]:
    """The share of tokens said right: of all, and by distance."""
    inputs, targets, back = held_out(budget)
    logits = torch.cat([model(part.to(device_of(model))).cpu() for part in inputs.split(32)])
    asked = targets != NOT_ASKED
    right = (logits.argmax(-1) == targets) & asked
    found = {"accuracy": (right.sum() / asked.sum()).item()}
    for name, (first, last) in groups(budget).items():
        of_group = (back >= first) & (back <= last)
        found[name] = (right[of_group].sum() / asked[of_group].sum()).item()
    return found


def heads(model: GPT, budget: Budget) -> dict[str, float]:
    """The strongest head of two kinds: how much of its attention goes where, in the mean.

    A previous-token head looks from a token of the segment to the one before it; an induction head
    from the token before an answer to the answer's last place.
    """
    inputs, targets, back = (part[: budget.n_looked_at] for part in held_out(budget))
    patterns = gpt_patterns(model, inputs.to(device_of(model))).cpu()
    sequence, at = (targets != NOT_ASKED).nonzero(as_tuple=True)
    induction = patterns[:, sequence, :, at, at - back[sequence] + 1]
    within = at < targets.shape[1] - 1
    sequence, at = sequence[within], at[within]
    previous = patterns[:, sequence, :, at + 1, at]
    kinds = {"previous token": previous, "induction": induction}
    # what is indexed comes first: [asked, n_layers, n_heads]
    return {kind: looks.mean(0).max().item() for kind, looks in kinds.items()}


def run(budget: Budget, row: str, seed: int) -> dict[str, Any]:
    """One matched pair of a shape: what both have learned every few steps, and their seconds."""
    arms = rope_and_rove(budget.shapes[row])
    how = replace(budget.training, seed=seed, log_every=budget.scored_every)
    one_step_first(arms, how, budget.task)
    runs, learned = train_scored(
        arms,
        how,
        budget.task,
        lambda model: answers(model, budget) | heads(model, budget),
        scored_steps(budget.scored_every, how.steps),
    )
    return {
        "learned": learned,
        "milliseconds a step": {name: milliseconds_a_step(one) for name, one in runs.items()},
    }


def headline(found: dict[str, Any]) -> str:
    """The last accuracies."""
    last = {name: list(steps.values())[-1]["accuracy"] for name, steps in found["learned"].items()}
    return ", ".join(f"{name} {accuracy:.3f}" for name, accuracy in last.items())


EXPERIMENT = Experiment(
    slug="induction",
    question="Does induction form sooner under RoVE, and how does it depend on heads and depth?",
    budget=CPU,
    gpu_budget=GPU,
    jobs=lambda budget: [(row,) for row in budget.shapes],
    run=run,
    headline=headline,
    seeds=4,
)

if __name__ == "__main__":
    EXPERIMENT.command_line()
