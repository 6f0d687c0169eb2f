r"""Does a head write what it reads? The copying score of its full OV circuit at every offset."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rove_lab.factored_circuits import each_core, one_thread
from rove_lab.head_circuits import factored_ov
from rove_lab.head_weights import check_embedding, expand_heads, wide
from rove_lab.rotary import RotaryEmbedding

__all__ = ["copying_eigenvalues", "copying_score"]

_CHUNK = 8192  # tokens of the vocabulary at once, so that no float64 copy of W_E or W_U is held


def copying_eigenvalues(
    W_E: Tensor,
    W_V: Tensor,
    W_O: Tensor,
    W_U: Tensor,
    rotary: RotaryEmbedding,
    offsets: Tensor | Sequence[float],
    *,
    rotate_values: bool = True,
) -> Tensor:
    r"""The eigenvalues of the full OV circuit :math:`W_E W_V R_\delta^\top W_O W_U`.

    It has at most ``d_head`` that are not zero, those of the ``d_head`` × ``d_head`` core
    :math:`R_\delta^\top\,(W_O W_U W_E W_V)`; they are all that is computed. In a copying head they
    are positive. Elhage et al. (2021), "A Mathematical Framework for Transformer Circuits".

    Args:
        W_E: ``[d_vocab, d_model]``.
        W_V: ``[n_kv_heads, d_model, d_head]``, the norm's weight folded in; layers may be stacked
            on the first axis, those of ``W_O`` alike.
        W_O: ``[heads, d_head, d_model]``.
        W_U: ``[d_model, d_vocab]``, the final norm's weight folded in.
        rotary: The rotations :math:`R_\delta` of the values, as ``rotary.planes(...)`` for some.
        offsets: ``[n_offsets]`` in tokens, key minus query.
        rotate_values: ``False`` gives plain RoPE.

    Returns:
        ``[n_offsets, heads, d_head]``, complex128 (complex64 on a device without it), in no order.

    Raises:
        TypeError: If weights are not floating point.
        ValueError: If shapes do not fit.

    Example:
        >>> W = torch.eye(2)
        >>> copying_eigenvalues(W, W[None], W[None], W, RotaryEmbedding(2), [0])
        tensor([[[1.+0.j, 1.+0.j]]], dtype=torch.complex128)
    """
    circuit = factored_ov(W_V, W_O, rotary, offsets, rotate_values=rotate_values)
    d_model = W_V.shape[1]
    check_embedding("W_E", W_E, d_model, -1)
    check_embedding("W_U", W_U, d_model, 0)
    if W_E.shape[0] != W_U.shape[1]:
        raise ValueError(
            f"expected W_E and W_U of one vocabulary, got {W_E.shape[0]} and {W_U.shape[1]} "
            "tokens: only a square circuit has eigenvalues."
        )
    # Under plain RoPE every offset has the same ones.
    core = circuit.core if rotate_values else circuit.core[:1]
    inside = _inside(W_E, W_V, W_O, W_U)
    with one_thread():
        found = each_core(lambda C: torch.linalg.eigvals(C @ inside), core)
    return found.expand(len(circuit.core), -1, -1)


def copying_score(
    W_E: Tensor,
    W_V: Tensor,
    W_O: Tensor,
    W_U: Tensor,
    rotary: RotaryEmbedding,
    offsets: Tensor | Sequence[float],
    *,
    rotate_values: bool = True,
) -> Tensor:
    r"""The copying score :math:`\sum_k \operatorname{Re}\lambda_k / \sum_k |\lambda_k|`, −1 to 1.

    With :math:`\lambda_k` the eigenvalues of the full OV circuit (:func:`copying_eigenvalues`): 1
    where every token raises its own logit, about 0 for random weights. It looks at the diagonal
    only on average and stays high in heads that no longer do their work: read it beside others.
    Elhage et al. (2021), "A Mathematical Framework for Transformer Circuits".

    Args:
        W_E: ``[d_vocab, d_model]``.
        W_V: ``[n_kv_heads, d_model, d_head]``; layers may be stacked on the first axis.
        W_O: ``[heads, d_head, d_model]``.
        W_U: ``[d_model, d_vocab]``.
        rotary: The rotations :math:`R_\delta` of the values, as ``rotary.planes(...)`` for some.
        offsets: ``[n_offsets]`` in tokens, key minus query.
        rotate_values: ``False`` gives plain RoPE.

    Returns:
        ``[n_offsets, heads]``, no unit, at least float32; 0 for a head whose eigenvalues all are.

    Raises:
        TypeError: If weights are not floating point.
        ValueError: If shapes do not fit.

    Example:
        >>> W = torch.eye(2)  # one plane, one radian a token: cos(delta)
        >>> copying_score(W, W[None], W[None], W, RotaryEmbedding(2), [0, -1])
        tensor([[1.0000],
                [0.5403]])
    """
    found = copying_eigenvalues(W_E, W_V, W_O, W_U, rotary, offsets, rotate_values=rotate_values)
    size = found.abs().sum(-1)
    score = found.real.sum(-1) / size.where(size > 0, 1)
    return score.to(torch.promote_types(W_V.dtype, torch.float32))


def _inside(W_E: Tensor, W_V: Tensor, W_O: Tensor, W_U: Tensor) -> Tensor:
    """W_O W_U W_E W_V of every head, ``[heads, d_head, d_head]``, a part of the vocabulary at once.

    W_U W_E, shared by all heads, is worth forming where they have more channels than the stream.
    """
    heads, d_head, d_model = W_O.shape
    together = heads * d_head >= d_model
    total = torch.zeros((), dtype=wide(W_O).dtype, device=W_O.device)
    for unembed, embed in zip(W_U.split(_CHUNK, 1), W_E.split(_CHUNK, 0), strict=True):
        if together:
            total = total + wide(unembed) @ wide(embed)
        else:
            read = expand_heads("W_V", wide(embed) @ wide(W_V), heads)
            total = total + (wide(W_O) @ wide(unembed)) @ read
    return wide(W_O) @ expand_heads("W_V", total @ wide(W_V), heads) if together else total
