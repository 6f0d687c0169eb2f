"""experiments/byte_pair.py in miniature; the two models that it left in the package."""

import hashlib
from dataclasses import asdict, replace

import pytest
import torch
from experiment_scripts import ROOT, as_recorded, names, script, script_on_small_files

from rove_lab.checkpoints import load_model
from rove_lab.data import standard_library
from rove_lab.evaluation import held_out_scores, loss_by_position
from rove_lab.model import GPTConfig, load_pretrained
from rove_lab.records import open_record
from rove_lab.whole_files import sha256

PAIR = ("byte-rope", "byte-rove")


@pytest.fixture
def byte_pair(monkeypatch, tmp_path):
    """The script, in an empty checkout, with a corpus of 40 small files."""
    module = script_on_small_files("byte_pair", monkeypatch, tmp_path / "sources")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def small(module, **changes):
    sizes = {"n_ctx": 16, "d_model": 16, "n_heads": 2, "n_layers": 1}
    models = {name: replace(config, **sizes) for name, config in module.CPU.models.items()}
    few = replace(module.CPU.training, steps=4, warmup_steps=1, log_every=2)
    return replace(module.CPU, models=models, training=replace(few, **changes), folder="models")


def test_it_writes_a_pair_and_records_it(byte_pair, tmp_path):
    budget = small(byte_pair)
    record = byte_pair.EXPERIMENT.record(budget, [0])
    assert record.kind == "checkpoint"
    assert record.seeds == [0]
    assert record.config == byte_pair.config(budget)
    one = {"nats per byte": None}
    scores = {
        "curve": {"2": None, "4": None},
        "held out": {"accuracy": None, "nats per byte": None},
        "training": one,
        "probe": one,
        "seconds a step": {"processor": None, "wall": None},
    }
    assert names(record.values) == dict.fromkeys(PAIR, scores)
    for name, config in budget.models.items():
        folder = tmp_path / "models" / name
        assert sha256(folder / "model.safetensors") == record.config["sha256"][name]
        model = load_model(folder)
        assert model.config == config
        scored = held_out_scores(model, byte_pair.standard_library(16).held_out)["nats per byte"]
        assert record.values[name]["held out"]["nats per byte"][0] == pytest.approx(scored, 1e-5)


def test_the_pair_starts_alike_and_sees_the_same_batches(byte_pair, tmp_path):
    budget = small(byte_pair, steps=1, learning_rate=1e-12, log_every=1)
    rope, rove = (byte_pair.run(budget, name, seed=3)["training"]["nats per byte"] for name in PAIR)
    weights = [load_model(tmp_path / "models" / f"{name}-3").state_dict() for name in PAIR]
    for name, weight in weights[0].items():
        torch.testing.assert_close(weights[1][name], weight, rtol=0, atol=1e-9)
    assert rope != rove


def test_one_that_was_stopped_is_not_written(byte_pair, tmp_path, monkeypatch):
    class Stopped:
        interrupted = True

    monkeypatch.setattr(byte_pair, "train", lambda *arguments, **options: Stopped())
    with pytest.raises(KeyboardInterrupt):
        byte_pair.run(small(byte_pair), "byte-rove", seed=0)
    assert not (tmp_path / "models").exists()


def test_a_trial_does_not_take_the_place_of_the_packages_models(byte_pair):
    budget = replace(small(byte_pair), folder=byte_pair.CPU.folder)
    with pytest.raises(ValueError, match="another folder for another budget"):
        byte_pair.run(budget, "byte-rove", seed=0)


def test_the_record_is_of_what_the_script_says(monkeypatch):
    module, record = script("byte_pair", monkeypatch), open_record("byte_pair")
    said = module.EXPERIMENT.config(module.EXPERIMENT.budget)
    # Another Python has another standard library.
    assert as_recorded(said, record.config) | {"text": None} == record.config | {"text": None}
    assert record.config["text"].keys() == said["text"].keys()
    assert (record.kind, record.seeds) == ("checkpoint", [0])
    assert not record.commit.endswith("dirty")
    rope, rove = module.CPU.models.values()
    assert replace(rope, rotate_values=True) == rove


@pytest.mark.parametrize("name", PAIR)
def test_a_model_of_the_package_is_what_its_record_says(name):
    record, model = open_record("byte_pair"), load_pretrained(name)
    assert not model.training
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    stored = {k: v for k, v in record.config["models"][name].items() if k != "kind"}
    assert asdict(model.config) == asdict(GPTConfig(**stored))
    probe = torch.tensor([list(record.config["probe"].encode())])
    values = record.values[name]
    found = loss_by_position(model, probe).mean().item()
    assert found == pytest.approx(values["probe"]["nats per byte"][0], abs=2e-5)
    held_out = standard_library(model.config.n_ctx).held_out
    scored = held_out_scores(model, held_out)["nats per byte"]
    asked = record.config["text"]["held out"]["sha256"]
    same = hashlib.sha256(held_out.bytes.numpy().tobytes()).hexdigest() == asked
    assert scored == pytest.approx(
        values["held out"]["nats per byte"][0], abs=2e-5 if same else 0.2
    )


def test_the_models_lie_where_the_script_writes_them(monkeypatch):
    module = script("byte_pair", monkeypatch)
    for name in PAIR:
        assert (ROOT / module.CPU.folder / name / "model.safetensors").is_file()
