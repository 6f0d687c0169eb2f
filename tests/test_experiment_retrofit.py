"""experiments/retrofit.py in miniature, and what its record holds."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from experiment_scripts import names, script
from rove_models import ARCHITECTURES

from rove_lab.huggingface import enable_rove
from rove_lab.records import open_record

SCORES = dict.fromkeys(["perplexity", "loss on repeated tokens"])
WEIGHTS = "a small model of the tests"


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
    model.source = WEIGHTS
    monkeypatch.setattr(module, "load_smollm2", lambda: (model, Letters()))
    monkeypatch.setattr(module.torch.cuda, "is_available", lambda: False)
    return module


@pytest.fixture
def budget(retrofit):
    return retrofit.Budget(WEIGHTS, window=20, block=8, group=5, n_planes=12, n_layers=3)


def test_every_switch_is_scored_and_recorded(retrofit, budget, capsys):
    record = retrofit.EXPERIMENT.record(budget, [0, 1, 2])
    planes = ["none", "all", "0 to 4", "5 to 9", "10 to 11", "6 fastest", "6 slowest"]
    rows = {"planes": planes, "layers": ["0", "1", "2"]}
    expected = {table: {"RoVE": dict.fromkeys(each, SCORES)} for table, each in rows.items()}
    assert names(record.values) == expected
    assert record.config["weights"] == WEIGHTS
    assert record.config["tokens in a window"] == 20
    assert "[30/30] layers, RoVE, 2, seed 2: perplexity " in capsys.readouterr().out


def test_scores_are_the_losses_of_the_model(retrofit, budget):
    model, _ = retrofit.load_smollm2()
    text = retrofit.text_window(WEIGHTS, 1, 20)
    twice = retrofit.repeated(1, 64, budget)
    assert torch.equal(twice[:, :8], twice[:, 8:])
    found = {}
    for row, planes in {"none": [], "all": None, "6 slowest": range(6, 12)}.items():
        found[row] = retrofit.run(budget, "planes", "RoVE", row, 1)
        assert not hasattr(model, "rove")
        with torch.no_grad(), enable_rove(model, planes=planes):
            perplexity = model(text, labels=text).loss.exp().item()
            logits = model(twice).logits[:, 7:-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), twice[:, 8:].flatten())
        assert found[row]["perplexity"] == pytest.approx(perplexity, rel=1e-4)
        assert found[row]["loss on repeated tokens"] == pytest.approx(loss.item(), rel=1e-4)
    assert found["none"] != found["all"]


def test_windows_follow_one_another_and_none_is_cut_short(retrofit):
    first, second = (retrofit.text_window(WEIGHTS, seed, 20) for seed in (0, 1))
    assert torch.equal(torch.cat((first, second), 1), retrofit.text_window(WEIGHTS, 0, 40))
    with pytest.raises(ValueError, match="has 200 tokens: too few for 11 windows of 20"):
        retrofit.text_window(WEIGHTS, 10, 20)


def test_other_weights_are_refused(retrofit, budget):
    other = replace(budget, weights="the Hugging Face hub")
    with pytest.raises(ValueError, match="expected the weights of the Hugging Face hub, got a sm"):
        retrofit.run(other, "planes", "RoVE", "all", 0)


def test_the_committed_record_has_every_switch(retrofit):
    expected = {}
    for table, arm, row in retrofit.jobs(retrofit.CPU):
        expected.setdefault(table, {}).setdefault(arm, {})[row] = SCORES
    record = open_record("retrofit")
    assert names(record.values) == expected
    assert len(expected["planes"]["RoVE"]) + len(expected["layers"]["RoVE"]) == 38
