"""Needles, found by reading the haystack into a dictionary of lists."""

from collections import defaultdict

import pytest
from token_tasks import asked_answers, assert_solved, assert_spread, distances, first, kind

from rove_lab.needles import Needles

SIZES = [
    Needles(),
    Needles(n_symbols=3, n_ctx=19, n_keys=3, n_values=2, n_queries=2),
    Needles(n_ctx=128, n_keys=4, n_values=3, n_queries=4),
    Needles(n_keys=1),
    Needles(n_ctx=512, n_queries=4),
]


def needles_and_questions(task, sequence):
    """Key to the places of its needles, and position of each question's key to the key."""
    end = sequence.index(task.question)
    needles = defaultdict(list)
    for t, token in enumerate(sequence[:end]):
        if kind(task, token) == "key":
            assert kind(task, sequence[t + 1]) == "value"
            needles[token].append(t)
    assert {len(places) for places in needles.values()} == {task.n_values}
    assert len(needles) == task.n_keys
    marks = [t for t, token in enumerate(sequence) if token == task.question]
    assert len(marks) == task.n_queries
    return needles, {t + 1: sequence[t + 1] for t in marks}


def needle_places(task, sequence):
    """Position of each asked token to the place of the needle that has it."""
    needles, questions = needles_and_questions(task, sequence)
    return {
        position + i: place
        for position, key in questions.items()
        for i, place in enumerate(needles[key])
    }


def reader(task, sequence):
    """The values of the asked keys as the text has them, from left to right."""
    return {t: sequence[place + 1] for t, place in needle_places(task, sequence).items()}


@pytest.mark.parametrize("task", SIZES, ids=repr)
def test_the_answer_is_in_the_needles(task):
    assert_solved(task, reader)


@pytest.mark.parametrize("task", SIZES, ids=repr)
def test_each_question_is_about_another_key(task):
    for sequence in first(task)[0].tolist():
        asked = needles_and_questions(task, sequence)[1].values()
        assert len(set(asked)) == task.n_queries


def test_every_key_is_asked_about_as_often_wherever_it_stands():
    """No rank among the needles, from left to right, is likelier to be the answer."""
    task, ranks = Needles(), [0] * 8
    for sequence in first(task, 4096)[0].tolist():
        needles, questions = needles_and_questions(task, sequence)
        (key,) = questions.values()
        ranks[list(needles).index(key)] += 1
    assert max(ranks) < 1.2 * 512
    assert min(ranks) > 0.8 * 512


def test_near_and_far_are_asked_alike():
    task = Needles(n_ctx=512)
    assert_spread(task, distances(task, needle_places))


def test_naming_a_value_in_sight_is_right_in_about_one_of_the_keys():
    task, expected = Needles(), 0.0
    for sequence, row in zip(*first(task, 1024), strict=True):
        (answer,) = asked_answers(row).values()
        in_sight = [token for token in sequence.tolist() if kind(task, token) == "value"]
        expected += in_sight.count(answer) / len(in_sight) / 1024
    assert expected == pytest.approx(1 / 8 + 7 / 8 / 16, abs=0.01)  # others may have it by chance


@pytest.mark.parametrize(
    ("sizes", "error", "words"),
    [
        ({"n_keys": 0}, ValueError, "expected n_keys to be positive, got 0"),
        ({"n_values": 1.0}, TypeError, "expected n_values to be an integer"),
        ({"n_queries": -1}, ValueError, "expected n_queries to be positive, got -1"),
        ({"n_queries": 9}, ValueError, "expected at most n_keys=8 queries, got 9"),
        ({"n_keys": 17}, ValueError, "n_symbols of 17 or more for 17 distinct keys, got 16"),
        ({"n_values": 4}, ValueError, "n_ctx of 69 or more for 32 needles and 1 questions, got 64"),
    ],
)
def test_bad_sizes_are_refused(sizes, error, words):
    with pytest.raises(error, match=words):
        Needles(**sizes)
