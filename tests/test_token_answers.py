"""What holds for every task whose answers are tokens of the sequence."""

import math
from dataclasses import FrozenInstanceError

import pytest
import torch
from token_tasks import TIGHT, USUAL, asked_answers, first

from rove_lab.needles import Needles
from rove_lab.token_answers import TokenAnswers

TASKS = [*USUAL, *TIGHT]


@pytest.mark.parametrize("task", TASKS, ids=repr)
def test_what_is_asked_is_the_next_token(task):
    tokens, targets = first(task)
    assert tokens.shape == targets.shape == (64, task.n_ctx)
    assert tokens.dtype == targets.dtype == torch.int64
    assert tokens.min() >= 0
    assert tokens.max() < task.d_in == task.d_out
    asked = targets != -100
    assert bool(asked.any(1).all())  # a batch of one has something to learn from, too
    within = asked[:, :-1]
    assert torch.equal(targets[:, :-1][within], tokens[:, 1:][within])
    assert bool((asked.sum(1) % len(task.choices) == 0).all())


@pytest.mark.parametrize("task", TASKS, ids=repr)
def test_batches_follow_from_the_seed(task):
    stream, again, other = (task.batches(8, seed) for seed in (5, 5, 6))
    seen = []
    for _ in range(3):
        tokens, targets = next(stream)
        assert all(map(torch.equal, (tokens, targets), next(again)))
        assert not torch.equal(tokens, next(other)[0])
        assert not any(torch.equal(tokens, before) for before in seen)
        seen.append(tokens)


@pytest.mark.parametrize("task", USUAL, ids=repr)
def test_the_same_task_eight_times_as_long(task):
    longer = task.at_length(8 * task.n_ctx)
    assert type(longer) is type(task)
    assert longer.n_ctx == 8 * task.n_ctx
    assert (longer.d_in, longer.blind, longer.blind_loss) == (
        task.d_in,
        task.blind,
        task.blind_loss,
    )
    assert longer.at_length(task.n_ctx) == task
    tokens, targets = first(longer, 16)
    assert tokens.shape == targets.shape == (16, longer.n_ctx)
    assert (targets != -100).nonzero()[:, 1].max() >= 0.9 * longer.n_ctx


@pytest.mark.parametrize("task", TIGHT, ids=repr)
def test_what_has_no_room_to_spare_fits_and_one_token_fewer_does_not(task):
    words = f"expected n_ctx of {task.n_ctx} or more for .*, got {task.n_ctx - 1}: pass a longer"
    with pytest.raises(ValueError, match=words):
        task.at_length(task.n_ctx - 1)


def said(task, targets, answer):
    """Logits that are sure of ``answer(t, target)`` at each asked position."""
    output = torch.zeros(*targets.shape, task.d_out)
    for row, line in enumerate(targets):
        for t, target in asked_answers(line).items():
            output[row, t, answer(t, target)] = 50.0
    return output


@pytest.mark.parametrize("task", USUAL, ids=repr)
def test_scores_count_tokens_and_whole_answers(task):
    targets = first(task)[1]
    right = said(task, targets, lambda t, target: target)
    wrong = said(task, targets, lambda t, target: (target + 1) % task.d_out)
    best, worst = task.scores(right, targets), task.scores(wrong, targets)
    assert list(best)[:2] == ["nats", "accuracy"]
    assert best["nats"] == pytest.approx(0, abs=1e-6)
    assert worst["nats"] == pytest.approx(50)
    assert list(best.values())[1:] == [1.0] * (len(best) - 1)
    assert list(worst.values())[1:] == [0.0] * (len(best) - 1)
    half = torch.cat((right[:32], wrong[32:]))
    asked = (targets != -100).sum(1)
    assert task.scores(half, targets)["accuracy"] == pytest.approx(
        (asked[:32].sum() / asked.sum()).item()
    )


def test_an_answer_is_whole_if_all_its_tokens_are_right():
    task = Needles(n_values=2, n_queries=2)
    targets = first(task, 1)[1]
    places = list(asked_answers(targets[0]))
    assert len(places) == 4
    for wrong, accuracy, whole in (
        ([], 1.0, 1.0),
        (places[:1], 0.75, 0.5),
        (places[:2], 0.5, 0.5),
        (places[1:3], 0.5, 0.0),
    ):
        output = said(task, targets, lambda t, target, wrong=wrong: 0 if t in wrong else target)
        scores = task.scores(output, targets)
        assert list(scores) == ["nats", "accuracy", "whole answers"]
        assert (scores["accuracy"], scores["whole answers"]) == (accuracy, whole)


@pytest.mark.parametrize("task", USUAL, ids=repr)
def test_the_loss_is_the_mean_cross_entropy_of_what_is_asked(task):
    targets = first(task, 4)[1]
    random = torch.Generator().manual_seed(1)
    output = torch.randn(*targets.shape, task.d_out, generator=random)
    total, n = 0.0, 0
    for row, line in enumerate(targets):
        for t, target in asked_answers(line).items():
            chances = output[row, t].double().exp()
            total -= math.log(chances[target] / chances.sum())
            n += 1
    assert task.loss(output, targets).item() == pytest.approx(total / n, rel=1e-5)
    assert task.scores(output, targets)["nats"] == pytest.approx(total / n, rel=1e-5)


@pytest.mark.parametrize("task", USUAL, ids=repr)
def test_who_guesses_among_what_can_be_an_answer(task):
    """The stated chance level, by a reader who has read other sequences and not this one."""
    seen = first(task, 4096, seed=1)[1]
    seen = seen[seen != -100].bincount(minlength=task.d_in)
    possible = seen > 0
    assert int(possible.sum()) == task.choices[0]
    share = seen[possible] / seen.sum() * task.choices[0]
    torch.testing.assert_close(share, torch.ones_like(share), rtol=0, atol=0.15)  # none is likelier

    targets = first(task, 4096)[1]
    random = torch.Generator().manual_seed(0)
    output = torch.rand(*targets.shape, task.d_out, generator=random)
    output[..., ~possible] = -math.inf
    if len(set(task.choices)) > 1:  # what is named is not named again
        for j in range(1, len(task.choices)):
            at = task.n_ctx - len(task.choices) + j
            for named in range(at - j, at):
                output[:, at].scatter_(1, targets[:, named, None], -math.inf)
    guessed = list(task.scores(output, targets).values())[-1]
    n = int((targets != -100).sum()) / len(task.choices)
    assert abs(guessed - task.blind) < 5 * (task.blind / n) ** 0.5
    flat = output.isfinite().float().log()
    assert task.loss(flat, targets).item() == pytest.approx(task.blind_loss, rel=1e-3)


def test_every_symbol_is_spelt_otherwise():
    task = Needles(n_symbols=30)
    names = task.spell(torch.arange(task.d_in)).split()
    assert len(set(names)) == task.d_in == 92
    assert names[25:27] == ["z", "a1"]
    assert names[30:31] + names[60:61] + names[-2:] == ["A", "0", "?", "="]
    assert Needles().spell(torch.tensor([0, 18, 35, 48])) == "a C 3 ?"


def test_sizes_are_checked_and_kept():
    with pytest.raises(ValueError, match="expected n_symbols to be positive, got 0"):
        Needles(n_symbols=0)
    with pytest.raises(TypeError, match="expected n_ctx to be an integer, got 64"):
        Needles(n_ctx=64.0)
    with pytest.raises(
        ValueError, match="expected n_symbols of 8 or more for 8 distinct keys, got 4"
    ):
        Needles(n_symbols=4)
    with pytest.raises(FrozenInstanceError):
        Needles().n_ctx = 8
    with pytest.raises(TypeError, match="abstract"):
        TokenAnswers()
