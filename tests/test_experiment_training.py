"""experiments/training.py in miniature, and what its record holds."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from experiment_scripts import as_recorded, names, script

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
