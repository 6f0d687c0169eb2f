"""Values that turn at frequencies of their own, for a while."""

import pytest
import torch

from rove_lab.context_extension import yarn
from rove_lab.model import GPT, GPTConfig
from rove_lab.rotary import LinearScaling, RotaryEmbedding, YarnScaling
from rove_lab.value_scaling import rescaled, value_scaling

SIZES = {"d_vocab": 20, "n_ctx": 8, "d_model": 16, "n_layers": 2, "n_heads": 2}
TOKENS = torch.randint(20, (2, 12), generator=torch.Generator().manual_seed(0))


def test_the_values_alone_turn_otherwise():
    model = GPT(GPTConfig(**SIZES)).eval()
    plain = model(TOKENS)
    with value_scaling(model, LinearScaling(8.0)):
        for block in model.blocks:
            assert torch.equal(block.attn.rotary.inv_freq, RotaryEmbedding(8).inv_freq)
            assert torch.equal(block.attn.value_rotary.inv_freq, RotaryEmbedding(8).inv_freq / 8)
        assert not torch.allclose(model(TOKENS), plain, atol=1e-4)
    assert torch.equal(model(TOKENS), plain)


def test_under_yarn_none_gives_the_values_their_trained_turns():
    model = GPT(GPTConfig(**SIZES)).eval()
    with yarn(model, 4.0, beta_fast=2.0) as scaling:
        stretched = model.blocks[0].attn.rotary.inv_freq
        with value_scaling(model, None):
            layer = model.blocks[1].attn
            assert torch.equal(layer.rotary.inv_freq, stretched)
            assert torch.equal(layer.value_rotary.inv_freq, RotaryEmbedding(8).inv_freq)
        both = model(TOKENS)
        with value_scaling(model, scaling):
            assert torch.allclose(model(TOKENS), both, atol=1e-6)
    alone = YarnScaling(4.0, 8, beta_fast=2.0)
    with value_scaling(model, alone):
        assert torch.equal(model.blocks[0].attn.value_rotary.inv_freq, stretched)


def test_planes_that_stand_still_stand_still():
    model = GPT(GPTConfig(**SIZES, value_planes=(1, 2))).eval()
    with value_scaling(model, LinearScaling(2.0)):
        assert (model.blocks[0].attn.value_rotary.inv_freq > 0).tolist() == [0, 1, 1, 0]


def test_a_rotation_under_another_scaling_is_otherwise_the_same():
    layout = {"base": 50.0, "rotary_dim": 8, "interleaved": True, "trailing": True}
    still = RotaryEmbedding(12, **layout, scaling=LinearScaling(3.0)).planes([0, 2])
    scaled, positions = rescaled(still, LinearScaling(2.0)), torch.arange(5)
    x = torch.randn(1, 5, 12, dtype=torch.float64)
    expected = RotaryEmbedding(12, **layout).planes([0, 2])(positions / 2).apply(x)
    assert torch.allclose(scaled(positions).apply(x), expected)
    assert repr(rescaled(scaled, None)) == repr(RotaryEmbedding(12, **layout).planes([0, 2]))


def test_it_is_restored_after_an_error():
    model = GPT(GPTConfig(**SIZES))
    before = [block.attn.value_rotary for block in model.blocks]
    with pytest.raises(ZeroDivisionError), value_scaling(model, None):
        _ = 1 / 0
    assert all(b.attn.value_rotary is v for b, v in zip(model.blocks, before, strict=True))


def test_what_it_refuses():
    with (
        pytest.raises(TypeError, match="expected a GPT, got Linear"),
        value_scaling(torch.nn.Linear(2, 2), None),
    ):
        pass
    rope = GPT(GPTConfig(**SIZES, rotate_values=False))
    with (
        pytest.raises(ValueError, match="expected a model with rotate_values=True"),
        value_scaling(rope, None),
    ):
        pass
