"""Chapter 2: what stands between a query and a key, and what each plane adds to their score."""

from __future__ import annotations

import torch
from torch import Tensor

from rove_lab.checks.verdict import call, compare, draw, read, require, verdict
from rove_lab.rotary import RotaryEmbedding

__all__ = ["check_mended_query", "check_only_queries", "check_parts"]


def check_only_queries(between: object) -> None:
    r"""Check ``between(rotary, i, j)``: the M in :math:`(R_i q)^\top k = q^\top M k`.

    Args:
        between: From an embedding and the positions of query and key to M ``[d_head, d_head]``.

    Example:
        >>> check_only_queries(lambda rotary, i, j: rotary.matrix(j - i))
        Not solved yet: that is RoPE, where the key is rotated too.
    """
    with verdict("M is the transpose of R_i: the score sees where the query is, not how far off."):
        for rotary, i, j in (
            (RotaryEmbedding(4, base=30.0), 7, 2),
            (RotaryEmbedding(6, base=50.0, interleaved=True), 5, 11),
            (RotaryEmbedding(8, base=90.0, rotary_dim=4), 13, 4),
        ):
            mistakes = {
                "that is RoPE, where the key is rotated too.": rotary.matrix(j - i),
                "that is R_i itself: in the score the query's rotation is transposed.": (
                    rotary.matrix(i)
                ),
                "no offset is left where only one of the two is rotated.": (rotary.matrix(i - j)),
                "that is the key's rotation; here only the query is rotated.": rotary.matrix(j),
                "the key is not rotated, its position j cannot matter.": rotary.matrix(-j),
            }
            got = read(call(between, rotary, i, j), [rotary.d_head, rotary.d_head])
            compare(got, rotary.matrix(i).mT, mistakes)


def check_parts(parts: object) -> None:
    r"""Check ``parts(q, k, rotary, delta)``: what each plane adds to :math:`q^\top R_\delta k`.

    Args:
        parts: From a query and a key ``[d_head]``, an embedding and an offset to
            ``[d_head / 2]``.

    Example:
        >>> check_parts(lambda q, k, rotary, delta: (q * k)[rotary.plane_channels].sum(-1))
        Not solved yet: nothing has been rotated: this is the score at offset 0.
    """
    with verdict("a score is a sum of waves over the offset, one from each plane."):
        random = draw(202)
        for rotary, delta in (
            (RotaryEmbedding(8, base=40.0), -5),
            (RotaryEmbedding(6, base=70.0, interleaved=True), -3),
            (RotaryEmbedding(10, base=20.0), 4),
        ):
            q, k = torch.randn(2, rotary.d_head, generator=random, dtype=torch.float64)
            right = _waves(q, k, rotary, delta)
            other = RotaryEmbedding(
                rotary.d_head, base=rotary.base, interleaved=not rotary.interleaved
            )
            mistakes = {
                "nothing has been rotated: this is the score at offset 0.": _waves(q, k, rotary, 0),
                "look at the sign of the offset: it is key minus query.": (
                    _waves(q, k, rotary, -delta)
                ),
                "this embedding pairs other channels: see rotary.plane_channels.": (
                    _waves(q, k, other, delta)
                ),
                "the rotation is right, but you added the products of channels that do not share "
                "a plane: see rotary.plane_channels.": _other_pairs(q, k, rotary, delta),
                "a score is not yet divided by the square root of d_head in this equation.": (
                    right / rotary.d_head**0.5
                ),
            }
            answer = call(parts, q, k, rotary, delta)
            require(
                not (isinstance(answer, Tensor) and answer.dim() == 0),
                "that is one number, the whole score: give one for each plane.",
            )
            compare(read(answer, [rotary.d_head // 2]), right, mistakes)


def check_mended_query(mended: object) -> None:
    r"""Check ``mended(query, rotary, factor)``: the query that looks one token back again.

    Args:
        mended: From :math:`R_{-1} k`, the embedding it was made for and the factor that frequencies
            are divided by, to the query ``[d_head]`` that fits k best one token back.

    Example:
        >>> check_mended_query(lambda query, rotary, factor: query)
        Not solved yet: unchanged, the query fits its key best at an offset of -factor tokens.
    """
    with verdict(
        "interpolation stretches the offsets a head looks at; turning its query mends it."
    ):
        random = draw(203)
        for rotary, factor in (
            (RotaryEmbedding(8, base=40.0), 4.0),
            (RotaryEmbedding(6, base=90.0, interleaved=True), 2.0),
            (RotaryEmbedding(4, base=10.0), 1.5),
        ):
            key = torch.randn(rotary.d_head, generator=random, dtype=torch.float64)
            query = rotary.matrix(-1) @ key
            mistakes = {
                "unchanged, the query fits its key best at an offset of -factor tokens.": query,
                "it is turned the wrong way: look at the sign of the angle.": (
                    rotary.matrix(1 / factor - 2) @ key
                ),
                "take the old rotation off first, then put the new one on.": (
                    rotary.matrix(-1 - 1 / factor) @ key
                ),
                "that is the key itself: the old rotation is off, the new one is missing.": key,
                "frequencies are divided by the factor; you multiplied.": (
                    rotary.matrix(-factor) @ key
                ),
            }
            got = read(call(mended, query, rotary, factor), query.shape)
            compare(got, rotary.matrix(-1 / factor) @ key, mistakes)


def _waves(q: Tensor, k: Tensor, rotary: RotaryEmbedding, delta: float) -> Tensor:
    """|q_m| |k_m| cos(phi_m + delta omega_m), with phi_m the angle from query to key."""
    first, second = rotary.plane_channels.T
    a, b = torch.complex(q[first], q[second]), torch.complex(k[first], k[second])
    return a.abs() * b.abs() * torch.cos(b.angle() - a.angle() + delta * rotary.inv_freq)


def _other_pairs(q: Tensor, k: Tensor, rotary: RotaryEmbedding, delta: float) -> Tensor:
    """The channels' products after the right rotation, added in the other layout's pairs."""
    product = q * (rotary.matrix(delta) @ k)
    halves = product.reshape(2, -1).sum(0)
    return halves if rotary.interleaved else product.reshape(-1, 2).sum(-1)
