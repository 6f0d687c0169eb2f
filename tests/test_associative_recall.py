"""Associative recall, answered by a dictionary of the pairs at the start."""

from collections import Counter

import pytest
from token_tasks import (
    asked_answers,
    assert_solved,
    assert_spread,
    best_fixed_offset,
    distances,
    first,
    kind,
)

from rove_lab.associative_recall import AssociativeRecall

SIZES = [
    AssociativeRecall(),
    AssociativeRecall(n_symbols=3, n_ctx=11, n_pairs=3, n_queries=3),
    AssociativeRecall(n_symbols=40, n_ctx=200, n_pairs=1, n_queries=1),
    AssociativeRecall(n_ctx=512),
]


def pair_places(task, sequence):
    """Position of each later key to the place where its pair stands."""
    pairs = {sequence[place]: place for place in range(0, 2 * task.n_pairs, 2)}
    assert len(pairs) == task.n_pairs
    assert {kind(task, key) for key in pairs} == {"key"}
    after = range(2 * task.n_pairs, task.n_ctx)
    return {t: pairs[sequence[t]] for t in after if kind(task, sequence[t]) == "key"}


def reader(task, sequence):
    """The value beside the key in its pair."""
    return {t: sequence[place + 1] for t, place in pair_places(task, sequence).items()}


@pytest.mark.parametrize("task", SIZES, ids=repr)
def test_the_answer_is_the_value_that_came_with_the_key(task):
    assert_solved(task, reader)


@pytest.mark.parametrize("task", SIZES, ids=repr)
def test_no_key_is_asked_twice(task):
    tokens, targets = first(task)
    for sequence, row in zip(tokens.tolist(), targets, strict=True):
        queried = [sequence[t] for t in (row != -100).nonzero()[:, 0].tolist()]
        assert len(set(queried)) == len(queried) == task.n_queries


@pytest.mark.parametrize(("n_queries", "share"), [(1, 1 / 8), (4, 0.159), (8, 0.34)])
def test_naming_what_is_in_sight_and_not_yet_taken(n_queries, share):
    """The docstring's second chance level: the mean of 1 / (8 - i) over the queries, or so."""
    task, expected = AssociativeRecall(n_queries=n_queries), []
    for sequence, row in zip(*first(task, 512), strict=True):
        left = sequence[1 : 2 * task.n_pairs : 2].tolist()
        for answer in asked_answers(row).values():
            expected.append(left.count(answer) / len(left))
            left.remove(answer)
    equal_by_chance = (1 - share) / 16
    assert sum(expected) / len(expected) == pytest.approx(share + equal_by_chance, abs=0.02)


def test_every_pair_is_asked_about_as_often():
    task, ranks = AssociativeRecall(), Counter()
    for sequence in first(task, 2048)[0].tolist():
        ranks.update(place // 2 for place in pair_places(task, sequence).values())
    assert min(ranks[rank] for rank in range(8)) > 0.9 * 1024


def test_near_and_far_are_asked_alike():
    task = AssociativeRecall(n_ctx=512)
    assert_spread(task, distances(task, pair_places))


def test_no_fixed_offset_does():
    assert 0.02 < best_fixed_offset(AssociativeRecall()) < 0.15


@pytest.mark.parametrize(
    ("sizes", "error", "words"),
    [
        ({"n_pairs": 0}, ValueError, "expected n_pairs to be positive, got 0"),
        ({"n_pairs": "8"}, TypeError, "expected n_pairs to be an integer"),
        ({"n_symbols": 4}, ValueError, "n_symbols of 8 or more for 8 distinct keys, got 4"),
        ({"n_queries": 0}, ValueError, "expected n_queries to be positive, got 0"),
        ({"n_queries": 9}, ValueError, "expected at most n_pairs=8 queries, got 9"),
        ({"n_ctx": 22}, ValueError, "n_ctx of 23 or more for 8 pairs and 4 queries, got 22"),
    ],
)
def test_bad_sizes_are_refused(sizes, error, words):
    with pytest.raises(error, match=words):
        AssociativeRecall(**sizes)
