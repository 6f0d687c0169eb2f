"""experiments/training.py in miniature, and what its record holds."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from experiment_scripts import ROOT, names, script_on_small_files

from rove_lab.evaluation import held_out_scores, position_groups
from rove_lab.model import GPT, GPTConfig
from rove_lab.records import open_record
from rove_lab.training import TrainConfig

SMALL = GPTConfig(n_ctx=16, d_model=16, n_heads=2, n_layers=1, rotate_values=False)


@pytest.fixture
def training(monkeypatch, tmp_path):
    module = script_on_small_files("training", monkeypatch, tmp_path / "sources")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return module


@pytest.fixture
def budget(training):
    how = TrainConfig(steps=4, batch_size=4, learning_rate=2e-3, warmup_steps=2, log_every=2)
    return training.Budget(SMALL, how, scored_every=4, held_out_bytes=512)


def expected_names(module, budget):
    how, every, arms = budget.training, budget.scored_every, ("RoPE", "RoVE")
    curve = dict.fromkeys(map(str, range(how.log_every, how.steps + 1, how.log_every)))
    scored = map(str, range(every, how.steps + 1, every))
    scores = dict.fromkeys(["all", *position_groups(budget.model.n_ctx)])
    return {
        "curve": dict.fromkeys(arms, curve),
        "held out": dict.fromkeys(arms, dict.fromkeys(scored, scores)),
        "RoPE for RoVE's time": {"steps": None, "processor seconds": None, "held out": scores},
        "seconds a step": dict.fromkeys(arms, dict.fromkeys(["wall", "processor"])),
    }


def test_it_trains_every_pair_and_records_it(training, budget, capsys):
    record = training.EXPERIMENT.record(budget, [0, 1, 2])
    assert names(record.values) == expected_names(training, budget)
    assert record.config["training"]["steps"] == 4
    assert record.config["held out"]["every steps"] == 4
    assert "[3/3] seed 2: RoPE " in capsys.readouterr().out
    rope, rove = record.values["held out"].values()
    assert rope["4"]["all"] != rove["4"]["all"]


def test_rope_alone_takes_the_steps_that_roves_seconds_allow(training, budget, monkeypatch):
    def train_scored(*arguments, **options):
        runs, found = scored(*arguments, **options)
        runs["RoPE"].cpu_s, runs["RoVE"].cpu_s = 2.0, 3.0  # as if
        return runs, found

    def train(config, how, *arguments, **options):
        asked.append((config.rotate_values, how))
        return alone(config, how, *arguments, **options)

    asked, scored, alone = [], training.train_scored, training.train
    monkeypatch.setattr(training, "train_scored", train_scored)
    monkeypatch.setattr(training, "train", train)
    found = training.run(budget, 7)
    assert asked == [(False, replace(budget.training, seed=7, steps=6, warmup_steps=3))]
    assert found["RoPE for RoVE's time"]["steps"] == 6
    assert found["seconds a step"]["RoVE"]["processor"] == 0.75


def test_the_committed_record_has_what_the_script_would_write(training):
    assert names(open_record("training").values) == expected_names(training, training.CPU)


def test_the_scores_are_the_losses_of_held_out_text(training):
    torch.manual_seed(0)
    model = GPT(replace(SMALL, rotate_values=True)).eval()
    text = training.standard_library(16).held_out
    found = training.scores(model, text, 512)
    whole = held_out_scores(model, text, 512 // 16)["nats per byte"]
    assert found["all"] == pytest.approx(whole)
    inputs, targets = next(text.batches(512 // 16, seed=2**32 - 1))
    with torch.no_grad():
        part = text.loss(model(inputs)[:, 8:], targets[:, 8:]).item()
    assert found["9 to 16"] == pytest.approx(part)


def test_a_training_that_was_stopped_leaves_nothing(training, budget, monkeypatch):
    def stopped(*arguments, **options):
        return replace(train(*arguments, **options), interrupted=True)

    train = training.train
    monkeypatch.setattr(training, "train", stopped)
    with pytest.raises(KeyboardInterrupt):
        training.run(budget, 0)


def test_the_chapter_says_what_the_record_holds():
    record = open_record("training")
    cells = json.loads((ROOT / "book" / "10_training.ipynb").read_text(encoding="utf-8"))["cells"]
    chapter = " ".join("".join(cell["source"]) for cell in cells)
    words = " ".join(chapter.split())
    values = record.values
    curves, held_out = (
        {arm: {step: find(at) for step, at in steps.items()} for arm, steps in values[name].items()}
        for name, find in (
            ("curve", torch.tensor),
            ("held out", lambda at: torch.tensor(at["all"])),
        )
    )

    # the text of the training
    ahead = {int(s): curves["RoPE"][s] - rove for s, rove in curves["RoVE"].items()}
    assert all((apart > 0).all() for step, apart in ahead.items() if step >= 40)
    assert not (ahead[20] > 0).all()
    assert f"{ahead[100].mean():.2f}" == "0.06"
    assert f"{ahead[800].mean():.2f} {ahead[800].min():.2f} {ahead[800].max():.2f}" == (
        "0.03 0.02 0.04"
    )
    assert "by 0.06 nats per byte around step 100, by 0.03 at the end (0.02 to 0.04)" in words

    # held out
    behind = {s: rove - held_out["RoPE"][s] for s, rove in held_out["RoVE"].items()}
    first, last = -behind["100"].mean(), -behind["800"].mean()
    assert f"by {first:.3f} after 100 and by {last:.3f} after 800" in words
    assert all(apart.mean() < 0 for apart in behind.values())
    assert (behind["800"] > 0).tolist() == [True, False, False, False]
    assert f"with RoVE {behind['800'][0]:.3f} behind" in words
    every = held_out["RoVE"]["800"][:, None] - held_out["RoPE"]["800"]
    assert f"from {-every.min():.2f} for RoVE to {every.max():.2f} against it" in words
    error = behind["800"].std() / 2
    assert f"{-behind['800'].mean():.3f} ± {error:.3f}, which four pairs cannot tell" in words
    assert f"error of the last mean is {error:.3f}" in words
    # Of Student's t with 3 degrees of freedom, two-sided: 3.18 has p = 0.05, 2.13 has 0.12.
    assert f"{-behind['800'].mean() / error:.2f}" == "2.13"

    # by position
    apart = {
        name: torch.tensor(rove) - torch.tensor(values["held out"]["RoPE"]["800"][name])
        for name, rove in values["held out"]["RoVE"]["800"].items()
        if name != "all"
    }
    start, far = [apart.pop(name) for name in ("1", "2")], list(apart.values())[1:]
    assert all((one < 0).all() for one in start)
    assert "({:.2f} and {:.2f}, in all four pairs".format(*(-one.mean() for one in start)) in words
    assert abs(apart["3 to 4"].mean()) < 0.001
    means = [-one.mean().item() for one in far]
    assert f"{min(means):.3f} to {max(means):.3f} from there to the end" in words
    assert all((one > 0).sum() == 1 for one in far)

    # a step, and the time
    seconds = values["seconds a step"]
    pairs = zip(*(torch.tensor(arm["processor"]) for arm in seconds.values()), strict=True)
    ratios = [rove / rope for rope, rove in pairs]
    assert f"took {min(ratios):.2f} to {max(ratios):.2f} times RoPE's" in words
    longer = values["RoPE for RoVE's time"]
    steps = longer["steps"]
    assert f"{min(steps)} to {max(steps)} steps with the rate falling" in words
    assert f"Given {min(steps) - 800} to {max(steps) - 800} more steps" in words
    patient = torch.tensor(longer["held out"]["all"])
    gain, even = held_out["RoPE"]["800"] - patient, held_out["RoVE"]["800"] - patient
    assert f"gains {gain.min():.3f} to {gain.max():.3f} by its extra steps" in words
    assert f"{gain.mean():.2f} in the mean" in words
    assert (even > 0).sum() == 2
    error = even.std() / len(even) ** 0.5
    assert f"{even.mean():.3f} in RoPE's favour, with a standard error of {error:.3f}" in words
    assert f"({even.mean():.3f} ± {error:.3f} better)" in words
    assert len(record.seeds) == 4


def test_the_chapters_solution_finds_the_steps_that_it_names():
    held_out = open_record("training").values["held out"]
    early = []
    for i in range(4):
        rope, rove = ([at["all"][i] for at in held_out[arm].values()] for arm in ("RoPE", "RoVE"))
        level = max(rope[-1], rove[-1])
        ahead = rove if rove[-1] < rope[-1] else rope
        soon = np.interp(-level, [-loss for loss in ahead], [100 * n for n in range(1, 9)])
        early.append(round(800 - soon) * (1 if ahead is rove else -1))
    assert sorted(early) == [-45, 112, 130, 135]
