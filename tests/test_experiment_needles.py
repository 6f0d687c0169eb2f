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

ARMS = ("RoPE", "RoVE")
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
    both = {stretch: dict.fromkeys(ARMS, rows) for stretch in (module.PLAIN, module.YARN)}
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
            "start": {arm: {"largest change of a logit": None} for arm in ARMS},
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
    assert (rove["found_and_right"] / rove["found"] < rope["found_and_right"] / rope["found"]).all()
    more = (rove["found"] - rope["found"]).sort().values
    assert [f"{one:.2f}" for one in more] == ["-0.01", "0.02", "0.23"]
    assert "0.01 below RoPE's in one pair, and 0.02 and 0.23 above in the others" in words
    misread = [(arm["found"] - arm["found_and_right"]).mean() for arm in (rove, rope)]
    lost = [
        (1 - arm["accuracy"]).mean() - of for arm, of in zip((rove, rope), misread, strict=True)
    ]
    assert (
        f"RoVE gets {lost[0]:.2f} wrong without having found the needle and {misread[0]:.2f} "
        f"although it had; RoPE {lost[1]:.2f} and {misread[1]:.2f}" in words
    )
    accuracies = f"{rope['accuracy'].mean():.3f} and {rove['accuracy'].mean():.3f}"
    assert f"{accuracies} in all. In one of them" in words

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
    assert f"helps neither arm ({bound[0]:.3f} and {bound[1]:.3f})" in words
    near = tensors(why["help"]["as trained"]["binding"]["RoVE"], 1)["accuracy"]
    assert [f"{one:.3f}" for one in near.sort().values] == ["0.977", "1.000", "1.000"]
    assert "in one of three at the trained length (0.977)" in words
    far = tensors(why["help"]["as trained"]["binding"]["RoVE"])["accuracy"]
    assert (far < tensors(why["help"]["as trained"]["nothing"]["RoVE"])["accuracy"]).all()

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
        assert (way - ways["as the scores"]).min() > 0.14
    gained = [one - ways["as the scores"] for one in (half, other)]
    assert f"brings all of that ({gained[0].mean():.3f} ± {error(gained[0])})" in words
    assert f"the fast half {gained[1].mean():.3f} ± {error(gained[1])}" in words
    rope = tensors(why["help"]["as trained"]["nothing"]["RoPE"])["accuracy"]
    as_it_looks = {way: tensors(rows)["accuracy"] for way, rows in plain["as it looks"].items()}
    free = {way: of.mean() for way, of in as_it_looks.items()}
    assert f"{free['as the scores']:.3f} becomes {free['YaRN']:.3f} if the values turn" in words
    assert f"{free['trained offsets, slow half']:.3f} if the slow half alone is limited" in words
    assert f"{free['trained offsets']:.3f} and {free['linear']:.3f} if all planes are" in words
    for way in ("YaRN", "trained offsets, slow half", "trained offsets", "linear"):
        apart = as_it_looks[way] - rope
        assert apart.mean().abs() < apart.std() / len(apart) ** 0.5
    assert (as_it_looks["trained offsets"] < as_it_looks["as the scores"]).sum() == 1
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
    assert f"left of the gap is {gap.mean():.3f} ± {error(gap)}: one pair even" in words
    assert [f"{one:.3f}" for one in gap.sort().values] == ["-0.008", "0.000", "0.055"]
    assert "one for RoVE, one 0.055 against it" in words
    config = record.config
    steps = config["spread"]["steps"], config["needles"]["steps"]
    assert "for {} steps instead of {}".format(*steps) in words

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
    assert f"(by {said[0]}, {said[1]} and {said[2]}; with four heads one pair" in words
    assert round(gaps["4 heads"].min().item() * config["n_sequences"]) == 1
    assert f"that may be chance ({gaps['4 heads'].mean():.3f} ±" in words
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
    rope, rove = arms(sizes["3 layers"]["as trained"], 2)
    behind = f"({rove['accuracy'].mean():.3f} against {rope['accuracy'].mean():.3f})"
    assert f"with three layers in two of three {behind}" in words
    assert (rove["accuracy"] < rope["accuracy"]).sum() == 2


def test_its_pairs_of_two_heads_are_three_of_those_of_retrieval():
    """The same models, asked fewer questions: no more evidence than `retrieval` is."""
    again, first = open_record("needles"), open_record("retrieval")
    assert again.seeds == first.seeds[:3]
    assert again.config["model"] == first.config["model"]
    for mine, theirs in (("induction", "induction"), ("needles", "task")):
        how, other = again.config[mine], first.config[theirs]
        assert how | {"log_every": 0} == other | {"log_every": 0}
    asked = again.config["n_sequences"], first.config["n_sequences"]
    ahead = {}
    for times in ("1 ×", "2 ×", "4 ×", "8 ×"):
        for arm in ("RoPE", "RoVE"):
            few = again.values["why"]["help"]["as trained"]["nothing"][arm][times]["accuracy"]
            all_ = first.values["accuracy"]["needles"]["as trained"][arm][times]["accuracy"][:3]
            counts = [
                (round(a * asked[0]), round(b * asked[1])) for a, b in zip(few, all_, strict=True)
            ]
            assert all(0 <= b - a <= asked[1] - asked[0] for a, b in counts)
            ahead[arm, times] = counts
    rope, rove = ahead["RoPE", "8 ×"][2], ahead["RoVE", "8 ×"][2]
    assert [b - a for a, b in zip(rope, rove, strict=True)] == [4, -5]
    cells = json.loads((ROOT / "book" / "12_retrieval.ipynb").read_text(encoding="utf-8"))["cells"]
    words = " ".join(" ".join("".join(cell["source"]) for cell in cells).split())
    assert "ahead by 4 of 128, and behind by 5 of all 192" in words
