"""Induction: read by looking for the last time, and not to be had from any fixed offset."""

import pytest
import torch
from token_tasks import assert_solved, best_fixed_offset, distances, first

from rove_lab.induction import Induction

SIZES = [
    Induction(),
    Induction(n_symbols=2, n_ctx=7, n_segment=4),
    Induction(n_symbols=3, n_ctx=40, n_segment=6),
    Induction(n_ctx=512),
]


def last_times(task, sequence):
    """Position to the last place before at which its token stood, where it is a segment's."""
    segment = sequence[: task.n_segment]
    assert len(set(segment)) == task.n_segment
    places = {}
    for t in range(task.n_segment, len(sequence)):
        if sequence[t] in segment[:-1]:
            places[t] = max(place for place in range(t) if sequence[place] == sequence[t])
    return places


def reader(task, sequence):
    """What followed the last time."""
    return {t: sequence[place + 1] for t, place in last_times(task, sequence).items()}


@pytest.mark.parametrize("task", SIZES, ids=repr)
def test_the_answer_is_what_followed_the_last_time(task):
    assert_solved(task, reader)


@pytest.mark.parametrize("task", SIZES, ids=repr)
def test_every_period_is_drawn(task):
    periods = [
        min(t - place for t, place in last_times(task, sequence).items())
        for sequence in first(task, 2048)[0].tolist()
    ]
    possible = range(task.n_segment, task.n_ctx + 2 - task.n_segment)
    assert set(periods) <= set(possible)
    assert len(set(periods)) > 0.95 * len(possible)


def test_the_opening_round_alone_answers_everything():
    def opening(task, sequence):
        segment = sequence[: task.n_segment]
        return {t: segment[segment.index(sequence[t]) + 1] for t in last_times(task, sequence)}

    assert_solved(Induction(), opening)


def test_no_fixed_offset_does():
    assert 0.05 < best_fixed_offset(Induction()) < 0.25


def test_a_longer_sequence_asks_farther_back():
    back = distances(Induction(n_ctx=512), last_times)
    assert max(back) > 490
    assert sum(one > 256 for one in back) / len(back) > 0.1


def test_nothing_but_its_return_tells_a_segment():
    """Before it, after it and in it stand the same symbols, over all sequences."""
    task = Induction()
    tokens = first(task, 4096)[0]
    inside = tokens[:, : task.n_segment].flatten().bincount(minlength=48)
    everywhere = tokens.flatten().bincount(minlength=48)
    for counts in (inside, everywhere):
        share = counts / counts.sum() * 48
        torch.testing.assert_close(share, torch.ones_like(share), rtol=0, atol=0.2)


def test_others_fill_the_rest():
    task = Induction()
    for sequence in first(task, 64)[0].tolist():
        segment = sequence[: task.n_segment]
        starts = [t for t, token in enumerate(sequence) if token == segment[0]]
        for t in starts[:-1]:
            assert sequence[t : t + task.n_segment] == segment
        alone = [token for token in sequence if token in segment]
        assert alone == (segment * len(sequence))[: len(alone)]


@pytest.mark.parametrize(
    ("sizes", "error", "words"),
    [
        ({"n_segment": 1}, ValueError, "expected n_segment of 2 or more, got 1"),
        ({"n_segment": 2.5}, TypeError, "expected n_segment to be an integer"),
        ({"n_segment": 48}, ValueError, "n_symbols of 17 or more for a segment of 48 and others"),
        ({"n_ctx": 14}, ValueError, "n_ctx of 15 or more for two segments of 8, got 14"),
    ],
)
def test_bad_sizes_are_refused(sizes, error, words):
    with pytest.raises(error, match=words):
        Induction(**sizes)
