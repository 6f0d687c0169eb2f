r"""What a given pattern carries from keys to queries, :math:`z_i = \sum_j A_{ij} R_{j-i} v_j`."""

from __future__ import annotations

import torch
from torch import Tensor

from rove_lab.arguments import check_flag, check_floating
from rove_lab.masking import Positions, positions_of
from rove_lab.rotary import RotaryEmbedding, Rotation, check_rotary

__all__ = ["check_messages", "frames", "pair_offsets", "value_bias_z", "z_from_pattern"]


def z_from_pattern(
    pattern: Tensor,
    values: Tensor,
    rotary: RotaryEmbedding,
    *,
    positions: Positions = None,
    key_positions: Positions = None,
    rotate_values: bool = True,
) -> Tensor:
    r"""RoVE's z for a pattern that is given, :math:`z_i = R_i^{-1} \sum_j A_{ij} R_j v_j`.

    What :func:`rove_attention` gives for its own pattern; here the pattern may be edited.
    García-Castellanos et al. (2026), arXiv:2606.11275.

    Args:
        pattern: ``[..., heads, query_pos, key_pos]``.
        values: Before their rotation, ``[..., n_kv_heads, key_pos, d_head]``.
        rotary: The rotations :math:`R_t` of the values, as ``rotary.planes(...)`` for some.
        positions: Of the queries in tokens, ``[pos]`` or ``[batch, pos]``; the last of the keys' by
            default.
        key_positions: Of the keys; the queries' by default where the lengths agree, else 0, 1, ...
        rotate_values: ``False`` gives plain RoPE, :math:`\sum_j A_{ij} v_j`.

    Returns:
        ``[..., heads, query_pos, d_head]``, in the dtype of the values.

    Raises:
        TypeError: If dtypes do not fit.
        ValueError: If shapes, lengths or devices do not fit.

    Example:
        >>> z_from_pattern(torch.ones(1, 1, 2) / 2, torch.ones(1, 2, 4), RotaryEmbedding(4)).shape
        torch.Size([1, 1, 4])
    """
    check_messages(pattern, values, rotary)
    here, there = frames(pattern, rotary, positions, key_positions, rotate_values)
    sent = there.apply(values).repeat_interleave(pattern.shape[-3] // values.shape[-3], -3)
    dtype = torch.promote_types(torch.promote_types(pattern.dtype, values.dtype), torch.float32)
    return here.undo(pattern.to(dtype) @ sent.to(dtype)).to(values.dtype)


def value_bias_z(
    pattern: Tensor,
    b_V: Tensor,
    rotary: RotaryEmbedding,
    *,
    positions: Positions = None,
    key_positions: Positions = None,
    rotate_values: bool = True,
) -> Tensor:
    r"""What a bias on the values adds to z, :math:`\sum_j A_{ij} R_{j-i} b`.

    Under RoPE that is b at every query; under RoVE it depends on where the query attends, so that
    no bias of the output can stand for it (:func:`fold_value_bias`).

    Args:
        pattern: ``[..., heads, query_pos, key_pos]``.
        b_V: ``[n_kv_heads, d_head]``.
        rotary: The rotations :math:`R_t` of the values.
        positions: Of the queries in tokens, as in :func:`z_from_pattern`.
        key_positions: Of the keys.
        rotate_values: ``False`` gives plain RoPE.

    Returns:
        ``[..., heads, query_pos, d_head]``, in the dtype of the bias.

    Raises:
        TypeError: If dtypes do not fit.
        ValueError: If shapes, lengths or devices do not fit.

    Example:
        >>> b_V, rotary = torch.tensor([[1.0, 0.0]]), RotaryEmbedding(2)
        >>> value_bias_z(torch.eye(3).roll(-1, 1)[None, 1:], b_V, rotary)  # one token back
        tensor([[[ 0.5403, -0.8415],
                 [ 0.5403, -0.8415]]])
    """
    check_floating("b_V", b_V)
    check_rotary(rotary)
    if b_V.dim() != 2 or b_V.shape[-1] != rotary.d_head:
        raise ValueError(
            f"expected b_V [n_kv_heads, d_head={rotary.d_head}], got {list(b_V.shape)}: a torch "
            "Linear's bias needs .unflatten(0, (n_kv_heads, d_head))."
        )
    _check_pattern(pattern)
    values = b_V[:, None].expand(*pattern.shape[:-3], -1, pattern.shape[-1], -1)
    check_messages(pattern, values, rotary, "b_V")
    return z_from_pattern(
        pattern,
        values,
        rotary,
        positions=positions,
        key_positions=key_positions,
        rotate_values=rotate_values,
    )


def pair_offsets(
    q_len: int, k_len: int, positions: Positions = None, key_positions: Positions = None
) -> Tensor:
    r"""The offset of every pair, :math:`\delta_{ij} = t_j - t_i`, key minus query.

    Args:
        q_len: Number of queries.
        k_len: Number of keys.
        positions: Of the queries in tokens, ``[pos]`` or ``[batch, pos]``; the last of the keys' by
            default.
        key_positions: Of the keys; the queries' by default where the lengths agree, else 0, 1, ...

    Returns:
        ``[query_pos, key_pos]`` or ``[batch, 1, query_pos, key_pos]``, int64 or float64, on the
        CPU.

    Raises:
        TypeError: If positions are boolean, complex or half precision.
        ValueError: If a length does not fit.

    Example:
        >>> pair_offsets(2, 3)
        tensor([[-1,  0,  1],
                [-2, -1,  0]])
    """
    here, there = positions_of(q_len, k_len, positions, key_positions)
    real = here.is_floating_point() or there.is_floating_point()
    here, there = (t.cpu().to(torch.float64 if real else torch.int64) for t in (here, there))
    offsets = there[..., None, :] - here[..., :, None]
    return offsets if offsets.dim() == 2 else offsets.unsqueeze(-3)


def frames(
    pattern: Tensor,
    rotary: RotaryEmbedding,
    positions: Positions,
    key_positions: Positions,
    rotate_values: bool,
) -> tuple[Rotation, Rotation]:
    """The rotations of a pattern's queries and keys, none of which turns for plain RoPE.

    Args:
        pattern: ``[..., heads, query_pos, key_pos]``.
        rotary: The rotations of the values.
        positions: Of the queries in tokens, or ``None``.
        key_positions: Of the keys, or ``None``.
        rotate_values: ``False`` for plain RoPE.

    Returns:
        The queries' rotation and the keys'.

    Raises:
        TypeError: If ``rotate_values`` is not a flag, or positions are no numbers.
        ValueError: If a length does not fit.

    Example:
        >>> at_query, at_key = frames(torch.eye(3)[None], RotaryEmbedding(4), None, None, True)
        >>> at_key.apply(torch.ones(1, 3, 4)).shape
        torch.Size([1, 3, 4])
    """
    turning = rotary if check_flag("rotate_values", rotate_values) else rotary.planes([])
    here, there = positions_of(pattern.shape[-2], pattern.shape[-1], positions, key_positions)
    return turning(here, device=pattern.device), turning(there, device=pattern.device)


def check_messages(
    pattern: Tensor, values: Tensor, rotary: RotaryEmbedding, name: str = "values"
) -> None:
    """Checks that a pattern and the values it carries belong together.

    Args:
        pattern: ``[..., heads, query_pos, key_pos]``.
        values: ``[..., n_kv_heads, key_pos, d_head]``.
        rotary: The rotations of the values.
        name: What the caller calls the values.

    Raises:
        TypeError: If one is of another type.
        ValueError: If shapes or devices do not fit.

    Example:
        >>> check_messages(torch.eye(3)[None], torch.zeros(1, 3, 8), RotaryEmbedding(8))
    """
    _check_pattern(pattern)
    check_floating(name, values)
    check_rotary(rotary)
    wanted = [*pattern.shape[:-3], "n_kv_heads", pattern.shape[-1], rotary.d_head]
    got: list[object] = list(values.shape)
    if len(got) != len(wanted) or got[:-3] + got[-2:] != wanted[:-3] + wanted[-2:]:
        raise ValueError(
            f"expected {name} [{', '.join(map(str, wanted))}] to fit the pattern's "
            f"{list(pattern.shape)} and the rotation's d_head, got {got}: are heads and pos "
            "swapped?"
        )
    if values.shape[-3] == 0 or pattern.shape[-3] % values.shape[-3]:
        raise ValueError(
            f"expected heads divisible by n_kv_heads, got {pattern.shape[-3]} in the pattern and "
            f"{values.shape[-3]} in {name}."
        )
    if values.device != pattern.device:
        raise ValueError(
            f"expected all on {pattern.device}, got {name} on {values.device}: move it there."
        )


def _check_pattern(pattern: Tensor) -> None:
    if check_floating("pattern", pattern).dim() < 3 or 0 in pattern.shape[-3:]:
        raise ValueError(
            "expected pattern [..., heads, query_pos, key_pos], got "
            f"{list(pattern.shape)}: one head needs pattern[None]."
        )
