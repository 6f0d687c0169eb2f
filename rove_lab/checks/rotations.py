"""Chapter 1: a rotation as a complex number, the planes that come round, marks that compose."""

from __future__ import annotations

import torch
from torch import Tensor

from rove_lab.checks.verdict import call, compare, draw, read, require, verdict

__all__ = ["check_complex", "check_permutations", "check_planes_round"]


def check_complex(turn: object) -> None:
    r"""Check ``turn(x, t, omega)``, which turns neighbouring channels by :math:`t\omega_m`.

    Args:
        turn: From x ``[pos, d]``, positions ``[pos]`` and frequencies ``[d / 2]`` in radians per
            token to ``[pos, d]``.

    Example:
        >>> check_complex(lambda x, t, omega: x)
        Not solved yet: nothing has turned.
    """
    with verdict("a plane is a complex number, and R_t multiplies it by exp(i t omega)."):
        random = draw(101)
        for pos, planes in ((1, 1), (9, 3), (6, 5)):
            x = torch.randn(pos, 2 * planes, generator=random, dtype=torch.float64)
            t = torch.randint(1, 40, (pos,), generator=random)
            omega = torch.rand(planes, generator=random, dtype=torch.float64) + 0.1
            angle = t[:, None] * omega
            mistakes = {
                "nothing has turned.": x,
                "it turns clockwise: look at the sign of the angle.": _turned(x, -angle),
                "torch takes angles in radians, not in degrees.": _turned(x, angle.deg2rad()),
                "the angle is t times omega: the position is missing.": _turned(
                    x, omega.expand(pos, -1)
                ),
                "x is interleaved, its pairs are neighbours: you paired channel m with m + d/2.": (
                    _turned(x.unflatten(-1, (2, planes)).mT.flatten(-2), angle)
                    .unflatten(-1, (planes, 2))
                    .mT.flatten(-2)
                ),
            }
            got = read(call(turn, x, t, omega), x.shape)
            compare(got, _turned(x, angle), mistakes)


def check_planes_round(planes_round: object) -> None:
    r"""Check ``planes_round(base, d_head, n_ctx)``: how many planes have a period within n_ctx.

    Args:
        planes_round: From a base, an even head size and a length in tokens to a count.

    Example:
        >>> check_planes_round(lambda base, d_head, n_ctx: 99)
        Not solved yet: on one of our inputs the answer is 5; yours is 99.
    """
    with verdict("a larger base leaves more planes that never come round within the context."):
        for base, d_head, n_ctx in ((1e5, 32, 200), (3e4, 64, 2000), (1e6, 96, 30_000)):
            omega = [base ** (-2 * m / d_head) for m in range(d_head // 2)]
            right = _turning(omega, 2 * torch.pi / n_ctx)
            mistakes = {
                "a plane comes round after a whole turn, 2 pi radians, not after one radian.": (
                    _turning(omega, 1 / n_ctx)
                ),
                "a whole turn is 2 pi radians; you counted half turns.": _turning(
                    omega, torch.pi / n_ctx
                ),
                "a whole turn is 2 pi radians, not 360.": _turning(omega, 360 / n_ctx),
                "these are the planes that do not come round.": d_head // 2 - right,
                "the exponent is -2m/d: with -m/d the planes are too fast.": _turning(
                    [w**0.5 for w in omega], 2 * torch.pi / n_ctx
                ),
            }
            got = read(call(planes_round, base, d_head, n_ctx), [])
            compare(got, right, mistakes, tolerance=1e-6)


def check_permutations(mark: object) -> None:
    r"""Check ``mark(t)``: permutations of 8 channels that compose and come round late.

    Args:
        mark: From a whole number t of either sign to a permutation matrix ``[8, 8]``.

    Example:
        >>> check_permutations(lambda t: torch.eye(8).roll(t, 0))
        Not solved yet: your marks compose, but come round after 8 tokens; 15 are possible. ...
    """
    with verdict("permutations compose, but 15 tokens are all that 8 channels can tell apart."):

        def at(t: int) -> Tensor:
            matrix = read(call(mark, t), [8, 8])
            ones = torch.ones(8, dtype=torch.float64)
            whole = bool(((matrix == 0) | (matrix == 1)).all())
            require(
                whole and matrix.sum(0).equal(ones) and matrix.sum(1).equal(ones),
                f"mark({t}) is no permutation: one 1 in each row and column.",
            )
            return matrix

        identity = torch.eye(8, dtype=torch.float64)
        require(at(0).equal(identity), "mark(0) must leave the channels where they are.")
        for a, b in ((3, 8), (1, 1), (17, 25), (-4, 11), (1000, -1)):
            require(
                (at(a) @ at(b)).equal(at(a + b)),
                f"mark({a}) mark({b}) is not mark({a + b}): they do not compose.",
            )
        period = next(t for t in range(1, 16) if at(t).equal(identity))
        require(period > 1, "every position has the same mark.")
        require(
            period == 15,
            f"your marks compose, but come round after {period} tokens; 15 are possible. "
            "Cycles of different lengths come round together later than each alone.",
        )


def _turned(x: Tensor, angle: Tensor) -> Tensor:
    """Neighbouring channels turned counter-clockwise, written out."""
    first, second = x[..., 0::2], x[..., 1::2]
    cos, sin = angle.cos(), angle.sin()
    return torch.stack((cos * first - sin * second, sin * first + cos * second), -1).flatten(-2)


def _turning(omega: list[float], least: float) -> int:
    """How many frequencies are at least this one."""
    return sum(one >= least for one in omega)
