"""What do rotations cost on a GPU? Some tables of rotation_speed.py, the most telling ones first.

A GPU needs large tensors to be busy, and a compiler takes seconds a table: so there are fewer
shapes than on a processor, and what time is left decides how many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import attention_core
import decoding
import gpt2_step
import kernels
import torch
import turning
from gpu_parts import Kept, Run, Values
from paired import LEAST_SECONDS
from peers import peers_here
from rotation_speed import added, words

from rove_lab.experiment import described
from rove_lab.model import GPTConfig

FLOAT, HALF = torch.float32, torch.bfloat16


@dataclass(frozen=True)
class Sizes:
    """What is measured.

    Args:
        short: Batch, heads, tokens and channels of many short texts.
        long: The same of one long text.
        gpt: A whole model.
        batch: Its sequences a step.
        held: Tokens in a decoder's cache.
        budget: Seconds for the rounds of one table.
    """

    short: tuple[int, int, int, int] = (8, 12, 1024, 64)
    long: tuple[int, int, int, int] = (1, 12, 8192, 64)
    gpt: GPTConfig = gpt2_step.SHAPE
    batch: int = 8
    held: int = 8192
    budget: float = 2.0


TINY = Sizes(
    (1, 2, 16, 8),
    (1, 2, 32, 8),
    GPTConfig(d_vocab=31, n_ctx=8, d_model=24, n_heads=3),
    batch=1,
    held=16,
    budget=0.0,
)
Table = tuple[str, str, Callable[[], Values]]  # section, case, measurement


def tables(sizes: Sizes, peers: dict[str, str]) -> list[Table]:
    """All that is measured, in the order of what would be missed most."""
    budget, heads, d_head = sizes.budget, sizes.long[1], sizes.long[3]

    def kernel(shape: tuple[int, ...], dtype: torch.dtype) -> Table:
        return "kernels", words(shape, dtype), partial(kernels.measured, shape, dtype, budget)

    def attention(shape: tuple[int, ...], dtype: torch.dtype) -> Table:
        measure = partial(attention_core.measured, shape, dtype, budget)
        return "attention", words(shape, dtype), measure

    def rotation(shape: tuple[int, ...], dtype: torch.dtype) -> Table:
        measure = partial(turning.measured, shape, dtype, peers, budget)
        return "rotation", words(shape, dtype), measure

    return [
        kernel(sizes.short, HALF),
        (
            "training step",
            f"batch of {sizes.batch}, bfloat16 by autocast",
            partial(gpt2_step.measured, sizes.gpt, sizes.batch, 4 * budget),
        ),
        attention(sizes.long, HALF),
        rotation(sizes.short, HALF),
        attention(sizes.short, HALF),
        (
            "decoding",
            f"{sizes.held} tokens held, float32",
            partial(decoding.measured, sizes.held, heads, d_head, budget),
        ),
        rotation(sizes.short, FLOAT),
        kernel(sizes.short, FLOAT),
        attention(sizes.short, FLOAT),
    ]


def recorded(section: str, case: str, measure: Callable[[], Values]) -> Values:
    """One table as a record has it."""
    values: Values = {}
    added(values, {section: {case: measure()}})
    return values


def run(given: Run) -> None:
    """Measures table by table; a case that fails is named in the record."""
    sizes, peers = TINY if given.tiny else Sizes(), peers_here()
    kept = Kept(
        "gpu_speed",
        "What do rotations cost on a GPU, beside a copy, beside other people's, inside attention?",
        {
            "sizes": described(sizes),
            "ratio": "median of the rounds' ratios; low and high are the first and last decile",
            "clock": f"wall, calls of about {1e3 * LEAST_SECONDS:g} ms between two readings",
            "peers": peers,
        },
        given,
    )
    for section, case, measure in tables(sizes, peers):
        kept.attempt(f"{section}, {case}", partial(recorded, section, case, measure))
    kept.ended()
