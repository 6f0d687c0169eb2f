"""How wrong a turned vector is, and how much a score depends on where it is computed.

Vectors have planes of length one that point anywhere, rounded to the dtype before anyone turns
them. The error of a plane is its distance from the exact turn, so 2 is the wrong side.
"""

from __future__ import annotations

import torch
from exact_turns import channels, drawn_planes, exact_turns, planes
from paired import DEVICE, Scores, rounded
from rotations_in_use import BASE, D_HEAD, Library, Setting
from torch import Tensor

HEADS, TOKENS = 4, 64
NEAREST = 0.8  # positions are drawn from this share of a stop up to it
FARTHEST_KEY = 128  # tokens from a query to its key


def turned(library: Library, setting: Setting, stop: int, seed: int) -> Scores:
    """Errors of vectors turned at positions up to a stop: of planes of length one.

    Args:
        library: Whose rotation.
        setting: How the model comes to its dtype.
        stop: The largest position.
        seed: Of positions and vectors.

    Returns:
        ``rms`` and ``max`` over planes and vectors, and the share that is ``not finite``.
    """
    random = torch.Generator().manual_seed(seed)
    positions = drawn_positions(stop, random)
    x = vectors(library, setting, random)
    with setting.running():
        found = library.make(setting)(x, positions.to(DEVICE))
    exact = planes(x.cpu(), library.interleaved) * exact_turns(positions, D_HEAD, BASE)
    return summed_up((planes(found.cpu(), library.interleaved) - exact).abs())


def drift(library: Library, setting: Setting, stop: int, seed: int) -> Scores:
    """How far scores at positions up to a stop are from those of the same pairs at 0.

    A query stands 1 to 128 tokens after its key. A score is the product of both turned vectors,
    summed in float64, over the product of their lengths.

    Args:
        library: Whose rotation.
        setting: How the model comes to its dtype.
        stop: The largest position of a key.
        seed: Of positions, offsets and vectors.

    Returns:
        As :func:`turned`, over pairs.
    """
    random = torch.Generator().manual_seed(seed)
    keys = drawn_positions(stop, random).to(DEVICE)
    apart = torch.randint(1, FARTHEST_KEY + 1, (TOKENS,), generator=random).to(DEVICE)
    q, k = (vectors(library, setting, random) for _ in range(2))
    with setting.running():
        turn = library.make(setting)
        here, there = (
            (turn(q, at + apart).double() * turn(k, at).double()).sum(-1)
            for at in (torch.zeros_like(keys), keys)
        )
    lengths = q.double().norm(dim=-1) * k.double().norm(dim=-1)
    return summed_up(((there - here) / lengths).abs())


def drawn_positions(stop: int, random: torch.Generator) -> Tensor:
    """Positions anywhere near a stop, and the stop."""
    drawn = torch.randint(int(NEAREST * stop), stop + 1, (TOKENS,), generator=random)
    drawn[-1] = stop
    return drawn


def vectors(library: Library, setting: Setting, random: torch.Generator) -> Tensor:
    """What is turned, ``[heads, pos, d_head]``."""
    z = drawn_planes(HEADS, TOKENS, D_HEAD // 2, generator=random)
    return channels(z, library.interleaved).to(DEVICE, setting.dtype)


def summed_up(errors: Tensor) -> Scores:
    """Root of the mean square and maximum of what is finite, where anything is."""
    known = errors[errors.isfinite()]
    found = {"not finite": 1 - known.numel() / errors.numel()}
    if known.numel():
        found |= {"rms": known.square().mean().sqrt().item(), "max": known.max().item()}
    return {name: rounded(value) for name, value in found.items()}
