"""The chapter on rounding: positions that are lost, angles that are off, a factor in the tables."""

from __future__ import annotations

import math

import torch

from rove_lab.checks.verdict import call, compare, draw, read, verdict

__all__ = ["check_first_lost", "check_largest_error", "check_turn_back"]


def check_first_lost(first_lost: object) -> None:
    """Check ``first_lost(dtype)``: the first position that a dtype cannot hold.

    Args:
        first_lost: From a floating-point dtype to the least whole number above 0 that it rounds to
            another one.

    Example:
        >>> check_first_lost(lambda dtype: 2 / torch.finfo(dtype).eps)
        Not solved yet: that is the last of those that are all held: the next one is lost.
    """
    with verdict("whole numbers are held up to two to the number of digits, and then every other."):
        for dtype, digits in ((torch.float16, 11), (torch.bfloat16, 8)):
            held = 2.0**digits
            mistakes: dict[str, torch.Tensor | float] = {
                "that is the last of those that are all held: the next one is lost.": held,
                "eps is the step above 1, and between 1 and 2 the halves are held, too: "
                "the step must reach 2.": held / 2 + 1,
                "that is one over eps: at which number is the step from one to the next 2?": (
                    held / 2
                ),
                "that is the largest number: neighbours are lost long before it.": (
                    torch.finfo(dtype).max
                ),
                "that is the first number after it that is held.": held + 2,
            }
            compare(read(call(first_lost, dtype), []), held + 1, mistakes)


def check_largest_error(largest_error: object) -> None:
    r"""Check ``largest_error(angle, digits)``: by how much rounding can change an angle.

    A float keeps so many binary digits from its first one on: between :math:`2^e` and
    :math:`2^{e+1}` neighbours are :math:`2^{e+1-\text{digits}}` apart.

    Args:
        largest_error: From an angle above 0 and a number of binary digits to half that distance.

    Example:
        >>> check_largest_error(lambda angle, digits: angle * 2.0**-digits)
        Not solved yet: the distance is the same from one power of two to the next.
    """
    with verdict("the error of an angle grows with the position, and a turn forgives none of it."):
        for angle, digits in ((749_894.2, 24), (1000.0, 8), (40_000.0, 11)):
            right = 2.0 ** (math.floor(math.log2(angle)) - digits)
            mistakes: dict[str, torch.Tensor | float] = {
                "that is the distance of two neighbours: the farthest is half of it away.": (
                    2 * right
                ),
                "the distance is the same from one power of two to the next.": (
                    angle * 2.0**-digits
                ),
                "digits are binary: take the logarithm to base two.": (
                    2.0 ** (math.floor(math.log(angle)) - digits)
                ),
                "that is half of what it can be: count the digits from the first one on.": right
                / 2,
                "that is the exponent: raise 2 to it.": math.log2(right),
            }
            compare(read(call(largest_error, angle, digits), []), right, mistakes)


def check_turn_back(turn_back: object) -> None:
    """Check ``turn_back(x, cos, sin)``: undone, whatever factor is in cosines and sines.

    Args:
        turn_back: From vectors ``[pos, d_head]`` that were turned by Hugging Face's ``x * cos +
            rotate_half(x) * sin``, and these tables, ``[pos, d_head]``, each multiplied by a number
            that is not told, to the vectors before.

    Example:
        >>> check_turn_back(lambda x, cos, sin: x * cos - rotate_half(x) * sin)
        Not solved yet: your function raised NameError: name 'rotate_half' is not defined.
    """

    def half_turn(x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return torch.cat((-b, a), -1)

    with verdict("the squares of both tables sum to the square of what is in them."):
        random = draw(1901)
        for factor in (1.28, 0.7):
            x = torch.randn(5, 8, generator=random, dtype=torch.float64)
            angles = 6 * torch.rand(5, 4, generator=random, dtype=torch.float64)
            cos, sin = (
                factor * torch.cat((table, table), -1) for table in (angles.cos(), angles.sin())
            )
            turned = x * cos + half_turn(x) * sin
            again = turned * cos + half_turn(turned) * sin
            mistakes: dict[str, torch.Tensor | float] = {
                "the factor is in it twice: from turning, and from turning back.": factor**2 * x,
                "the factor is in it once more: it came in twice.": factor * x,
                "you divided too often: the factor came in twice.": x / factor,
                "that turns on: turning back is by the other sign of the sines.": again,
                "the factor is out, but that turns on: the other sign of the sines.": (
                    again / factor**2
                ),
                "that is still turned.": turned,
            }
            compare(read(call(turn_back, turned, cos, sin), [5, 8]), x, mistakes)
