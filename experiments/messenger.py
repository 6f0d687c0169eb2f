"""Can one head tell how far a message came? Four tasks, RoPE and RoVE, four models, three seeds.

Run it from a clone: `python experiments/messenger.py`. It trains 96 tiny models, two at a time with
one thread each, in about five minutes of two idle cores, and writes results/messenger/record.json.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from rove_lab.evaluation import held_out_scores
from rove_lab.experiment import Experiment, described
from rove_lab.filters import Filter
from rove_lab.matched_pairs import rope_and_rove
from rove_lab.messenger import MessengerConfig
from rove_lab.tasks import DistanceRecall, OrderedPair, Task
from rove_lab.training import TrainConfig, train

ARMS = ("RoPE", "RoVE")


@dataclass(frozen=True)
class Trial:
    """A task, how it is trained, and the model's sizes in each row."""

    task: Task
    training: TrainConfig
    rows: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Budget:
    """The trials, by name."""

    trials: dict[str, Trial]


def rows(n_heads: int, **sizes: Any) -> dict[str, dict[str, Any]]:
    """One head, more heads, an MLP after the head, two layers with residual paths."""
    changes: dict[str, dict[str, Any]] = {
        "1 head": {},
        f"{n_heads} heads": {"n_heads": n_heads},
        "1 head, MLP": {"d_mlp": 256},
        "2 layers": {"n_layers": 2, "residual": True},
    }
    return {row: {**sizes, **change} for row, change in changes.items()}


CPU = Budget(
    {
        "distance recall": Trial(DistanceRecall(), TrainConfig(300, 32, 1e-2), rows(4)),
        "ordered pair": Trial(OrderedPair(), TrainConfig(150, 32, 1e-2), rows(2, bias_std=1.0)),
        "edge": Trial(Filter.edge(), TrainConfig(200, 32, 1e-2), rows(2, bias_std=1.0, d_head=8)),
        "4 orthogonal taps": Trial(
            Filter.orthogonal(), TrainConfig(300, 32, 3e-3), rows(4, bias_std=1.0)
        ),
    }
)
# Larger alphabets, longer distances, more steps: does RoPE with more heads get there in the end?
LONG = TrainConfig(5000, 256, 3e-3, final_rate=0.1, warmup_steps=100)
GPU = Budget(
    {
        "distance recall": Trial(DistanceRecall(64, 64, 96), LONG, rows(16, d_model=256)),
        "ordered pair": Trial(OrderedPair(64, 64), LONG, rows(2, bias_std=1.0, d_model=256)),
        "edge": Trial(Filter.edge(64), LONG, rows(2, bias_std=1.0, d_head=8)),
        "4 orthogonal taps": Trial(Filter.orthogonal(n_ctx=64), LONG, rows(4, bias_std=1.0)),
    }
)


def jobs(budget: Budget) -> Iterator[tuple[str, str, str]]:
    """Every model, the arms of a pair one after the other, so that they run side by side."""
    for name, trial in budget.trials.items():
        for row in trial.rows:
            for arm in ARMS:
                yield name, arm, row


def run(budget: Budget, name: str, arm: str, row: str, seed: int) -> dict[str, float]:
    """The scores of one trained model on held-out data."""
    trial = budget.trials[name]
    task = trial.task
    model = rope_and_rove(MessengerConfig(task.d_in, task.d_out, **trial.rows[row]))[arm]
    done = train(model, replace(trial.training, seed=seed), task, progress=False)
    if done.interrupted:
        raise KeyboardInterrupt
    return held_out_scores(done.model, task)


def config(budget: Budget) -> dict[str, Any]:
    """What was set, for the record."""
    return {
        name: {
            "task": repr(trial.task),
            "blind": trial.task.blind,
            "training": described(trial.training),
            "rows": {
                row: sizes_of(MessengerConfig(trial.task.d_in, trial.task.d_out, **changes))
                for row, changes in trial.rows.items()
            },
        }
        for name, trial in budget.trials.items()
    }


def sizes_of(model: MessengerConfig) -> dict[str, Any]:
    """All that both arms of a row share."""
    return {name: value for name, value in asdict(model).items() if name != "rotate_values"}


EXPERIMENT = Experiment(
    slug="messenger",
    question="Can one attention head tell how far away a message was sent?",
    budget=CPU,
    gpu_budget=GPU,
    jobs=jobs,
    run=run,
    config=config,
    headline=lambda scores: "{} {:.3f}".format(*list(scores.items())[-1]),
)

if __name__ == "__main__":
    EXPERIMENT.command_line()
