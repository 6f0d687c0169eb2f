"""Does what RoVE does beyond the trained length depend on the number of layers, or of heads?

Run it from a clone: `python experiments/shapes.py`, about 13 minutes of two idle cores. For each
shape it trains a matched pair of byte models on windows of 128 bytes, and scores the same held-out
bytes in windows of 1, 4 and 16 times that; it writes results/shapes/record.json.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from rove_lab.context_extension import choose_beta_fast, yarn
from rove_lab.data import standard_library
from rove_lab.evaluation import HELD_OUT_SEED, perplexity_by_length
from rove_lab.experiment import Experiment
from rove_lab.matched_pairs import rope_and_rove
from rove_lab.model import GPT, GPTConfig
from rove_lab.training import TrainConfig, train_matched
from rove_lab.training_time import one_step_first, seconds_a_step


@dataclass(frozen=True)
class Budget:
    """Which shapes are trained, and on how much text they are scored.

    Args:
        model: What all have in common, the width of a model among it: more heads are smaller ones.
        shapes: Layers and heads.
        training: Of every pair.
        times: The lengths that are read, in windows of the training.
        spans: Pieces of held-out text of the longest length, the same for all.
        spans_to_choose: Pieces of training text, from which each model's beta_fast is chosen.
        betas: Those it is chosen from.
    """

    model: GPTConfig
    shapes: tuple[tuple[int, int], ...]
    training: TrainConfig
    times: tuple[int, ...] = (1, 4, 16)
    spans: int = 12
    spans_to_choose: int = 4
    betas: tuple[float, ...] = (2.0, 4.0, 8.0, 32.0)

    @property
    def lengths(self) -> list[int]:
        """Bytes of a window that is read."""
        return [times * self.model.n_ctx for times in self.times]

    @property
    def named(self) -> dict[str, GPTConfig]:
        """The RoPE model of each shape."""

        def count(n: int, word: str) -> str:
            return f"{n} {word}" if n == 1 else f"{n} {word}s"

        return {
            f"{count(layers, 'layer')}, {count(heads, 'head')}": replace(
                self.model, n_layers=layers, n_heads=heads
            )
            for layers, heads in self.shapes
        }


CPU = Budget(
    GPTConfig.preset("tiny", rotate_values=False),
    ((1, 4), (2, 4), (4, 4), (2, 1), (2, 2), (2, 8)),
    TrainConfig(steps=300, batch_size=16, learning_rate=2e-3, final_rate=0.1, warmup_steps=15),
)
GPU = Budget(
    GPTConfig.preset("small", rotate_values=False),
    ((2, 8), (6, 8), (12, 8), (6, 1), (6, 4), (6, 16)),
    TrainConfig.preset("small"),
    spans=64,
)


def choices(model: GPT, budget: Budget, text: torch.Tensor) -> dict[int, float]:
    """The beta_fast for each length beyond the window, chosen on text of the training."""
    return {
        n: choose_beta_fast(model, text, n, candidates=budget.betas).beta_fast
        for n in budget.lengths
        if n > budget.model.n_ctx
    }


def yarn_as_chosen(
    model: GPT, chosen: dict[int, float]
) -> Callable[[int], AbstractContextManager[object]]:
    """YaRN with the beta_fast of each length; within the window, none."""

    def at(length: int) -> AbstractContextManager[object]:
        if length not in chosen:
            return nullcontext()
        return yarn(model, length / model.config.n_ctx, beta_fast=chosen[length])

    return at


def run(budget: Budget, shape: str, seed: int) -> dict[str, Any]:
    """One pair: trained step by step in turn, scored plain and under YaRN."""
    rope, longest = budget.named[shape], max(budget.lengths)
    text = standard_library(rope.n_ctx)
    held_out, to_choose = (
        next(part.at_length(longest).batches(count, HELD_OUT_SEED))[0]
        for part, count in ((text.held_out, budget.spans), (text.train, budget.spans_to_choose))
    )
    arms = rope_and_rove(rope)
    how = replace(budget.training, seed=seed)
    one_step_first(arms, how, text.train)
    runs = train_matched(arms, how, text.train, progress=False)
    if any(one.interrupted for one in runs.values()):
        raise KeyboardInterrupt
    found: dict[str, Any] = {"plain": {}, "YaRN": {}, "chosen": {}, "training": {}}
    for name, one in runs.items():
        model: Any = one.model.eval()
        chosen = choices(model, budget, to_choose)
        for table, extension in {"plain": None, "YaRN": yarn_as_chosen(model, chosen)}.items():
            read = perplexity_by_length(model, held_out, budget.lengths, extension=extension)
            found[table][name] = {str(n): {"nats per byte": math.log(p)} for n, p in read.items()}
        found["chosen"][name] = {str(n): {"beta_fast": beta} for n, beta in chosen.items()}
        found["training"][name] = {"processor seconds a step": seconds_a_step(one)["processor"]}
    return found


def headline(found: dict[str, Any]) -> str:
    """The longest length of both arms."""
    last = {name: [*by.values()][-1]["nats per byte"] for name, by in found["plain"].items()}
    return ", ".join(f"{name} {loss:.3f}" for name, loss in last.items())


EXPERIMENT = Experiment(
    slug="shapes",
    question="Does what RoVE does beyond the trained length depend on the number of layers, or of "
    "heads?",
    budget=CPU,
    gpu_budget=GPU,
    run=run,
    jobs=lambda budget: [(shape,) for shape in budget.named],
    headline=headline,
)

if __name__ == "__main__":
    EXPERIMENT.command_line()
