"""The few-shot questions: each prompt is read again in plain Python, and its answer found."""

import itertools
import re

import pytest

from rove_lab.few_shot_tasks import (
    SUITE,
    Copying,
    Majority,
    NearestNeighbour,
    OneLetter,
    PairParity,
)

TASKS = [*SUITE, OneLetter(2), Copying(26), Majority(3), PairParity(2), NearestNeighbour(4)]
each_task = pytest.mark.parametrize("task", TASKS, ids=repr)
LINE = re.compile(r"((?:[a-z0-9] )*[a-z0-9]): ([A-Z])")


def read(question):
    """The examples as (input, label), and the input that is asked."""
    *lines, last = question.prompt.split("\n")
    matches = [LINE.fullmatch(line) for line in lines]
    assert last[-1] == ":"
    return [(match[1].replace(" ", ""), match[2]) for match in matches], last[:-1].replace(" ", "")


def consistent(examples, asked, right, rule):
    """Whether inputs of one value have one label and others another, the asked one included."""
    labels = {}
    for given, label in [*examples, (asked, right)]:
        labels.setdefault(rule(given), set()).add(label)
    by_value = [next(iter(of)) for of in labels.values() if len(of) == 1]
    return len({*by_value}) == len(labels)


def one_letter(examples, asked, right):
    return any(
        consistent(examples, asked, right, lambda s, p=place: s[p]) for place in range(len(asked))
    )


def copying(examples, asked, right):
    assert len({given for given, _ in examples}) == len(examples)
    return not examples or dict(examples)[asked] == right


def majority(examples, asked, right):
    return consistent(examples, asked, right, lambda s: s.count("a") > s.count("b"))


def pair_parity(examples, asked, right):
    return any(
        consistent(examples, asked, right, lambda s, i=i, j=j: s[i] == s[j])
        for i, j in itertools.combinations(range(len(asked)), 2)
    )


def nearest(examples, asked, right):
    distances = sorted((abs(int(given) - int(asked)), label) for given, label in examples)
    if len(distances) > 1:
        assert distances[0][0] < distances[1][0]
    assert asked not in dict(examples)
    return not distances or distances[0][1] == right


RULES = {
    OneLetter: one_letter,
    Copying: copying,
    Majority: majority,
    PairParity: pair_parity,
    NearestNeighbour: nearest,
}


@each_task
@pytest.mark.parametrize("k", [0, 1, 2, 8, 32])
def test_the_answer_follows_from_the_examples_by_the_rule(task, k):
    for question in task.questions(40, k, seed=k):
        examples, asked = read(question)
        assert len(examples) == k
        assert len(question.choices) == len({*question.choices}) == task.n_classes
        assert all(re.fullmatch(" [A-Z]", choice) for choice in question.choices)
        assert {f" {label}" for _, label in examples} <= {*question.choices}
        right = question.choices[question.answer][1:]
        assert RULES[type(task)](examples, asked, right)


@pytest.mark.parametrize("task", [OneLetter(), Majority(), PairParity()], ids=repr)
def test_many_examples_leave_one_answer(task):
    """So that a perfect reader is always right in the end: no other label fits the rule."""
    for question in task.questions(40, 64, seed=0):
        examples, asked = read(question)
        wrong = question.choices[1 - question.answer][1:]
        assert not RULES[type(task)](examples, asked, wrong)


@each_task
@pytest.mark.parametrize("k", [0, 4])
def test_every_class_is_asked_about_as_often(task, k):
    n = 2000
    asked = [question.answer for question in task.questions(n, k, seed=1)]
    for label in range(task.n_classes):
        share = asked.count(label) / n
        assert abs(share - task.chance) < 5 * (task.chance * (1 - task.chance) / n) ** 0.5
    assert task.chance == 1 / task.n_classes


@each_task
def test_labels_are_drawn_anew_for_every_question(task):
    first = [question.choices[0] for question in task.questions(2000, 1, seed=2)]
    assert len({*first}) == 26


@each_task
def test_questions_follow_from_the_seed(task):
    questions = task.questions(8, 3, seed=5)
    assert questions == task.questions(8, 3, seed=5)
    assert questions != task.questions(8, 3, seed=6)
    assert task.questions(2, 3, seed=5) == questions[:2]


def test_the_places_that_decide_are_hidden_anywhere():
    def places(question):
        examples, asked = read(question)
        right = question.choices[question.answer][1:]
        return {
            place
            for place in range(len(asked))
            if consistent(examples, asked, right, lambda s, p=place: s[p])
        }

    found = [places(question) for question in OneLetter().questions(60, 64, seed=0)]
    assert all(len(each) == 1 for each in found)
    assert set.union(*found) == {0, 1, 2, 3}


def test_names_are_what_tables_call_them():
    names = ["one letter", "copying", "majority", "parity of two", "nearest neighbour"]
    assert [task.name for task in SUITE] == names


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: OneLetter(0), ValueError, "n_letters to be positive, got 0"),
        (lambda: OneLetter("4"), TypeError, "n_letters to be an integer"),
        (lambda: Majority(4), ValueError, "an odd n_letters, got 4"),
        (lambda: PairParity(1), ValueError, "n_letters of 2 or more, got 1"),
        (lambda: Copying(1), ValueError, "n_classes from 2 to 26, the capitals, got 1"),
        (lambda: NearestNeighbour(27), ValueError, "n_classes from 2 to 26, the capitals, got 27"),
        (lambda: Copying(2.0), TypeError, "n_classes to be an integer"),
        (lambda: Copying().questions(0, 1, 0), ValueError, "n to be positive, got 0"),
        (lambda: Copying().questions(1, -1, 0), ValueError, "k from 0 to 512 for copying, got -1"),
        (lambda: Copying().questions(1, 1.0, 0), TypeError, "k to be an integer"),
        (
            lambda: NearestNeighbour().questions(1, 33, 0),
            ValueError,
            "k from 0 to 32 for nearest neighbour, got 33",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()
