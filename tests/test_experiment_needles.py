"""experiments/needles.py in miniature, and what its record holds."""

import json
from dataclasses import asdict, replace

import pytest
import torch
from experiment_scripts import ROOT, as_recorded, names, script

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


def test_the_chapter_says_what_the_record_holds():
    record = open_record("needles")
    cells = json.loads((ROOT / "book" / "12_retrieval.ipynb").read_text(encoding="utf-8"))["cells"]
    words = " ".join(" ".join("".join(cell["source"]) for cell in cells).split())
    why, sizes = record.values["why"], record.values["sizes"]
    assert len(record.seeds) == 3

    def tensors(rows, times=8):
        return {score: torch.tensor(of) for score, of in rows[f"{times} ×"].items()}

    def arms(of, times=8):
        return tensors(of["RoPE"], times), tensors(of["RoVE"], times)

    def error(pairs):
        return f"{pairs.std() / len(pairs) ** 0.5:.3f}"

    def read(rows):
        return (rows["found_and_right"] / rows["found"]).mean()

    # found, and read
    rope, rove = arms(why["help"]["as trained"]["nothing"])
    found = f"finds {rove['found'].mean():.2f} of them, RoPE's {rope['found'].mean():.2f}"
    assert found in words
    assert f"RoPE reads {read(rope):.2f} right and RoVE {read(rove):.2f}" in words
    accuracies = f"{rope['accuracy'].mean():.3f} and {rove['accuracy'].mean():.3f}"
    assert f"{accuracies}, and one pair has it the other way round" in words
    assert (rove["accuracy"] > rope["accuracy"]).sum() == 1

    # set right by hand
    rope, rove = arms(why["help"]["as trained"]["reading"])
    shown = rope["accuracy"].mean()
    assert (
        f"answers {shown:.3f} at eight times the length and RoVE {rove['accuracy'].mean():.3f}"
        in words
    )
    gap = rope["accuracy"] - rove["accuracy"]
    assert f"a gap of {gap.mean():.3f} ± {error(gap)}, in every pair" in words
    assert (gap > 0).all()
    bound = [one["accuracy"].mean() for one in arms(why["help"]["as trained"]["binding"])]
    assert f"does not help either arm ({bound[0]:.3f} and {bound[1]:.3f})" in words

    # angles of the values
    plain, yarn = (why["value angles"][scores] for scores in ("as trained", "YaRN"))
    ways = {way: tensors(rows)["accuracy"] for way, rows in plain["set right"].items()}
    near, linear, half, other = (
        ways[way]
        for way in (
            "trained offsets",
            "linear",
            "trained offsets, slow half",
            "trained offsets, fast half",
        )
    )
    assert (
        f"{near.mean():.3f} with trained offsets, {ways['YaRN'].mean():.3f} with YaRN's turns, "
        f"{linear.mean():.3f} with linear ones, against RoPE's {shown:.3f}; "
        f"{ways['as the scores'].mean():.3f} without" in words
    )
    for way in (near, linear, ways["YaRN"]):
        assert (way - ways["as the scores"]).mean() > 0.21
        assert (way > ways["as the scores"]).all()
    assert f"brings all of that ({half.mean():.3f})" in words
    assert f"next to nothing ({other.mean():.3f})" in words
    free = {way: tensors(rows)["accuracy"].mean() for way, rows in plain["as it looks"].items()}
    assert f"{free['as the scores']:.3f} becomes {free['YaRN']:.3f} if the values turn" in words
    both = {way: tensors(rows)["accuracy"].mean() for way, rows in yarn["as it looks"].items()}
    unscaled, stretched = both["unscaled"], both["as the scores"]
    assert (
        f"{unscaled:.3f} is answered at eight times the length where it is {stretched:.3f}" in words
    )
    assert tensors(yarn["as it looks"]["unscaled"])["found"].mean() > 0.99

    # positions in training
    rope, rove = arms(why["positions in training"]["skips"]["as trained"])
    gap = rope["accuracy"] - rove["accuracy"]
    assert f"answers {rope['accuracy'].mean():.3f} at eight times the length and RoVE" in words
    assert f"{rove['accuracy'].mean():.3f}, with nothing rescaled" in words
    assert f"of {gap.mean():.3f} ± {error(gap)}, one pair of three the other way" in words
    assert (gap < 0).sum() == 1

    # heads and layers
    gaps, reads = {}, []
    for name, of in sizes.items():
        rope, rove = arms(of["as trained"])
        gaps[name] = rope["accuracy"] - rove["accuracy"]
        assert (gaps[name] > 0).all()
        reads.append((read(rope), read(rove)))
        longer = arms(of["YaRN"])
        assert (longer[1]["accuracy"] - longer[0]["accuracy"]).mean().abs() < 0.0215
    said = [f"{gaps[name].mean():.3f} ± {error(gaps[name])}" for name in sizes]
    assert f"(by {said[0]}, {said[1]} and {said[2]})" in words
    ropes, roves = zip(*reads, strict=True)
    assert (
        f"reads {min(roves):.2f} to {max(roves):.2f}, RoPE {min(ropes):.2f} to {max(ropes):.2f}"
        in words
    )
    rope, rove = arms(sizes["1 head"]["as trained"])
    fewer = f"({rove['found'].mean():.2f} against {rope['found'].mean():.2f})"
    assert f"With one head it finds fewer, too {fewer}" in words
    rope, rove = arms(sizes["4 heads"]["as trained"], 2)
    behind = f"({rove['accuracy'].mean():.3f} against {rope['accuracy'].mean():.3f})"
    assert f"behind there already, in every pair {behind}" in words
    assert (rove["accuracy"] < rope["accuracy"]).all()
