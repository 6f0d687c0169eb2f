"""RoVE switched on in a trained RoPE model: what does training on win back, beside a control?

Run it from a clone: `python experiments/fine_tune.py`. For each seed it trains a byte model with
RoPE, then trains that model on in four ways, and one model with RoVE from the start; two seeds at a
time with one thread each, about 20 minutes of two idle cores. It writes
results/fine_tune/record.json.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rove_lab.data import standard_library
from rove_lab.evaluation import held_out_scores
from rove_lab.experiment import Experiment, described
from rove_lab.matched_pairs import rope_and_rove, value_halves
from rove_lab.model import GPT, GPTConfig
from rove_lab.training import TrainConfig, train, train_matched
from rove_lab.warm_start import WarmStart

CONTROL = "RoPE, the control"


@dataclass(frozen=True)
class Budget:
    """The model that is switched, how it is trained first and then, and on what it is scored."""

    model: GPTConfig
    first: TrainConfig
    then: TrainConfig
    held_out_bytes: int = 2**18  # scored at each length
    lengths: dict[str, int] = field(default_factory=lambda: {"1 x": 1, "16 x": 16})  # windows


CPU = Budget(
    GPTConfig.preset("tiny", rotate_values=False),
    first=TrainConfig(steps=800, batch_size=16, learning_rate=2e-3, warmup_steps=40),
    then=TrainConfig(steps=320, batch_size=16, learning_rate=1e-3, warmup_steps=10),
)
GPU = Budget(
    GPTConfig.preset("small", rotate_values=False),
    first=TrainConfig.preset("small", final_rate=1.0, steps=8000),
    then=TrainConfig.preset("small", final_rate=1.0, learning_rate=5e-4),
    held_out_bytes=2**20,
)


def arms(model: GPTConfig) -> dict[str, GPTConfig]:
    """What the trained model becomes: itself, and three in which values turn."""
    control, rove = rope_and_rove(model).values()
    return {CONTROL: control, "RoVE": rove, **dict(reversed(value_halves(model).items()))}


def scores(model: GPT, budget: Budget) -> dict[str, float]:
    """Nats per byte on held-out text, at each length in windows of it."""
    found = {}
    for name, times in budget.lengths.items():
        text = standard_library(budget.model.n_ctx * times).held_out
        windows = budget.held_out_bytes // text.n_ctx
        found[name] = held_out_scores(model, text, windows)["nats per byte"]
    return found


def from_the_start(budget: Budget) -> TrainConfig:
    """As many steps in one training as the two have together."""
    return replace(budget.first, steps=budget.first.steps + budget.then.steps)


def run(budget: Budget, seed: int) -> dict[str, Any]:
    """One seed: the losses of every arm."""
    text = standard_library(budget.model.n_ctx).train
    configs = arms(budget.model)
    first = train(configs[CONTROL], replace(budget.first, seed=seed), text, progress=False)
    # Another order of the data than the first training's; the same in every arm.
    then = replace(budget.then, seed=seed + 1000)
    starts = {name: WarmStart(config, first.model) for name, config in configs.items()}
    at_once = {name: scores(start.build(), budget) for name, start in starts.items()}
    runs = train_matched(starts, then, text, progress=False)
    long = replace(from_the_start(budget), seed=seed)
    scratch = train(configs["RoVE"], long, text, progress=False)
    if first.interrupted or scratch.interrupted or any(one.interrupted for one in runs.values()):
        raise KeyboardInterrupt
    return {
        "losses": {
            "at once": at_once,
            "trained on": {name: scores(one.model, budget) for name, one in runs.items()},
        },
        "from the start": {"RoVE": scores(scratch.model, budget)},
        "curve": {
            name: {str(step): loss for step, loss in zip(one.steps, one.losses, strict=True)}
            for name, one in runs.items()
        },
    }


def config(budget: Budget) -> dict[str, Any]:
    """What was set, for the record."""
    long = from_the_start(budget)
    return {
        "model": {k: v for k, v in asdict(budget.model).items() if k != "rotate_values"},
        "arms": {
            name: {
                "rotate_values": arm.rotate_values,
                "value_planes": arm.value_planes and [*arm.value_planes],
            }
            for name, arm in arms(budget.model).items()
        },
        "first training": described(budget.first),
        "training on": described(budget.then),
        "from the start": {"steps": long.steps, "learning_rate": long.learning_rate},
        "text": "the standard library's sources as bytes, split by file",
        "held out": {"bytes": budget.held_out_bytes, "lengths": budget.lengths},
        "curve": "training loss, the mean of log_every steps; every arm sees the same batches",
    }


def headline(found: dict[str, Any]) -> str:
    """The losses at the training's length."""
    after = found["losses"]["trained on"]
    return ", ".join(f"{name} {next(iter(one.values())):.3f}" for name, one in after.items())


EXPERIMENT = Experiment(
    slug="fine_tune",
    question="What does training on win back when RoVE is switched on in a trained RoPE model?",
    budget=CPU,
    gpu_budget=GPU,
    run=run,
    config=config,
    headline=headline,
    seeds=4,
)

if __name__ == "__main__":
    EXPERIMENT.command_line()
