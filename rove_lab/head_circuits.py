r"""A head's circuits as functions of the offset: whom it looks at, and what it then sends."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rove_lab.arguments import check_flag
from rove_lab.factored_circuits import FactoredCircuit
from rove_lab.head_weights import (
    check_embedding,
    check_output,
    check_projection,
    expand_heads,
    wide,
)
from rove_lab.kernels import offset_kernels
from rove_lab.rotary import RotaryEmbedding

__all__ = ["factored_ov", "factored_qk", "full_ov_circuit", "full_qk_circuit"]


def factored_qk(
    W_Q: Tensor, W_K: Tensor, rotary: RotaryEmbedding, offsets: Tensor | Sequence[float]
) -> FactoredCircuit:
    r"""The QK circuits :math:`W_Q R_\delta W_K^\top` as factors; see :func:`qk_circuit`.

    Args:
        W_Q: ``[heads, d_model, d_head]``.
        W_K: ``[n_kv_heads, d_model, d_head]``.
        rotary: The rotations :math:`R_\delta`.
        offsets: ``[n_offsets]`` in tokens, key minus query.

    Returns:
        The circuits, from queries (rows) to keys (columns).

    Raises:
        TypeError: If weights are not floating point.
        ValueError: If shapes or devices do not fit.

    Example:
        >>> factored_qk(torch.ones(4, 8, 2), torch.ones(2, 8, 2), RotaryEmbedding(2), [0, -1])
        FactoredCircuit(shape=(2, 4, 8, 8), d_head=2)
    """
    check_projection("W_Q", W_Q, rotary)
    check_projection("W_K", W_K, rotary)
    core = value_core(rotary, offsets, W_Q, True).mT
    return FactoredCircuit(W_Q, core, expand_heads("W_K", W_K, len(W_Q)).mT)


def factored_ov(
    W_V: Tensor,
    W_O: Tensor,
    rotary: RotaryEmbedding,
    offsets: Tensor | Sequence[float],
    *,
    rotate_values: bool = True,
) -> FactoredCircuit:
    r"""The OV circuits :math:`W_V R_\delta^\top W_O` as factors; see :func:`ov_circuit`.

    Args:
        W_V: ``[n_kv_heads, d_model, d_head]``.
        W_O: ``[heads, d_head, d_model]``.
        rotary: The rotations :math:`R_\delta` of the values, as ``rotary.planes(...)`` for some.
        offsets: ``[n_offsets]`` in tokens, key minus query.
        rotate_values: ``False`` gives plain RoPE, :math:`W_V W_O` at every offset.

    Returns:
        The circuits, from the stream at the key (rows) to the stream at the query (columns).

    Raises:
        TypeError: If weights are not floating point.
        ValueError: If shapes or devices do not fit.

    Example:
        >>> factored_ov(torch.ones(2, 8, 2), torch.ones(4, 2, 8), RotaryEmbedding(2), [0, -1])
        FactoredCircuit(shape=(2, 4, 8, 8), d_head=2)
    """
    check_projection("W_V", W_V, rotary)
    check_output(W_O, rotary, W_V.shape[1])
    core = value_core(rotary, offsets, W_V, rotate_values)
    return FactoredCircuit(expand_heads("W_V", W_V, len(W_O)), core, W_O)


def full_qk_circuit(
    W_E: Tensor,
    W_Q: Tensor,
    W_K: Tensor,
    rotary: RotaryEmbedding,
    offsets: Tensor | Sequence[float],
) -> FactoredCircuit:
    r"""From token to token, :math:`W_E W_Q R_\delta W_K^\top W_E^\top`: who would look at whom.

    A score of a first layer, before the scale; :func:`fold_rms_norm` puts the norm's weight in.
    Elhage et al. (2021), "A Mathematical Framework for Transformer Circuits".

    Args:
        W_E: ``[d_vocab, d_model]``.
        W_Q: ``[heads, d_model, d_head]``.
        W_K: ``[n_kv_heads, d_model, d_head]``.
        rotary: The rotations :math:`R_\delta`.
        offsets: ``[n_offsets]`` in tokens, key minus query.

    Returns:
        The circuits, from query tokens (rows) to key tokens (columns); ``select`` some to look at.

    Raises:
        TypeError: If weights are not floating point.
        ValueError: If shapes or devices do not fit.

    Example:
        >>> W = torch.ones(2, 8, 4)
        >>> full_qk_circuit(torch.ones(99, 8), W, W, RotaryEmbedding(4), [0]).shape
        (1, 2, 99, 99)
    """
    inner = factored_qk(W_Q, W_K, rotary, offsets)
    check_embedding("W_E", W_E, W_Q.shape[1], -1)
    keys = expand_heads("W_K", _product(W_E, W_K), len(W_Q))
    return FactoredCircuit(_product(W_E, W_Q), inner.core, keys.mT)


def full_ov_circuit(
    W_E: Tensor,
    W_V: Tensor,
    W_O: Tensor,
    W_U: Tensor,
    rotary: RotaryEmbedding,
    offsets: Tensor | Sequence[float],
    *,
    rotate_values: bool = True,
) -> FactoredCircuit:
    r"""From token to logit, :math:`W_E W_V R_\delta^\top W_O W_U`: what a token attended to says.

    Elhage et al. (2021), "A Mathematical Framework for Transformer Circuits". It holds
    ``2 × heads × d_head × d_vocab`` numbers: take a layer at a time.

    Args:
        W_E: ``[d_vocab, d_model]``.
        W_V: ``[n_kv_heads, d_model, d_head]``.
        W_O: ``[heads, d_head, d_model]``.
        W_U: ``[d_model, d_vocab]``.
        rotary: The rotations :math:`R_\delta` of the values.
        offsets: ``[n_offsets]`` in tokens, key minus query.
        rotate_values: ``False`` gives plain RoPE.

    Returns:
        The circuits, from source tokens (rows) to logits (columns); ``select`` some to look at.

    Raises:
        TypeError: If weights are not floating point.
        ValueError: If shapes or devices do not fit.

    Example:
        >>> W_E, W_V = torch.ones(99, 8), torch.ones(2, 8, 4)
        >>> full_ov_circuit(W_E, W_V, W_V.mT, W_E.T, RotaryEmbedding(4), [0, -1]).shape
        (2, 2, 99, 99)
    """
    inner = factored_ov(W_V, W_O, rotary, offsets, rotate_values=rotate_values)
    check_embedding("W_E", W_E, W_V.shape[1], -1)
    check_embedding("W_U", W_U, W_V.shape[1], 0)
    sources = expand_heads("W_V", _product(W_E, W_V), len(W_O))
    return FactoredCircuit(sources, inner.core, _product(W_O, W_U))


def value_core(
    rotary: RotaryEmbedding, offsets: Tensor | Sequence[float], W: Tensor, rotate_values: bool
) -> Tensor:
    r""":math:`R_\delta^\top`, what a message as a row is multiplied by.

    Args:
        rotary: The rotations.
        offsets: ``[n_offsets]`` in tokens.
        W: A tensor on the device it is for.
        rotate_values: ``False`` gives the identity at every offset.

    Returns:
        ``[n_offsets, d_head, d_head]``.

    Raises:
        TypeError: If ``rotate_values`` is not a flag, or offsets are no numbers.
        ValueError: If offsets have another number of axes, or are not finite.

    Example:
        >>> value_core(RotaryEmbedding(2), [1], torch.ones(1), rotate_values=False)[0]
        tensor([[1., 0.],
                [0., 1.]], dtype=torch.float64)
    """
    turning = rotary if check_flag("rotate_values", rotate_values) else rotary.planes([])
    eye = wide(torch.eye(rotary.d_head, device=W.device))
    return offset_kernels(eye[None], turning, offsets)[:, 0]


def _product(A: Tensor, B: Tensor) -> Tensor:
    """A B in at least float32: a sum over d_model stalls in half precision."""
    dtype = torch.promote_types(torch.promote_types(A.dtype, B.dtype), torch.float32)
    return A.to(dtype) @ B.to(dtype)
