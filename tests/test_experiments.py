"""The scripts under experiments/: they run, and they write what the record says they wrote."""

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from rove_lab.records import open_record, read_record
from rove_lab.tasks import OrderedPair

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def messenger(monkeypatch):
    spec = spec_from_file_location("messenger_script", ROOT / "experiments" / "messenger.py")
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "messenger_script", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(
        module, "ProcessPoolExecutor", lambda workers, mp_context: ThreadPoolExecutor(1)
    )
    monkeypatch.setattr(module.torch, "set_num_threads", lambda count: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return module


def names(values):
    """The nested names of a record's values, without the numbers."""
    return {k: names(v) for k, v in values.items()} if isinstance(values, dict) else None


def test_the_committed_record_is_what_the_script_would_write(messenger):
    record = open_record("messenger")
    assert record.config == messenger.config()
    expected = {
        trial: {arm: dict.fromkeys(plan.rows) for arm in messenger.ARMS}
        for trial, plan in messenger.TRIALS.items()
    }
    found = {
        trial: {arm: dict.fromkeys(rows) for arm, rows in arms.items()}
        for trial, arms in record.values.items()
    }
    assert found == expected


def test_the_script_trains_and_records_every_row(messenger, tmp_path, monkeypatch, capsys):
    plan = messenger.TRIALS["ordered pair"]
    short = replace(plan, task=OrderedPair(3, 4), training=replace(plan.training, steps=1))
    monkeypatch.setattr(messenger, "TRIALS", {"ordered pair": short})
    messenger.main(seeds=3, workers=1, folder=tmp_path)
    record = read_record(tmp_path)
    assert record.seeds == [0, 1, 2]
    questions = dict.fromkeys(["one back", "two back", "both"])
    rows = dict.fromkeys(plan.rows, questions)
    assert names(record.values) == {"ordered pair": {"RoPE": rows, "RoVE": rows}}
    assert "[24/24] ordered pair, " in capsys.readouterr().out
    assert record.cpu_s > 0


def test_the_script_stops_on_ctrl_c_and_writes_nothing(messenger, tmp_path, monkeypatch):
    def stop(job):
        raise KeyboardInterrupt

    monkeypatch.setattr(messenger, "run", stop)
    with pytest.raises(SystemExit, match="interrupted: no record was written"):
        messenger.main(folder=tmp_path)
    assert list(tmp_path.iterdir()) == []
