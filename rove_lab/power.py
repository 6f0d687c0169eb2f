r"""How many seeds a difference needs: the power of a t-test on two groups, or on pairs."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable

import torch

from rove_lab.arguments import check_number, check_size

__all__ = ["paired_power", "seeds_needed", "two_sample_power"]

_MOST = 1000  # seeds; whoever needs more has asked for the wrong thing


def two_sample_power(difference: float, noise: float, n_seeds: int, level: float = 0.05) -> float:
    r"""The chance that n seeds of each of two methods show a difference that is there.

    Student's two-sided t-test with :math:`2n - 2` degrees of freedom, whose statistic is off centre
    by :math:`(\Delta/\sigma)\sqrt{n/2}`. Cohen (1988), "Statistical Power Analysis for the
    Behavioral Sciences", chapter 2.

    Args:
        difference: :math:`\Delta`, the true one.
        noise: :math:`\sigma`, the standard deviation over the seeds of one method.
        n_seeds: n, of each method.
        level: How often a difference is seen where there is none.

    Returns:
        The chance, from ``level`` to 1.

    Raises:
        TypeError: If a value is not a number.
        ValueError: If ``n_seeds`` is below 2, the noise not positive, or the level not between 0
            and 1.

    Example:
        >>> round(two_sample_power(0.5, 1.0, 64), 2)
        0.8
    """
    _check(difference, noise, n_seeds, level)
    return _power(difference / noise * math.sqrt(n_seeds / 2), 2 * n_seeds - 2, level)


def paired_power(difference: float, noise: float, n_pairs: int, level: float = 0.05) -> float:
    r"""The chance that n matched pairs show a difference that is there.

    Student's two-sided t-test on the differences, with :math:`n - 1` degrees of freedom, whose
    statistic is off centre by :math:`(\Delta/\sigma_d)\sqrt n`. Where a pair shares the part
    :math:`\rho` of its variance, :math:`\sigma_d = \sigma\sqrt{2 (1 - \rho)}`.

    Args:
        difference: :math:`\Delta`, the true one.
        noise: :math:`\sigma_d`, the standard deviation of the differences within pairs.
        n_pairs: n.
        level: How often a difference is seen where there is none.

    Returns:
        The chance, from ``level`` to 1.

    Raises:
        TypeError: If a value is not a number.
        ValueError: If ``n_pairs`` is below 2, the noise not positive, or the level not between 0
            and 1.

    Example:
        >>> round(paired_power(0.5, 1.0, 34), 2)
        0.81
    """
    _check(difference, noise, n_pairs, level)
    return _power(difference / noise * math.sqrt(n_pairs), n_pairs - 1, level)


def seeds_needed(
    power_of: Callable[[float, float, int], float],
    difference: float,
    noise: float,
    power: float = 0.8,
) -> int:
    """The least number of seeds or pairs that show a difference with a given chance.

    Args:
        power_of: :func:`two_sample_power` or :func:`paired_power`.
        difference: The true one.
        noise: As ``power_of`` takes it.
        power: The chance.

    Returns:
        How many, 2 or more.

    Raises:
        ValueError: If the power is not between 0 and 1, or a thousand are not enough.

    Example:
        >>> seeds_needed(two_sample_power, 0.5, 1.0)
        64
    """
    if not 0 < check_number("power", power) < 1:
        raise ValueError(f"expected a power between 0 and 1, got {power}.")
    numbers = range(2, _MOST + 1)
    place = bisect_left(numbers, power, key=lambda n: power_of(difference, noise, n))
    if place == len(numbers):
        raise ValueError(
            f"expected a difference that {_MOST} seeds can show, got {difference} in noise of "
            f"{noise}: it is too small to be found so."
        )
    return numbers[place]


def _power(shift: float, degrees: int, level: float) -> float:
    """How often a t of these degrees of freedom, off centre by the shift, is beyond the level."""
    low, high = 0.0, 1.0
    while _beyond(0.0, degrees, high) > level:
        high *= 2
    for _ in range(60):  # halve the interval until float64 has no more digits
        middle = (low + high) / 2
        low, high = (middle, high) if _beyond(0.0, degrees, middle) > level else (low, middle)
    return _beyond(shift, degrees, high)


def _beyond(shift: float, degrees: int, critical: float) -> float:
    """How often (Z + shift) / s is beyond ±critical: Z normal, s² chi-square over its degrees."""
    # The distribution of s by the midpoint rule, in log s: smooth and falling fast at both ends.
    edges = torch.linspace(-25.0, 4.0, 4001, dtype=torch.float64)
    log_s = (edges[1:] + edges[:-1]) / 2
    log_density = degrees * (log_s - 0.5 * torch.exp(2 * log_s))
    weights = torch.softmax(log_density, 0)
    reach = critical * log_s.exp()
    normal = torch.special.ndtr
    return float((weights * (normal(shift - reach) + normal(-shift - reach))).sum())


def _check(difference: float, noise: float, n: int, level: float) -> None:
    check_number("difference", difference)
    if check_number("noise", noise) <= 0:
        raise ValueError(f"expected a positive noise, got {noise}.")
    if check_size("the number of seeds", n) < 2:
        raise ValueError(f"expected 2 seeds or more, got {n}: one has no spread.")
    if not 0 < check_number("level", level) < 1:
        raise ValueError(f"expected a level between 0 and 1, got {level}.")
