"""temperature: m² on the part of a logit that turns, channel by channel as Hugging Face has it."""

import itertools
import math

import pytest
import torch
from references import plane_channels, yarn_attention_factor
from samples import normal

from rove_lab import NTKScaling, RotaryEmbedding, YarnScaling
from rove_lab.temperature import with_temperature

YARN = YarnScaling(16.0, 64, beta_fast=4.0)
M = yarn_attention_factor(16.0)  # 1.28
LAYOUTS = [
    {"rotary_dim": rotary_dim, "interleaved": interleaved, "trailing": trailing}
    for rotary_dim, interleaved, trailing in itertools.product(
        (2, 4, 6, None), (False, True), (False, True)
    )
]
each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=str)


def score(q, k, channels, scale):
    """One logit a channel after the other: cosines and sines times m, of the query and the key."""
    turning = {channel for pair in channels for channel in pair}
    m = [M if channel in turning else 1.0 for channel in range(len(q))]
    return scale * math.fsum((m[c] * q[c]) * (m[c] * k[c]) for c in range(len(q)))


@each_layout
@pytest.mark.parametrize("scale", [None, 0.7, -2, 0.0])
def test_logits_have_m_on_both_sides_of_the_channels_that_turn(layout, scale):
    queries, keys = normal(2, 3, 8, seed=1), normal(2, 5, 8, seed=2)
    rotary = RotaryEmbedding(8, **layout, scaling=YARN)
    q, found_scale = with_temperature(queries, rotary, scale)
    logits = q @ keys.mT * found_scale
    channels = plane_channels(8, **layout)
    for h, i, j in itertools.product(range(2), range(3), range(5)):
        pair = queries[h, i].tolist(), keys[h, j].tolist()
        expected = score(*pair, channels, 8**-0.5 if scale is None else scale)
        assert logits[h, i, j].item() == pytest.approx(expected, abs=1e-13)


@each_layout
def test_before_a_rotation_or_after_it_is_the_same(layout):
    q, rotary = normal(2, 5, 8), RotaryEmbedding(8, **layout, scaling=YARN)
    turn = rotary(torch.arange(5) * 7)
    before = turn.apply(with_temperature(q, rotary)[0])
    assert torch.allclose(before, with_temperature(turn.apply(q), rotary)[0], atol=1e-14)


def test_channels_of_planes_that_stand_still_count_as_turning():
    """Their cosine is 1, and Hugging Face multiplies it as any other."""
    q, rotary = normal(2, 5, 8), RotaryEmbedding(8, rotary_dim=4, scaling=YARN)
    found, _ = with_temperature(q, rotary.planes([0]))
    assert torch.equal(found, with_temperature(q, rotary)[0])


@pytest.mark.parametrize(
    ("rotary", "factor"),
    [
        (RotaryEmbedding(8), 1.0),
        (RotaryEmbedding(8, rotary_dim=4, trailing=True), 1.0),
        (RotaryEmbedding(8, rotary_dim=4, scaling=NTKScaling(4.0)), 1.0),
        (RotaryEmbedding(8, rotary_dim=4, scaling=YarnScaling(4.0, 64, attention_factor=1.0)), 1.0),
        (RotaryEmbedding(8, scaling=YARN), M**2),
        (RotaryEmbedding(8, scaling=YARN, interleaved=True).planes([1]), M**2),
    ],
    ids=str,
)
def test_queries_are_not_touched_where_nothing_is_scaled_or_the_scale_can_carry_it(rotary, factor):
    q = normal(2, 5, 8)
    found, scale = with_temperature(q, rotary)
    assert found is q
    assert scale == pytest.approx(8**-0.5 * factor, rel=1e-15)
    assert with_temperature(q, rotary, 3)[1] == pytest.approx(3 * factor, rel=1e-15)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("autocast", [False, True])
def test_a_dtype_stays_and_is_rounded_once(dtype, autocast):
    q, rotary = normal(2, 5, 8).to(dtype), RotaryEmbedding(8, rotary_dim=4, scaling=YARN)
    with torch.autocast("cpu", enabled=autocast):
        found, _ = with_temperature(q, rotary)
    assert found.dtype == dtype
    assert torch.equal(found[..., 4:], q[..., 4:])
    exact = q[..., :4].double() * M**2
    assert ((found[..., :4] - exact).abs() <= torch.finfo(dtype).eps * exact.abs()).all()


def test_gradients_carry_it_too():
    q, rotary = normal(2, 5, 8).requires_grad_(), RotaryEmbedding(8, rotary_dim=6, scaling=YARN)
    with_temperature(q, rotary)[0].sum().backward()
    expected = torch.tensor([M**2] * 6 + [1.0] * 2).double()
    assert torch.allclose(q.grad, expected.expand_as(q), rtol=1e-7)


def test_no_values_are_needed():
    rotary = RotaryEmbedding(8, rotary_dim=6, scaling=YARN)
    q, _ = with_temperature(torch.zeros(2, 5, 8, device="meta"), rotary)
    assert q.is_meta
    assert q.shape == (2, 5, 8)


def test_refuses_another_d_head_and_a_scale_that_is_none():
    rotary = RotaryEmbedding(8, scaling=YARN)
    with pytest.raises(ValueError, match=r"d_head=8, got 6: use RotaryEmbedding\(6\)"):
        with_temperature(normal(2, 5, 6), rotary)
    with pytest.raises(ValueError, match="expected a finite scale, got nan"):
        with_temperature(normal(2, 5, 8), rotary, math.nan)
    with pytest.raises(TypeError, match=r"expected scale to be a number, got True"):
        with_temperature(normal(2, 5, 8), rotary, True)
