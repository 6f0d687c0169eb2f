"""experiments/messenger.py in miniature, and what its record holds."""

from dataclasses import replace

import pytest
from experiment_scripts import names, script

from rove_lab.records import open_record
from rove_lab.settings import changed
from rove_lab.tasks import OrderedPair


@pytest.fixture
def messenger(monkeypatch):
    return script("messenger", monkeypatch)


def test_every_model_is_trained_and_scored(messenger, capsys):
    trial = messenger.CPU.trials["ordered pair"]
    short = replace(trial, task=OrderedPair(3, 4), training=replace(trial.training, steps=1))
    record = messenger.EXPERIMENT.record(messenger.Budget({"ordered pair": short}), [0, 1, 2])
    rows = dict.fromkeys(trial.rows, dict.fromkeys(["one back", "two back", "both"]))
    assert names(record.values) == {"ordered pair": {"RoPE": rows, "RoVE": rows}}
    assert record.config["ordered pair"]["rows"]["1 head, MLP"]["d_mlp"] == 256
    assert record.config["ordered pair"]["training"]["steps"] == 1
    assert "[24/24] ordered pair, RoVE, 2 layers, seed 2: both " in capsys.readouterr().out


def test_arms_differ_in_the_rotation_of_values_alone(messenger):
    budget = changed(messenger.CPU, ["trials.edge.training.steps=1"])
    rope, rove = (messenger.run(budget, "edge", arm, "1 head", 0) for arm in messenger.ARMS)
    assert rope != rove
    assert rope == messenger.run(budget, "edge", "RoPE", "1 head", 0)


def test_a_training_that_was_stopped_leaves_nothing(messenger, monkeypatch):
    def stopped(*arguments, **options):
        return replace(train(*arguments, **options), interrupted=True)

    train = messenger.train
    monkeypatch.setattr(messenger, "train", stopped)
    budget = changed(messenger.CPU, ["trials.edge.training.steps=1"])
    with pytest.raises(KeyboardInterrupt):
        messenger.run(budget, "edge", "RoPE", "1 head", 0)


def test_the_committed_record_has_every_row(messenger):
    found = {
        name: {arm: dict.fromkeys(rows) for arm, rows in arms.items()}
        for name, arms in open_record("messenger").values.items()
    }
    assert found == {
        name: {arm: dict.fromkeys(trial.rows) for arm in messenger.ARMS}
        for name, trial in messenger.CPU.trials.items()
    }
