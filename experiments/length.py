"""What do RoPE and RoVE do beyond the length they were trained on, with and without YaRN?

Run it from a clone: `python experiments/length.py`, about 20 minutes of two idle cores. It trains
byte models on windows of 128 bytes and scores the same held-out bytes read in windows of 1 to 16
times that; it writes results/length/record.json.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from rove_lab.context_extension import choose_beta_fast, yarn, yarn_by_length
from rove_lab.data import standard_library
from rove_lab.evaluation import HELD_OUT_SEED, Extension, loss_by_position, perplexity_by_length
from rove_lab.experiment import Experiment
from rove_lab.matched_pairs import rope_and_rove, value_halves
from rove_lab.model import GPT, GPTConfig
from rove_lab.rotary import YarnScaling
from rove_lab.training import TrainConfig, train, train_matched
from rove_lab.training_time import given_the_time_of, one_step_first
from rove_lab.value_scaling import value_scaling
from rove_lab.warm_start import WarmStart

PATIENT = "RoPE for RoVE's time"
Scores = dict[str, dict[str, float]]  # of each length
Stretch = Callable[[GPT, int, float], AbstractContextManager[object]]  # by length and beta_fast


@dataclass(frozen=True)
class Budget:
    """What is trained, and on how much text it is scored.

    Args:
        model: Of every arm, but for what its values do.
        training: Of every arm.
        times: The lengths that are read, in windows of the training.
        spans: Pieces of held-out text of the longest length, the same for all.
        spans_to_choose: Pieces of training text, from which each model's beta_fast is chosen.
        betas: Those that are tried. In a window of 128 and heads of 32, 16 is the same as 32.
    """

    model: GPTConfig
    training: TrainConfig
    times: tuple[int, ...] = (1, 2, 4, 8, 16)
    spans: int = 12
    spans_to_choose: int = 4
    betas: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 32.0)

    @property
    def lengths(self) -> list[int]:
        """Bytes of a window that is read."""
        return [times * self.model.n_ctx for times in self.times]


CPU = Budget(
    GPTConfig.preset("tiny", rotate_values=False),
    TrainConfig(steps=800, batch_size=16, learning_rate=2e-3, final_rate=0.1, warmup_steps=40),
)
GPU = Budget(GPTConfig.preset("small", rotate_values=False), TrainConfig.preset("small"), spans=64)


ARMS = {"pair": rope_and_rove, "planes": value_halves}  # of each part


class Text:
    """The pieces of text that all models are scored on, and those that choose a beta_fast."""

    def __init__(self, budget: Budget) -> None:
        split, longest = standard_library(budget.model.n_ctx), max(budget.lengths)

        def pieces(part: Any, count: int) -> Tensor:
            found: Tensor = next(part.at_length(longest).batches(count, HELD_OUT_SEED))[0]
            return found

        self.train = split.train
        self.held_out = pieces(split.held_out, budget.spans)
        self.to_choose = pieces(split.train, budget.spans_to_choose)


class Windowed(nn.Module):
    """A model in which each byte sees no more than the last ``n_ctx``, itself included."""

    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.model, self.config = model, model.config

    def forward(self, tokens: Tensor) -> Tensor:
        """The logits, `[batch, pos, d_vocab]`."""
        at = torch.arange(tokens.shape[1], device=tokens.device)
        near = at[:, None] - at < self.config.n_ctx
        logits: Tensor = self.model(tokens, attn_mask=near)
        return logits


def by_length(
    model: nn.Module, budget: Budget, text: Text, extension: Extension | None = None
) -> Scores:
    """Nats per byte of the same held-out bytes, read in windows of each length."""
    found = perplexity_by_length(model, text.held_out, budget.lengths, extension=extension)
    return {str(n): {"nats per byte": math.log(perplexity)} for n, perplexity in found.items()}


def by_position(
    model: nn.Module, budget: Budget, text: Text, context: AbstractContextManager[Any]
) -> Scores:
    """Nats per byte at the longest length, by how many bytes were read before."""
    with context:
        losses = loss_by_position(model, text.held_out).double()
    ends = [0, *budget.lengths]
    return {
        f"{start + 1} to {end}": {"nats per byte": losses[:, start:end].mean().item()}
        for start, end in pairwise(ends)
    }


def choices(model: nn.Module, budget: Budget, text: Text) -> dict[int, float]:
    """The beta_fast for each length beyond the window, chosen on text of the training."""
    beyond = [n for n in budget.lengths if n > budget.model.n_ctx]
    return {
        n: choose_beta_fast(model, text.to_choose, n, candidates=budget.betas).beta_fast
        for n in beyond
    }


def stretched(model: GPT, length: int, beta_fast: float) -> AbstractContextManager[object]:
    """A model under YaRN for a length."""
    return yarn(model, length / model.config.n_ctx, beta_fast=beta_fast)


@contextmanager
def scores_stretched(model: GPT, length: int, beta_fast: float) -> Iterator[None]:
    """Its scores alone; its values turn as in training."""
    with stretched(model, length, beta_fast), value_scaling(model, None):
        yield


def values_stretched(model: GPT, length: int, beta_fast: float) -> AbstractContextManager[object]:
    """The rotation of its values alone."""
    n_ctx = model.config.n_ctx
    return value_scaling(model, YarnScaling(length / n_ctx, n_ctx, beta_fast=beta_fast))


def as_chosen(model: GPT, chosen: dict[int, float], stretch: Stretch = stretched) -> Extension:
    """YaRN with the beta_fast of each length; within the window, none."""

    def at(length: int) -> AbstractContextManager[object]:
        if length not in chosen:
            return nullcontext()
        return stretch(model, length, chosen[length])

    return at


def turned(model: GPT, on: bool, planes: tuple[int, ...] | None = None) -> GPT:
    """The same weights, their values turned in these planes, or not at all."""
    config = replace(model.config, rotate_values=on, value_planes=planes)
    return WarmStart(config, model).build()


def scored(
    models: dict[str, GPT], chosen: dict[str, dict[int, float]], budget: Budget, text: Text
) -> dict[str, Any]:
    """What every part has of each arm: plain, and under YaRN as the training text chooses it."""
    return {
        "plain": {name: by_length(model, budget, text) for name, model in models.items()},
        "YaRN": {
            name: by_length(model, budget, text, as_chosen(model, chosen[name]))
            for name, model in models.items()
        },
        "chosen": {
            name: {str(n): {"beta_fast": beta} for n, beta in by.items()}
            for name, by in chosen.items()
        },
    }


def dissected(
    pair: dict[str, GPT], chosen: dict[str, dict[int, float]], budget: Budget, text: Text
) -> dict[str, Any]:
    """What tells where the numbers of a pair come from."""
    rope, rove = pair.values()
    fast, slow = (half.value_planes for half in value_halves(budget.model).values())
    others = {
        "RoPE, values turned": turned(rope, True),
        "RoPE, fast half turned": turned(rope, True, fast),
        "RoPE, slow half turned": turned(rope, True, slow),
        "RoVE, values still": turned(rove, False),
    }
    longest = max(budget.lengths)
    in_part = {"scores alone": scores_stretched, "values alone": values_stretched}
    return {
        "beta_fast": {
            f"{beta:g}": {
                name: by_length(model, budget, text, yarn_by_length(model, beta_fast=beta))
                for name, model in pair.items()
            }
            for beta in budget.betas
        },
        "RoVE, YaRN in part": {
            name: by_length(rove, budget, text, as_chosen(rove, chosen["RoVE"], stretch))
            for name, stretch in in_part.items()
        },
        "without training": {
            name: by_length(model, budget, text) for name, model in others.items()
        },
        "window": {name: by_length(Windowed(model), budget, text) for name, model in pair.items()},
        "by position": {
            "plain": {
                name: by_position(model, budget, text, nullcontext())
                for name, model in pair.items()
            },
            "YaRN": {
                name: by_position(
                    model, budget, text, stretched(model, longest, chosen[name][longest])
                )
                for name, model in pair.items()
            },
        },
    }


def run(budget: Budget, part: str, seed: int) -> dict[str, Any]:
    """One seed of one part: train its arms in turn, and score each in many ways."""
    text = Text(budget)
    how, configs = replace(budget.training, seed=seed), ARMS[part](budget.model)
    one_step_first(configs, how, text.train)
    runs = train_matched(configs, how, text.train, progress=False)
    steps = dict.fromkeys(runs, how.steps)
    if part == "pair":
        longer = given_the_time_of(how, runs["RoPE"], runs["RoVE"])
        runs[PATIENT] = train(configs["RoPE"], longer, text.train, progress=False)
        steps[PATIENT] = longer.steps
    if any(one.interrupted for one in runs.values()):
        raise KeyboardInterrupt
    models: dict[str, Any] = {name: one.model.eval() for name, one in runs.items()}
    chosen = {name: choices(model, budget, text) for name, model in models.items()}
    found = scored(models, chosen, budget, text)
    if part == "pair":
        found |= dissected({name: models[name] for name in configs}, chosen, budget, text)
    found["training"] = {
        name: {"steps": steps[name], "processor seconds": one.cpu_s} for name, one in runs.items()
    }
    return found


def headline(found: dict[str, Any]) -> str:
    """The longest length of every arm."""
    last = {name: [*by.values()][-1]["nats per byte"] for name, by in found["plain"].items()}
    return ", ".join(f"{name} {loss:.3f}" for name, loss in last.items())


EXPERIMENT = Experiment(
    slug="length",
    question="What do RoPE and RoVE do beyond the length they were trained on, with and "
    "without YaRN?",
    budget=CPU,
    gpu_budget=GPU,
    run=run,
    jobs=lambda budget: [(part,) for part in ARMS],
    headline=headline,
    seeds=4,
)

if __name__ == "__main__":
    EXPERIMENT.command_line()
