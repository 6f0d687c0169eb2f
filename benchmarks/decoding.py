"""One token more against a long cache: the new token turns, and nothing that is held already."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from paired import DEVICE, Scores, interleaved, milliseconds, ratio

from rove_lab import KVCache, RotarySelfAttention


def step(rotate_values: bool, held: int, heads: int, d_head: int) -> Callable[[], torch.Tensor]:
    """One step of a decoder's layer whose cache holds so many tokens; the cache stays as it is."""
    torch.manual_seed(0)
    d_model = heads * d_head
    layer = RotarySelfAttention(d_model, heads, rotate_values=rotate_values).to(DEVICE)
    cache = KVCache()
    cache.k, cache.v = torch.randn(2, 1, heads, held, d_head, device=DEVICE)
    cache.positions = torch.arange(held)
    token = torch.randn(1, 1, d_model, device=DEVICE)

    @torch.no_grad()
    def run() -> torch.Tensor:
        out: torch.Tensor = layer(token, cache=copy.copy(cache))
        return out

    return run


def all_again(held: int, heads: int, d_head: int) -> Callable[[], object]:
    """What is spared: the cache's keys and values rotated anew."""
    rotation = RotarySelfAttention(heads * d_head, heads).rotary(torch.arange(held), device=DEVICE)
    k, v = torch.randn(2, 1, heads, held, d_head, device=DEVICE)
    return lambda: (rotation.apply(k), rotation.apply(v))


def measured(held: int, heads: int, d_head: int, budget: float) -> dict[str, Scores]:
    """A step with RoPE and with RoVE, and what rotating the cache anew would add to either.

    Args:
        held: Tokens in the cache.
        heads: Of the layer.
        d_head: Channels of each.
        budget: Seconds for the rounds.

    Returns:
        Rows by name.
    """
    times = interleaved(
        {
            "RoPE": step(False, held, heads, d_head),
            "RoVE": step(True, held, heads, d_head),
            "the cache turned again": all_again(held, heads, d_head),
        },
        budget,
    )
    again = ratio(times, "the cache turned again", "RoVE")
    return milliseconds(times) | ratio(times, "RoVE", "RoPE") | again
