"""Which of RoPE and RoVE retrieves better, at the trained length and at two to eight times it?

Run it from a clone: `python experiments/retrieval.py`. For each seed it trains a matched set of
four models on induction (no value planes turn, all of them, the fastest half, the slowest half),
then each of them from there on three tasks in turn, and asks all of them in longer sequences, as
they are and under YaRN; two seeds at a time with one thread each, about 10 minutes of two idle
cores. It writes results/retrieval/record.json; with `--gpu` the models are larger, and trained for
longer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from rove_lab.associative_recall import AssociativeRecall
from rove_lab.context_extension import yarn_by_length
from rove_lab.evaluation import accuracy_by_length, held_out_scores
from rove_lab.experiment import Experiment
from rove_lab.induction import Induction
from rove_lab.matched_pairs import rope_and_rove, value_halves
from rove_lab.model import GPTConfig
from rove_lab.needles import Needles
from rove_lab.token_answers import TokenAnswers
from rove_lab.train_config import TrainConfig
from rove_lab.training import Run, train, train_matched
from rove_lab.training_time import one_step_first, seconds_a_step
from rove_lab.variable_tracking import VariableTracking
from rove_lab.warm_start import WarmStart

INDUCTION = "induction"
PLAIN = "as trained"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What is trained, for how long, and what is asked of it.

    `goals` are asked at every length; `tries`, which may not be learned, in distribution alone.
    `times` are lengths over the trained one. YaRN is tried with every `beta_fast` and all are kept:
    none is chosen on what is scored.
    """

    model: GPTConfig
    induction: TrainConfig
    task: TrainConfig
    goals: dict[str, TokenAnswers]
    tries: dict[str, TokenAnswers]
    times: tuple[int, ...] = (1, 2, 4, 8)
    beta_fast: tuple[float, ...] = (2.0, 4.0, 8.0)  # 32 is 8 again: no plane turns as often
    n_sequences: int = 192


def goals(n_ctx: int) -> dict[str, TokenAnswers]:
    """Two tasks after induction, by name."""
    return {"needles": Needles(n_ctx=n_ctx), "associative recall": AssociativeRecall(n_ctx=n_ctx)}


def tracking(n_ctx: int, *hops: int) -> dict[str, TokenAnswers]:
    """Variable tracking with so many hops each, by name."""
    return {
        f"variable tracking, {n} hop{'s' * (n > 1)}": VariableTracking(n_ctx=n_ctx, n_hops=n)
        for n in hops
    }


FEW = TrainConfig(steps=700, batch_size=32, learning_rate=3e-3, log_every=20)
CPU = Budget(
    model=GPTConfig(d_vocab=Induction().d_in, n_ctx=64, d_model=64, n_layers=2, n_heads=2),
    induction=FEW,
    task=replace(FEW, steps=250, warmup_steps=20, final_rate=0.1),
    goals=goals(64),
    tries=tracking(64, 1),
)
GPU = Budget(
    model=GPTConfig.preset("small", d_vocab=Induction().d_in),
    induction=TrainConfig(steps=4000, batch_size=128, learning_rate=1e-3, warmup_steps=200),
    task=TrainConfig(
        steps=4000, batch_size=128, learning_rate=1e-3, warmup_steps=200, final_rate=0.1
    ),
    goals=goals(256) | tracking(256, 1, 2),
    tries={},
    n_sequences=1024,
)


def arms(model: GPTConfig) -> dict[str, GPTConfig]:
    """The same model with other planes of the values turned."""
    return rope_and_rove(model) | value_halves(model)


def asked(model: nn.Module, goal: TokenAnswers, budget: Budget) -> dict[str, dict[str, Any]]:
    """Accuracy by length, as trained and under YaRN with every beta_fast."""
    lengths = {f"{times} ×": times * goal.n_ctx for times in budget.times}
    longer = {name: length for name, length in lengths.items() if length > goal.n_ctx}

    def accuracy(extension: Any, lengths: dict[str, int]) -> dict[str, dict[str, float]]:
        found = accuracy_by_length(
            model,
            goal,
            [*lengths.values()],
            n_sequences=budget.n_sequences,
            extension=extension,
        )
        return {name: {"accuracy": found[length]} for name, length in lengths.items()}

    plain = accuracy(None, lengths)
    stretched = {
        # Within the trained window YaRN is off: what is there is the plain model's.
        f"YaRN, beta_fast {beta:g}": plain | accuracy(yarn_by_length(model, beta_fast=beta), longer)
        for beta in budget.beta_fast
    }
    return {PLAIN: plain, **stretched}


def run(budget: Budget, seed: int) -> dict[str, Any]:
    """Induction in every arm, then every task from there: accuracies, losses, seconds."""
    models = arms(budget.model)
    induction = Induction(n_ctx=budget.model.n_ctx)
    how, then = replace(budget.induction, seed=seed), replace(budget.task, seed=seed)
    one_step_first(models, how, induction)
    first = train_matched(models, how, induction, progress=False)
    runs: dict[str, dict[str, Run]] = {INDUCTION: first}
    for name, goal in {**budget.goals, **budget.tries}.items():
        # The same batches in every arm: they are the seed's.
        runs[name] = {
            arm: train(WarmStart(config, first[arm].model), then, goal, progress=False)
            for arm, config in models.items()
        }
    if any(one.interrupted for of_task in runs.values() for one in of_task.values()):
        raise KeyboardInterrupt
    accuracy: dict[str, Any] = {}
    for name, goal in {INDUCTION: induction, **budget.goals}.items():
        by_arm = {arm: asked(one.model, goal, budget) for arm, one in runs[name].items()}
        accuracy[name] = {
            stretch: {arm: found[stretch] for arm, found in by_arm.items()}
            for stretch in next(iter(by_arm.values()))
        }
    return {
        "accuracy": accuracy,
        "in distribution": {
            arm: {
                name: held_out_scores(runs[name][arm].model, goal)
                for name, goal in {INDUCTION: induction, **budget.goals, **budget.tries}.items()
            }
            for arm in models
        },
        "curve": {
            name: {
                arm: {
                    str(step): {"nats": loss}
                    for step, loss in zip(one.steps, one.losses, strict=True)
                }
                for arm, one in of_task.items()
            }
            for name, of_task in runs.items()
        },
        "seconds a step": {arm: seconds_a_step(one) for arm, one in first.items()},
    }


def headline(found: dict[str, Any]) -> str:
    """Needles, say, at the longest length, as trained."""
    words = []
    for name, of_task in found["accuracy"].items():
        last = {arm: [*rows.values()][-1]["accuracy"] for arm, rows in of_task[PLAIN].items()}
        words.append(f"{name} {last['RoPE']:.2f} / {last['RoVE']:.2f}")
    return "longest, RoPE / RoVE: " + ", ".join(words)


EXPERIMENT = Experiment(
    slug="retrieval",
    question="Which of RoPE and RoVE retrieves better, at the trained length and beyond it?",
    budget=CPU,
    gpu_budget=GPU,
    run=run,
    headline=headline,
    seeds=4,
)

if __name__ == "__main__":
    EXPERIMENT.command_line()
