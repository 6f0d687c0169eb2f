r"""The two layouts of rotary channels, halves and interleaved, and the way between them."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from rove_lab.arguments import check_floating
from rove_lab.rotary import RotaryEmbedding, check_rotary

__all__ = ["channel_permutation", "convert_layout"]


def channel_permutation(rotary: RotaryEmbedding) -> Tensor:
    r"""The permutation :math:`\pi` of channels to the other layout, :math:`x'_c = x_{\pi(c)}`.

    Use it on whatever :func:`convert_layout` does not move: biases of q and k, cached tensors.

    Args:
        rotary: The embedding in its present layout.

    Returns:
        ``[d_head]``, int64: ``x[..., channel_permutation(rotary)]`` is in the other layout.

    Raises:
        TypeError: If ``rotary`` is not a :class:`RotaryEmbedding`.

    Example:
        >>> channel_permutation(RotaryEmbedding(6, rotary_dim=4))
        tensor([0, 2, 1, 3, 4, 5])
    """
    check_rotary(rotary)
    permutation = torch.arange(rotary.d_head, device="cpu")
    permutation[_other(rotary).plane_channels] = rotary.plane_channels
    return permutation


def convert_layout(
    W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor, rotary: RotaryEmbedding
) -> tuple[Tensor, Tensor, Tensor, Tensor, RotaryEmbedding]:
    r"""The same attention with interleaved channels as halves, or halves as interleaved.

    All four weights move. Under RoPE moving the queries and keys is enough, since the values' order
    cancels between :math:`W_V` and :math:`W_O`; under RoVE the values turn as well, so their
    channels and the rows of :math:`W_O` must follow.

    Args:
        W_Q: ``[heads, d_model, d_head]``.
        W_K: ``[n_kv_heads, d_model, d_head]``.
        W_V: ``[n_kv_heads, d_model, d_head]``.
        W_O: ``[heads, d_head, d_model]``.
        rotary: The embedding in the present layout.

    Returns:
        The four weights in the other layout, and the embedding to use with them.

    Raises:
        TypeError: If a weight is not a floating-point tensor.
        ValueError: If the weights do not fit the embedding, or one another.

    Example:
        >>> W = torch.randn(1, 8, 4)
        >>> convert_layout(W, W, W, W.mT, RotaryEmbedding(4))[-1]
        RotaryEmbedding(4, base=10000.0, interleaved=True)
    """
    named = {"W_Q": (W_Q, -1), "W_K": (W_K, -1), "W_V": (W_V, -1), "W_O": (W_O, -2)}
    check_rotary(rotary)
    _check_weights(named, rotary.d_head)
    order = channel_permutation(rotary)
    moved = [W.index_select(axis, order.to(W.device)) for W, axis in named.values()]
    return moved[0], moved[1], moved[2], moved[3], _other(rotary)


def _other(rotary: RotaryEmbedding) -> RotaryEmbedding:
    other = copy.copy(rotary)
    other.interleaved = not rotary.interleaved
    return other


def _check_weights(named: dict[str, tuple[Tensor, int]], d_head: int) -> None:
    W_Q = check_floating("W_Q", named["W_Q"][0])
    for name, (W, axis) in named.items():
        check_floating(name, W)
        if W.dim() != 3 or W.shape[axis] != d_head:
            shape = "[heads, d_head, d_model]" if name == "W_O" else "[heads, d_model, d_head]"
            raise ValueError(
                f"expected {name} {shape} with d_head={d_head}, got {list(W.shape)}: a torch "
                "Linear's weight is its transpose, all heads in one axis."
            )
        if (W.dtype, W.device) != (W_Q.dtype, W_Q.device) or W.shape[-3 - axis] != W_Q.shape[-2]:
            raise ValueError(
                f"expected {name} with the dtype, device and d_model of W_Q, got {W.dtype}, "
                f"{W.device}, {list(W.shape)} beside {W_Q.dtype}, {W_Q.device}, {list(W_Q.shape)}: "
                "pass the four weights of one layer."
            )
    q, k, v, o = (len(W) for W, _ in named.values())
    if k != v or q != o or k == 0 or q % k:
        raise ValueError(
            "expected W_Q and W_O of the same heads, W_K and W_V of the same n_kv_heads dividing "
            f"them, got {q}, {o}, {k} and {v}: pass the four weights of one layer."
        )
