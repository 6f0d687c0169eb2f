"""Chapter 17: pairs that agree by chance, what counts as seen, many claims at once."""

from __future__ import annotations

from math import comb

import torch

from rove_lab.checks.verdict import call, compare, read, verdict

__all__ = ["check_borne", "check_by_chance", "check_sign_test"]


def _tail(n: int, k: int) -> float:
    """The chance of k heads or more in n tosses."""
    return float(sum(comb(n, heads) for heads in range(k, n + 1)) / 2**n)


def check_sign_test(sign_test: object) -> None:
    r"""Check ``sign_test(n, k)``: how often chance alone makes pairs agree as much.

    Args:
        sign_test: From n pairs and how many of them, k, are for RoVE to the probability that n
            tosses of a coin come out as one-sided as that or more so, on either side.

    Example:
        >>> check_sign_test(lambda n, k: 0.5**n)
        Not solved yet: that is one side only: chance may as well agree against RoVE.
    """
    with verdict("three pairs agree by chance one time in four, six one time in 32."):
        for n, k in ((3, 3), (6, 6), (4, 3), (7, 1), (10, 5), (9, 8)):
            most = max(k, n - k)
            mistakes = {
                "that is one side only: chance may as well agree against RoVE.": _tail(n, most),
                "the most that agree count, on whichever side: k may be less than half.": (
                    min(1.0, 2 * _tail(n, k))
                ),
                "that is for k pairs and no more: add what is more one-sided still.": (
                    min(1.0, 2 * comb(n, k) / 2**n)
                ),
                "that is the share of the pairs, and no chance.": k / n,
                "a probability is at most 1: both sides overlap in the middle.": 2 * _tail(n, most),
            }
            right = min(1.0, 2 * _tail(n, most))
            compare(read(call(sign_test, n, k), []), right, mistakes)


def check_borne(borne: object) -> None:
    r"""Check ``borne(gains)``: whether pairs bear a claim out, by this book's rule.

    Args:
        borne: From the differences ``[pairs]``, positive where a pair is as claimed, to True or
            False: every pair is as claimed, and their mean exceeds two standard errors.

    Example:
        >>> check_borne(lambda gains: gains.mean() > 0)
        Not solved yet: one pair says the opposite: it is not borne out.
    """
    with verdict("all pairs, and more than two standard errors: the rule behind every verdict."):
        sure, torn = [0.03, 0.02, 0.04, 0.03], [0.09, 0.08, 0.09, -0.001]
        wide = [0.01, 0.02, 0.3]  # all positive, and 0.11 +- 0.095
        near = [0.05, 0.2, 0.11, 0.06]  # 0.105 +- 0.034, with a deviation of 0.069
        edge = [0.02, 0.15, 0.05]  # 0.073 +- 0.039; with n for n - 1 it would be +- 0.032
        against = [-0.03, -0.02, -0.04]
        for gains, expected, hint in (
            (sure, True, "four pairs that all agree closely bear it out."),
            (torn, False, "one pair says the opposite: it is not borne out."),
            (wide, False, "all agree, but the mean is within two standard errors of nothing."),
            (near, True, "the error of a mean is the deviation over the root of n."),
            (edge, False, "differences around their own mean: divide by n - 1, as std does."),
            (against, False, "every pair says the opposite."),
        ):
            given = torch.tensor(gains, dtype=torch.float64)
            answer = read(call(borne, given), [])
            compare(answer, float(expected), {hint: float(not expected)})


def check_by_chance(by_chance: object) -> None:
    r"""Check ``by_chance(claims, level)``: the chance that luck alone supports some claim.

    Args:
        by_chance: From how many claims there are, none of them true, and the chance that one test
            is passed all the same, to the chance that at least one test is; tests do not depend on
            each other.

    Example:
        >>> check_by_chance(lambda claims, level: claims * level)
        Not solved yet: that can exceed 1: chances add only where no two can happen together.
    """
    with verdict("of fourteen empty claims, each tested at 5 %, one is passed every other time."):
        for claims, level in ((14, 0.05), (20, 0.1), (3, 0.25), (1, 0.125)):
            none = (1 - level) ** claims
            mistakes = {
                "that can exceed 1: chances add only where no two can happen together.": (
                    claims * level
                ),
                "that is the chance that none is passed.": none,
                "that is the chance that all of them are passed.": level**claims,
                "that is the chance that not all of them are passed.": 1 - level**claims,
            }
            compare(read(call(by_chance, claims, level), []), 1 - none, mistakes)
