"""The clocks of a training: a first step that nobody counts, means, the same time for another."""

import pytest
import torch
from torch import nn

from rove_lab.filters import Filter
from rove_lab.matched_pairs import rope_and_rove
from rove_lab.messenger import MessengerConfig
from rove_lab.training import Run, TrainConfig, train_matched
from rove_lab.training_time import (
    given_the_time_of,
    milliseconds_a_step,
    one_step_first,
    seconds_a_step,
)

PAIR = rope_and_rove(MessengerConfig(1, 1, 8, d_head=8))
HOW = TrainConfig(steps=3, batch_size=4, learning_rate=1e-2, log_every=1)


class Counted(Filter):
    """A filter that counts the losses it is asked for."""

    asked = 0

    def loss(self, outputs, targets):
        Counted.asked += 1
        return super().loss(outputs, targets)


def test_one_step_of_each_is_taken_and_leaves_no_trace(monkeypatch):
    task = Counted(Filter.edge().taps, n_ctx=16)
    expected = train_matched(PAIR, HOW, task, progress=False)
    monkeypatch.setattr(Counted, "asked", 0)
    before = torch.random.get_rng_state()
    assert one_step_first(PAIR, HOW, task) is None
    assert Counted.asked == 2
    assert torch.equal(torch.random.get_rng_state(), before)
    found = train_matched(PAIR, HOW, task, progress=False)
    for name, run in found.items():
        assert run.losses == expected[name].losses
        for ours, theirs in zip(
            run.model.parameters(), expected[name].model.parameters(), strict=True
        ):
            assert torch.equal(ours, theirs)


def test_a_step_takes_its_share_of_the_whole():
    runs = train_matched(PAIR, HOW, Filter.edge(), progress=False)
    for run in runs.values():
        seconds, milliseconds = seconds_a_step(run), milliseconds_a_step(run)
        assert seconds == {"wall": run.wall_s / 3, "processor": run.cpu_s / 3}
        assert milliseconds == {"wall": 1e3 * run.wall_s / 3, "processor": 1e3 * run.cpu_s / 3}
        assert milliseconds["wall"] == pytest.approx(1e3 * seconds["wall"])


def of(cpu_s):
    return Run(nn.Identity(), cpu_s=cpu_s)


def test_a_training_given_another_s_time_has_its_steps_and_its_schedule_in_proportion():
    how = TrainConfig(steps=800, warmup_steps=40, final_rate=0.1, learning_rate=2e-3, seed=7)
    longer = given_the_time_of(how, own=of(10.0), other=of(11.25))
    assert (longer.steps, longer.warmup_steps) == (900, 45)
    for step in (40, 80, 400, 800):
        assert longer.rate(round(step * 1.125)) == pytest.approx(how.rate(step))
    same = given_the_time_of(how, of(3.0), of(3.0))
    assert same == how
    assert given_the_time_of(how, of(2.0), of(1.0)).steps == 400


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (lambda: seconds_a_step(of(1.0)), "a run that came to a report"),
        (lambda: milliseconds_a_step(of(1.0)), "a run that came to a report"),
        (lambda: given_the_time_of(HOW, of(0.0), of(1.0)), "took time, got 0 and 1 processor"),
        (lambda: given_the_time_of(HOW, of(1.0), of(0.0)), "took time, got 1 and 0 processor"),
        (lambda: given_the_time_of(HOW, of(100.0), of(1.0)), "expected steps to be positive"),
    ],
)
def test_what_has_no_clock_is_refused(what, words):
    with pytest.raises(ValueError, match=words):
        what()
