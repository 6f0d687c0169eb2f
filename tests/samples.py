"""Inputs and weights of attention that are random and the same in every run."""

import itertools

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


HEADS, KV_HEADS, D_MODEL = 4, 2, 5


def attention_weights(layout):
    """W_Q, W_K, W_V, W_O of four heads on two KV heads, for a Layout of references_mixers."""
    return (
        normal(HEADS, D_MODEL, layout.d_head, seed=1),
        normal(KV_HEADS, D_MODEL, layout.d_head, seed=2),
        normal(KV_HEADS, D_MODEL, layout.d_head, seed=3),
        normal(HEADS, layout.d_head, D_MODEL, seed=4),
    )


def as_reference(rotary):
    """The reference with the frequencies of `rotary` (they have tests of their own)."""
    return ReferenceRotary(
        rotary.d_head,
        rotary.inv_freq.tolist(),
        rotary.plane_channels.tolist(),
        rotary.attention_factor**2,
    )


# base, rotary_dim, factor, original_n_ctx, (beta_fast, beta_slow), truncate
YARN_CASES = list(
    itertools.product(
        (10000.0, 150000.0, 1e6),
        (32, 64, 128),
        (1.0, 4.0, 40.0),
        (256, 4096, 32768),
        ((32.0, 1.0), (16.0, 2.0), (8.0, 0.5), (4.0, 4.0)),
        (True, False),
    )
)


def window_of(n, width):
    """True where key j is among the `width` tokens that end with query i, [n, n]."""
    i, j = torch.arange(n)[:, None], torch.arange(n)
    return (j <= i) & (i - j < width)
