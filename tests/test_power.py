"""Power of t-tests: printed tables, draws of the experiment itself, and what cannot be asked."""

import math

import pytest
import torch

from rove_lab.power import paired_power, seeds_needed, two_sample_power

# Student's t beyond which 5 % lies, by degrees of freedom: any printed table.
TABLE = {1: 12.7062, 2: 4.3027, 4: 2.7764, 10: 2.2281, 30: 2.0423}
DRAWS = 50_000


def drawn(degrees, statistic):
    """The share of drawn experiments whose t is beyond the table's."""
    t = statistic(torch.Generator().manual_seed(0))
    return (t.abs() > TABLE[degrees]).double().mean().item()


@pytest.mark.parametrize(("n", "difference"), [(2, 3.0), (3, 1.0), (6, 1.5), (16, 0.5)])
def test_two_groups_as_often_as_in_drawn_experiments(n, difference):
    def statistic(random):
        a, b = torch.randn(2, DRAWS, n, generator=random, dtype=torch.float64)
        b += difference
        pooled = (a.var(1) + b.var(1)) / 2
        return (b.mean(1) - a.mean(1)) / (pooled * 2 / n).sqrt()

    share = drawn(2 * n - 2, statistic)
    assert two_sample_power(difference, 1.0, n) == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize(("n", "difference"), [(2, 4.0), (3, 2.0), (5, 1.0), (11, -0.8)])
def test_pairs_as_often_as_in_drawn_experiments(n, difference):
    def statistic(random):
        d = difference + torch.randn(DRAWS, n, generator=random, dtype=torch.float64)
        return d.mean(1) / (d.var(1) / n).sqrt()

    share = drawn(n - 1, statistic)
    assert paired_power(difference, 1.0, n) == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize(("effect", "n"), [(0.2, 394), (0.5, 64), (0.8, 26)])
def test_seeds_for_a_power_of_0_8_as_cohen_prints_them(effect, n):
    # Cohen (1988), table 2.4.1, two-sided at 0.05; his 393 is rounded from an approximation.
    assert seeds_needed(two_sample_power, effect, 1.0) == n


def test_no_difference_is_seen_as_often_as_the_level_says():
    for level in (0.05, 0.01):
        assert two_sample_power(0.0, 2.0, 5, level) == pytest.approx(level, abs=1e-8)
        assert paired_power(0.0, 2.0, 5, level) == pytest.approx(level, abs=1e-8)


def test_it_is_the_ratio_that_counts_and_not_the_sign():
    for power_of in (two_sample_power, paired_power):
        whole = power_of(0.003, 0.0024, 8)
        assert power_of(-3.0, 2.4, 8) == pytest.approx(whole, abs=1e-12)
        assert power_of(0.003, 0.0024, 9) > whole


def test_pairs_that_share_nothing_cost_a_little_and_pairs_that_share_much_save():
    noise = 0.0024
    strangers = two_sample_power(0.003, noise, 8)
    assert paired_power(0.003, noise * math.sqrt(2), 8) < strangers
    assert paired_power(0.003, noise * math.sqrt(2 * (1 - 0.75)), 8) > strangers


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda: two_sample_power(1.0, 0.0, 5), ValueError, "positive noise, got 0.0"),
        (lambda: paired_power(1.0, 1.0, 1), ValueError, "2 seeds or more, got 1"),
        (lambda: paired_power(1.0, 1.0, 2.5), TypeError, "number of seeds to be an integer"),
        (lambda: paired_power("1", 1.0, 3), TypeError, "difference to be a number"),
        (lambda: two_sample_power(1.0, 1.0, 5, 0.0), ValueError, "level between 0 and 1, got 0.0"),
        (lambda: seeds_needed(paired_power, 1.0, 1.0, 1.0), ValueError, "power between 0 and 1"),
        (lambda: seeds_needed(paired_power, 0.0, 1.0), ValueError, "too small to be found"),
    ],
)
def test_what_cannot_be_asked_is_refused(ask, error, message):
    with pytest.raises(error, match=message):
        ask()
