r"""RoPE attention, RoVE attention, and the sum that defines them."""

from __future__ import annotations

import torch
from torch import Tensor

from rove_lab.convolution import attentive_convolution
from rove_lab.masking import Positions, attend, attention_mask, check_heads, positions_of
from rove_lab.rotary import RotaryEmbedding, Rotation, check_rotary
from rove_lab.self_attention import KVCache, RotarySelfAttention
from rove_lab.temperature import with_temperature

__all__ = [
    "KVCache",
    "RotarySelfAttention",
    "attention_pattern",
    "attentive_convolution",
    "rope_attention",
    "rove_attention",
]


def rope_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rotary: RotaryEmbedding,
    *,
    positions: Positions = None,
    key_positions: Positions = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = True,
    scale: float | None = None,
) -> Tensor:
    r"""RoPE attention, :math:`y_i = \sum_j A_{ij} v_j`, scores :math:`(R_i q_i)^\top (R_j k_j)`.

    The scores see the offset j - i; the message :math:`v_j` does not.
    Su et al. (2021), arXiv:2104.09864, equation 16.

    Args:
        q: Queries ``[..., heads, query_pos, d_head]``.
        k: Keys ``[..., n_kv_heads, key_pos, d_head]``.
        v: Values ``[..., n_kv_heads, key_pos, d_v]``.
        rotary: The rotations :math:`R_t`.
        positions: Of the queries in tokens, ``[pos]`` or ``[batch, pos]``; the last of the keys' by
            default.
        key_positions: Of the keys; the queries' by default where the lengths agree, else 0, 1, ...
        attn_mask: Boolean (True = may attend) or additive, as in SDPA.
        is_causal: By index, aligned bottom-right; combines with ``attn_mask``.
        scale: Factor of the logits, 1/√d_head by default; YaRN's temperature comes on top.

    Returns:
        ``[..., heads, query_pos, d_v]``; zeros for a query that may attend to nothing.

    Raises:
        TypeError: If dtypes do not fit.
        ValueError: If shapes, lengths or devices do not fit.

    Example:
        >>> q = k = v = torch.ones(1, 2, 3, 8)  # batch, heads, pos, d_head
        >>> rope_attention(q, k, v, RotaryEmbedding(8)).shape
        torch.Size([1, 2, 3, 8])
    """
    check_heads(q, k, v)
    here, there = rotations_at(q, k, rotary, positions, key_positions)
    q, scale = with_temperature(q, rotary, scale)
    return attend(here.apply(q), there.apply(k), v, attn_mask, is_causal, scale)


def rove_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rotary: RotaryEmbedding,
    *,
    value_rotary: RotaryEmbedding | None = None,
    positions: Positions = None,
    key_positions: Positions = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = True,
    scale: float | None = None,
) -> Tensor:
    r"""RoVE attention, :math:`\tilde y_i = R_i^{-1} \sum_j A_{ij} R_j v_j`.

    That is :math:`\sum_j A_{ij} R_{j-i} v_j`: the pattern is RoPE's, and the message turns with the
    offset. The rotations stand before and after the attention kernel, which is untouched.
    García-Castellanos, Weiler and Bekkers (2026), arXiv:2606.11275.

    Args:
        q: Queries ``[..., heads, query_pos, d_head]``.
        k: Keys ``[..., n_kv_heads, key_pos, d_head]``.
        v: Values ``[..., n_kv_heads, key_pos, d_v]``.
        rotary: The rotations :math:`R_t`.
        value_rotary: The values' rotations if they differ, as ``rotary.planes(...)``.
        positions: Of the queries in tokens, ``[pos]`` or ``[batch, pos]``; the last of the keys' by
            default.
        key_positions: Of the keys; the queries' by default where the lengths agree, else 0, 1, ...
        attn_mask: Boolean (True = may attend) or additive, as in SDPA.
        is_causal: By index, aligned bottom-right; combines with ``attn_mask``.
        scale: Factor of the logits, 1/√d_head by default; YaRN's temperature comes on top.

    Returns:
        ``[..., heads, query_pos, d_v]``; zeros for a query that may attend to nothing.

    Raises:
        TypeError: If dtypes do not fit.
        ValueError: If shapes, lengths or devices do not fit.

    Example:
        >>> rotary, (q, k, v) = RotaryEmbedding(8), torch.randn(3, 1, 2, 5, 8)
        >>> shifted = rove_attention(q, k, v, rotary, positions=torch.arange(5) + 17)
        >>> torch.allclose(rove_attention(q, k, v, rotary), shifted, atol=1e-5)
        True
    """
    check_heads(q, k, v)
    here, there = rotations_at(q, k, rotary, positions, key_positions)
    value_here, value_there = here, there
    if value_rotary is not None:
        value_here, value_there = rotations_at(q, k, value_rotary, positions, key_positions)
    q, scale = with_temperature(q, rotary, scale)
    _check_value_channels(v, value_here)
    v = value_there.apply(v)
    z = attend(here.apply(q), there.apply(k), v, attn_mask, is_causal, scale)
    return value_here.undo(z)


def attention_pattern(
    q: Tensor,
    k: Tensor,
    rotary: RotaryEmbedding,
    *,
    positions: Positions = None,
    key_positions: Positions = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = True,
    scale: float | None = None,
) -> Tensor:
    r"""The pattern :math:`A_{ij} = \mathrm{softmax}_j\, s\,(R_i q_i)^\top (R_j k_j)`.

    It is the same for RoPE and for RoVE. Su et al. (2021), arXiv:2104.09864, equation 16.

    Args:
        q: Queries ``[..., heads, query_pos, d_head]``.
        k: Keys ``[..., n_kv_heads, key_pos, d_head]``.
        rotary: The rotations :math:`R_t`.
        positions: Of the queries in tokens, ``[pos]`` or ``[batch, pos]``.
        key_positions: Of the keys.
        attn_mask: Boolean (True = may attend) or additive, as in SDPA.
        is_causal: By index, aligned bottom-right; combines with ``attn_mask``.
        scale: Factor s of the logits, 1/√d_head by default; YaRN's temperature comes on top.

    Returns:
        ``[..., heads, query_pos, key_pos]``, each row summing to 1, or to 0 if all is masked.

    Raises:
        TypeError: If dtypes do not fit.
        ValueError: If shapes, lengths or devices do not fit.

    Example:
        >>> attention_pattern(torch.zeros(1, 2, 8), torch.zeros(1, 2, 8), RotaryEmbedding(8))
        tensor([[[1.0000, 0.0000],
                 [0.5000, 0.5000]]])
    """
    check_heads(q, k)
    here, there = rotations_at(q, k, rotary, positions, key_positions)
    grouped = there.apply(k).repeat_interleave(q.shape[-3] // k.shape[-3], dim=-3)
    dtype = torch.promote_types(q.dtype, torch.float32)
    q, scale = with_temperature(q, rotary, scale)
    logits = here.apply(q).to(dtype) @ grouped.to(dtype).mT * scale
    mask = attention_mask(attn_mask, is_causal, q, k, logits.dtype)
    if mask is not None and mask.dtype == torch.bool:
        logits = logits.masked_fill(~mask, -torch.inf)
    elif mask is not None:
        logits = logits + mask
    empty = (logits == -torch.inf).all(-1, keepdim=True)  # softmax alone would give NaN here
    return logits.masked_fill(empty, 0).softmax(-1).masked_fill(empty, 0).to(q.dtype)


def rotations_at(
    q: Tensor,
    k: Tensor,
    rotary: RotaryEmbedding,
    positions: Positions,
    key_positions: Positions,
) -> tuple[Rotation, Rotation]:
    check_rotary(rotary)
    here, there = positions_of(q.shape[-2], k.shape[-2], positions, key_positions)
    at_query = rotary(here, device=q.device)
    return at_query, at_query if there is here else rotary(there, device=k.device)


def _check_value_channels(v: Tensor, rotation: Rotation) -> None:
    if v.shape[-1] != rotation.d_head:
        raise ValueError(
            f"expected v with d_head={rotation.d_head}, got {v.shape[-1]}: give the values a "
            f"rotation of their own, value_rotary=RotaryEmbedding({v.shape[-1]})."
        )
