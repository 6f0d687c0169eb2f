"""Positions drawn while a model trains, and what they can and cannot change."""

from dataclasses import replace

import pytest
import torch

from rove_lab.induction import Induction
from rove_lab.model import GPT, GPTConfig
from rove_lab.random_positions import RandomPositions, RandomSkips, RandomStart, Scattered
from rove_lab.train_config import TrainConfig
from rove_lab.training import train, train_matched
from rove_lab.warm_start import WarmStart

SIZES = GPTConfig(d_vocab=50, n_ctx=32, d_model=16, n_layers=2, n_heads=2)
TOKENS = torch.randint(50, (2, 16), generator=torch.Generator().manual_seed(0))
DRAWS = [RandomStart(100), Scattered(100), RandomSkips(100), RandomSkips(100, n_chunks=2)]


@pytest.mark.parametrize("rotate_values", [False, True], ids=["RoPE", "RoVE"])
def test_where_a_sequence_starts_changes_nothing(rotate_values):
    """Scores and messages see offsets alone: training with random starts is training without."""
    torch.manual_seed(0)
    model = GPT(replace(SIZES, rotate_values=rotate_values)).double()
    plain = model(TOKENS)
    plain.square().mean().backward()
    slopes = [p.grad.clone() for p in model.parameters()]
    for start in (1, 448, 10_000):
        model.zero_grad()
        moved = model(TOKENS, start + torch.arange(16))
        assert torch.allclose(moved, plain, atol=1e-5)
        moved.square().mean().backward()
        for slope, parameter in zip(slopes, model.parameters(), strict=True):
            assert torch.allclose(parameter.grad, slope, atol=1e-5)


@pytest.mark.parametrize("rotate_values", [False, True], ids=["RoPE", "RoVE"])
def test_a_run_with_random_starts_is_the_run_without(rotate_values):
    config = replace(SIZES, rotate_values=rotate_values)
    how, task = TrainConfig(steps=4, batch_size=4, log_every=1), Induction(n_ctx=32)
    plain = train(config, how, task, progress=False)
    started = train(RandomPositions(config, RandomStart(256)), how, task, progress=False)
    assert started.losses == pytest.approx(plain.losses, abs=1e-4)
    skipping = train(RandomPositions(config, Scattered(256)), how, task, progress=False)
    assert skipping.losses != pytest.approx(plain.losses, abs=1e-4)


@pytest.mark.parametrize("drawn", DRAWS, ids=repr)
@pytest.mark.parametrize("n", [2, 7, 100])
def test_positions_rise_within_the_span(drawn, n):
    random = torch.Generator().manual_seed(3)
    for _ in range(20):
        positions = drawn.draw(n, random)
        assert positions.shape == (n,)
        assert positions.dtype == torch.int64
        assert positions[0] >= 0
        assert positions[-1] < 100
        assert (positions.diff() > 0).all()


def test_scattered_ones_are_every_subset():
    random = torch.Generator().manual_seed(0)
    seen = {tuple(Scattered(4).draw(2, random).tolist()) for _ in range(200)}
    assert len(seen) == 6


def test_skips_keep_neighbours_and_reach_the_end():
    random = torch.Generator().manual_seed(0)
    drawn = torch.stack([RandomSkips(512).draw(64, random) for _ in range(300)])
    steps = drawn.diff()
    assert ((steps > 1).sum(1) <= 3).all()
    assert drawn[:, 0].eq(0).all()
    assert drawn[:, -1].max() > 490
    assert drawn[:, -1].min() < 90


def test_it_draws_while_it_trains_and_not_after():
    model = RandomPositions(SIZES, Scattered(512)).build()
    with torch.no_grad():
        assert not torch.allclose(model(TOKENS), model(TOKENS), atol=1e-4)
        here = torch.arange(16)
        assert torch.equal(model(TOKENS, positions=here), model(TOKENS, here))
        model.eval()
        assert torch.equal(model(TOKENS), model(TOKENS, here))


def test_matched_arms_draw_the_same_positions():
    arms = {name: RandomPositions(SIZES, RandomSkips(64), seed=5) for name in ("one", "the other")}
    how, task = TrainConfig(steps=3, batch_size=4, log_every=1), Induction(n_ctx=32)
    one, other = train_matched(arms, how, task, progress=False).values()
    assert one.losses == other.losses
    third = RandomPositions(SIZES, RandomSkips(64), seed=6)
    assert train(third, how, task, progress=False).losses != one.losses


def test_it_takes_a_warm_start():
    trained = GPT(SIZES).eval()
    model = RandomPositions(WarmStart(SIZES, trained), Scattered(64)).build().eval()
    assert torch.equal(model(TOKENS), trained(TOKENS))


def test_what_it_refuses():
    with pytest.raises(TypeError, match="expected positions that draw"):
        RandomPositions(SIZES, 512)
    with pytest.raises(ValueError, match="expected n_chunks of 2 or more"):
        RandomSkips(512, n_chunks=1)
    for kind in (RandomStart, Scattered, RandomSkips):
        with pytest.raises(ValueError, match="span"):
            kind(0)
        with pytest.raises(TypeError, match="span"):
            kind(1.5)
        with pytest.raises(ValueError, match="expected sequences of at most span=8"):
            kind(8).draw(9, torch.Generator())
