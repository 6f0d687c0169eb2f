"""The label shortcut against a reader of the text, the suite's error against many suites."""

import math
from collections import Counter

import pytest
import torch

from rove_lab.few_shot import few_shot_scores, suite_score
from rove_lab.few_shot_baselines import label_shortcut_scores, suite_error
from rove_lab.few_shot_tasks import SUITE, Copying, Majority, NearestNeighbour


class MostFrequent(torch.nn.Module):
    """Says each label as likely as it was frequent, from the text it has read."""

    def __init__(self):
        super().__init__()
        self.nothing = torch.nn.Parameter(torch.zeros(1))

    def forward(self, tokens):
        logits = torch.zeros(*tokens.shape, 256)
        for row, sequence in enumerate(tokens.tolist()):
            for at in range(len(sequence)):
                text = bytes(sequence[: at + 1]).decode()
                if text.endswith(": "):
                    labels = [line.split(": ")[1] for line in text.split("\n")[:-1]]
                    for label, count in Counter(labels).items():
                        logits[row, at, ord(label)] = count
        return logits


def test_the_shortcut_is_what_a_reader_of_labels_alone_gets():
    read = few_shot_scores(MostFrequent(), [0, 3, 4], n_questions=48, seed=2)
    shortcut = label_shortcut_scores([0, 3, 4], n_questions=48, seed=2)
    assert list(shortcut) == list(read)
    for name, of_task in shortcut.items():
        assert of_task == {k: pytest.approx(score, abs=1e-12) for k, score in read[name].items()}
        assert of_task[0] == pytest.approx(0, abs=1e-12)


def test_the_shortcut_helps_in_two_tasks_of_five():
    """As the reference of the suite says: 0.39 in copying and 0.34 with the nearest neighbour."""
    found = {name: at[4] for name, at in label_shortcut_scores([4], n_questions=4096).items()}
    assert found.pop("copying") == pytest.approx(0.39, abs=0.02)
    assert found.pop("nearest neighbour") == pytest.approx(0.34, abs=0.03)
    assert all(abs(score) < 0.06 for score in found.values())


def test_the_error_is_the_spread_over_sets_of_questions():
    tasks = [Copying(), NearestNeighbour(), Majority()]
    suites = [
        label_shortcut_scores([4], tasks=tasks, n_questions=48, seed=seed) for seed in range(300)
    ]
    spread = torch.tensor([suite_score(suite)[4] for suite in suites]).std().item()
    errors = [suite_error(suite, 48, tasks)[4] for suite in suites]
    # labels that share the point make the spread a little smaller than that of answers
    assert spread == pytest.approx(sum(errors) / len(errors), rel=0.2)


def test_the_error_by_hand():
    scores = {"copying": {4: 0.5, 8: 1.0}, "majority": {4: 0.0, 8: -1.0}}
    tasks = [Copying(4), Majority()]
    copying = 0.625 * 0.375 / (100 * 0.75**2)
    majority = 0.25 / (100 * 0.5**2)
    found = suite_error(scores, 100, tasks)
    assert found == {4: pytest.approx(math.sqrt(copying + majority) / 2), 8: 0.0}


@pytest.mark.parametrize(
    ("scores", "n", "error", "words"),
    [
        ({"copying": {4: 0.0}}, 0, ValueError, "n_questions to be positive"),
        ({"copying": {4: 0.0}}, 4.0, TypeError, "n_questions to be an integer"),
        ({"copying": {4: 62.5}}, 4, ValueError, "expected centred scores of copying, .* at k = 4"),
        ({"majority": {4: 0.0}}, 4, ValueError, r"scores of the tasks \['copying'\], got"),
    ],
)
def test_what_does_not_fit_is_refused(scores, n, error, words):
    with pytest.raises(error, match=words):
        suite_error(scores, n, [Copying()])


def test_two_tasks_of_one_name_are_refused():
    tasks = [Copying(2), Copying(4)]  # one would be lost under the other's name
    with pytest.raises(ValueError, match=r"tasks with a name each, got \['copying', 'copying'\]"):
        label_shortcut_scores([4], tasks=tasks)
    with pytest.raises(ValueError, match="tasks with a name each"):
        suite_error({"copying": {4: 0.0}}, 8, tasks)


def test_tasks_of_different_k_have_no_error_together():
    scores = {task.name: {4 + i: 0.0} for i, task in enumerate(SUITE)}
    with pytest.raises(ValueError, match="tasks with the same k each"):
        suite_error(scores, 8)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"k_shots": [-1]}, ValueError, "k from 0 to"),
        ({"k_shots": [1.0]}, TypeError, "k to be an integer"),
        ({"k_shots": [1], "n_questions": 0}, ValueError, "n to be positive"),
    ],
)
def test_numbers_of_no_question_are_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        label_shortcut_scores(**arguments)
