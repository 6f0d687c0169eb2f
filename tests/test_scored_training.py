"""A scored training is the training itself, and scores are those of its steps."""

import signal

import pytest
import torch

from rove_lab.evaluation import held_out_scores
from rove_lab.induction import Induction
from rove_lab.model import GPTConfig
from rove_lab.random_positions import RandomPositions, Scattered
from rove_lab.scored_training import scored_steps, train_scored
from rove_lab.training import TrainConfig, train, train_matched

TASK = Induction(n_symbols=4, n_ctx=16, n_segment=3)
SIZES = {"d_vocab": TASK.d_in, "n_ctx": 16, "d_model": 16, "n_layers": 1, "n_heads": 2}
ARMS = {name: GPTConfig(**SIZES, rotate_values=name == "RoVE") for name in ("RoPE", "RoVE")}
HOW = TrainConfig(steps=7, batch_size=4, log_every=2)


def ask(model):
    assert not torch.is_grad_enabled()
    return held_out_scores(model, TASK, 16)


def test_the_runs_are_those_without_scores_and_the_scores_those_of_shorter_runs(capsys):
    seen = []
    runs, found = train_scored(
        ARMS, HOW, TASK, ask, [4, 7], callback=lambda *report: seen.append(report)
    )
    assert capsys.readouterr().out == ""
    plain = train_matched(ARMS, HOW, TASK, progress=False)
    assert {name: run.losses for name, run in runs.items()} == {
        name: run.losses for name, run in plain.items()
    }
    assert [*found] == ["RoPE", "RoVE"]
    assert found["RoPE"] != found["RoVE"]
    shorter = train(ARMS["RoVE"], TrainConfig(steps=4, batch_size=4), TASK, progress=False)
    assert found["RoVE"] == {
        "4": held_out_scores(shorter.model, TASK, 16),
        "7": held_out_scores(runs["RoVE"].model, TASK, 16),
    }
    assert seen == [(arm, at, found[arm][str(at)]) for at in (4, 7) for arm in ARMS]


@pytest.mark.parametrize("odd", [0, 3, 8])
def test_a_step_without_a_report_is_refused(odd):
    with pytest.raises(ValueError, match=rf"every 2 up to 7, got \[{odd}\]: change them"):
        train_scored(ARMS, HOW, TASK, ask, [2, odd])


def test_ctrl_c_ends_it_without_half_a_curve():
    def stop(name, step, scores):
        if step == 4:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train_scored(ARMS, HOW, TASK, ask, [2, 4, 6], callback=stop)


def test_a_model_is_scored_as_it_will_be_used_and_goes_on_as_it_was():
    def scattered():
        return {"RoVE": RandomPositions(ARMS["RoVE"], Scattered(64), seed=3)}

    def in_use(model):
        assert not model.training
        return ask(model)

    runs, _ = train_scored(scattered(), HOW, TASK, in_use, [2, 4, 6])
    plain = train_matched(scattered(), HOW, TASK, progress=False)
    assert runs["RoVE"].losses == plain["RoVE"].losses
    assert runs["RoVE"].model.training == plain["RoVE"].model.training


def test_every_so_many_steps_and_the_last_are_scored():
    assert scored_steps(100, 250) == [100, 200, 250]
    assert scored_steps(100, 200) == [100, 200]
    assert scored_steps(100, 4) == [4]
    for wrong in ((0, 4), (2, 0)):
        with pytest.raises(ValueError, match="positive"):
            scored_steps(*wrong)
    with pytest.raises(TypeError, match="expected every"):
        scored_steps(2.5, 4)


def test_no_step_to_score_at_is_refused():
    with pytest.raises(ValueError, match="one step or more to score at"):
        train_scored(ARMS, HOW, TASK, ask, [])
