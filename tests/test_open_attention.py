"""Attention in the open says what it always says, and does what it is told."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from rove_lab.attention import attentive_convolution
from rove_lab.kernels import offset_kernels
from rove_lab.model import GPT, GPTConfig
from rove_lab.open_attention import open_attention, turned_within
from rove_lab.rotary import RotaryEmbedding, YarnScaling

SIZES = GPTConfig(d_vocab=20, n_ctx=8, d_model=16, n_layers=2, n_heads=4, n_kv_heads=2)
TOKENS = torch.randint(20, (3, 12), generator=torch.Generator().manual_seed(0))


def gpt(**changes):
    torch.manual_seed(0)
    return GPT(replace(SIZES, **changes)).double().eval()


@pytest.mark.parametrize(
    "changes", [{"rotate_values": False}, {}, {"value_planes": (1,)}], ids=["RoPE", "RoVE", "one"]
)
def test_it_says_what_the_model_says(changes):
    model = gpt(**changes)
    with torch.no_grad():
        plain = model(TOKENS)
        with open_attention(model) as patterns:
            opened = model(TOKENS)
        again = model(TOKENS)
    assert torch.allclose(opened, plain, atol=1e-6)
    assert torch.equal(again, plain)
    assert [pattern.shape for pattern in patterns] == [(3, 4, 12, 12)] * 2
    for pattern in patterns:
        assert torch.allclose(pattern.sum(-1), torch.ones(3, 4, 12, dtype=torch.float64))


def test_yarns_temperature_is_on_the_channels_that_turn():
    model = gpt()
    scaling = YarnScaling(4.0, 64, beta_fast=4.0, attention_factor=1.5)
    for block in model.blocks:
        block.attn.rotary = RotaryEmbedding(4, rotary_dim=2, scaling=scaling)
    with torch.no_grad(), open_attention(model):
        opened = model(TOKENS)
    assert torch.allclose(opened, model(TOKENS), atol=1e-6)


def test_positions_and_masks_reach_it():
    model = gpt()
    positions = torch.rand(3, 12).cumsum(-1) * 9
    mask = (torch.rand(12, 12) < 0.7) | torch.eye(12, dtype=torch.bool)
    with torch.no_grad():
        plain = model(TOKENS, positions, attn_mask=mask)
        with open_attention(model, reach=10_000) as patterns:
            opened = model(TOKENS, positions, attn_mask=mask)
    assert torch.allclose(opened, plain, atol=1e-6)
    assert (patterns[0][..., ~mask] == 0).all()


def test_a_patch_is_used_and_seen():
    model = gpt()

    def first_only(layer, pattern):
        return pattern if layer else torch.zeros_like(pattern).index_fill(-1, torch.tensor(0), 1)

    with torch.no_grad(), open_attention(model, patch=first_only) as patterns:
        patched = model(TOKENS)
    assert (patterns[0][..., 0] == 1).all()
    assert not torch.allclose(patched, model(TOKENS), atol=1e-3)


@pytest.mark.parametrize("reach", [1, 3, 11])
def test_a_reach_is_a_convolution_whose_far_kernels_are_one(reach):
    torch.manual_seed(1)
    rotary, n, d_model = RotaryEmbedding(8, base=10.0), 9, 6
    pattern = torch.rand(2, 3, n, n, dtype=torch.float64).tril().softmax(-1).tril()
    x = torch.randn(2, n, d_model, dtype=torch.float64)
    W_V = torch.randn(3, d_model, 8, dtype=torch.float64)
    offsets = torch.arange(-(n - 1), n).clamp(min=-reach)
    slow = attentive_convolution(pattern, x, offset_kernels(W_V, rotary, offsets))
    v = torch.einsum("bpm,hmd->bhpd", x, W_V)
    limited = turned_within(pattern, v, rotary, reach, positions=torch.arange(n))
    assert torch.allclose(limited, slow, atol=1e-6)
    some = turned_within(pattern, v, rotary, reach, positions=torch.arange(n), planes=[0, 2])
    whole = attentive_convolution(
        pattern, x, offset_kernels(W_V, rotary, torch.arange(-(n - 1), n))
    )
    named = rotary.plane_channels[[0, 2]].flatten()
    others = rotary.plane_channels[[1, 3]].flatten()
    assert torch.allclose(some[..., named], slow[..., named], atol=1e-6)
    assert torch.allclose(some[..., others], whole[..., others], atol=1e-6)


def test_a_reach_counts_positions_not_tokens():
    rotary, v = RotaryEmbedding(4), torch.randn(2, 1, 5, 4, dtype=torch.float64)
    pattern = torch.rand(2, 1, 5, 5, dtype=torch.float64).tril()
    positions = torch.tensor([[0, 1, 2, 3, 4], [0, 10, 20, 30, 40]])
    both = turned_within(pattern, v, rotary, 4, positions=positions)
    for row, places in enumerate(positions):
        alone = turned_within(pattern[[row]], v[[row]], rotary, 4, positions=places)
        assert torch.allclose(both[[row]], alone)


def test_within_the_reach_nothing_changes():
    model = gpt()
    with torch.no_grad():
        plain = model(TOKENS)
        with open_attention(model, reach=11):
            assert torch.allclose(model(TOKENS), plain, atol=1e-6)
        with open_attention(model, reach=3):
            assert not torch.allclose(model(TOKENS), plain, atol=1e-3)


def test_the_model_is_restored_after_an_error():
    model = gpt()
    with pytest.raises(ZeroDivisionError), open_attention(model, patch=lambda *_: 1 / 0):
        model(TOKENS)
    assert all("forward" not in vars(block.attn) for block in model.blocks)


def test_one_block_inside_another_gives_the_outer_one_back():
    model = gpt()
    with open_attention(model) as outer:
        with open_attention(model) as inner:
            model(TOKENS)
        assert [pattern.numel() for pattern in outer] == [0] * len(inner)
        model(TOKENS)
        assert all(torch.equal(a, b) for a, b in zip(outer, inner, strict=True))


def test_what_it_refuses():
    rope = GPT(replace(gpt().config, rotate_values=False))
    with (
        pytest.raises(ValueError, match="expected values that turn"),
        open_attention(rope, reach=3),
    ):
        pass
    with (
        pytest.raises(TypeError, match="expected a GPT, got Linear"),
        open_attention(nn.Linear(2, 2)),
    ):
        pass
    with (
        pytest.raises(ValueError, match="expected a reach for planes"),
        open_attention(gpt(), planes=[0]),
    ):
        pass
    with pytest.raises(ValueError, match="reach"), open_attention(gpt(), reach=0):
        pass
    with (
        pytest.raises(ValueError, match="expected planes among"),
        open_attention(gpt(), reach=3, planes=[9]),
    ):
        pass
    model = gpt()
    with pytest.raises(ValueError, match="expected no cache"), open_attention(model):
        model(TOKENS, cache=model.new_cache())


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"pattern": torch.zeros(2, 4, 4)}, ValueError, r"for v \[1, 4, 6\], got \[2, 4, 4\]"),
        (
            {"pattern": torch.zeros(1, 4, 5)},
            ValueError,
            r"expected a pattern \[..., heads, pos, pos",
        ),
        (
            {"pattern": torch.zeros(1, 4, 4, dtype=torch.bool)},
            TypeError,
            "pattern to be a floating",
        ),
        ({"pattern": torch.zeros(1, 4, 4).double()}, TypeError, "pattern and v of one dtype"),
        ({"v": [[0.0]]}, TypeError, "expected v to be a floating-point tensor"),
        ({"v": torch.zeros(4)}, ValueError, r"for v \[4\]"),
        ({"v": torch.zeros(1, 4, 8)}, ValueError, "d_head"),
        ({"rotary": None}, TypeError, "expected a RotaryEmbedding"),
        ({"reach": 0}, ValueError, "expected reach to be positive"),
        ({"reach": 2.0}, TypeError, "expected reach to be an integer"),
        ({"positions": torch.arange(3)}, ValueError, "expected positions .* for 4 queries"),
        ({"planes": [3]}, ValueError, "expected planes among 0..2"),
        ({"planes": [True]}, TypeError, "expected planes as integer indices"),
    ],
)
def test_what_does_not_fit_is_refused(changes, error, words):
    fits = {
        "pattern": torch.zeros(1, 4, 4),
        "v": torch.zeros(1, 4, 6),
        "rotary": RotaryEmbedding(6),
        "reach": 2,
        "positions": torch.arange(4),
    }
    assert turned_within(**fits).shape == (1, 4, 6)
    with pytest.raises(error, match=words):
        turned_within(**fits | changes)
