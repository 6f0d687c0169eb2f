"""The symbol tasks: what they ask, answered again by reading each sequence in plain Python."""

import math

import pytest
import torch

from rove_lab.tasks import DistanceRecall, OrderedPair, TaskDraw

RECALLS = [DistanceRecall(), DistanceRecall(3, 2, 4), OrderedPair(), OrderedPair(5, 7)]


def first(task, batch_size=64, seed=0):
    return next(task.batches(batch_size, seed))


def read_capital(sequence, n_symbols):
    """The letter and the distance of the one capital, found by looking."""
    capitals = [place for place, token in enumerate(sequence) if token >= n_symbols]
    assert len(capitals) == 2  # the capital and the question mark
    assert capitals[1] == len(sequence) - 1
    assert sequence[-1] == 2 * n_symbols
    return sequence[capitals[0]] - n_symbols, capitals[1] - capitals[0]


@pytest.mark.parametrize("task", [DistanceRecall(), DistanceRecall(3, 2, 4)], ids=repr)
def test_the_answers_are_the_capital_and_its_distance(task):
    tokens, answers = first(task)
    for sequence, answer in zip(tokens.tolist(), answers, strict=True):
        letter, distance = read_capital(sequence, task.n_symbols)
        assert answer[-1].tolist() == [letter, distance - 1]
        assert (answer[:-1] == -100).all()


def test_a_sequence_can_be_spelt():
    assert DistanceRecall(3, 2, 4).spell(torch.tensor([2, 0, 4, 6])) == "c a B ?"
    tokens, answers = first(DistanceRecall())
    spelt = DistanceRecall().spell(tokens[0]).split()
    letter, back = answers[0, -1].tolist()
    assert spelt[-2 - back] == "ABCDEFGHIJKLMNOP"[letter]


@pytest.mark.parametrize("task", [OrderedPair(), OrderedPair(5, 7)], ids=repr)
def test_the_answers_are_the_last_two_symbols_in_order(task):
    tokens, answers = first(task)
    for sequence, answer in zip(tokens.tolist(), answers.tolist(), strict=True):
        assert answer[:2] == [[-100, -100]] * 2
        for t in range(2, task.n_ctx):
            assert answer[t] == [sequence[t - 1], sequence[t - 2]]


@pytest.mark.parametrize("task", RECALLS, ids=repr)
def test_every_class_is_drawn_about_as_often(task):
    tokens, answers = first(task, 4096)
    assert tokens.max() < task.d_in
    asked = answers[answers[..., 0] != -100]
    for question, classes in enumerate(task.questions.values()):
        share = torch.bincount(asked[:, question], minlength=classes).double() / len(asked)
        assert len(share) == classes
        torch.testing.assert_close(share * classes, torch.ones(classes).double(), rtol=0, atol=0.25)


@pytest.mark.parametrize("task", RECALLS, ids=repr)
def test_the_same_task_at_another_length(task):
    longer = task.at_length(3 * task.n_ctx)
    assert longer.n_ctx == 3 * task.n_ctx
    assert (longer.d_in, longer.d_out, longer.blind) == (task.d_in, task.d_out, task.blind)
    tokens, answers = first(longer)
    assert tokens.shape == answers.shape[:2] == (64, longer.n_ctx)
    assert longer.at_length(task.n_ctx) == task
    with pytest.raises(ValueError, match="expected n_"):
        task.at_length(2)


@pytest.mark.parametrize("task", RECALLS, ids=repr)
def test_batches_follow_from_the_seed(task):
    again, other = task.batches(8, seed=5), task.batches(8, seed=6)
    stream = task.batches(8, seed=5)
    for _ in range(3):
        batch = next(stream)
        for one, same in zip(batch, next(again), strict=True):
            assert torch.equal(one, same)
        assert not torch.equal(batch[0], next(other)[0])
    assert not torch.equal(batch[0], next(stream)[0])


def logits(task, answers, right=(True, True), sure=50.0):
    """Logits that answer each question rightly, or with the next class."""
    output = torch.zeros(*answers.shape[:2], task.d_out, dtype=torch.float64)
    start = 0
    for question, classes in enumerate(task.questions.values()):
        said = (answers[..., question] + (0 if right[question] else 1)) % classes
        output[..., start : start + classes].scatter_(-1, said[..., None], sure)
        start += classes
    return output


@pytest.mark.parametrize("task", RECALLS, ids=repr)
def test_scores_count_each_question_and_both(task):
    _, answers = first(task)
    a, b = task.questions
    assert task.scores(logits(task, answers), answers) == {a: 1, b: 1, "both": 1}
    assert task.scores(logits(task, answers, (True, False)), answers) == {a: 1, b: 0, "both": 0}
    half = answers.shape[0] // 2
    output = logits(task, answers, (True, False))
    output[:half] = logits(task, answers)[:half]
    assert task.scores(output, answers) == {a: 1, b: 0.5, "both": 0.5}


@pytest.mark.parametrize("task", RECALLS, ids=repr)
def test_the_loss_is_the_sum_of_both_cross_entropies(task):
    _, answers = first(task, 4)
    random = torch.Generator().manual_seed(1)
    output = torch.randn(*answers.shape[:2], task.d_out, generator=random)
    parts = output.double().split(list(task.questions.values()), -1)
    total, asked = 0.0, 0
    for row in range(len(answers)):
        for t in range(answers.shape[1]):
            if answers[row, t, 0] == -100:
                continue
            asked += 1
            for question, part in enumerate(parts):
                chances = part[row, t].exp() / part[row, t].exp().sum()
                total -= math.log(chances[answers[row, t, question]])
    assert task.loss(output, answers).item() == pytest.approx(total / asked, rel=1e-5)


@pytest.mark.parametrize("task", RECALLS, ids=repr)
def test_who_knows_one_answer_and_guesses_the_other(task):
    """The stated chance level, by a reader who does exactly that."""
    _, answers = first(task, 4096)
    output = logits(task, answers)
    n = next(iter(task.questions.values()))
    output[..., n:] = 0.0
    assert task.loss(output, answers).item() == pytest.approx(task.blind_loss, rel=1e-3)
    random = torch.Generator().manual_seed(0)
    output[..., n:] = torch.rand(*answers.shape[:2], task.d_out - n, generator=random)
    assert task.scores(output, answers)["both"] == pytest.approx(task.blind, rel=0.3)


def test_the_usual_chance_level():
    assert DistanceRecall().blind == OrderedPair().blind == 0.0625
    assert DistanceRecall().blind_loss == math.log(16)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (
            lambda: DistanceRecall(n_distances=32),
            ValueError,
            "expected n_distances < n_ctx, got 32 and 24",
        ),
        (lambda: DistanceRecall(n_symbols=0), ValueError, "expected n_symbols to be positive"),
        (lambda: DistanceRecall(n_ctx=8.0), TypeError, "expected n_ctx to be an integer"),
        (lambda: OrderedPair(n_ctx=2), ValueError, "expected n_ctx of 3 or more, got 2"),
        (lambda: OrderedPair(n_symbols="a"), TypeError, "expected n_symbols to be an integer"),
        (lambda: TaskDraw(0, 0), ValueError, "expected batch_size to be positive, got 0"),
        (lambda: TaskDraw(2.5, 0), TypeError, "expected batch_size to be an integer"),
    ],
)
def test_bad_sizes_are_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()
