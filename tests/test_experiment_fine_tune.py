"""experiments/fine_tune.py in miniature, and what its record holds."""

from dataclasses import replace

import pytest
import torch
from experiment_scripts import names, script_on_small_files

from rove_lab.model import GPT, GPTConfig
from rove_lab.records import open_record
from rove_lab.training import TrainConfig

SMALL = GPTConfig(n_ctx=16, d_model=16, n_heads=2, n_layers=1, rotate_values=False)


@pytest.fixture
def fine_tune(monkeypatch, tmp_path):
    module = script_on_small_files("fine_tune", monkeypatch, tmp_path / "sources")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return module


@pytest.fixture
def budget(fine_tune):
    first = TrainConfig(steps=3, batch_size=4, learning_rate=2e-3, warmup_steps=1)
    return fine_tune.Budget(SMALL, first, replace(first, steps=4, log_every=2), held_out_bytes=512)


def expected_names(module, budget):
    every, arms = budget.then.log_every, module.arms(budget.model)
    steps = map(str, range(every, budget.then.steps + 1, every))
    lengths = dict.fromkeys(budget.lengths)
    return {
        "losses": {
            "at once": dict.fromkeys(arms, lengths),
            "trained on": dict.fromkeys(arms, lengths),
        },
        "from the start": {"RoVE": lengths},
        "curve": dict.fromkeys(arms, dict.fromkeys(steps)),
    }


def test_it_trains_every_arm_on_and_records_it(fine_tune, budget, capsys):
    record = fine_tune.EXPERIMENT.record(budget, [0, 1, 2])
    assert names(record.values) == expected_names(fine_tune, budget)
    assert record.config["from the start"] == {"steps": 7, "learning_rate": 2e-3}
    assert record.config["training on"]["steps"] == 4
    assert "[3/3] seed 2: RoPE, the control " in capsys.readouterr().out
    at_once, after = record.values["losses"].values()
    assert at_once["RoPE, the control"] != at_once["RoVE"] != after["RoVE"]


def test_halves_of_the_planes_are_all_of_them(fine_tune):
    arms = fine_tune.arms(fine_tune.CPU.model)
    halves = [arms[f"RoVE, {which} half"].value_planes for which in ("fast", "slow")]
    assert halves == [tuple(range(8)), tuple(range(8, 16))]
    assert not arms[fine_tune.CONTROL].rotate_values


def test_the_committed_record_has_what_the_script_would_write(fine_tune):
    assert names(open_record("fine_tune").values) == expected_names(fine_tune, fine_tune.CPU)


def test_the_scores_are_the_losses_of_held_out_text_at_each_length(fine_tune, budget):
    torch.manual_seed(0)
    model = GPT(SMALL).eval()
    found = fine_tune.scores(model, budget)
    for name, times in budget.lengths.items():
        n_ctx = SMALL.n_ctx * times
        text = fine_tune.standard_library(n_ctx).held_out
        inputs, targets = next(text.batches(512 // n_ctx, seed=2**32 - 1))
        with torch.no_grad():
            assert found[name] == pytest.approx(text.loss(model(inputs), targets).item())


def test_a_training_that_was_stopped_leaves_nothing(fine_tune, budget, monkeypatch):
    def stopped(*arguments, **options):
        return replace(train(*arguments, **options), interrupted=True)

    train = fine_tune.train
    monkeypatch.setattr(fine_tune, "train", stopped)
    with pytest.raises(KeyboardInterrupt):
        fine_tune.run(budget, 0)
