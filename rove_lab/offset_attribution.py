r"""Which offset's message mattered: logits by head and offset, and messages swapped."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rove_lab.arguments import check_floating, check_number
from rove_lab.head_weights import as_offsets, check_output
from rove_lab.masking import Positions
from rove_lab.messages import check_messages, frames, pair_offsets, z_from_pattern
from rove_lab.rotary import RotaryEmbedding

__all__ = ["offset_attribution", "patch_offset"]

_SAME = 1e-4  # tokens: offsets between real positions that differ by less are one


def offset_attribution(
    pattern: Tensor,
    values: Tensor,
    W_O: Tensor,
    direction: Tensor,
    rotary: RotaryEmbedding,
    offsets: Tensor | Sequence[float],
    *,
    positions: Positions = None,
    key_positions: Positions = None,
    rotate_values: bool = True,
) -> Tensor:
    r"""What each head adds to a logit by the messages of each offset.

    :math:`c_{hi}(\delta) = \sum_{j:\,t_j - t_i = \delta} A^h_{ij}\,v^h_j R_\delta^\top W_O^h u`.
    Over heads and all offsets (``range(1 - n, 1)`` under a causal pattern of n tokens) it sums to
    the layer's direct contribution :math:`\sum_h z^h_i W_O^h u`, but for ``b_O``. Direct logit
    attribution: Elhage et al. (2021), "A Mathematical Framework for Transformer Circuits".

    Args:
        pattern: ``[..., heads, query_pos, key_pos]``; a slice of queries for chosen ones, with
            their ``positions``.
        values: Before their rotation, ``[..., n_kv_heads, key_pos, d_head]``.
        W_O: ``[heads, d_head, d_model]``.
        direction: u, ``[d_model]`` or ``[..., d_model]``, one for each sequence: a column of
            ``W_U`` or a difference of two, times the final norm's weight. Its division by the
            stream's size is linear too: divide the result by that of each query.
        rotary: The rotations :math:`R_t` of the values, as ``rotary.planes(...)`` for some.
        offsets: ``[n_offsets]`` in tokens, key minus query, each once; messages of other offsets
            are left out. Between real positions they count to within 1e-4 tokens.
        positions: Of the queries in tokens, ``[pos]`` or ``[batch, pos]``; the last of the keys' by
            default.
        key_positions: Of the keys; the queries' by default where the lengths agree, else 0, 1, ...
        rotate_values: ``False`` for a model with plain RoPE.

    Returns:
        ``[..., heads, query_pos, n_offsets]``, in nats (logits), at least float32; 0 where no key
        stands at an offset.

    Raises:
        TypeError: If dtypes do not fit.
        ValueError: If shapes, lengths or devices do not fit, or an offset comes twice.

    Example:
        >>> pattern, values, W_O = torch.eye(3)[None], torch.ones(1, 3, 2), torch.ones(1, 2, 4)
        >>> u = torch.tensor([1.0, 0, 0, 0])  # each token sees itself: offset 0
        >>> offset_attribution(pattern, values, W_O, u, RotaryEmbedding(2), [-1, 0])[0, 0]
        tensor([0., 2.])
    """
    check_messages(pattern, values, rotary)
    _check_read_out(pattern, W_O, direction, rotary)
    wanted = as_offsets(offsets).cpu()
    if len(wanted.unique()) != len(wanted):
        raise ValueError("expected each offset once, got one twice: a message has one offset.")
    here, there = frames(pattern, rotary, positions, key_positions, rotate_values)
    dtype = torch.promote_types(torch.promote_types(pattern.dtype, values.dtype), torch.float32)
    # What a head's channels add to the logit, in the frame of each query and then in the common one
    read = torch.einsum("hdm,...m->...hd", W_O.to(dtype), direction.to(dtype))
    read = here.apply(read[..., None, :].expand(*pattern.shape[:-1], -1))
    sent = there.apply(values.to(dtype))
    sent = sent.repeat_interleave(pattern.shape[-3] // values.shape[-3], -3)
    added = pattern.to(dtype) * (read @ sent.mT)  # [..., heads, query_pos, key_pos]
    pairs = pair_offsets(pattern.shape[-2], pattern.shape[-1], positions, key_positions)
    column = _column(pairs, wanted).to(pattern.device).expand(added.shape)
    summed = added.new_zeros(*added.shape[:-1], len(wanted) + 1).scatter_add(-1, column, added)
    return summed[..., :-1]


def patch_offset(
    pattern: Tensor,
    values: Tensor,
    other_values: Tensor,
    rotary: RotaryEmbedding,
    offset: float,
    *,
    positions: Positions = None,
    key_positions: Positions = None,
    rotate_values: bool = True,
) -> Tensor:
    r"""The z of a pattern with the messages of one offset replaced, all others as they were.

    :math:`z_i = \sum_j A_{ij} R_{\delta_{ij}} v'_{ij}` with :math:`v'_{ij}` the other value where
    :math:`\delta_{ij} = \delta` and :math:`v_j` elsewhere. Zeros for ``other_values`` ablate;
    values of a corrupted prompt patch. In a hook at z it takes the place of z, or of one head's:
    ``z[..., h, :, :]``. Activation patching: Meng et al. (2022), arXiv:2202.05262.

    Args:
        pattern: ``[..., heads, query_pos, key_pos]``.
        values: Before their rotation, ``[..., n_kv_heads, key_pos, d_head]``.
        other_values: Of the same shape, before their rotation too.
        rotary: The rotations :math:`R_t` of the values, as ``rotary.planes(...)`` for some.
        offset: δ in tokens, key minus query: 0 or less under a causal pattern.
        positions: Of the queries in tokens, ``[pos]`` or ``[batch, pos]``; the last of the keys' by
            default.
        key_positions: Of the keys; the queries' by default where the lengths agree, else 0, 1, ...
        rotate_values: ``False`` for a model with plain RoPE.

    Returns:
        ``[..., heads, query_pos, d_head]``, in the dtype of the values.

    Raises:
        TypeError: If dtypes do not fit.
        ValueError: If shapes, lengths or devices do not fit, or no pair has this offset.

    Example:
        >>> pattern, v = torch.ones(1, 3, 3).tril() / 3, torch.ones(1, 3, 2)
        >>> patch_offset(pattern, v, 0 * v, RotaryEmbedding(2).planes([]), -2)[0, :, 0] * 3
        tensor([1., 2., 2.])
    """
    check_messages(pattern, values, rotary)
    check_messages(pattern, other_values, rotary, "other_values")
    if other_values.shape != values.shape or other_values.dtype != values.dtype:
        raise ValueError(
            f"expected other_values like values, {list(values.shape)} {values.dtype}, got "
            f"{list(other_values.shape)} {other_values.dtype}: take both at the same hook."
        )
    pairs = pair_offsets(pattern.shape[-2], pattern.shape[-1], positions, key_positions)
    wanted = torch.tensor([check_number("offset", offset)], dtype=torch.float64)
    here = _column(pairs, wanted) == 0
    if not bool(here.any()):
        raise ValueError(
            f"expected an offset between a query and a key, key minus query, got {offset}: no pair "
            "has it; a causal model has offsets of 0 and less."
        )
    here = here.to(pattern.device)
    dtype = torch.promote_types(values.dtype, torch.float32)  # round the sum, not its terms
    kept, patched = (
        z_from_pattern(
            pattern.masked_fill(hidden, 0),
            sent.to(dtype),
            rotary,
            positions=positions,
            key_positions=key_positions,
            rotate_values=rotate_values,
        )
        for hidden, sent in ((here, values), (~here, other_values))
    )
    return (kept + patched).to(values.dtype)


def _column(pairs: Tensor, offsets: Tensor) -> Tensor:
    """The index of each pair's offset among the offsets, their number where it is not there."""
    if len(offsets) == 0:
        return torch.zeros_like(pairs, dtype=torch.int64)
    # a difference of real positions is not quite what the caller calls it: 0.3 - 0.1 is not 0.2
    tolerance = _SAME if pairs.is_floating_point() else 0.0
    ordered, order = offsets.double().sort()
    above = torch.searchsorted(ordered, pairs.double()).clamp(max=len(offsets) - 1)
    below = (above - 1).clamp(min=0)
    distances = [(ordered[place] - pairs).abs() for place in (below, above)]
    nearest = torch.where(distances[0] < distances[1], below, above)
    return torch.where(torch.minimum(*distances) <= tolerance, order[nearest], len(offsets))


def _check_read_out(
    pattern: Tensor, W_O: Tensor, direction: Tensor, rotary: RotaryEmbedding
) -> None:
    check_floating("direction", direction)
    check_output(W_O, rotary)
    if W_O.shape[0] != pattern.shape[-3]:
        raise ValueError(
            f"expected W_O of {pattern.shape[-3]} heads, as the pattern has, got {W_O.shape[0]}."
        )
    d_model, batch = W_O.shape[-1], pattern.shape[:-3]
    if (
        direction.dim() == 0
        or direction.shape[-1] != d_model
        or direction.shape[:-1] not in ((), batch)
    ):
        raise ValueError(
            f"expected direction [d_model={d_model}] or {[*batch, d_model]}, got "
            f"{list(direction.shape)}: a column of W_U, as W_U[:, token]."
        )
    for name, x in (("W_O", W_O), ("direction", direction)):
        if x.device != pattern.device:
            raise ValueError(
                f"expected all on {pattern.device}, got {name} on {x.device}: move it there."
            )
