"""The scripts under experiments/: they run, and they write what the record says they wrote."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from experiment_scripts import as_recorded, names, script
from rove_models import ARCHITECTURES

from rove_lab.huggingface import enable_rove
from rove_lab.records import open_record, read_record
from rove_lab.tasks import OrderedPair


@pytest.fixture
def messenger(monkeypatch):
    module = script("messenger", monkeypatch)
    monkeypatch.setattr(
        module, "ProcessPoolExecutor", lambda workers, mp_context: ThreadPoolExecutor(1)
    )
    monkeypatch.setattr(module.torch, "set_num_threads", lambda count: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return module


def test_the_committed_record_is_what_the_script_would_write(messenger):
    record = open_record("messenger")
    assert record.config == as_recorded(messenger.config(), record.config)
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


# Retrofit


class Letters:
    """A tokenizer of a few letters."""

    def __call__(self, text, return_tensors):
        assert return_tensors == "pt"
        ids = torch.tensor([[ord(letter) % 64 for letter in text[:200]]])
        return SimpleNamespace(input_ids=ids)


@pytest.fixture
def retrofit(monkeypatch):
    module = script("retrofit", monkeypatch)
    model = ARCHITECTURES["llama"](dtype=torch.float32)
    model.source = "a small model of the tests"
    monkeypatch.setattr(module, "load_smollm2", lambda: (model, Letters()))
    monkeypatch.setattr(module.torch, "set_num_threads", lambda count: None)
    for name, value in {"WINDOW": 20, "BLOCK": 8, "GROUP": 5}.items():
        monkeypatch.setattr(module, name, value)
    return module


def test_retrofit_scores_every_switch_and_records_it(retrofit, tmp_path, capsys):
    retrofit.main(folder=tmp_path)
    record = read_record(tmp_path)
    scores = dict.fromkeys(["perplexity", "loss on repeated tokens"])
    planes = ["none", "all", "0 to 4", "5 to 9", "10 to 11", "6 fastest", "6 slowest"]
    rows = {"planes": planes, "layers": ["0", "1", "2"]}
    expected = {table: {"RoVE": dict.fromkeys(each, scores)} for table, each in rows.items()}
    assert names(record.values) == expected
    assert record.seeds == [0, 1, 2]
    assert record.config == retrofit.config("a small model of the tests")
    assert "[10/10] layers, 2: perplexity [" in capsys.readouterr().out


def test_retrofit_scores_are_the_losses_of_the_model(retrofit, tmp_path):
    retrofit.main(folder=tmp_path)
    values = read_record(tmp_path).values["planes"]["RoVE"]
    model, tokenizer = retrofit.load_smollm2()
    assert not hasattr(model, "rove")
    text = retrofit.text_windows(tokenizer, 3)[1]
    twice = retrofit.repeated(1, 64)
    assert torch.equal(twice[:, :8], twice[:, 8:])
    with torch.no_grad():
        for row, planes in {"none": [], "all": None, "6 slowest": range(6, 12)}.items():
            with enable_rove(model, planes=planes):
                perplexity = model(text, labels=text).loss.exp().item()
                logits = model(twice).logits[:, 7:-1]
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), twice[:, 8:].flatten())
            assert values[row]["perplexity"][1] == pytest.approx(perplexity, rel=1e-4)
            assert values[row]["loss on repeated tokens"][1] == pytest.approx(loss.item(), rel=1e-4)
    assert values["none"] != values["all"]


def test_retrofit_refuses_a_text_too_short(retrofit, tmp_path):
    with pytest.raises(SystemExit, match="has 200 tokens: too few for 11 windows of 20"):
        retrofit.main(seeds=11, folder=tmp_path)


def test_retrofit_stops_on_ctrl_c_and_writes_nothing(retrofit, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(retrofit, "loss_by_position", stop)
    with pytest.raises(SystemExit, match="interrupted: no record was written"):
        retrofit.main(folder=tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert not hasattr(retrofit.load_smollm2()[0], "rove")


def test_the_committed_retrofit_record_is_what_the_script_would_write(monkeypatch):
    module, record = script("retrofit", monkeypatch), open_record("retrofit")
    assert record.config == module.config(record.config["weights"])
    scores = dict.fromkeys(["perplexity", "loss on repeated tokens"])
    expected = {}
    for switch in module.switches(n_layers=30, n_planes=32):
        expected.setdefault(switch.table, {"RoVE": {}})["RoVE"][switch.row] = scores
    assert names(record.values) == expected
