r"""Which query may attend to which key, and where each of them stands."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from rove_lab.arguments import check_flag, check_floating
from rove_lab.rotation import as_positions, autocasting

__all__ = ["attend", "attention_mask", "check_heads", "positions_of"]

Positions = Tensor | Sequence[float] | None


def positions_of(
    q_len: int, k_len: int, positions: Positions, key_positions: Positions
) -> tuple[Tensor, Tensor]:
    """The positions of queries and keys, the missing ones filled in.

    Keys default to the queries' where the lengths agree, else to ``0..k_len - 1``; queries default
    to the last ``q_len`` of the keys'.

    Args:
        q_len: Number of queries.
        k_len: Number of keys.
        positions: ``[pos]`` or ``[batch, pos]`` of the queries in tokens, or ``None``.
        key_positions: The same for the keys, or ``None``.

    Returns:
        Positions of the queries and of the keys.

    Raises:
        TypeError: If positions are boolean, complex or half precision.
        ValueError: If a length does not fit, or there are more queries than keys and nothing says
            where the queries stand.

    Example:
        >>> positions_of(2, 5, None, None)
        (tensor([3, 4]), tensor([0, 1, 2, 3, 4]))
    """
    here = None if positions is None else as_positions(positions)
    if key_positions is not None:
        there = as_positions(key_positions)
    elif here is not None and q_len == k_len:
        there = here
    else:
        there = torch.arange(k_len, device="cpu")
    if here is None:
        if q_len > k_len:
            raise ValueError(
                f"expected at most as many queries as keys, got {q_len} queries and {k_len} keys "
                "([..., heads, pos, d_head]: are the heads and pos axes swapped?); if this is "
                "meant, pass `positions`."
            )
        here = there if q_len == k_len else there[..., k_len - q_len :]
    checks = [("key_positions", there, k_len, "keys"), ("positions", here, q_len, "queries")]
    # first what was given, since the other was made from it
    for name, given, length, tokens in checks if key_positions is not None else reversed(checks):
        if given.dim() not in (1, 2) or given.shape[-1] != length:
            raise ValueError(
                f"expected {name} [pos] or [batch, pos] for {length} {tokens}, got shape "
                f"{list(given.shape)} ([..., heads, pos, d_head]: are heads and pos swapped?)."
            )
    return here, there


def attention_mask(
    attn_mask: Tensor | None, is_causal: bool, q: Tensor, k: Tensor, dtype: torch.dtype
) -> Tensor | None:
    r"""The mask that combines ``attn_mask`` with bottom-right causality: i may see j - i <= k - q.

    Args:
        attn_mask: Boolean (True = may attend) or additive, broadcasting to
            ``[..., heads, query_pos, key_pos]``; ``None`` masks nothing.
        is_causal: Whether the last query sees every key, the one before it all but the last...
        q: Queries ``[..., heads, query_pos, d_head]``.
        k: Keys ``[..., n_kv_heads, key_pos, d_head]``.
        dtype: The dtype of an additive result.

    Returns:
        A mask in the sense of ``scaled_dot_product_attention``, or ``None`` if nothing is masked.

    Raises:
        TypeError: If the mask is neither boolean nor floating point.
        ValueError: If it does not broadcast, or lies on another device.

    Example:
        >>> q, k = torch.zeros(1, 2, 8), torch.zeros(1, 3, 8)
        >>> attention_mask(None, True, q, k, q.dtype)
        tensor([[ True,  True, False],
                [ True,  True,  True]])
    """
    check_flag("is_causal", is_causal)
    shape = (*q.shape[:-1], k.shape[-2])
    if attn_mask is not None:
        _check_mask(attn_mask, shape, q.device)
        attn_mask = torch.atleast_2d(attn_mask)
        if attn_mask.dtype != torch.bool:
            # Only -inf is a mask: a large finite penalty must stay finite in a smaller dtype.
            limits = torch.finfo(dtype)
            penalty = attn_mask.to(dtype).clamp(min=limits.min, max=limits.max)
            attn_mask = penalty.masked_fill(attn_mask == -torch.inf, -torch.inf)
    q_len, k_len = shape[-2:]
    if not is_causal or q_len == 1:  # a single query comes last: it may see everything
        return attn_mask
    causal = torch.ones(q_len, k_len, dtype=torch.bool, device=q.device).tril(k_len - q_len)
    if attn_mask is None:
        return causal
    if attn_mask.dtype == torch.bool:
        return attn_mask & causal
    return attn_mask.masked_fill(~causal, -torch.inf)


def attend(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None, is_causal: bool, scale: float
) -> Tensor:
    r"""Attention on rotated tensors, :math:`z_i = \sum_j \mathrm{softmax}_j(s\,q_i^\top k_j) v_j`.

    Args:
        q: ``[..., heads, query_pos, d_head]``.
        k: ``[..., n_kv_heads, key_pos, d_head]``.
        v: ``[..., n_kv_heads, key_pos, d_v]``.
        attn_mask: As in ``scaled_dot_product_attention``.
        is_causal: By index, aligned bottom-right, combined with ``attn_mask``.
        scale: The factor s of the logits.

    Returns:
        ``[..., heads, query_pos, d_v]``; a query that may attend to nothing gives zeros.

    Example:
        >>> q = k = v = torch.ones(1, 3, 4)
        >>> attend(q, k, v, None, True, 0.5)[0, :, 0]
        tensor([1., 1., 1.])
    """
    # SDPA's own flag is the fast way, but it counts from the top left: the same only for squares.
    grouped = q.shape[-3] != k.shape[-3]
    check_flag("is_causal", is_causal)
    if scale <= 0:  # a kernel may mask with -inf before it multiplies
        q, scale = q * scale, 1.0
    if is_causal and attn_mask is None and q.shape[-2] == k.shape[-2]:
        return F.scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=scale, enable_gqa=grouped
        )
    mask = attention_mask(attn_mask, is_causal, q, k, _compute_dtype(q))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=grouped)


def check_heads(q: Tensor, k: Tensor, v: Tensor | None = None) -> None:
    """Checks that queries, keys and values ``[..., heads, pos, d_head]`` belong together.

    Args:
        q: Queries ``[..., heads, query_pos, d_head]``.
        k: Keys ``[..., n_kv_heads, key_pos, d_head]``.
        v: Values ``[..., n_kv_heads, key_pos, d_v]``, or ``None``.

    Raises:
        TypeError: If one is not a floating-point tensor, or dtypes differ outside autocast.
        ValueError: If shapes or devices do not fit.

    Example:
        >>> check_heads(torch.zeros(4, 3, 8), torch.zeros(2, 3, 8))
    """
    named = {"q": q, "k": k} if v is None else {"q": q, "k": k, "v": v}
    for name, x in named.items():
        check_floating(name, x)
        if x.dim() < 3:
            raise ValueError(
                f"expected {name} [..., heads, pos, d_head] with at least three axes, got "
                f"{list(x.shape)}: for a single head add the axis with {name}[None]."
            )
        if x.device != q.device:
            raise ValueError(
                f"expected q, k and v on one device, got q on {q.device} and {name} on {x.device}: "
                f"move it with {name}.to(q.device)."
            )
        # autocast makes one dtype of all but float64
        cast = autocasting(q) and torch.float64 not in (x.dtype, q.dtype)
        if x.dtype != q.dtype and not cast:
            raise TypeError(
                f"expected q, k and v of one dtype, got q {q.dtype} and {name} {x.dtype}: "
                f"cast with {name}.to(q.dtype)."
            )
        if x.shape[:-3] != q.shape[:-3]:
            raise ValueError(
                f"expected equal leading axes, got q {list(q.shape)} and {name} {list(x.shape)} "
                "for [..., heads, pos, d_head]."
            )
    if k.shape[-1] != q.shape[-1]:
        raise ValueError(
            f"expected q and k with the same d_head, got {q.shape[-1]} and {k.shape[-1]}."
        )
    if v is not None and v.shape[-3:-1] != k.shape[-3:-1]:
        raise ValueError(
            "expected v with the n_kv_heads and key positions of k, got k "
            f"{list(k.shape)} and v {list(v.shape)}."
        )
    if k.shape[-3] == 0 or q.shape[-3] % k.shape[-3]:
        raise ValueError(
            f"expected heads divisible by n_kv_heads, got {q.shape[-3]} and {k.shape[-3]} "
            "([..., heads, pos, d_head]: are the heads and pos axes swapped?)."
        )


def _check_mask(attn_mask: Tensor, shape: tuple[int, ...], device: torch.device) -> None:
    tensor = isinstance(attn_mask, Tensor)
    if not tensor or not (attn_mask.dtype == torch.bool or attn_mask.is_floating_point()):
        got = attn_mask.dtype if tensor else type(attn_mask).__name__
        raise TypeError(
            "expected attn_mask to be a boolean (True = may attend) or additive floating-point "
            f"tensor, got {got}: for zeros and ones use attn_mask.bool()."
        )
    try:
        fits = tuple(torch.broadcast_shapes(attn_mask.shape, shape)) == shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            "expected attn_mask to broadcast to [..., heads, query_pos, key_pos] = "
            f"{list(shape)}, got {list(attn_mask.shape)}: a padding mask [batch, key_pos] needs "
            "attn_mask[:, None, None, :]."
        )
    if attn_mask.device != device:
        raise ValueError(
            f"expected attn_mask on {device}, got {attn_mask.device}: move it there first."
        )


def _compute_dtype(q: Tensor) -> torch.dtype:
    cast = autocasting(q) and q.dtype != torch.float64  # autocast leaves float64 alone
    return torch.get_autocast_dtype(q.device.type) if cast else q.dtype
