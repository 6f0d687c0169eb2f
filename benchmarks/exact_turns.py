"""What a rotation should give: planes as complex numbers, and their turns to fifty digits."""

from __future__ import annotations

import mpmath
import torch
from torch import Tensor

DIGITS = 50


def exact_turns(positions: Tensor, d_head: int, base: int) -> Tensor:
    """Every plane's turn at every position, rounded once.

    Args:
        positions: ``[pos]``, integers of either sign.
        d_head: Channels of a head, all of which turn.
        base: Of the frequencies.

    Returns:
        ``exp(i t omega_m)``, complex128, ``[pos, plane]``.
    """
    with mpmath.workdps(DIGITS):
        omega = [mpmath.power(base, -mpmath.mpf(2 * m) / d_head) for m in range(d_head // 2)]
        turns = [[complex(mpmath.expj(t * w)) for w in omega] for t in positions.tolist()]
    return torch.tensor(turns, dtype=torch.complex128)


def planes(x: Tensor, interleaved: bool) -> Tensor:
    """Channels ``[..., d_head]`` as complex128 planes ``[..., plane]``."""
    pairs = x.double().unflatten(-1, (-1, 2) if interleaved else (2, -1))
    return torch.view_as_complex((pairs if interleaved else pairs.mT).contiguous())


def channels(z: Tensor, interleaved: bool) -> Tensor:
    """Planes as channels, float64: what :func:`planes` takes apart."""
    pairs = torch.view_as_real(z)
    return (pairs if interleaved else pairs.mT).flatten(-2)


def drawn_planes(*shape: int, generator: torch.Generator) -> Tensor:
    """Planes of length one that point anywhere, complex128."""
    angles = torch.rand(shape, generator=generator, dtype=torch.float64) * 2 * torch.pi
    return torch.polar(torch.ones_like(angles), angles)
