"""The arms of a comparison differ in the rotation of their values, and in nothing else."""

from dataclasses import asdict, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rove_lab.filters import Filter
from rove_lab.matched_pairs import rope_and_rove, value_halves
from rove_lab.messenger import MessengerConfig
from rove_lab.model import GPTConfig
from rove_lab.training import TrainConfig, train_matched

GPT_SIZES = GPTConfig(d_vocab=20, n_ctx=16, d_model=16, n_heads=2)


@pytest.mark.parametrize("rotate_values", [False, True])
@pytest.mark.parametrize("config", [GPT_SIZES, MessengerConfig(1, 1, 8)], ids=["GPT", "messenger"])
def test_the_arms_of_a_pair_differ_in_one_flag(config, rotate_values):
    pair = rope_and_rove(replace(config, rotate_values=rotate_values))
    assert [*pair] == ["RoPE", "RoVE"]
    rope, rove = map(asdict, pair.values())
    assert (rope.pop("rotate_values"), rove.pop("rotate_values")) == (False, True)
    assert rope == rove
    assert set(map(type, pair.values())) == {type(config)}


def test_a_pair_starts_from_the_same_weights_and_parts_from_there():
    pair = rope_and_rove(MessengerConfig(1, 1, 8))
    runs = train_matched(pair, TrainConfig(steps=2, log_every=1), Filter.edge(), progress=False)
    rope, rove = (run.losses for run in runs.values())
    assert rope != rove


@given(st.integers(1, 20), st.booleans())
def test_every_plane_is_in_one_half_and_the_fast_ones_are_faster(n_planes, rotate_values):
    config = replace(GPT_SIZES, d_head=2 * n_planes, rotate_values=rotate_values)
    halves = value_halves(config)
    assert [*halves] == ["RoVE, fast half", "RoVE, slow half"]
    fast, slow = (half.value_planes for half in halves.values())
    assert sorted([*fast, *slow]) == list(range(n_planes))
    assert len(slow) - len(fast) in (0, 1)
    scores, _ = config.rotaries()
    if fast:
        assert scores.inv_freq[list(fast)].min() > scores.inv_freq[list(slow)].max()
    for half in halves.values():
        assert half == replace(config, rotate_values=True, value_planes=half.value_planes)


def test_halves_turn_the_values_in_their_planes_and_the_scores_in_all():
    turns = [half.rotaries() for half in value_halves(GPT_SIZES).values()]
    full, _ = GPT_SIZES.rotaries()
    for scores, _ in turns:
        assert torch.equal(scores.inv_freq, full.inv_freq)
    assert torch.equal(sum(values.inv_freq for _, values in turns), full.inv_freq)


def test_halves_of_halves_are_those_of_the_whole():
    for half in value_halves(GPT_SIZES).values():
        assert value_halves(half) == value_halves(GPT_SIZES)


@pytest.mark.parametrize(
    ("arms", "config", "error", "words"),
    [
        (rope_and_rove, {}, TypeError, "a GPTConfig or a MessengerConfig, got dict"),
        (value_halves, MessengerConfig(1, 1), TypeError, "a GPTConfig, got MessengerConfig"),
        (rope_and_rove, replace(GPT_SIZES, value_planes=(1,)), ValueError, "no value_planes with"),
    ],
)
def test_what_has_no_such_arms_is_refused(arms, config, error, words):
    with pytest.raises(error, match=words):
        arms(config)
