"""experiments/needles.py in miniature, and what its record holds."""

from dataclasses import asdict, replace

import pytest
import torch
from experiment_scripts import as_recorded, names, script

from rove_lab.context_extension import yarn
from rove_lab.model import GPT
from rove_lab.needle_reading import NeedleReading
from rove_lab.records import open_record

FEW = {"steps": 2, "batch_size": 4, "log_every": 1, "warmup_steps": 0}


@pytest.fixture
def needles(monkeypatch):
    return script("needles", monkeypatch)


def miniature(module):
    budget = module.CPU
    return replace(
        budget,
        model=replace(budget.model, d_model=16),
        induction=replace(budget.induction, **FEW),
        needles=replace(budget.needles, **FEW),
        spread=replace(budget.spread, **FEW),
        times=(1, 2),
        n_sequences=32,
    )


def expected_names(module, budget):
    reading = dict.fromkeys(asdict(NeedleReading(0, 0, 0, 0, 0)))
    rows = {f"{times} ×": reading for times in budget.times}
    both = {stretch: dict.fromkeys(module.ARMS, rows) for stretch in (module.PLAIN, module.YARN)}
    ways = {
        module.PLAIN: [
            "as the scores",
            "linear",
            "YaRN",
            "trained offsets",
            "trained offsets, fast half",
            "trained offsets, slow half",
        ],
        module.YARN: ["as the scores", "linear", "unscaled"],
    }
    return {
        "why": {
            "help": {stretch: dict.fromkeys(module.HELP, both[stretch]) for stretch in both},
            "value angles": {
                scores: {
                    head: dict.fromkeys(of_scores, rows) for head in ("as it looks", "set right")
                }
                for scores, of_scores in ways.items()
            },
            "positions in training": dict.fromkeys(budget.positions, both),
            "start": {arm: {"largest change of a logit": None} for arm in module.ARMS},
        },
        "sizes": dict.fromkeys(module.MODELS, both),
    }


def test_it_does_every_job_and_records_it(needles):
    budget = miniature(needles)
    record = needles.EXPERIMENT.record(budget, seeds=[0, 1, 2])
    assert names(record.values) == expected_names(needles, budget)
    assert record.config == needles.EXPERIMENT.config(budget)
    for of_arm in record.values["why"]["start"].values():
        assert max(of_arm["largest change of a logit"]) < 1e-4
    helped = record.values["why"]["help"]
    both = helped["as trained"]["both"]["RoVE"]["2 ×"]
    assert both["bound"] == both["share"] == both["found"] == [1, 1, 1]


def test_the_values_turn_as_the_ways_name_it(needles):
    budget = miniature(needles)
    asked = needles.Asked(GPT(budget.model).eval(), budget)
    layer = asked.model.blocks[0].attn
    plain = layer.rotary.inv_freq
    with yarn(asked.model, 4.0, beta_fast=4.0):
        stretched = layer.rotary.inv_freq
    linear = asked.values(needles.LinearScaling, None)
    for length, factor in ((64, 1), (256, 4)):
        with linear(length):
            assert torch.equal(layer.value_rotary.inv_freq, plain / factor)
            assert torch.equal(layer.rotary.inv_freq, plain)
    with asked.values(asked.yarn_scaling, None)(256):
        assert torch.equal(layer.value_rotary.inv_freq, stretched)
        assert torch.equal(layer.rotary.inv_freq, plain)
    with asked.values(lambda times: None, asked.yarn)(256):
        assert torch.equal(layer.value_rotary.inv_freq, plain)
        assert torch.equal(layer.rotary.inv_freq, stretched)
    assert layer.rotary.inv_freq is plain


def test_the_committed_record_is_what_the_script_would_write(needles):
    record = open_record("needles")
    budget = needles.EXPERIMENT.budget
    assert record.config == as_recorded(needles.EXPERIMENT.config(budget), record.config)
    assert names(record.values) == expected_names(needles, budget)
    assert len(record.seeds) >= 3
    assert not record.commit.endswith("dirty")
