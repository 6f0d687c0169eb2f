"""What chapters 7 and 8 say of the two models that come with the package, measured anew.

Another Python has another standard library: what depends on its text is held to a tolerance.
"""

import copy
import json
from dataclasses import replace

import pytest
import torch
from experiment_scripts import ROOT

from rove_lab import kernel_spectrum
from rove_lab.circuits import (
    copying_score,
    factored_ov,
    factored_qk,
    fold_rms_norm,
    k_composition,
    ov_cosine,
    positional_scores,
)
from rove_lab.data import standard_library
from rove_lab.evaluation import held_out_scores, loss_by_position
from rove_lab.lens import bridge_from_gpt, head_scores, rotary_of
from rove_lab.model import load_pretrained
from rove_lab.records import open_record
from rove_lab.warm_start import WarmStart

NAMES = {"RoPE": "byte-rope", "RoVE": "byte-rove"}
HEADS = [(layer, head) for layer in range(2) for head in range(4)]


@pytest.fixture(scope="module", autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def models():
    return {name: load_pretrained(file) for name, file in NAMES.items()}


@pytest.fixture(scope="module")
def bridges(models):
    return {name: bridge_from_gpt(model) for name, model in models.items()}


@pytest.fixture(scope="module")
def held_out():
    return standard_library(n_ctx=128).held_out


@pytest.fixture(scope="module")
def letters():
    block = torch.randint(97, 123, (64, 24), generator=torch.Generator().manual_seed(0))
    return block.repeat(1, 2)


def words_of(chapter):
    """A chapter's prose, on one line."""
    cells = json.loads((ROOT / "book" / f"{chapter}.ipynb").read_text(encoding="utf-8"))["cells"]
    prose = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return " ".join(" ".join(prose).split())


def folded(bridge):
    norms = [block.ln1.weight for block in bridge.blocks]
    read = [
        torch.stack([fold_rms_norm(W, norm) for W, norm in zip(layers, norms, strict=True)])
        for layers in (bridge.W_Q, bridge.W_K, bridge.W_V)
    ]
    return *read, fold_rms_norm(bridge.W_U, bridge.ln_final.weight)


# Chapter 7


def test_neither_model_learns_from_the_first_copy(models, letters):
    for model in models.values():
        losses = loss_by_position(model, letters)
        first, second = losses[:, :23].mean(), losses[:, 24:].mean()
        assert second > first
        assert first == pytest.approx(6.50, abs=0.01)  # an even guess: 3.26
        assert second == pytest.approx(6.65, abs=0.03)
    assert "both lose twice what an even guess among 26 would cost" in words_of("07_two_circuits")


def test_heads_look_at_the_byte_before_and_do_no_induction(bridges, letters):
    found = {name: head_scores(bridge, letters) for name, bridge in bridges.items()}
    assert max(scores.induction.max() for scores in found.values()) < 0.065
    assert "no head has an induction score above 0.06." in words_of("07_two_circuits")
    rope, rove = (scores.previous_token for scores in found.values())
    assert rope[1].tolist() == pytest.approx([0.49, 0.30, 0.87, 0.20], abs=0.01)
    assert rove[1].tolist() == pytest.approx([0.27, 0.32, 0.64, 0.57], abs=0.01)
    assert max(rope[0].max(), rove[0].max()) < 0.4


def test_no_head_reads_another(bridges):
    for name, bridge in bridges.items():
        (Q, K, V, _), rotary = folded(bridge), rotary_of(bridge, 0)
        turns = {"rotate_values": name == "RoVE"}
        written = factored_ov(V[0], bridge.W_O[0], rotary, [-1], **turns)
        found = k_composition(written, factored_qk(Q[1], K[1], rotary, [0]))
        assert 0.08 < found.min() < 128**-0.5 < found.max() < 0.10


def test_text_said_again_costs_a_little_less(models, held_out):
    block = next(held_out.batches(128, 2**32 - 1))[0][:, :32]
    for model in models.values():
        again, anew = (
            loss_by_position(model, torch.cat((first, block), 1))[:, 32:].mean()
            for first in (block, block.roll(1, 0))
        )
        assert anew - again == pytest.approx(0.11, abs=0.03)
    assert "costs about 0.11 nats a byte less" in words_of("07_two_circuits")


def test_heads_taken_away(bridges, held_out):
    text = next(held_out.batches(16, seed=0))[0]

    def loss(bridge, hooks=()):
        surprise = -bridge.run_with_hooks(text, fwd_hooks=list(hooks))[:, :-1].log_softmax(-1)
        return surprise.gather(-1, text[:, 1:, None]).mean()

    def without(layer, head):
        def silence(z, hook):
            z[:, :, head] = 0.0
            return z

        return loss_of, [(f"blocks.{layer}.attn.o.hook_in", silence)]

    rises = {}
    for name, bridge in bridges.items():
        loss_of = bridge
        rises[name] = torch.stack([loss(*without(*head)) for head in HEADS]) - loss(bridge)
    rope, rove = (rise.view(2, 4) for rise in rises.values())
    assert rope.min() > 0.08
    assert rope[1].max() > rope[0].min()
    assert rove[0].min() == pytest.approx(0.32, abs=0.06)
    assert rove[0].max() == pytest.approx(0.55, abs=0.08)
    assert rove[1].max() == pytest.approx(0.16, abs=0.04)
    words = words_of("07_two_circuits")
    assert "the first layer's heads cost 0.32 to 0.55 nats a byte" in words
    assert "the second layer's at most 0.16" in words


# Chapter 8


def turned(model, held_out, planes, windows=64):
    config = replace(model.config, rotate_values=True, value_planes=tuple(planes))
    changed = WarmStart(config, model).build().eval()
    return held_out_scores(changed, held_out, windows)["nats per byte"]


def test_each_is_best_as_it_was_trained(models, held_out):
    rope, rove = (
        {
            way: turned(model, held_out, planes)
            for way, planes in {
                "none": (),
                "all": range(16),
                "fast": range(8),
                "slow": range(8, 16),
            }.items()
        }
        for model in models.values()
    )
    assert rope["all"] - rope["none"] == pytest.approx(0.14, abs=0.03)
    assert rove["none"] - rove["all"] == pytest.approx(0.92, abs=0.15)
    assert rope["slow"] == pytest.approx(rope["none"], abs=0.005)
    assert rove["fast"] == pytest.approx(rove["all"], abs=0.005)
    assert rope["fast"] == pytest.approx(rope["all"], abs=0.005)
    assert rove["slow"] == pytest.approx(rove["none"], abs=0.01)
    words = words_of("08_offset_circuits")
    assert "costs 0.14 nats a byte; to stop them in the RoVE model costs 0.92" in words
    assert "it loses 0.92 nats a byte when its values stand still" in words


def test_one_plane_does_nearly_all_of_it(models, held_out):
    rove, everything = models["RoVE"], range(16)
    was = turned(rove, held_out, everything, 16)
    rises = [
        turned(rove, held_out, [p for p in everything if p != m], 16) - was for m in everything
    ]
    assert rises[0] == pytest.approx(0.79, abs=0.15)
    assert max(rises[1:]) == pytest.approx(0.08, abs=0.03)
    words = words_of("08_offset_circuits")
    assert "loses 0.79 nats a byte, without any other 0.08 at most" in words
    still = turned(models["RoPE"], held_out, (), 16)
    one = [turned(models["RoPE"], held_out, [m], 16) - still for m in everything]
    assert max(one) == one[0] == pytest.approx(0.05, abs=0.02)


def test_most_of_it_in_the_first_layer(models, held_out):
    found = []
    for layer in range(2):
        still = copy.deepcopy(models["RoVE"])
        still.blocks[layer].attn.rotate_values = False
        found.append(held_out_scores(still, held_out, 64)["nats per byte"])
    assert found == pytest.approx([1.85, 1.39], abs=0.15)
    assert "(1.85 against 1.39" in words_of("08_offset_circuits")


def test_the_curves_of_the_second_layer(bridges, held_out):
    ids, back = next(held_out.batches(16, seed=0))[0], torch.arange(-31, 1)
    ends = ("q.hook_out", "k.hook_out")
    curves = {}
    for name, bridge in bridges.items():
        _, cache = bridge.run_with_cache(ids, names_filter=lambda at: at.endswith(ends))
        q, k = (cache[f"blocks.1.attn.{x}.hook_out"].transpose(1, 2) for x in "qk")
        curves[name] = positional_scores(q, k, rotary_of(bridge, 1), back)
    assert (curves["RoPE"].argmax(0) - 31).tolist() == [-1, -2, -1, -2]
    assert (curves["RoVE"].argmax(0) - 31).tolist() == [-1, -1, -1, -1]
    falls = {name: (curve.amax(0) - curve[-4]).max() for name, curve in curves.items()}
    assert falls["RoVE"] < 5 < 9 < falls["RoPE"]  # from the best to three bytes back


def test_the_messages_turn_alike_and_no_plane_is_preferred(bridges):
    for name, (least, most) in {"RoPE": (0.056, 0.066), "RoVE": (0.065, 0.084)}.items():
        V = folded(bridges[name])[2].flatten(0, 1)
        share = kernel_spectrum(V, rotary_of(bridges[name], 0))[:, 0]
        assert (share.min(), share.max()) == pytest.approx((least, most), abs=5e-4)
    words = words_of("08_offset_circuits")
    assert "6.5 to 8.4 % of each head's value weights; in the RoPE model it has 5.6 to 6.6" in words
    rove = bridges["RoVE"]
    ov = folded(rove)[2].flatten(0, 1), rove.W_O.flatten(0, 1)
    cosine = ov_cosine(*ov, rotary_of(rove, 0), [-1, -3, -6])
    assert ((cosine[0] - 0.94).abs() < 0.015).all()
    assert ((cosine[1] - 0.7).abs() < 0.05).all()
    assert (cosine[2] > cosine[1] - 0.01).all()
    assert "to a cosine of 0.94 at one byte and 0.7 at three" in words


def test_the_copying_score_of_one_head_swings(bridges):
    offsets, found = list(range(0, -7, -1)), {}
    for name, bridge in bridges.items():
        _, _, V, U = folded(bridge)
        circuit = bridge.W_E, V[0], bridge.W_O[0], U
        turns = {"rotate_values": name == "RoVE"}
        found[name] = copying_score(*circuit, rotary_of(bridge, 0), offsets, **turns)[:, 1]
    assert (found["RoVE"].max(), found["RoVE"].min()) == pytest.approx((0.66, 0.30), abs=5e-3)
    assert found["RoPE"].tolist() == pytest.approx([0.50] * 7, abs=5e-3)
    words = words_of("08_offset_circuits")
    assert "swings between 0.66 and 0.30 within six bytes" in words
    assert "in the RoPE model is 0.50 at all of them" in words


# Chapter 10


def test_chapter_10_says_the_loss_of_the_record():
    values = open_record("byte_pair").values
    losses = (values[name]["held out"]["nats per byte"][0] for name in NAMES.values())
    said = "Its held-out loss is {:.3f} nats per byte with RoPE and {:.3f} with RoVE"
    assert said.format(*losses) in words_of("10_training")
