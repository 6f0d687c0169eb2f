"""experiments/length.py in miniature, and what its record holds."""

from contextlib import nullcontext
from dataclasses import replace
from math import log

import pytest
import torch
from experiment_scripts import as_recorded, names, script, script_on_small_files

from rove_lab.context_extension import yarn
from rove_lab.evaluation import HELD_OUT_SEED, loss_by_position, perplexity_by_length
from rove_lab.experiment import described
from rove_lab.model import GPT, GPTConfig
from rove_lab.records import open_record
from rove_lab.training import TrainConfig

SMALL = GPTConfig(n_ctx=16, d_model=16, n_heads=2, n_layers=1, base=100.0, rotate_values=False)


@pytest.fixture
def length(monkeypatch, tmp_path):
    return script_on_small_files("length", monkeypatch, tmp_path / "sources")


@pytest.fixture
def budget(length):
    how = TrainConfig(steps=4, batch_size=2, learning_rate=1e-2, warmup_steps=2)
    return length.Budget(SMALL, how, (1, 2, 4), spans=3, spans_to_choose=2, betas=(1.0, 2.0))


def expected_names(module, budget):
    lengths = [str(n) for n in budget.lengths]
    ends = [0, *budget.lengths]
    groups = [f"{ends[i] + 1} to {ends[i + 1]}" for i in range(len(budget.lengths))]
    loss = {"nats per byte": None}

    def rows(columns, inner=lengths, scores=loss):
        return {column: dict.fromkeys(inner, scores) for column in columns}

    def scored(arms):
        return {
            "plain": rows(arms),
            "YaRN": rows(arms),
            "chosen": rows(arms, lengths[1:], {"beta_fast": None}),
            "training": names({arm: {"steps": 0, "processor seconds": 0} for arm in arms}),
        }

    pair = ["RoPE", "RoVE"]
    return {
        "pair": {
            **scored([*pair, module.PATIENT]),
            "beta_fast": {f"{beta:g}": rows(pair) for beta in budget.betas},
            "RoVE, YaRN in part": rows(["scores alone", "values alone"]),
            "without training": rows(
                [
                    "RoPE, values turned",
                    "RoPE, fast half turned",
                    "RoPE, slow half turned",
                    "RoVE, values still",
                ]
            ),
            "window": rows(pair),
            "by position": {"plain": rows(pair, groups), "YaRN": rows(pair, groups)},
        },
        "planes": scored(["RoVE, fast half", "RoVE, slow half"]),
    }


def test_it_trains_and_scores_every_arm(length, budget, capsys):
    record = length.EXPERIMENT.record(budget, range(3))
    assert names(record.values) == expected_names(length, budget)
    assert record.config == described(budget)
    assert "[6/6] planes, seed 2: RoVE, fast half " in capsys.readouterr().out
    pair = record.values["pair"]
    window = pair["plain"]["RoVE"]["16"]
    for table in ("YaRN", "window"):  # within the window nothing is stretched or hidden
        assert pair[table]["RoVE"]["16"]["nats per byte"] == pytest.approx(window["nats per byte"])
    assert pair["YaRN"]["RoVE"]["64"] != pair["plain"]["RoVE"]["64"]
    for i in range(3):  # under YaRN as chosen is one of the sweep
        beta = f"{pair['chosen']['RoPE']['64']['beta_fast'][i]:g}"
        swept = pair["beta_fast"][beta]["RoPE"]["64"]["nats per byte"][i]
        assert pair["YaRN"]["RoPE"]["64"]["nats per byte"][i] == swept


def test_rope_alone_takes_the_steps_that_roves_seconds_allow(length, budget, monkeypatch):
    def train_matched(*arguments, **options):
        runs = matched(*arguments, **options)
        runs["RoPE"].cpu_s, runs["RoVE"].cpu_s = 2.0, 3.0  # as if
        return runs

    def train(config, how, *arguments, **options):
        asked.append((config.rotate_values, how))
        return alone(config, how, *arguments, **options)

    asked, matched, alone = [], length.train_matched, length.train
    monkeypatch.setattr(length, "train_matched", train_matched)
    monkeypatch.setattr(length, "train", train)
    found = length.run(budget, "pair", seed=7)
    assert asked == [(False, replace(budget.training, seed=7, steps=6, warmup_steps=3))]
    assert found["training"][length.PATIENT]["steps"] == 6
    assert found["training"]["RoVE"] == {"steps": 4, "processor seconds": 3.0}


def test_the_arms_turn_the_planes_that_their_names_say(length):
    of_parts = [arms(length.CPU.model) for arms in length.ARMS.values()]
    assert {
        name: (one.rotate_values, one.value_planes)
        for arms in of_parts
        for name, one in arms.items()
    } == {
        "RoPE": (False, None),
        "RoVE": (True, None),
        "RoVE, fast half": (True, tuple(range(8))),
        "RoVE, slow half": (True, tuple(range(8, 16))),
    }


def model(**changes):
    torch.manual_seed(0)
    return GPT(replace(SMALL, rotate_values=True, **changes))


def test_yarn_in_part_stretches_that_part_alone(length):
    gpt, tokens = model(), torch.arange(64)[None]
    layer = gpt.blocks[0].attn
    trained = layer.rotary.inv_freq
    with yarn(gpt, 4.0, beta_fast=2.0):
        full, turns = gpt(tokens), layer.rotary.inv_freq
    assert not torch.equal(turns, trained)
    for stretch, expected in {
        length.stretched: (turns, turns),
        length.scores_stretched: (turns, trained),
        length.values_stretched: (trained, turns),
    }.items():
        with stretch(gpt, 64, 2.0):
            found = (layer.rotary.inv_freq, layer.value_rotary.inv_freq)
            assert all(map(torch.equal, found, expected))
            assert (layer.rotary.attention_factor > 1) == (expected[0] is turns)
            assert torch.equal(gpt(tokens), full) == (stretch is length.stretched)
    assert torch.equal(layer.rotary.inv_freq, trained)
    assert layer.value_rotary is layer.rotary


def test_yarn_leaves_planes_that_stood_still(length):
    gpt = model(value_planes=(0, 1))
    for stretch in (length.stretched, length.scores_stretched, length.values_stretched):
        with stretch(gpt, 64, 2.0):
            assert gpt.blocks[0].attn.value_rotary.inv_freq[2:].tolist() == [0.0, 0.0]


def test_a_window_hides_what_is_further_away(length):
    gpt = model()
    first, other = torch.randint(256, (2, 1, 40), generator=torch.Generator().manual_seed(0))
    text = first.clone()
    text[:, :8] = other[:, :8]
    near = length.Windowed(gpt)
    apart = (near(first) - near(text)).abs().amax((0, 2))
    assert apart[:8].min() > 1e-4
    assert apart[8 + 15 :].max() < 1e-5  # one layer: 16 bytes back, itself included
    assert apart[22] > 1e-5
    assert torch.allclose(near(first[:, :16]), gpt(first[:, :16]), atol=1e-5)


def test_values_are_switched_without_training(length):
    rove = model()
    rope = length.turned(rove, False)
    assert (rope.config.rotate_values, rove.config.rotate_values) == (False, True)
    assert all(map(torch.equal, rope.parameters(), rove.parameters()))
    assert length.turned(rope, True, (1,)).config.value_planes == (1,)
    tokens = torch.arange(30)[None]
    assert torch.equal(length.turned(rope, True)(tokens), rove(tokens))
    assert not torch.allclose(rope(tokens), rove(tokens))


def test_the_scores_are_the_losses_of_held_out_text(length, budget):
    text, gpt = length.Text(budget), model()
    assert text.held_out.shape == (3, 64)
    assert text.to_choose.shape == (2, 64)
    split = length.standard_library(16)
    for part, read in ((split.held_out, text.held_out), (split.train, text.to_choose)):
        assert torch.equal(read, next(part.at_length(64).batches(len(read), HELD_OUT_SEED))[0])
    found = length.by_length(gpt, budget, text)
    expected = perplexity_by_length(gpt, text.held_out, [16, 32, 64])
    assert {n: score["nats per byte"] for n, score in found.items()} == {
        str(n): log(perplexity) for n, perplexity in expected.items()
    }
    groups = length.by_position(gpt, budget, text, nullcontext())
    losses = loss_by_position(gpt, text.held_out)
    assert list(groups) == ["1 to 16", "17 to 32", "33 to 64"]
    assert groups["17 to 32"]["nats per byte"] == pytest.approx(losses[:, 16:32].mean().item())


def test_it_stops_where_a_training_was_stopped(length, budget, monkeypatch):
    def stopped(*arguments, **options):
        runs = matched(*arguments, **options)
        runs["RoVE, fast half"].interrupted = True
        return runs

    matched = length.train_matched
    monkeypatch.setattr(length, "train_matched", stopped)
    with pytest.raises(KeyboardInterrupt):
        length.run(budget, "planes", seed=0)


def test_beta_fast_of_16_and_32_are_one_in_the_windows_of_the_record(length):
    gpt = GPT(length.CPU.model)
    turns = {}
    for beta in (8.0, 16.0, 32.0):
        with yarn(gpt, 16.0, beta_fast=beta):
            turns[beta] = gpt.blocks[0].attn.rotary.inv_freq
    assert torch.equal(turns[16.0], turns[32.0])
    assert not torch.equal(turns[8.0], turns[32.0])


# The record


def test_the_committed_record_is_what_the_script_would_write(monkeypatch):
    module, record = script("length", monkeypatch), open_record("length")
    assert record.config == as_recorded(described(module.CPU), record.config)
    assert names(record.values) == expected_names(module, module.CPU)
    assert len(record.seeds) == module.EXPERIMENT.seeds
