"""experiments/smollm2.py in miniature, and what its record holds."""

from dataclasses import replace

import pytest
import torch
from experiment_scripts import ROOT, names, script
from rove_models import ARCHITECTURES

from rove_lab.context_extension import yarn
from rove_lab.huggingface import enable_rove
from rove_lab.prompt_scores import prompt_scores
from rove_lab.records import read_record

WEIGHTS = "a small model of the tests"
SCORES = dict.fromkeys(["nats", "tokens right", "answers right"])


class Letters:
    """A tokenizer of a few letters."""

    def encode(self, text, add_special_tokens=True):
        return [ord(letter) % 64 for letter in text[:40_000]]


@pytest.fixture
def smollm2(monkeypatch):
    module = script("smollm2", monkeypatch)
    model = ARCHITECTURES["llama"](dtype=torch.float32)
    model.source = WEIGHTS + ", 12 planes"
    monkeypatch.setattr(module, "load_smollm2", lambda: (model, Letters()))
    monkeypatch.setattr(module, "FOLLOWING", 8)
    monkeypatch.setattr(module.torch.cuda, "is_available", lambda: False)
    return module


@pytest.fixture
def budget(smollm2):
    conditions = {
        "as it is": smollm2.Condition(),
        "RoVE": smollm2.Condition(tuple(range(12))),
        "RoVE, slow, YaRN": smollm2.Condition(tuple(range(6, 12)), 2.0),
    }
    return smollm2.Budget(WEIGHTS, conditions, {"needle": {600: 2}, "text": {20: 1, 40: 1}})


def test_every_task_is_scored_in_every_condition(smollm2, budget, capsys):
    record = smollm2.EXPERIMENT.record(budget, [0, 1, 2])
    needle, text = (dict.fromkeys(lengths, SCORES) for lengths in (["600"], ["20", "40"]))
    assert names(record.values) == {
        "needle": dict.fromkeys(budget.conditions, needle),
        "text": dict.fromkeys(budget.conditions, text),
    }
    assert record.values["text"]["RoVE"]["40"] != record.values["text"]["as it is"]["40"]
    assert "[18/18] text, RoVE, slow, YaRN, seed 2: 20: " in capsys.readouterr().out


def test_the_scores_are_those_of_all_logits_and_the_model_is_left_as_it_was(smollm2, budget):
    model, tokenizer = smollm2.load_smollm2()
    prompts = [smollm2.DRAW["needle"](tokenizer.encode, 600, 1000 + i) for i in range(2)]
    found = smollm2.run(budget, "needle", "RoVE, slow, YaRN", 1)["600"]
    assert not hasattr(model, "rove")
    assert model.config.rope_parameters["rope_type"] == "default"
    with yarn(model, 2.0, beta_fast=32.0), enable_rove(model, planes=range(6, 12)):
        assert found == pytest.approx(prompt_scores(model, prompts), rel=1e-5)
    assert found["nats"] != pytest.approx(prompt_scores(model, prompts)["nats"], rel=1e-5)


def test_a_text_of_any_length_ends_in_the_same_tokens(smollm2):
    short, long = (smollm2.text_prompt(None, n, 7) for n in (20, 40))
    assert torch.equal(short.answer_tokens, long.answer_tokens)
    assert len(short.answer_tokens) == 8
    assert torch.equal(short.tokens, long.tokens[-12:])
    assert len(long.tokens) == 32
    other = smollm2.text_prompt(None, 20, 8)
    assert not torch.equal(short.answer_tokens, other.answer_tokens)


def test_other_weights_are_refused(smollm2, budget):
    other = replace(budget, weights="the Hugging Face hub")
    with pytest.raises(ValueError, match="expected the weights of the Hugging Face hub, got a sm"):
        smollm2.run(other, "text", "as it is", 0)


def test_yarn_and_planes_are_crossed_and_the_gpu_reads_beyond_the_window(smollm2):
    for budget, factor in ((smollm2.CPU, 2.0), (smollm2.GPU, 4.0)):
        how = budget.conditions
        assert how["as it is"] == smollm2.Condition()
        assert how["YaRN"] == smollm2.Condition((), factor)
        assert how["RoVE, 16 slowest, YaRN"] == replace(how["RoVE, 16 slowest"], yarn_factor=factor)
        halves = how["RoVE, 16 fastest"].planes + how["RoVE, 16 slowest"].planes
        assert halves == how["RoVE"].planes == tuple(range(32))
        longest = max(n for lengths in budget.prompts.values() for n in lengths)
        assert longest <= smollm2.TEXT_BEFORE + smollm2.FOLLOWING
    assert longest == 4 * 8192


def test_the_committed_record_is_what_the_script_would_write(smollm2):
    values = read_record(ROOT / "results" / "smollm2").values
    assert names(values) == {
        task: {how: {str(n): SCORES for n in lengths} for how in smollm2.CPU.conditions}
        for task, lengths in smollm2.CPU.prompts.items()
    }
