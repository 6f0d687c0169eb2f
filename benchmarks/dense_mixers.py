"""Attention as a matrix: what it costs to build, and what it costs never to."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from paired import Scores, interleaved, milliseconds, now, ratio, rounded

from rove_lab import (
    GatedBlockToeplitzMixer,
    RotaryEmbedding,
    offset_kernels,
    rope_mixer,
    rove_mixer,
)

REPEATS = 7


def built(n: int, d: int, budget: float) -> dict[str, Scores]:
    """The dense matrix of n tokens of d channels, beside an empty one and `torch.kron`.

    Args:
        n: Tokens.
        d: Channels.
        budget: Seconds for the rounds.

    Returns:
        Rows by name.
    """
    torch.manual_seed(0)
    pattern, W = torch.rand(n, n).tril(), torch.randn(d, d)
    rotary, x = RotaryEmbedding(d), torch.randn(n, d)
    rove = rove_mixer(pattern, W, rotary)
    kernels = offset_kernels(W[None], rotary, torch.arange(1 - n, n))[:, 0]
    gated, rope = GatedBlockToeplitzMixer(pattern, kernels), rope_mixer(pattern, W)
    most = 4 * (n * d) ** 2
    times = interleaved(
        {
            "torch.zeros": lambda: torch.zeros(n * d, n * d),
            "torch.kron": lambda: torch.kron(pattern, W.mT.contiguous()),
            "RoPE, dense": lambda: rope.to_dense(most),
            "RoVE, dense": lambda: rove.to_dense(most),
            "any kernels, dense": lambda: gated.to_dense(most),
            "RoVE, product": lambda: rove @ x,
            "any kernels, product": lambda: gated @ x,
        },
        budget,
    )
    found = milliseconds(times)
    for name in ("RoPE, dense", "RoVE, dense", "any kernels, dense"):
        found |= ratio(times, name, "torch.zeros") | ratio(times, name, "torch.kron")
    for name in ("RoVE", "any kernels"):
        found |= ratio(times, f"{name}, dense", f"{name}, product")
    return found


def exponents(lengths: list[int], heads: int, d: int) -> dict[str, Scores]:
    """How the cost of the two rotations, and of a RoVE mixer's product, grows with the tokens.

    Args:
        lengths: Numbers of tokens, from least to most.
        heads: Of the tensors that are rotated.
        d: Channels.

    Returns:
        Milliseconds by length, and the slope of log time over log length, fitted by least squares
        ("exponent"), with the steepest and the flattest step.
    """
    found = {}
    for name, build in (("rotations", rotations), ("RoVE mixer's product", product)):
        taken = [quickest(build(n, heads, d)) for n in lengths]
        scale = 1e3 / torch.get_num_threads()  # in ms as elsewhere
        found[name] = {
            f"ms at {n}": rounded(scale * t) for n, t in zip(lengths, taken, strict=True)
        }
        logs = [(math.log(n), math.log(t)) for n, t in zip(lengths, taken, strict=True)]
        steps = [(t - s) / (m - n) for (n, s), (m, t) in pairwise(logs)]
        found[name] |= {"exponent": rounded(slope(logs))}
        found[name] |= {"low": rounded(min(steps)), "high": rounded(max(steps))}
    return found


def rotations(n: int, heads: int, d: int) -> Callable[[], object]:
    """Values turned and outputs turned back."""
    turn, x = RotaryEmbedding(d)(torch.arange(n)), torch.randn(1, heads, n, d)
    return lambda: turn.undo(turn.apply(x))


def product(n: int, heads: int, d: int) -> Callable[[], object]:
    """One head's mixer applied."""
    mixer = rove_mixer(torch.rand(n, n), torch.randn(d, d), RotaryEmbedding(d))
    x = torch.randn(n, d)
    return lambda: mixer @ x


def quickest(run: Callable[[], object]) -> float:
    """The least seconds of some runs: what else the machine does only ever adds."""
    run()
    taken = []
    for _ in range(REPEATS):
        before = now()
        run()
        taken.append(max(now() - before, 1e-9))
    return min(taken)


def slope(points: list[tuple[float, float]]) -> float:
    """Of the line of least squares."""
    x, y = (sum(axis) / len(points) for axis in zip(*points, strict=True))
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)
