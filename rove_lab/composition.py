r"""How much of what one head writes a later head reads: Q-, K- and V-composition by offset."""

from __future__ import annotations

import torch
from torch import Tensor

from rove_lab.factored_circuits import FactoredCircuit, each_core
from rove_lab.head_weights import wide

__all__ = ["k_composition", "q_composition", "v_composition"]


def q_composition(ov: FactoredCircuit, qk: FactoredCircuit) -> Tensor:
    r"""Q-composition: does a later head choose where to look by what an earlier head wrote?

    :math:`\lVert OV_\delta QK_\epsilon\rVert_F / (\lVert OV_\delta\rVert_F
    \lVert QK_\epsilon\rVert_F)`, at the offset δ that the earlier message travelled and the offset
    ε at which the later head looks; about 1/√d_model for unrelated weights.
    Elhage et al. (2021), "A Mathematical Framework for Transformer Circuits".

    Args:
        ov: The earlier heads, from :func:`factored_ov`.
        qk: The later heads, from :func:`factored_qk`, their norm's weight folded in.

    Returns:
        ``[n_offsets, later_offsets, earlier_heads, later_heads]``, no unit, from 0 to 1.

    Raises:
        TypeError: If one is not a :class:`FactoredCircuit`.
        ValueError: If the widths or devices differ.

    Example:
        >>> from rove_lab import RotaryEmbedding, circuits
        >>> weights = (torch.eye(4)[None], torch.eye(4)[None], RotaryEmbedding(4), [0, -1])
        >>> q_composition(circuits.factored_ov(*weights), circuits.factored_qk(*weights)).shape
        torch.Size([2, 2, 1, 1])
    """
    return _composition(ov, qk)


def k_composition(ov: FactoredCircuit, qk: FactoredCircuit) -> Tensor:
    r"""K-composition: is a later head drawn to what an earlier head wrote?

    :math:`\lVert OV_\delta QK_\epsilon^\top\rVert_F / (\lVert OV_\delta\rVert_F
    \lVert QK_\epsilon\rVert_F)`: of a previous-token head at δ = −1 and an induction head, say.
    Elhage et al. (2021), "A Mathematical Framework for Transformer Circuits".

    Args:
        ov: The earlier heads, from :func:`factored_ov`.
        qk: The later heads, from :func:`factored_qk`, their norm's weight folded in.

    Returns:
        ``[n_offsets, later_offsets, earlier_heads, later_heads]``, no unit, from 0 to 1.

    Raises:
        TypeError: If one is not a :class:`FactoredCircuit`.
        ValueError: If the widths or devices differ.

    Example:
        >>> from rove_lab import RotaryEmbedding, circuits
        >>> weights = (torch.eye(4)[None], torch.eye(4)[None], RotaryEmbedding(4), [0, -1])
        >>> k_composition(circuits.factored_ov(*weights), circuits.factored_qk(*weights)).shape
        torch.Size([2, 2, 1, 1])
    """
    _check(ov, qk)
    return _composition(ov, qk.mT)


def v_composition(ov: FactoredCircuit, later_ov: FactoredCircuit) -> Tensor:
    r"""V-composition: does a later head pass on what an earlier head wrote?

    :math:`\lVert OV_\delta OV'_\epsilon\rVert_F / (\lVert OV_\delta\rVert_F
    \lVert OV'_\epsilon\rVert_F)`. The two messages travel δ and ε, but RoVE does not make it a
    function of δ + ε: the heads' weights stand between the two rotations.
    Elhage et al. (2021), "A Mathematical Framework for Transformer Circuits".

    Args:
        ov: The earlier heads, from :func:`factored_ov`.
        later_ov: The later heads, from :func:`factored_ov`, their norm's weight folded in.

    Returns:
        ``[n_offsets, later_offsets, earlier_heads, later_heads]``, no unit, from 0 to 1.

    Raises:
        TypeError: If one is not a :class:`FactoredCircuit`.
        ValueError: If the widths or devices differ.

    Example:
        >>> from rove_lab import RotaryEmbedding, circuits
        >>> weights = (torch.eye(4)[None], torch.eye(4)[None], RotaryEmbedding(4), [0, -1])
        >>> ov = circuits.factored_ov(*weights)
        >>> v_composition(ov, ov).shape
        torch.Size([2, 2, 1, 1])
    """
    return _composition(ov, later_ov)


def _composition(first: FactoredCircuit, second: FactoredCircuit) -> Tensor:
    """||A B|| / (||A|| ||B||), from matrices of d_head × d_head, one earlier head at a time."""
    _check(first, second)
    # |L C M D S|^2 = tr (C^T L^T L C) M (D S S^T D^T) M^T, with M = R L' between the two cores
    read = wide(first.left).mT @ wide(first.left)
    written = wide(second.right) @ wide(second.right).mT
    before = each_core(lambda C: C.mT @ read @ C, wide(first.core))
    after = each_core(lambda C: C @ written @ C.mT, wide(second.core))
    later = wide(second.left).transpose(0, 1).flatten(1)  # [d_model, later_heads * d_head]
    rows = []
    for head, right in enumerate(wide(first.right)):
        between = (right @ later).unflatten(1, second.left.shape[::2]).transpose(0, 1)
        seen = between @ after @ between.mT
        rows.append(torch.einsum("xij,ykij->xyk", before[:, head], seen))
    product = torch.stack(rows, 2).clamp(min=0).sqrt()
    size = first.norm()[:, None, :, None] * second.norm()[None, :, None, :]
    score = product / size.where(size > 0, 1)
    return score.to(torch.promote_types(first.left.dtype, torch.float32))


def _check(first: FactoredCircuit, second: FactoredCircuit) -> None:
    for circuit in (first, second):
        if not isinstance(circuit, FactoredCircuit):
            raise TypeError(
                f"expected a FactoredCircuit, got {type(circuit).__name__}: make it with "
                "factored_ov(W_V, W_O, rotary, offsets) or factored_qk(W_Q, W_K, rotary, offsets)."
            )
    if first.shape[-1] != second.shape[-2]:
        raise ValueError(
            f"expected circuits of one d_model, got {first.shape[-1]} and {second.shape[-2]}: "
            "take both from one model, without the embeddings."
        )
    if first.right.device != second.left.device:
        raise ValueError(
            f"expected circuits on one device, got {first.right.device} and {second.left.device}: "
            "move the weights."
        )
