r"""QK and OV circuits as functions of the offset, and every score that is read from them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from rove_lab.composition import k_composition, q_composition, v_composition
from rove_lab.copying import copying_eigenvalues, copying_score
from rove_lab.factored_circuits import FactoredCircuit
from rove_lab.folding import (
    center_writing_weights,
    fold_layer_norm,
    fold_rms_norm,
    fold_value_bias,
)
from rove_lab.head_circuits import factored_ov, factored_qk, full_ov_circuit, full_qk_circuit
from rove_lab.head_patterns import induction_score, previous_token_score
from rove_lab.messages import pair_offsets, value_bias_z, z_from_pattern
from rove_lab.offset_attribution import offset_attribution, patch_offset
from rove_lab.ov_drift import SubspaceOverlap, ov_cosine, ov_drift, ov_subspace_overlap
from rove_lab.positional_scores import fast_share, positional_scores, qk_spectrum
from rove_lab.rotary import RotaryEmbedding

__all__ = [
    "FactoredCircuit",
    "SubspaceOverlap",
    "center_writing_weights",
    "copying_eigenvalues",
    "copying_score",
    "factored_ov",
    "factored_qk",
    "fast_share",
    "fold_layer_norm",
    "fold_rms_norm",
    "fold_value_bias",
    "full_ov_circuit",
    "full_qk_circuit",
    "induction_score",
    "k_composition",
    "offset_attribution",
    "ov_circuit",
    "ov_cosine",
    "ov_drift",
    "ov_subspace_overlap",
    "pair_offsets",
    "patch_offset",
    "positional_scores",
    "previous_token_score",
    "q_composition",
    "qk_circuit",
    "qk_spectrum",
    "v_composition",
    "value_bias_z",
    "z_from_pattern",
]


def qk_circuit(
    W_Q: Tensor,
    W_K: Tensor,
    rotary: RotaryEmbedding,
    offsets: Tensor | Sequence[float],
    *,
    max_bytes: int = 2**30,
) -> Tensor:
    r"""The QK circuits :math:`QK_\delta = W_Q R_\delta W_K^\top`, to look at.

    The score of query i and key j is :math:`x_i\,QK_{j-i}\,x_j^\top` on row vectors, before it is
    scaled by 1/√d_head, and by YaRN's m² on the channels that turn: give the ``W_Q`` and take the
    scale of ``with_temperature(W_Q, rotary)``. At offset 0 it is TransformerLens's QK.
    Elhage et al. (2021), "A Mathematical Framework for Transformer Circuits"; with the rotation,
    Su et al. (2021), arXiv:2104.09864, equation 16.

    Args:
        W_Q: ``[heads, d_model, d_head]``.
        W_K: ``[n_kv_heads, d_model, d_head]``; each serves ``heads / n_kv_heads`` query heads.
        rotary: The rotations :math:`R_\delta`.
        offsets: ``[n_offsets]`` in tokens, key minus query: integers or reals of either sign.
        max_bytes: The largest result to build; :func:`factored_qk` has no such limit.

    Returns:
        ``[n_offsets, heads, d_model, d_model]``, queries by keys, in the dtype of ``W_Q``.

    Raises:
        TypeError: If weights are not floating point.
        ValueError: If shapes or devices do not fit, or the result would exceed ``max_bytes``.

    Example:
        >>> import torch
        >>> eye = torch.eye(2)[None]
        >>> qk_circuit(eye, eye, RotaryEmbedding(2), [1])[0, 0]
        tensor([[ 0.5403, -0.8415],
                [ 0.8415,  0.5403]])
    """
    return factored_qk(W_Q, W_K, rotary, offsets).to_dense(max_bytes)


def ov_circuit(
    W_V: Tensor,
    W_O: Tensor,
    rotary: RotaryEmbedding,
    offsets: Tensor | Sequence[float],
    *,
    rotate_values: bool = True,
    max_bytes: int = 2**30,
) -> Tensor:
    r"""The OV circuits :math:`OV_\delta = W_V R_\delta^\top W_O`, to look at.

    A token :math:`x_j` attended to from i adds :math:`A_{ij}\,x_j\,OV_{j-i}` to the stream, on row
    vectors. At offset 0 it is TransformerLens's OV, and under plain RoPE at every offset.
    Elhage et al. (2021), "A Mathematical Framework for Transformer Circuits"; with the rotation,
    García-Castellanos et al. (2026), arXiv:2606.11275.

    Args:
        W_V: ``[n_kv_heads, d_model, d_head]``; each serves ``heads / n_kv_heads`` query heads.
        W_O: ``[heads, d_head, d_model]``.
        rotary: The rotations :math:`R_\delta` of the values, as ``rotary.planes(...)`` for some.
        offsets: ``[n_offsets]`` in tokens, key minus query: integers or reals of either sign.
        rotate_values: ``False`` gives plain RoPE.
        max_bytes: The largest result to build; :func:`factored_ov` has no such limit.

    Returns:
        ``[n_offsets, heads, d_model, d_model]``, source by destination, in the dtype of ``W_V``.

    Raises:
        TypeError: If weights are not floating point.
        ValueError: If shapes or devices do not fit, or the result would exceed ``max_bytes``.

    Example:
        >>> import torch
        >>> eye = torch.eye(2)[None]
        >>> ov_circuit(eye, eye, RotaryEmbedding(2), [1])[0, 0]
        tensor([[ 0.5403,  0.8415],
                [-0.8415,  0.5403]])
    """
    circuit = factored_ov(W_V, W_O, rotary, offsets, rotate_values=rotate_values)
    return circuit.to_dense(max_bytes)
