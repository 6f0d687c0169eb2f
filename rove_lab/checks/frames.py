"""Chapter 4: RoVE around any kernel, the length of a sum, frames that do not match."""

from __future__ import annotations

import torch
from torch import Tensor

from rove_lab.attention import attention_pattern
from rove_lab.checks.verdict import call, compare, draw, read, require, verdict
from rove_lab.rotary import RotaryEmbedding

__all__ = ["check_any_kernel", "check_furthest", "check_length", "check_mismatch"]


def check_length(length: object) -> None:
    r"""Check ``length(delta, omega)``: of the mean of a message and the same message turned.

    Args:
        length: From an offset in tokens and a frequency in radians per token to
            :math:`\lVert \tfrac12 (v + R_\delta v) \rVert` for v of length 1 in one plane.

    Example:
        >>> check_length(lambda delta, omega: 1.0)
        Not solved yet: that is RoPE's: under RoVE the two messages point in different directions.
    """
    with verdict("a message keeps its length; a sum of messages loses what points apart."):
        for delta, omega in ((-7.0, 0.6), (-3.0, 0.4), (-2.0, 0.05), (-11.0, 1.0)):
            turn = torch.tensor(delta * omega, dtype=torch.float64)
            mistakes: dict[str, Tensor | float] = {
                "that is RoPE's: under RoVE the two messages point in different directions.": 1.0,
                "a length is not negative.": torch.cos(turn / 2),
                "that is the second message's part along the first, not the sum's length.": (
                    turn.cos()
                ),
                "the whole angle lies between the two; each is half of it from their mean.": (
                    turn.cos().abs()
                ),
                "each of the two gets half of the attention.": 2 * torch.cos(turn / 2).abs(),
                "torch takes angles in radians, not in degrees.": (turn / 2).deg2rad().cos().abs(),
                "lengths add as squares only where messages stand at right angles.": 0.5**0.5,
            }
            inputs = torch.tensor([delta, omega], dtype=torch.float64)
            compare(read(call(length, *inputs), []), torch.cos(turn / 2).abs(), mistakes)


def check_any_kernel(rove_head: object) -> None:
    r"""Check ``rove_head(q, k, v, rotary, t)``: causal RoVE attention at positions t.

    Args:
        rove_head: From q, k, v ``[heads, pos, d_head]``, an embedding and positions ``[pos]`` to
            ``[heads, pos, d_head]``.

    Example:
        >>> check_any_kernel(lambda q, k, v, rotary, t: v)
        Not solved yet: on one of our inputs it is off by up to ...
    """
    with verdict("the rotations stand before and after the kernel, so any kernel will do."):
        random = draw(402)
        for heads, start, interleaved in ((1, 0, False), (2, 23, True)):
            rotary = RotaryEmbedding(8, base=60.0, interleaved=interleaved)
            q, k, v = torch.randn(3, heads, 7, 8, generator=random, dtype=torch.float64)
            t = start + torch.randint(1, 4, (7,), generator=random).cumsum(0)
            at = rotary(t)
            A = attention_pattern(q, k, rotary, positions=t)
            flat = attention_pattern(q, k, rotary.planes([]), positions=t)
            everywhere = attention_pattern(q, k, rotary, positions=t, is_causal=False)
            right = _by_offset(A, v, rotary, t)
            by_index = torch.arange(7)
            indexed = attention_pattern(q, k, rotary, positions=by_index)
            mistakes = {
                "that is RoPE: the values are not rotated.": A @ v,
                "the values are rotated and never undone at the query.": A @ at.apply(v),
                "at the query you rotated once more instead of undoing.": (
                    at.apply(A @ at.apply(v))
                ),
                "the values are undone at the key; rotate there, and undo at the query.": (
                    at.apply(A @ at.undo(v))
                ),
                "a query reads the future: attention is causal.": (
                    _by_offset(everywhere, v, rotary, t)
                ),
                "queries and keys are to be rotated too.": _by_offset(flat, v, rotary, t),
                "tokens stand at the positions t, not at 0, 1, 2, ...": (
                    _by_offset(indexed, v, rotary, by_index)
                ),
            }
            compare(read(call(rove_head, q, k, v, rotary, t), v.shape), right, mistakes)


def check_furthest(furthest: object) -> None:
    """Check ``furthest(q, k, v, rotary)``: the plane that, turned alone, changes the output most.

    Args:
        furthest: From q, k, v ``[heads, pos, d_head]`` and an embedding to the plane's index.

    Example:
        >>> check_furthest(lambda q, k, v, rotary: 0)
        Not solved yet: not always the fastest: a plane needs energy in the values, too.
    """
    with verdict("a plane moves the output by how far it turns and by what the values hold there."):
        random = draw(403)
        # the last: a slow plane is the loudest, and a faster one moves the output further
        for strong, weak, gain in ((2, 1, 6), (1, 3, 6), (0, 1, 6), (5, 0, 6), (5, 0, 1.5)):
            rotary = RotaryEmbedding(12, base=20.0)
            q, k, v = torch.randn(3, 1, 12, 12, generator=random, dtype=torch.float64)
            v[..., rotary.plane_channels[strong]] *= gain
            v[..., rotary.plane_channels[weak]] *= 0.01
            A = attention_pattern(q, k, rotary)
            t = torch.arange(12)
            outputs = [_by_offset(A, v, rotary.planes([m]), t) for m in range(6)]
            change = torch.stack([(y - A @ v).norm() for y in outputs])
            size = torch.stack([y.norm() for y in outputs])
            loudness = v[..., rotary.plane_channels].square().sum((0, 1, 3))
            mistakes: dict[str, Tensor | float] = {
                "not always the loudest: a plane must turn, too.": loudness.argmax(),
                "not the longest output, but the one furthest from RoPE's.": size.argmax(),
                "not always the fastest: a plane needs energy in the values, too.": 0.0,
                "not always the slowest.": 5.0,
                "that is the plane that changes the output least.": change.argmin(),
                "planes are numbered from 0.": change.argmax() + 1.0,
            }
            answer = read(call(furthest, q, k, v, rotary), [])
            require(answer in range(7), f"expected the index of one of 6 planes, got {answer:g}.")
            compare(answer, change.argmax(), mistakes)


def check_mismatch(angle: object) -> None:
    r"""Check ``angle(i, j, omega, other)``: by how much each plane of a message is turned at i.

    Args:
        angle: From the query's and the key's position, the frequencies of the values and of the
            undo, both ``[planes]``, to angles ``[planes]`` in radians, counter-clockwise.

    Example:
        >>> check_mismatch(lambda i, j, omega, other: (j - i) * omega)
        Not solved yet: with two families no single offset is left: each position has its own.
    """
    with verdict("only one family for both leaves the offset; two leave the positions themselves."):
        random = draw(404)
        for i, j in ((9, 4), (31, 2), (50, 49)):
            omega, other = torch.rand(2, 5, generator=random, dtype=torch.float64)
            mistakes = {
                "with two families no single offset is left: each position has its own.": (
                    (j - i) * omega
                ),
                "the undo's frequencies turn the query's position only.": (j - i) * other,
                "the values' frequencies belong to the key's position j, the undo's to i.": (
                    j * other - i * omega
                ),
                "the sign is the wrong way round: the undo takes its angle off.": (
                    i * other - j * omega
                ),
                "the undo takes its angle off, it does not add it.": j * omega + i * other,
                "torch and this book take angles in radians.": (j * omega - i * other).rad2deg(),
                "the query never undoes its rotation.": j * omega,
            }
            got = read(call(angle, i, j, omega, other), omega.shape)
            wrapped = {hint: _on_the_circle(value) for hint, value in mistakes.items()}
            compare(_on_the_circle(got), _on_the_circle(j * omega - i * other), wrapped)


def _by_offset(A: Tensor, v: Tensor, rotary: RotaryEmbedding, t: Tensor) -> Tensor:
    """The sum over keys of A_ij R_{j-i} v_j, pair by pair."""
    return torch.einsum("hij,ijcd,hjd->hic", A, rotary.matrix(t - t[:, None]), v)


def _on_the_circle(angle: Tensor) -> Tensor:
    """An angle as a point, so that whole turns do not count."""
    return torch.stack((angle.cos(), angle.sin()))
