"""How does in-context learning come over training, with RoPE and with RoVE?

Run it from a clone: `python experiments/in_context.py`. For each seed it trains two matched pairs.
One learns functions that examples show. The other learns the bytes of Python's standard library;
meanwhile it is asked the few-shot suite, and reads snippets twice. Two pairs at a time with one
thread each, about 12 minutes of two idle cores. It writes results/in_context/record.json. `--gpu`
is larger models, for longer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from string import ascii_lowercase
from typing import Any

import torch
from torch import Tensor

from rove_lab.data import ByteText, standard_library
from rove_lab.evaluation import HELD_OUT_SEED, device_of, loss_by_position, position_groups
from rove_lab.experiment import Experiment
from rove_lab.few_shot import few_shot_scores, suite_score
from rove_lab.in_context_functions import FunctionClassification
from rove_lab.matched_pairs import rope_and_rove
from rove_lab.model import GPT, GPTConfig
from rove_lab.scored_training import scored_steps, train_scored
from rove_lab.tasks import NOT_ASKED
from rove_lab.training import TrainConfig
from rove_lab.training_time import milliseconds_a_step


@dataclass(frozen=True)
class Functions:
    """A matched pair that learns functions from examples in the sequence."""

    task: FunctionClassification
    model: GPTConfig
    training: TrainConfig
    scored_every: int
    n_sequences: int = 512


@dataclass(frozen=True)
class Bytes:
    """A matched pair that learns text, and what it is asked meanwhile."""

    model: GPTConfig
    training: TrainConfig
    scored_at: tuple[int, ...]  # steps
    k_shots: tuple[int, ...] = (0, 4, 8)
    n_questions: int = 256  # for each task and k
    n_snippets: int = 128  # read twice
    held_out_bytes: int = 2**16
    early: tuple[int, int] = (8, 16)  # bytes read before the guess: from, to
    late: tuple[int, int] = (96, 128)


@dataclass(frozen=True)
class Budget:
    """Both pairs."""

    functions: Functions
    text: Bytes


THREE_BITS = FunctionClassification(n_ctx=52, n_examples=4, n_features=3, n_queries=7)
FOUR_BITS = FunctionClassification(n_ctx=108, n_examples=8, n_features=4, n_queries=11)
CPU = Budget(
    Functions(
        task=THREE_BITS,
        model=GPTConfig(
            d_vocab=THREE_BITS.d_in, n_ctx=THREE_BITS.n_ctx, d_model=64, n_layers=2, n_heads=4
        ),
        training=TrainConfig(steps=1600, batch_size=32, learning_rate=3e-3),
        scored_every=100,
    ),
    Bytes(
        model=GPTConfig.preset("tiny"),
        training=TrainConfig(
            steps=800, batch_size=16, learning_rate=2e-3, final_rate=0.1, warmup_steps=40
        ),
        scored_at=(100, 200, 400, 800),
    ),
)
GPU = Budget(
    Functions(
        task=FOUR_BITS,
        model=GPTConfig(
            d_vocab=FOUR_BITS.d_in, n_ctx=FOUR_BITS.n_ctx, d_model=256, n_layers=4, n_heads=8
        ),
        training=TrainConfig(steps=20_000, batch_size=64, learning_rate=1e-3, warmup_steps=200),
        scored_every=500,
    ),
    Bytes(
        model=GPTConfig.preset("small"),
        training=TrainConfig.preset("small", steps=20_000),
        scored_at=(500, 1000, 2000, 5000, 10_000, 20_000),
        k_shots=(0, 4, 8, 16),
        n_questions=1024,
        n_snippets=512,
        late=(192, 256),
    ),
)


def functions(plan: Functions, seed: int) -> dict[str, Any]:
    """Accuracy over training, by how many examples were shown, and what shortcuts have."""
    inputs, targets = next(plan.task.batches(plan.n_sequences, HELD_OUT_SEED))
    asked = targets != NOT_ASKED
    seen, rarer = shortcuts(plan.task, torch.cat((inputs, targets[:, -1:]), 1))

    def score(model: GPT) -> dict[str, float]:
        said = model(inputs.to(device_of(model)))[asked].argmax(-1).cpu()
        right = (said == targets[asked]).double().unflatten(0, (len(inputs), -1))
        return shares(plan.task, right, seen)

    how = replace(plan.training, seed=seed, log_every=plan.scored_every)
    steps = scored_steps(plan.scored_every, how.steps)
    runs, learned = train_scored(rope_and_rove(plan.model), how, plan.task, score, steps)
    return {
        "learned": learned,
        "shortcuts": {
            "the rarer class": shares(plan.task, rarer, seen),
            "the same input's class, else the rarer": shares(
                plan.task, rarer.where(~seen, 1.0), seen
            ),
        },
        "milliseconds a step": {name: milliseconds_a_step(one) for name, one in runs.items()},
    }


def shares(task: FunctionClassification, right: Tensor, seen: Tensor) -> dict[str, float]:
    """Accuracies from what was right, ``[sequence, question]``.

    Of all, of inputs that were seen before in the sequence and of new ones, and by the number of
    examples: each answered question is one for those after it.
    """
    by_question = {
        f"{task.n_examples + j} examples": share for j, share in enumerate(right.mean(0).tolist())
    }
    old, new = right[seen].mean().item(), right[~seen].mean().item()
    return {"all": right.mean().item(), "seen before": old, "new": new, **by_question}


def shortcuts(task: FunctionClassification, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Whether each question's input was seen before, and what "the rarer class" has on it.

    A bit is 1 in half of all inputs. So among different inputs, the class that was rarer so far is
    more often that of the next: right without reading the question. Where both were equally
    frequent it has half a point.
    """
    width = task.n_features + 1
    opening = tokens[:, : -task.n_queries * (width + 1)]
    examples = opening[opening >= task.first_key].view(len(tokens), task.n_examples, width)
    questions = tokens[:, -task.n_queries * (width + 1) :].unflatten(1, (-1, width + 1))[..., 1:]
    items = torch.cat((examples, questions), 1)
    same = (items[:, :, None, :-1] == items[:, None, :, :-1]).all(-1)
    repeats = same.tril(-1).any(-1)  # [sequence, item]
    ones = (items[..., -1] - task.first_value).double()
    counted = (~repeats).double()
    n = counted.cumsum(1) - counted  # different inputs before each
    excess = 2 * ((counted * ones).cumsum(1) - counted * ones) - n  # of class 1 among them
    right = (excess * (2 * ones - 1) < 0).double().where(excess != 0, 0.5)
    return repeats[:, task.n_examples :], right[:, task.n_examples :]


def text(plan: Bytes, seed: int) -> dict[str, Any]:
    """The few-shot suite, snippets read twice and the loss late and early, over training."""
    corpus = standard_library(plan.model.n_ctx)
    snippets = {
        "text": held_out_snippets(corpus.held_out, plan.n_snippets),
        "letters": random_letters(plan.n_snippets, plan.model.n_ctx // 2),
    }

    def score(model: GPT) -> dict[str, Any]:
        asked = few_shot_scores(model, plan.k_shots, n_questions=plan.n_questions)
        return {
            "suite": by_k(suite_score(asked)),
            "tasks": {task: by_k(of_task) for task, of_task in asked.items()},
            "snippets": {kind: readings(model, tokens) for kind, tokens in snippets.items()},
            "positions": late_and_early(model, corpus.held_out, plan),
        }

    how = replace(plan.training, seed=seed)
    runs, found = train_scored(rope_and_rove(plan.model), how, corpus.train, score, plan.scored_at)
    clocks = {name: milliseconds_a_step(one) for name, one in runs.items()}
    return arms_last(found) | {"milliseconds a step": clocks}


def by_k(scores: dict[int, float]) -> dict[str, float]:
    """The scores under words."""
    return {f"k = {k}": score for k, score in scores.items()}


def arms_last(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """From arm, step and names to names, arm, step and the last name: as a record is read."""
    leaves: dict[str, Any] = {}

    def put(at: dict[str, Any], arm: str, step: str, values: dict[str, Any]) -> None:
        for name, value in values.items():
            if any(isinstance(inner, dict) for inner in value.values()):
                put(at.setdefault(name, {}), arm, step, value)
            else:
                at.setdefault(name, {}).setdefault(arm, {})[step] = value

    for arm, steps in found.items():
        for step, values in steps.items():
            put(leaves, arm, step, values)
    return leaves


def held_out_snippets(held_out: ByteText, n: int) -> Tensor:
    """Snippets of half a window of held-out text, ``[n, n_ctx / 2]``."""
    return next(held_out.at_length(held_out.n_ctx // 2).batches(n, HELD_OUT_SEED))[0]


def random_letters(n: int, length: int) -> Tensor:
    """Snippets of small letters, all equally likely: nothing in them can be guessed from text."""
    random = torch.Generator().manual_seed(HELD_OUT_SEED)
    drawn = torch.randint(len(ascii_lowercase), (n, length), generator=random)
    return drawn + ord(ascii_lowercase[0])


def readings(model: GPT, snippets: Tensor) -> dict[str, dict[str, float]]:
    """Nats per byte of the same bytes: read first, read again at once, read after another snippet.

    The first byte of a snippet is left out. Each is a mean over all, and over groups of positions.
    """
    n = snippets.shape[1]
    again = loss_by_position(model, torch.cat((snippets, snippets), 1)).double()
    another = loss_by_position(model, torch.cat((snippets.roll(1, 0), snippets), 1)).double()
    losses = {"first": again[:, : n - 1], "again": again[:, n:], "after another": another[:, n:]}
    return {
        reading: {"all": of.mean().item()}
        | {name: of[:, at].mean().item() for name, at in position_groups(n - 1).items()}
        for reading, of in losses.items()
    }


def late_and_early(model: GPT, held_out: ByteText, plan: Bytes) -> dict[str, float]:
    """Nats per byte of held-out text, early and late in the window, and what late has less."""
    inputs, targets = next(held_out.batches(plan.held_out_bytes // held_out.n_ctx, HELD_OUT_SEED))
    losses = loss_by_position(model, torch.cat((inputs, targets[:, -1:]), 1)).double()
    # entry t is the loss of a byte before which t + 1 were read
    early, late = (
        losses[:, first - 1 : last - 1].mean().item() for first, last in (plan.early, plan.late)
    )
    return {"all": losses.mean().item(), "early": early, "late": late, "late - early": late - early}


def run(budget: Budget, part: str, seed: int) -> dict[str, Any]:
    """One matched pair on functions or on text."""
    if part == "functions":
        return functions(budget.functions, seed)
    return text(budget.text, seed)


def headline(found: dict[str, Any]) -> str:
    """The last accuracy, or the suite's last score."""
    over_training = found["suite"] if "suite" in found else found["learned"]
    last = {name: [*[*at.values()][-1].items()][-1] for name, at in over_training.items()}
    return ", ".join(f"{name}, {what}: {score:.3f}" for name, (what, score) in last.items())


EXPERIMENT = Experiment(
    slug="in_context",
    question="How does in-context learning come over training, with RoPE and with RoVE?",
    budget=CPU,
    gpu_budget=GPU,
    jobs=lambda budget: [("text",), ("functions",)],
    run=run,
    headline=headline,
    seeds=4,
)

if __name__ == "__main__":
    EXPERIMENT.command_line()
