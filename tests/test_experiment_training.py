"""experiments/training.py in miniature, and what its record holds."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from experiment_scripts import ROOT, as_recorded, names, script

from rove_lab.data import standard_library
from rove_lab.evaluation import held_out_scores
from rove_lab.model import GPT
from rove_lab.records import open_record, read_record


@pytest.fixture
def training(monkeypatch, tmp_path):
    module = script("training", monkeypatch)
    folder = tmp_path / "sources"
    folder.mkdir()
    for number in range(40):
        (folder / f"file_{number}.py").write_bytes(b"value = %d\n" % number * 40)
    monkeypatch.setattr(module, "standard_library", lambda n_ctx: standard_library(n_ctx, folder))
    small = {"n_ctx": 16, "d_model": 16, "n_heads": 2, "n_layers": 1}
    arms = {name: replace(arm, **small) for name, arm in module.ARMS.items()}
    monkeypatch.setattr(module, "ARMS", arms)
    few = replace(module.TRAINING, steps=4, warmup_steps=1, log_every=2)
    monkeypatch.setattr(module, "TRAINING", few)
    monkeypatch.setattr(module, "SCORED_EVERY", 4)
    monkeypatch.setattr(module, "HELD_OUT_BYTES", 512)
    monkeypatch.setattr(
        module, "ProcessPoolExecutor", lambda workers, mp_context: ThreadPoolExecutor(1)
    )
    monkeypatch.setattr(module.torch, "set_num_threads", lambda count: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return module


def expected_names(module):
    how = module.TRAINING
    curve = dict.fromkeys(map(str, range(how.log_every, how.steps + 1, how.log_every)))
    scored = map(str, range(module.SCORED_EVERY, how.steps + 1, module.SCORED_EVERY))
    scores = dict.fromkeys(["all", *module.groups(module.ARMS["RoPE"].n_ctx)])
    return {
        "curve": dict.fromkeys(module.ARMS, curve),
        "held out": dict.fromkeys(module.ARMS, dict.fromkeys(scored, scores)),
        "RoPE for RoVE's time": {"steps": None, "processor seconds": None, "held out": scores},
        "seconds a step": dict.fromkeys(module.ARMS, dict.fromkeys(["wall", "processor"])),
    }


def test_it_trains_every_pair_and_records_it(training, tmp_path, capsys):
    training.main(seeds=3, workers=1, folder=tmp_path / "record")
    record = read_record(tmp_path / "record")
    assert names(record.values) == expected_names(training)
    assert record.config == training.config()
    assert "[3/3] seed 2: RoPE " in capsys.readouterr().out
    rope, rove = record.values["held out"].values()
    assert rope["4"]["all"] != rove["4"]["all"]


def test_rope_alone_takes_the_steps_that_roves_seconds_allow(training, monkeypatch):
    def train_matched(*arguments, **options):
        runs = matched(*arguments, **options)
        runs["RoPE"].cpu_s, runs["RoVE"].cpu_s = 2.0, 3.0  # as if
        return runs

    def train(config, how, *arguments, **options):
        asked.append((config.rotate_values, how))
        return alone(config, how, *arguments, **options)

    asked, matched, alone = [], training.train_matched, training.train
    monkeypatch.setattr(training, "TRAINING", replace(training.TRAINING, warmup_steps=2))
    monkeypatch.setattr(training, "train_matched", train_matched)
    monkeypatch.setattr(training, "train", train)
    found, _ = training.run(7)
    assert asked == [(False, replace(training.TRAINING, seed=7, steps=6, warmup_steps=3))]
    assert found["RoPE for RoVE's time"]["steps"] == 6
    assert found["seconds a step"]["RoVE"]["processor"] == 0.75


def test_the_committed_record_is_what_the_script_would_write(monkeypatch):
    module = script("training", monkeypatch)
    record = open_record("training")
    assert record.config == as_recorded(module.config(), record.config)
    assert names(record.values) == expected_names(module)
    assert len(record.seeds) >= 3


def test_the_scores_are_the_losses_of_held_out_text(training):
    torch.manual_seed(0)
    model = GPT(training.ARMS["RoVE"]).eval()
    text = training.standard_library(16).held_out
    found = training.scores(model, text)
    whole = held_out_scores(model, text, 512 // 16)["nats per byte"]
    assert found["all"] == pytest.approx(whole)
    inputs, targets = next(text.batches(512 // 16, seed=2**32 - 1))
    with torch.no_grad():
        part = text.loss(model(inputs)[:, 8:], targets[:, 8:]).item()
    assert found["9 to 16"] == pytest.approx(part)


@pytest.mark.parametrize("n_ctx", [1, 2, 3, 16, 20])
def test_every_position_is_in_one_group(training, n_ctx):
    found = training.groups(n_ctx)
    assert [i for at in found.values() for i in range(n_ctx)[at]] == list(range(n_ctx))
    for name, at in found.items():
        first, _, last = name.partition(" to ")
        assert (int(first), int(last or first)) == (at.start + 1, at.stop)


def test_it_stops_on_ctrl_c_and_writes_nothing(training, tmp_path, monkeypatch):
    def stop(seed):
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "run", stop)
    with pytest.raises(SystemExit, match="interrupted: no record was written"):
        training.main(folder=tmp_path / "record")
    assert not (tmp_path / "record").exists()


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
