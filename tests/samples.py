"""Inputs of attention that are random and the same in every run."""

import torch
from references import ReferenceRotary


def normal(*shape, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=dtype)


def inputs(q_len=4, k_len=4, n_heads=4, n_kv_heads=2, d_head=8, batch=2, **how):
    return (
        normal(batch, n_heads, q_len, d_head, seed=1, **how),
        normal(batch, n_kv_heads, k_len, d_head, seed=2, **how),
        normal(batch, n_kv_heads, k_len, d_head, seed=3, **how),
    )


def as_reference(rotary):
    """The reference with the frequencies of `rotary` (they have tests of their own)."""
    return ReferenceRotary(
        rotary.d_head,
        rotary.inv_freq.tolist(),
        rotary.plane_channels.tolist(),
        rotary.attention_factor**2,
    )
