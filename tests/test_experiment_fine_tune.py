"""experiments/fine_tune.py in miniature, and what its record holds."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from experiment_scripts import as_recorded, names, script

from rove_lab.data import standard_library
from rove_lab.model import GPT
from rove_lab.records import open_record, read_record


@pytest.fixture
def fine_tune(monkeypatch, tmp_path):
    module = script("fine_tune", monkeypatch)
    folder = tmp_path / "sources"
    folder.mkdir()
    for number in range(40):
        (folder / f"file_{number}.py").write_bytes(b"value = %d\n" % number * 40)
    monkeypatch.setattr(module, "standard_library", lambda n_ctx: standard_library(n_ctx, folder))
    small = {"n_ctx": 16, "d_model": 16, "n_heads": 2, "n_layers": 1}
    monkeypatch.setattr(module, "ROPE", replace(module.ROPE, **small))
    arms = {
        name: replace(arm, **small, value_planes=arm.value_planes and (0,))
        for name, arm in module.ARMS.items()
    }
    monkeypatch.setattr(module, "ARMS", arms)
    monkeypatch.setattr(module, "FIRST", replace(module.FIRST, steps=3, warmup_steps=1))
    monkeypatch.setattr(module, "THEN", replace(module.THEN, steps=4, log_every=2))
    monkeypatch.setattr(module, "HELD_OUT_BYTES", 512)
    monkeypatch.setattr(
        module, "ProcessPoolExecutor", lambda workers, mp_context: ThreadPoolExecutor(1)
    )
    monkeypatch.setattr(module.torch, "set_num_threads", lambda count: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return module


def expected_names(module, steps):
    lengths = dict.fromkeys(module.LENGTHS)
    return {
        "losses": {
            "at once": dict.fromkeys(module.ARMS, lengths),
            "trained on": dict.fromkeys(module.ARMS, lengths),
        },
        "from the start": {"RoVE": lengths},
        "curve": dict.fromkeys(module.ARMS, dict.fromkeys(map(str, steps))),
    }


def test_it_trains_every_arm_on_and_records_it(fine_tune, tmp_path, capsys):
    fine_tune.main(seeds=3, workers=1, folder=tmp_path / "record")
    record = read_record(tmp_path / "record")
    assert names(record.values) == expected_names(fine_tune, [2, 4])
    assert record.config == fine_tune.config()
    assert "[3/3] seed 2: RoPE, the control " in capsys.readouterr().out
    at_once, after = record.values["losses"].values()
    assert at_once["RoPE, the control"] != at_once["RoVE"] != after["RoVE"]


def test_the_committed_record_is_what_the_script_would_write(monkeypatch):
    module = script("fine_tune", monkeypatch)
    record = open_record("fine_tune")
    every = module.THEN.log_every
    assert record.config == as_recorded(module.config(), record.config)
    steps = range(every, module.THEN.steps + 1, every)
    assert names(record.values) == expected_names(module, steps)
    assert len(record.seeds) >= 3


def test_the_scores_are_the_losses_of_held_out_text_at_each_length(fine_tune):
    torch.manual_seed(0)
    model = GPT(fine_tune.ROPE).eval()
    found = fine_tune.scores(model)
    for name, times in fine_tune.LENGTHS.items():
        n_ctx = fine_tune.ROPE.n_ctx * times
        text = fine_tune.standard_library(n_ctx).held_out
        inputs, targets = next(text.batches(512 // n_ctx, seed=2**32 - 1))
        with torch.no_grad():
            assert found[name] == pytest.approx(text.loss(model(inputs), targets).item())


def test_it_stops_on_ctrl_c_and_writes_nothing(fine_tune, tmp_path, monkeypatch):
    def stop(seed):
        raise KeyboardInterrupt

    monkeypatch.setattr(fine_tune, "run", stop)
    with pytest.raises(SystemExit, match="interrupted: no record was written"):
        fine_tune.main(folder=tmp_path / "record")
    assert not (tmp_path / "record").exists()
