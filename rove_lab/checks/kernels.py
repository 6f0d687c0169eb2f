"""Chapter 5: how far a kernel can turn away, how soon half of it is gone, what slow planes hold."""

from __future__ import annotations

import math
from itertools import count

import torch

from rove_lab.checks.verdict import call, compare, draw, read, verdict
from rove_lab.rotary import RotaryEmbedding

__all__ = ["check_half_way", "check_lowest", "check_slow_share"]


def check_lowest(lowest: object) -> None:
    r"""Check ``lowest(d_head, rotary_dim)``: the bound under a copying head's similarity.

    Args:
        lowest: From the channels of a head and how many of them are rotated to the least value that
            the similarity of :math:`\psi_\delta` to :math:`\psi_0` can have.

    Example:
        >>> check_lowest(lambda d_head, rotary_dim: 1 - rotary_dim / d_head)
        Not solved yet: a cosine goes down to -1, not to 0.
    """
    with verdict("what is not rotated stays, and each rotated plane can at worst be reversed."):
        for d_head, rotary_dim in ((20, 4), (24, 18), (32, 32), (64, 16)):
            share = rotary_dim / d_head
            mistakes = {
                "a cosine goes down to -1, not to 0.": 1 - share,
                "the channels that are not rotated keep their part.": -share,
                "rotary_dim counts channels, two for each plane.": 1 - 4 * share,
                "only where every channel is rotated.": -1.0,
                "that is so for one choice of rotary_dim alone.": 0.0,
            }
            compare(read(call(lowest, d_head, rotary_dim), []), 1 - 2 * share, mistakes)


def check_half_way(half_way: object) -> None:
    r"""Check ``half_way(inv_freq, n)``: the first distance with a similarity below one half.

    Args:
        half_way: From frequencies ``[planes]``, all with the same share of the energy, and a number
            of tokens to the first of the distances 0 to n − 1 at which the kernel is less than half
            of what it was.

    Example:
        >>> check_half_way(lambda inv_freq, n: 0)
        Not solved yet: at distance 0 nothing has turned yet: look for values below one half.
    """
    with verdict("the fast planes decide when half is gone, and YaRN leaves them as they are."):
        for base, planes, n in ((1e3, 10, 300), (5e4, 24, 900), (1e6, 40, 2000)):
            inv_freq = [base ** (-m / planes) for m in range(planes)]
            right = _first_below(0.5, inv_freq)
            mistakes = {
                "at distance 0 nothing has turned yet: look for values below one half.": 0,
                "that is the last distance still above; the first below is asked.": right - 1,
                "one too far: distances are counted from 0.": right + 1,
                "you took the sum over the planes; it is their mean that starts at 1.": (
                    _first_below(0.5 / planes, inv_freq)
                ),
                "that is where it falls below zero, not below one half.": _first_below(
                    0.0, inv_freq
                ),
                "inv_freq is in radians per token already.": _first_below(
                    0.5, [2 * math.pi * omega for omega in inv_freq]
                ),
            }
            answer = call(half_way, torch.tensor(inv_freq, dtype=torch.float64), n)
            compare(read(answer, []), right, mistakes, tolerance=1e-6)


def check_slow_share(slow_share: object) -> None:
    r"""Check ``slow_share(W_V, rotary)``: the energy of each head in the slower half of its planes.

    Args:
        slow_share: From ``[heads, d_model, d_head]`` and an embedding that rotates all channels to
            the shares ``[heads]`` of :math:`\lVert W_V\rVert^2`.

    Example:
        >>> check_slow_share(lambda W_V, rotary: torch.full((len(W_V),), 0.5))
        Not solved yet: on one of our inputs it is off by up to ...
    """
    with verdict("which planes hold a head's energy decides how long its kernel lasts."):
        random = draw(503)
        for heads, d, interleaved in ((3, 8, False), (2, 12, True), (4, 16, False)):
            rotary = RotaryEmbedding(d, base=100.0, interleaved=interleaved)
            tilt = torch.linspace(0.5, 2.0, d, dtype=torch.float64)
            W_V = torch.randn(heads, d, d, generator=random, dtype=torch.float64) * tilt
            slow = rotary.plane_channels[d // 4 :].flatten()
            energy = W_V.square().sum(1) / W_V.square().sum((1, 2))[:, None]
            rows = W_V.square().sum(2) / W_V.square().sum((1, 2))[:, None]
            lengths = W_V.norm(dim=1) / W_V.norm(dim=1).sum(-1, keepdim=True)
            other = RotaryEmbedding(d, interleaved=not interleaved)
            mistakes = {
                "that is the faster half: frequencies fall from plane 0 on.": (
                    1 - energy[:, slow].sum(-1)
                ),
                "this embedding pairs other channels: see rotary.plane_channels.": (
                    energy[:, other.plane_channels[d // 4 :].flatten()].sum(-1)
                ),
                "planes pair the channels of a head, its columns; you summed rows.": (
                    rows[:, slow].sum(-1)
                ),
                "energy is the square of a norm.": lengths[:, slow].sum(-1),
                "a share: divide by the head's whole energy.": W_V.square().sum(1)[:, slow].sum(-1),
            }
            compare(read(call(slow_share, W_V, rotary), [heads]), energy[:, slow].sum(-1), mistakes)


def _first_below(level: float, inv_freq: list[float]) -> int:
    """The first distance at which the mean cosine is below the level."""

    def similarity(distance: int) -> float:
        return sum(math.cos(distance * omega) for omega in inv_freq) / len(inv_freq)

    return next(distance for distance in count() if similarity(distance) < level)
