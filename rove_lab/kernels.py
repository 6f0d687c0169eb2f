r"""The kernels :math:`\psi_\delta = R_\delta W_V` of a RoVE head, and which planes they live in."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rove_lab.arguments import check_floating
from rove_lab.head_weights import as_offsets, check_projection
from rove_lab.rotary import RotaryEmbedding, check_rotary

__all__ = ["channel_frequencies", "kernel_spectrum", "offset_kernels", "quarter_turn"]


def offset_kernels(
    W_V: Tensor, rotary: RotaryEmbedding, offsets: Tensor | Sequence[float]
) -> Tensor:
    r"""The kernels over the offset, :math:`\psi_\delta = W_V R_\delta^\top` on row vectors.

    García-Castellanos et al. (2026), arXiv:2606.11275 (there :math:`R_\delta W_V`, on columns).

    Args:
        W_V: ``[heads, d_model, d_head]``, acting on row vectors as in TransformerLens.
        rotary: The rotations :math:`R_\delta`.
        offsets: ``[n_offsets]`` in tokens, key minus query.

    Returns:
        ``[n_offsets, heads, d_model, d_head]``, in the dtype of ``W_V``.

    Raises:
        TypeError: If ``W_V`` is not floating point.
        ValueError: If shapes do not fit.

    Example:
        >>> offset_kernels(torch.eye(2)[None], RotaryEmbedding(2), [0, 1])[:, 0, 0]
        tensor([[1.0000, 0.0000],
                [0.5403, 0.8415]])
    """
    check_projection("W_V", W_V, rotary)
    offsets = as_offsets(offsets)
    # Every row of W_V meets every offset: the offsets take the place of positions.
    rows = W_V.unsqueeze(-2).expand(-1, -1, len(offsets), -1)
    return rotary(offsets, device=W_V.device).apply(rows).movedim(-2, 0)


def kernel_spectrum(W_V: Tensor, rotary: RotaryEmbedding) -> Tensor:
    r"""The share of each rotary plane, :math:`s_m = \lVert P_m W_V\rVert^2 / \lVert W_V\rVert^2`.

    It says how the kernel forgets: :math:`\langle\psi_0,\psi_\delta\rangle/\lVert W_V\rVert^2 =
    \sum_m s_m\cos(\delta\omega_m) + s_{rest}`.

    Args:
        W_V: ``[heads, d_model, d_head]``, acting on row vectors.
        rotary: The rotations whose planes are meant.

    Returns:
        ``[heads, rotary_dim / 2 + 1]``, plane 0 (the fastest) first, the unrotated channels last;
        at least float32; a row sums to 1, or to 0 for a head whose values are all zero.

    Raises:
        TypeError: If ``W_V`` is not floating point.
        ValueError: If shapes do not fit.

    Example:
        >>> kernel_spectrum(torch.eye(4)[None], RotaryEmbedding(4, rotary_dim=2))
        tensor([[0.5000, 0.5000]])
    """
    check_projection("W_V", W_V, rotary)
    W = W_V.to(torch.promote_types(W_V.dtype, torch.float32))
    largest = W.abs().amax((-2, -1), keepdim=True)  # squares of very small weights would vanish
    energy = (W / largest.where(largest > 0, 1)).square().sum(-2)
    channels = rotary.plane_channels.to(W_V.device)
    rest = energy.index_fill(-1, channels.flatten(), 0).sum(-1, keepdim=True)
    share = torch.cat((energy[..., channels].sum(-1), rest), -1)
    total = share.sum(-1, keepdim=True)
    return share / total.where(total > 0, 1)


def channel_frequencies(rotary: RotaryEmbedding) -> Tensor:
    r"""The frequency of the plane that each channel belongs to, 0 where it is not rotated.

    Args:
        rotary: The rotations.

    Returns:
        ``[d_head]``, float64, in radians per token.

    Raises:
        TypeError: If ``rotary`` is not a :class:`RotaryEmbedding`.

    Example:
        >>> channel_frequencies(RotaryEmbedding(6, base=100.0, rotary_dim=4))
        tensor([1.0000, 0.1000, 1.0000, 0.1000, 0.0000, 0.0000], dtype=torch.float64)
    """
    check_rotary(rotary)
    frequencies = torch.zeros(rotary.d_head, dtype=torch.float64, device="cpu")
    frequencies[rotary.plane_channels] = rotary.inv_freq[:, None]
    return frequencies


def quarter_turn(x: Tensor, rotary: RotaryEmbedding) -> Tensor:
    r"""Every plane turned by 90 degrees and the unrotated channels at 0, :math:`\sum_m J_m x`.

    With :math:`P_m` the projection on plane m and :math:`P_{rest}` that on the unrotated channels,
    :math:`R_\delta = P_{rest} + \sum_m \cos(\delta\omega_m) P_m + \sin(\delta\omega_m) J_m`.

    Args:
        x: ``[..., d_head]``.
        rotary: The rotations whose planes are meant.

    Returns:
        A tensor of the same shape and dtype.

    Raises:
        TypeError: If ``x`` is not a floating-point tensor or ``rotary`` not an embedding.
        ValueError: If ``x`` does not have ``d_head`` channels.

    Example:
        >>> quarter_turn(torch.tensor([2.0, 1.0]), RotaryEmbedding(2))
        tensor([-1.,  2.])
    """
    check_rotary(rotary)
    if check_floating("x", x).shape[-1] != rotary.d_head:
        raise ValueError(
            f"expected x [..., d_head={rotary.d_head}], got {list(x.shape)}: channels come last."
        )
    a, b = rotary.plane_channels.to(x.device).unbind(-1)
    turned = torch.zeros_like(x)
    turned[..., a], turned[..., b] = -x[..., b], x[..., a]
    return turned
