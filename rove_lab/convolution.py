r"""The sum that defines RoVE: attention as a convolution whose taps the data choose."""

from __future__ import annotations

import torch
from torch import Tensor

from rove_lab.arguments import check_floating

__all__ = ["attentive_convolution"]


def attentive_convolution(pattern: Tensor, x: Tensor, kernels: Tensor) -> Tensor:
    r"""The defining sum, :math:`y_i = \sum_j A_{ij}\, x_j \psi_{j-i}`, for any kernels.

    With kernels that do not depend on the offset it is ordinary attention; with a pattern that
    depends on the offset alone, an ordinary convolution. It costs O(n² d_in d_out): the slow,
    general form. Romero et al. (2020), arXiv:2002.03830, equation 10; García-Castellanos et al.
    (2026), arXiv:2606.11275.

    Args:
        pattern: ``[..., heads, query_pos, key_pos]``, the :math:`A_{ij}`.
        x: Inputs ``[..., key_pos, d_in]``, shared by the heads.
        kernels: ``[query_pos + key_pos - 1, heads, d_in, d_out]`` for the offsets
            ``-(query_pos - 1) .. key_pos - 1``; ``2n - 1`` of them for a square pattern.

    Returns:
        ``[..., heads, query_pos, d_out]``.

    Raises:
        TypeError: If dtypes differ.
        ValueError: If shapes or devices do not fit.

    Example:
        >>> shift = torch.eye(3).roll(1, 1)[None]  # token i attends to token i + 1
        >>> kernels = torch.arange(5.0).reshape(5, 1, 1, 1)  # the tap at offset +1 is 3
        >>> attentive_convolution(shift, torch.ones(3, 1), kernels)[0, :2, 0]
        tensor([3., 3.])
    """
    _check(pattern, x, kernels)
    q_len, k_len = pattern.shape[-2:]
    batch = pattern.shape[:-3] or x.shape[:-2]
    dtype = torch.promote_types(x.dtype, torch.float32)  # a long sum stalls in half precision
    out = x.new_zeros(*batch, pattern.shape[-3], q_len, kernels.shape[-1], dtype=dtype)
    for offset in range(-(q_len - 1), k_len):
        first = max(0, -offset)  # the first query that has a key at this offset
        weight = pattern.diagonal(offset, -2, -1).to(dtype)  # [..., heads, pairs]
        pairs = weight.shape[-1]
        sent = x[..., None, first + offset : first + offset + pairs, :]
        message = sent.to(dtype) @ kernels[offset + q_len - 1].to(dtype)  # [..., pairs, d_out]
        out[..., first : first + pairs, :] += weight[..., None] * message
    return out.to(x.dtype)


def _check(pattern: Tensor, x: Tensor, kernels: Tensor) -> None:
    check_floating("x", x)
    for name, other in (("pattern", pattern), ("kernels", kernels)):
        if check_floating(name, other).dtype != x.dtype:
            raise TypeError(
                f"expected pattern, x and kernels of one dtype, got x {x.dtype} and {name} "
                f"{other.dtype}: cast with {name}.to(x.dtype)."
            )
        if other.device != x.device:
            raise ValueError(
                f"expected all on {x.device}, got {name} on {other.device}: move it there."
            )
    if pattern.dim() < 3 or kernels.dim() != 4 or x.dim() < 2:
        raise ValueError(
            "expected pattern [..., heads, query_pos, key_pos], x [..., key_pos, d_in] and kernels "
            f"[offsets, heads, d_in, d_out], got {list(pattern.shape)}, {list(x.shape)} and "
            f"{list(kernels.shape)}: one head needs pattern[None] and kernels[:, None]."
        )
    if pattern.shape[:-3] and x.shape[:-2] and pattern.shape[:-3] != x.shape[:-2]:
        raise ValueError(
            "expected pattern [..., heads, query_pos, key_pos] and x [..., key_pos, d_in] with the "
            f"same leading axes, or one without any, got {list(pattern.shape)} and "
            f"{list(x.shape)}: x is shared by the heads and has no heads axis."
        )
    heads, q_len, k_len = pattern.shape[-3:]
    if min(q_len, k_len) < 1 or kernels.shape[0] != q_len + k_len - 1:
        raise ValueError(
            f"expected query_pos + key_pos - 1 = {q_len + k_len - 1} kernels, one for each offset, "
            f"got {kernels.shape[0]}: use torch.arange(-(query_pos - 1), key_pos) as offsets."
        )
    if kernels.shape[1] != heads:
        raise ValueError(
            f"expected kernels of {heads} heads, as the pattern has, got {kernels.shape[1]}: use "
            "kernels.expand(-1, heads, -1, -1) to share them."
        )
    if x.shape[-2] != k_len or x.shape[-1] != kernels.shape[2]:
        raise ValueError(
            f"expected x [..., {k_len}, {kernels.shape[2]}] to fit the pattern's keys and the "
            f"kernels' d_in, got {list(x.shape)}."
        )
