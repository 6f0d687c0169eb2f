"""Where do heads look while induction forms, with RoPE and with RoVE?

Run it from a clone: `python experiments/induction_heads.py`. It trains the pairs of two layers and
two heads of experiments/induction.py once more, seed for seed, and looks at their patterns every 40
steps; two pairs at a time with one thread each, about two minutes of two idle cores. It writes
results/induction_heads/record.json. `--gpu` is a larger model and longer sequences.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

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


@dataclass(frozen=True)
class Budget:
    """Matched pairs of one shape."""

    task: Induction
    model: GPTConfig
    training: TrainConfig
    scored_every: int = 40  # steps
    n_sequences: int = 128  # looked at each time, the same ones


SHORT = Induction()
LONG = Induction(n_symbols=48, n_ctx=256, n_segment=24)
CPU = Budget(
    SHORT,
    GPTConfig(d_vocab=SHORT.d_in, n_ctx=SHORT.n_ctx, d_model=64, n_layers=2, n_heads=2),
    TrainConfig(steps=600, batch_size=32, learning_rate=3e-3),
)
GPU = Budget(
    LONG,
    GPTConfig(d_vocab=LONG.d_in, n_ctx=LONG.n_ctx, d_model=256, n_layers=2, n_heads=4),
    TrainConfig(steps=4000, batch_size=64, learning_rate=1e-3, warmup_steps=100),
    scored_every=200,
)


def looks(model: GPT, budget: Budget) -> dict[str, float]:
    """How much of a head's attention goes where, in the mean over held-out sequences.

    "n back": in the first layer, from the last token of the segment's first round to each token
    before it, of the head that looks most at the token before. "first" and "last": in the last
    layer, from tokens that are asked to the answer's first and last place, where these are two, of
    the head that looks most at either; "only" where they are one.
    """
    inputs, targets = next(budget.task.batches(budget.n_sequences, HELD_OUT_SEED))
    patterns = gpt_patterns(model, inputs.to(device_of(model))).cpu()
    last = budget.task.n_segment - 1
    behind = patterns[0, :, :, last, : last + 1].mean(0).flip(-1)  # [head, how far back]
    reads = behind[behind[:, 1].argmax()]
    first, latest, several = places_of_answers(inputs, targets)
    sequence, at = (targets != NOT_ASKED).nonzero(as_tuple=True)
    to_first = patterns[-1, sequence, :, at, first]
    to_latest = patterns[-1, sequence, :, at, latest]
    where = {
        "first": to_first[several].mean(0),
        "last": to_latest[several].mean(0),
        "only": to_first[~several].mean(0),
    }
    head = (where["first"] + where["last"]).argmax()
    by_distance = {f"{n} back": share for n, share in enumerate(reads.tolist())}
    return by_distance | {place: of_head[head].item() for place, of_head in where.items()}


def places_of_answers(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of every token asked: where the answer stood first and last, and whether these differ."""
    back = (inputs[:, 1:] == inputs[:, :1]).int().argmax(1) + 1  # the segment's first token again
    sequence, at = (targets != NOT_ASKED).nonzero(as_tuple=True)
    period = back[sequence]
    return at % period + 1, at - period + 1, at >= 2 * period


def run(budget: Budget, seed: int) -> dict[str, Any]:
    """One matched pair."""
    arms = rope_and_rove(budget.model)
    how = replace(budget.training, seed=seed, log_every=budget.scored_every)
    steps = scored_steps(budget.scored_every, how.steps)
    _, found = train_scored(arms, how, budget.task, lambda model: looks(model, budget), steps)
    return found


def headline(found: dict[str, Any]) -> str:
    """How much goes to the token before, at the end."""
    last = {name: [*steps.values()][-1]["1 back"] for name, steps in found.items()}
    return ", ".join(f"{name}, 1 back: {share:.2f}" for name, share in last.items())


EXPERIMENT = Experiment(
    slug="induction_heads",
    question="Where do heads look while induction forms, with RoPE and with RoVE?",
    budget=CPU,
    gpu_budget=GPU,
    run=run,
    headline=headline,
    seeds=4,
)

if __name__ == "__main__":
    EXPERIMENT.command_line()
