r"""A GPT whose attention lies open: patterns read and replaced, far messages turned less."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rove_lab.arguments import check_floating, check_size
from rove_lab.attention import attention_pattern
from rove_lab.masking import Positions, positions_of
from rove_lab.model import GPT
from rove_lab.rotary import RotaryEmbedding, check_rotary
from rove_lab.self_attention import KVCache, RotarySelfAttention, SharedRotations

__all__ = ["open_attention", "turned_within"]

Patch = Callable[[int, Tensor], Tensor]


@contextmanager
def open_attention(
    model: GPT,
    *,
    patch: Patch | None = None,
    reach: int | None = None,
    planes: Sequence[int] | None = None,
) -> Iterator[list[Tensor]]:
    r"""A GPT with every pattern in sight while a ``with`` block lasts, then what it was.

    Without ``patch`` and ``reach`` it says what it always says. With them each layer makes
    :math:`\sum_j A'_{ij} R_{\max(j-i,\,-\text{reach})} v_j` of the patched pattern
    :math:`A'`: a message from farther away than ``reach`` turns as one from there would, whatever
    the scores are. Patching a pattern is causal intervention as in Wang et al. (2022),
    arXiv:2211.00593.

    Args:
        model: The model; other scalings of its rotations may be on.
        patch: From a layer and its pattern ``[batch, heads, query_pos, key_pos]`` to the pattern to
            use instead; None leaves it.
        reach: Tokens; None turns every message by its whole offset.
        planes: The planes whose turns ``reach`` limits; None for all.

    Yields:
        The patterns of the latest pass, one a layer, as they were used.

    Raises:
        TypeError: If it is not a :class:`~rove_lab.model.GPT`, or ``reach`` or a plane is not an
            integer.
        ValueError: If ``reach`` is not positive, planes are named without it or are none, no values
            turn that it could limit, or the model is called with a cache meanwhile.

    Example:
        >>> from rove_lab.model import GPTConfig
        >>> model = GPT(GPTConfig())
        >>> with open_attention(model) as patterns: _ = model(torch.tensor([[1, 2, 3]]))
        >>> [list(pattern.shape) for pattern in patterns]
        [[1, 4, 3, 3], [1, 4, 3, 3]]
    """
    if not isinstance(model, GPT):
        raise TypeError(
            f"expected a GPT, got {type(model).__name__}: other models have no layers known here; "
            "TransformerLens opens theirs."
        )
    if reach is not None:
        check_size("reach", reach)
    elif planes is not None:
        raise ValueError(f"expected a reach for planes={planes}, got none: pass reach.")
    layers: list[Any] = [block.attn for block in model.blocks]
    if reach is not None and not all(layer.rotate_values for layer in layers):
        raise ValueError(f"expected values that turn for reach={reach}, got a RoPE model: none do.")
    if planes is not None:
        for layer in layers:
            layer.value_rotary.planes(planes)  # refuses what is none
    patterns: list[Tensor] = [torch.empty(0)] * len(layers)
    how = {"patch": patch, "reach": reach, "planes": planes, "patterns": patterns}
    before = [vars(layer).get("forward") for layer in layers]  # of a block around this one
    try:
        for index, layer in enumerate(layers):
            layer.forward = partial(_in_the_open, layer, index, how)
        yield patterns
    finally:
        for layer, forward in zip(layers, before, strict=True):
            vars(layer).pop("forward", None)
            if forward is not None:
                layer.forward = forward


def turned_within(
    pattern: Tensor,
    v: Tensor,
    rotary: RotaryEmbedding,
    reach: int,
    *,
    positions: Tensor,
    planes: Sequence[int] | None = None,
) -> Tensor:
    r"""The sum :math:`z_i = \sum_j A_{ij} R_{\max(j-i,\,-\text{reach})} v_j`.

    Offsets up to ``reach`` turn the messages as RoVE does; all others like that one. Planes that
    are not named turn by the whole offset.

    Args:
        pattern: Causal, ``[..., heads, pos, pos]``.
        v: Values before they are turned ``[..., heads, pos, d_head]``.
        rotary: The values' rotations.
        reach: Tokens.
        positions: ``[pos]`` or ``[batch, pos]`` in tokens.
        planes: The planes that are limited; None for all.

    Returns:
        ``[..., heads, pos, d_head]``.

    Raises:
        TypeError: If a tensor is not of floating point, dtypes differ, or ``reach`` or a plane is
            not an integer.
        ValueError: If shapes or the positions' number do not fit, ``reach`` is not positive, or a
            plane is none of the rotations'.

    Example:
        >>> rotary, v = RotaryEmbedding(2), torch.tensor([[[1.0, 0.0]] * 4])
        >>> last = torch.zeros(1, 4, 4).index_fill_(-1, torch.tensor(0), 1.0)  # all look at token 0
        >>> turned_within(last, v, rotary, 1, positions=torch.arange(4))[0, 3]  # cos 1, -sin 1
        tensor([ 0.5403, -0.8415])
    """
    check_rotary(rotary)
    check_size("reach", reach)
    n = (1, *check_floating("v", v).shape)[-2]
    if check_floating("pattern", pattern).shape != (*v.shape[:-1], n):
        raise ValueError(
            f"expected a pattern [..., heads, pos, pos] for v {list(v.shape)}, got "
            f"{list(pattern.shape)}: repeat values that several heads share."
        )
    if pattern.dtype != v.dtype:
        raise TypeError(
            f"expected pattern and v of one dtype, got {pattern.dtype} and {v.dtype}: cast with "
            "pattern.to(v.dtype)."
        )
    positions, _ = positions_of(n, n, positions, None)
    there = rotary(positions, device=v.device)
    turned = there.apply(v)
    whole = there.undo(pattern @ turned)
    behind = positions[..., :, None] - positions[..., None, :]
    far = (behind > reach).to(v.device)
    far = far if far.dim() == 2 else far[:, None]
    edge = rotary(torch.full((v.shape[-2],), -float(reach)), device=v.device)
    limited = there.undo(pattern.masked_fill(far, 0) @ turned)
    limited = limited + edge.apply(pattern.masked_fill(~far, 0) @ v)
    if planes is None:
        return limited
    rotary.planes(planes)  # refuses what is none
    channels = torch.zeros(v.shape[-1], dtype=torch.bool)
    channels[rotary.plane_channels[list(planes)].flatten()] = True
    return limited.where(channels.to(v.device), whole)


def _in_the_open(
    layer: RotarySelfAttention,
    index: int,
    how: dict[str, Any],
    x: Tensor,
    *,
    positions: Positions = None,
    attn_mask: Tensor | None = None,
    cache: KVCache | None = None,
    rotations: SharedRotations | None = None,
) -> Tensor:
    """What a layer does, a step after the other."""
    if cache is not None:
        raise ValueError("expected no cache while attention lies open, got one: read it all.")
    if rotations is None:
        rotations = SharedRotations(x.shape[1], positions)
    places = rotations.positions

    def heads(weight: Tensor, bias: Tensor | None) -> Tensor:
        projected = torch.einsum("bpm,hmd->bhpd", x, weight)
        return projected if bias is None else projected + bias

    q, k = heads(layer.W_Q, layer.b_Q), heads(layer.W_K, layer.b_K)
    v = heads(layer.W_V, None).repeat_interleave(q.shape[1] // layer.W_V.shape[0], 1)
    pattern = attention_pattern(q, k, layer.rotary, positions=places, attn_mask=attn_mask)
    if how["patch"] is not None:
        pattern = how["patch"](index, pattern)
    how["patterns"][index] = pattern
    turn = layer.value_rotary
    if not layer.rotate_values:
        z = pattern @ v
    elif how["reach"] is None:
        there = rotations.of(turn, x.device)
        z = there.undo(pattern @ there.apply(v))
    else:
        z = turned_within(pattern, v, turn, how["reach"], positions=places, planes=how["planes"])
    out = torch.einsum("bhqd,hdm->bqm", z, layer.W_O)
    return out if layer.b_O is None else out + layer.b_O
