r"""One latent a token as key and as value: DeepSeek-V4's attention, which has to rotate back."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from rove_lab.arguments import check_flag, check_floating
from rove_lab.attention import rotations_at
from rove_lab.masking import Positions, attend, attention_mask, check_heads
from rove_lab.rotary import RotaryEmbedding
from rove_lab.temperature import with_temperature

__all__ = ["shared_kv_attention"]


def shared_kv_attention(
    q: Tensor,
    kv: Tensor,
    rotary: RotaryEmbedding,
    *,
    positions: Positions = None,
    key_positions: Positions = None,
    undo: bool = True,
    sinks: Tensor | None = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = True,
    scale: float | None = None,
) -> Tensor:
    r"""Attention whose keys are its values, :math:`z_i = R_i^{-1} \sum_j A_{ij} R_j c_j`.

    The rotation that the scores need is in every message too; undone at the query it leaves
    :math:`\sum_j A_{ij} R_{j-i} c_j`, RoVE with k = v = c. A sink is one more key, with a logit
    of its own and nothing to say. DeepSeek-V4, as ``modeling_deepseek_v4.py`` of Hugging Face
    transformers 5.24 has it, with ``RotaryEmbedding.from_config(config, layer)``;
    García-Castellanos et al. (2026), arXiv:2606.11275.

    Args:
        q: Queries ``[..., heads, query_pos, d_head]``.
        kv: The latents :math:`c_j`, not rotated, ``[..., 1, key_pos, d_head]``.
        rotary: The rotations :math:`R_t`.
        positions: Of the queries in tokens, ``[pos]`` or ``[batch, pos]``; the last of the keys' by
            default.
        key_positions: Of the latents; the queries' by default where the lengths agree, else
            0, 1, ...
        undo: ``False`` leaves out :math:`R_i^{-1}`: the output then tells absolute positions.
        sinks: A logit for each head, ``[heads]``, that joins the softmax's sum; no scale is
            applied to it.
        attn_mask: Boolean (True = may attend) or additive, as in SDPA: a sliding window, say.
        is_causal: By index, aligned bottom-right; combines with ``attn_mask``.
        scale: Factor of the logits, 1/√d_head by default; YaRN's temperature comes on top.

    Returns:
        ``[..., heads, query_pos, d_head]``; zeros for a query that may attend to nothing.

    Raises:
        TypeError: If dtypes do not fit, or ``undo`` is not a boolean.
        ValueError: If shapes, lengths or devices do not fit, or kv has more heads than one.

    Example:
        >>> rotary = RotaryEmbedding(8, rotary_dim=4, interleaved=True, trailing=True)
        >>> q, kv = torch.randn(1, 2, 5, 8), torch.randn(1, 1, 5, 8)
        >>> shared_kv_attention(q, kv, rotary, sinks=torch.zeros(2)).shape
        torch.Size([1, 2, 5, 8])
    """
    check_flag("undo", undo)
    _check_one_head(kv)
    check_heads(q, kv)
    here, there = rotations_at(q, kv, rotary, positions, key_positions)
    q, scale = with_temperature(q, rotary, scale)
    q, kv = here.apply(q), there.apply(kv)
    if sinks is not None:
        attn_mask, is_causal = _with_sinks(sinks, attn_mask, is_causal, q, kv), False
        kv = F.pad(kv, (0, 0, 0, 1))  # a key that scores 0 before its sink, a value that is 0
    z = attend(q, kv, kv, attn_mask, is_causal, scale)
    return here.undo(z) if undo else z


def _with_sinks(
    sinks: Tensor, attn_mask: Tensor | None, is_causal: bool, q: Tensor, kv: Tensor
) -> Tensor:
    """An additive mask with the sinks as one more column, ``[..., heads, query_pos, key_pos + 1]``.

    The kernel adds a mask after it has scaled, so a sink arrives as it is.
    """
    heads, q_len, k_len = q.shape[-3], q.shape[-2], kv.shape[-2]
    if check_floating("sinks", sinks).shape != (heads,) or sinks.device != q.device:
        raise ValueError(
            f"expected sinks [heads={heads}] on {q.device}, got {list(sinks.shape)} on "
            f"{sinks.device}: one logit for each query head."
        )
    dtype = torch.promote_types(q.dtype, torch.float32)
    mask = attention_mask(attn_mask, is_causal, q, kv, dtype)
    if mask is None:
        mask = torch.zeros(1, 1, dtype=dtype, device=q.device)
    elif mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, -torch.inf)
    lead = torch.broadcast_shapes(mask.shape[:-2], (heads,))
    column = sinks.to(dtype)[:, None, None].expand(*lead, q_len, 1)
    return torch.cat((mask.expand(*lead, q_len, k_len), column), -1)


def _check_one_head(kv: Tensor) -> None:
    if check_floating("kv", kv).dim() < 3 or kv.shape[-3] != 1:
        raise ValueError(
            f"expected kv [..., 1, key_pos, d_head], one latent for all heads, got "
            f"{list(kv.shape)}: a missing axis is kv.unsqueeze(-3); latents of several heads are "
            "rove_attention(q, kv, kv, rotary)."
        )
