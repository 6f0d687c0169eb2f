"""When a level is reached, against a search by hand."""

import math

import pytest
import torch

from rove_lab.learning_curves import first_reached


def by_hand(steps, scores, level):
    for i, score in enumerate(scores):
        if score >= level:
            if i == 0:
                return steps[0]
            along = (level - scores[i - 1]) / (score - scores[i - 1])
            return steps[i - 1] + along * (steps[i] - steps[i - 1])
    return math.inf


def test_it_is_the_first_crossing_of_each_curve():
    random = torch.Generator().manual_seed(0)
    steps = torch.rand(12, generator=random).cumsum(0)
    curves = torch.rand(3, 20, 12, generator=random)
    found = first_reached(steps, curves, 0.9)
    assert found.shape == (3, 20)
    assert found.isinf().any()
    for curve, step in zip(curves.flatten(0, 1), found.flatten(), strict=True):
        expected = by_hand(steps.tolist(), curve.tolist(), 0.9)
        assert step.item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("scores", "reached"),
    [
        ([0.5, 0.6, 0.9], 10),  # there from the start
        ([0.0, 0.5, 0.4], 20),  # on a report
        ([0.0, 1.0, 0.0], 15),
        ([0.0, 0.4, 0.49], math.inf),
    ],
)
def test_edges(scores, reached):
    assert first_reached([10, 20, 30], scores, 0.5).item() == reached


def test_losses_fall():
    assert first_reached([10, 20], [-3.0, -1.0], -2.0).item() == 15


@pytest.mark.parametrize(
    ("steps", "scores", "level", "error", "words"),
    [
        ([1, 2], [0.1, 0.2, 0.3], 0.2, ValueError, r"got \[2\] and \[3\]"),
        ([], [], 0.2, ValueError, "one point or more"),
        ([2, 1], [0.1, 0.2], 0.2, ValueError, "steps that rise"),
        ([1, 2], [0.1, math.nan], 0.2, ValueError, "expected finite scores"),
        ([1, 2], [0.1, 0.2], "0.2", TypeError, "level"),
    ],
)
def test_what_does_not_fit_is_refused(steps, scores, level, error, words):
    with pytest.raises(error, match=words):
        first_reached(steps, scores, level)
