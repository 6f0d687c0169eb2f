"""How do a RoPE and a RoVE byte model learn from the same start on the same data?

Run it from a clone: `python experiments/training.py`. For each seed it trains a matched pair, step
by step in turn, then RoPE alone for as many processor seconds as RoVE had; two seeds at a time with
one thread each, about 12 minutes of two idle cores. It writes results/training/record.json.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn

from rove_lab.data import ByteText, standard_library
from rove_lab.evaluation import HELD_OUT_SEED, loss_by_position, position_groups
from rove_lab.experiment import Experiment, described
from rove_lab.matched_pairs import rope_and_rove
from rove_lab.model import GPTConfig
from rove_lab.scored_training import scored_steps, train_scored
from rove_lab.training import TrainConfig, train
from rove_lab.training_time import given_the_time_of, one_step_first, seconds_a_step


@dataclass(frozen=True)
class Budget:
    """The model of both arms, how they are trained, when and on how much they are scored."""

    model: GPTConfig
    training: TrainConfig
    scored_every: int = 100  # steps
    held_out_bytes: int = 2**17  # scored each time, the same ones


CPU = Budget(
    GPTConfig.preset("tiny", rotate_values=False),
    TrainConfig(
        steps=800, batch_size=16, learning_rate=2e-3, final_rate=0.1, warmup_steps=40, log_every=20
    ),
)
GPU = Budget(
    GPTConfig.preset("small", rotate_values=False),
    TrainConfig.preset("small", steps=8000, log_every=20),
    scored_every=500,
    held_out_bytes=2**20,
)


def scores(model: nn.Module, held_out: ByteText, n_bytes: int) -> dict[str, float]:
    """Nats per byte of held-out text: of all bytes, and by how many were read before."""
    inputs, targets = next(held_out.batches(n_bytes // held_out.n_ctx, HELD_OUT_SEED))
    losses = loss_by_position(model, torch.cat((inputs, targets[:, -1:]), 1)).double()
    groups = position_groups(held_out.n_ctx)
    by_position = {name: losses[:, at].mean().item() for name, at in groups.items()}
    return {"all": losses.mean().item(), **by_position}


def run(budget: Budget, seed: int) -> dict[str, Any]:
    """One seed: curves, held-out losses and seconds of every arm."""
    text, pair = standard_library(budget.model.n_ctx), rope_and_rove(budget.model)

    def score(model: nn.Module) -> dict[str, float]:
        return scores(model, text.held_out, budget.held_out_bytes)

    how = replace(budget.training, seed=seed)
    steps = scored_steps(budget.scored_every, how.steps)
    one_step_first(pair, how, text.train)
    runs, held_out = train_scored(pair, how, text.train, score, steps)
    longer = given_the_time_of(how, runs["RoPE"], runs["RoVE"])
    alone = train(pair["RoPE"], longer, text.train, progress=False)
    if alone.interrupted:
        raise KeyboardInterrupt
    return {
        "curve": {
            name: {str(step): loss for step, loss in zip(one.steps, one.losses, strict=True)}
            for name, one in runs.items()
        },
        "held out": held_out,
        "RoPE for RoVE's time": {
            "steps": longer.steps,
            "processor seconds": alone.cpu_s,
            "held out": score(alone.model),
        },
        "seconds a step": {name: seconds_a_step(one) for name, one in runs.items()},
    }


def config(budget: Budget) -> dict[str, Any]:
    """What was set, for the record."""
    return {
        "model": {k: v for k, v in asdict(budget.model).items() if k != "rotate_values"},
        "arms": {
            name: {"rotate_values": arm.rotate_values}
            for name, arm in rope_and_rove(budget.model).items()
        },
        "training": described(budget.training),
        "text": "the standard library's sources as bytes, split by file",
        "held out": {
            "bytes": budget.held_out_bytes,
            "every steps": budget.scored_every,
            "groups": "by the bytes read before the guess",
        },
        "curve": "training loss, the mean of log_every steps; both arms see the same batches",
        "RoPE for RoVE's time": (
            "steps and warm-up times the pair's own ratio of processor seconds, the learning rate "
            "falling over all of them"
        ),
    }


def headline(found: dict[str, Any]) -> str:
    """The last held-out losses."""
    last = {name: list(losses.values())[-1]["all"] for name, losses in found["held out"].items()}
    return ", ".join(f"{name} {loss:.3f}" for name, loss in last.items())


EXPERIMENT = Experiment(
    slug="training",
    question="How do a RoPE and a RoVE byte model learn from the same start on the same data?",
    budget=CPU,
    gpu_budget=GPU,
    run=run,
    config=config,
    headline=headline,
    seeds=4,
)

if __name__ == "__main__":
    EXPERIMENT.command_line()
