"""RoPE and RoVE attention and the pattern, against the sums that define them."""

import itertools

import pytest
import torch
from references import reference_attention, reference_pattern, reference_rotary
from samples import as_reference, inputs, normal

from rove_lab import (
    NTKScaling,
    RotaryEmbedding,
    YarnScaling,
    attention_pattern,
    attentive_convolution,
    offset_kernels,
    rope_attention,
    rove_attention,
)


def check(q, k, v, rotary, positions, key_positions, value_rotary=None, given=None, **how):
    """All three functions against the reference at these positions, [batch][pos]."""
    reference = as_reference(rotary)
    values = as_reference(rotary if value_rotary is None else value_rotary)
    where = (positions, key_positions)
    if given is None:
        given = dict(zip(("positions", "key_positions"), map(torch.tensor, where), strict=True))
    pattern = attention_pattern(q, k, rotary, **given, **how)
    assert torch.allclose(pattern, reference_pattern(q, k, reference, *where, **how), atol=1e-9)
    rope = rope_attention(q, k, v, rotary, **given, **how)
    assert torch.allclose(rope, reference_attention(q, k, v, reference, *where, **how), atol=1e-9)
    rove = rove_attention(q, k, v, rotary, value_rotary=value_rotary, **given, **how)
    expected = reference_attention(q, k, v, reference, *where, value_rotary=values, **how)
    assert torch.allclose(rove, expected, atol=1e-9)
    return pattern, rope, rove


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
def test_attention_equals_the_reference(n_kv_heads, is_causal):
    where = [[0, 1, 2, 3]] * 2
    check(
        *inputs(n_kv_heads=n_kv_heads), RotaryEmbedding(8), where, where, given={},
        is_causal=is_causal,
    )  # fmt: skip


@pytest.mark.parametrize(
    "layout",
    [
        {"interleaved": True},
        {"rotary_dim": 4},
        {"rotary_dim": 6, "trailing": True, "interleaved": True},
        {"base": 50.0},
        {"scaling": NTKScaling(4.0)},
    ],
    ids=str,
)
def test_every_layout_reaches_attention(layout):
    where = [[0, 1, 2, 3], [5, 6, 9, 20]]
    check(*inputs(), RotaryEmbedding(8, **layout), where, where)


@pytest.mark.parametrize(
    ("positions", "key_positions"),
    [
        ([[10, 11, 12, 13]] * 2, [[0, 1, 2, 3]] * 2),
        ([[0, 1, 2, 3], [7, 5, 3, 1]], [[3, 9, 1, 0], [-5, -4, -3, 0]]),
        ([[0.5, 1.25, -2.0, 3.75]] * 2, [[0.1, -0.2, 1e3, 7.0]] * 2),
        ([[10**6 + i for i in range(4)]] * 2, [[10**6 - i for i in range(4)]] * 2),
    ],
    ids=["apart", "rows", "reals", "far"],
)
def test_queries_and_keys_may_stand_anywhere(positions, key_positions):
    q, k, v = inputs()
    outputs = check(q, k, v, RotaryEmbedding(8), positions, key_positions)
    if positions[0] == positions[1]:  # one row of positions, however it is written
        for rows in (slice(0, 1), 0):
            given = {
                "positions": torch.tensor(positions)[rows],
                "key_positions": torch.tensor(key_positions)[rows],
            }
            z = rove_attention(q, k, v, RotaryEmbedding(8), **given)
            assert torch.allclose(z, outputs[2], atol=1e-12)


@pytest.mark.parametrize(("q_len", "k_len"), [(1, 5), (3, 5), (5, 3), (1, 1), (4, 1)])
def test_lengths_may_differ(q_len, k_len):
    positions, keys = list(range(20, 20 + q_len)), list(range(3, 3 + k_len))
    check(*inputs(q_len, k_len), RotaryEmbedding(8), [positions] * 2, [keys] * 2)
    if q_len <= k_len:
        defaults = [list(range(k_len - q_len, k_len))] * 2, [list(range(k_len))] * 2
        check(*inputs(q_len, k_len), RotaryEmbedding(8), *defaults, given={})


@pytest.mark.parametrize("lead", [(), (2,), (3, 2), (2, 3, 2)])
@pytest.mark.parametrize("n_kv_heads", [2, 4])
def test_any_leading_axes(lead, n_kv_heads):
    q, k, v = (normal(*lead, h, 5, 8, seed=h) for h in (4, n_kv_heads, n_kv_heads))
    rotary = RotaryEmbedding(8)
    mask = normal(5, 5) > -1
    for how in ({}, {"attn_mask": mask}, {"is_causal": False}):
        flat = [x.reshape(-1, *x.shape[-3:]) for x in (q, k, v)]
        for attention in (rope_attention, rove_attention):
            z = attention(q, k, v, rotary, **how)
            expected = attention(*flat, rotary, **how).reshape(q.shape)
            assert torch.allclose(z, expected, atol=1e-12)
        pattern = attention_pattern(q, k, rotary, **how)
        expected = attention_pattern(*flat[:2], rotary, **how).reshape(*q.shape[:-1], 5)
        assert torch.allclose(pattern, expected, atol=1e-12)


def test_rows_of_positions_pair_with_the_innermost_batch_axis():
    q, k, v = (normal(3, 2, h, 5, 8, seed=h) for h in (4, 2, 2))
    rows = torch.tensor([[0, 1, 2, 3, 4], [9, 11, 12, 20, -1]])
    z = rove_attention(q, k, v, RotaryEmbedding(8), positions=rows)
    for a, b in itertools.product(range(3), range(2)):
        alone = rove_attention(q[a, b], k[a, b], v[a, b], RotaryEmbedding(8), positions=rows[b])
        assert torch.allclose(z[a, b], alone, atol=1e-12)


@pytest.mark.parametrize("scale", [0.0, 1.0, -0.7, 3, None])
def test_scale_multiplies_the_logits(scale):
    where = [[0, 1, 2, 3]] * 2
    check(*inputs(), RotaryEmbedding(8), where, where, scale=scale)


@pytest.mark.parametrize("scale", [None, 0.2])
@pytest.mark.parametrize("attention_factor", [None, 1.0, 1.5])
def test_fault_02_yarns_temperature_multiplies_logits_and_never_values(attention_factor, scale):
    scaling = YarnScaling(16.0, 64, beta_fast=4.0, attention_factor=attention_factor)
    rotary = RotaryEmbedding(8, scaling=scaling)
    where = [[0, 3, 10, 11]] * 2
    q, k, v = inputs()
    pattern, rope, _ = check(q, k, v, rotary, where, where, scale=scale)
    assert torch.allclose(pattern.sum(-1), torch.ones(2, 4, 4).double())
    heads = v.repeat_interleave(2, 1)
    assert torch.allclose(rope, pattern @ heads)  # weighed and summed, not stretched
    one = torch.tensor([5])
    z = rove_attention(q[:, :, :1], k[:, :, :1], v[:, :, :1], rotary, positions=one)
    assert torch.allclose(z, heads[:, :, :1], rtol=1e-6)  # m^2 would be 1.6 here


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("trailing", [False, True])
def test_yarns_temperature_multiplies_what_turns_of_a_logit(trailing, interleaved):
    """As in Hugging Face, whose cosines and sines are multiplied: the rest of a logit is not."""
    layout = {"rotary_dim": 4, "trailing": trailing, "interleaved": interleaved}
    rotary = RotaryEmbedding(8, **layout, scaling=YarnScaling(16.0, 64, beta_fast=4.0))
    where = [[0, 1, 2, 3], [5, 6, 9, 20]]
    q, k, v = inputs()
    pattern, _, _ = check(q, k, v, rotary, where, where)
    check(q, k, v, rotary, where, where, scale=-0.4, is_causal=False)
    all_of_it = attention_pattern(
        q, k, RotaryEmbedding(8, **layout, scaling=YarnScaling(16.0, 64, 4.0, attention_factor=1)),
        positions=torch.tensor(where), scale=rotary.attention_factor**2 / 8**0.5,
    )  # fmt: skip
    assert (pattern - all_of_it).abs().max() > 0.01


def test_pattern_times_values_is_rope():
    q, k, v = inputs()
    rotary = RotaryEmbedding(8)
    pattern = attention_pattern(q, k, rotary)
    assert torch.allclose(pattern @ v.repeat_interleave(2, 1), rope_attention(q, k, v, rotary))
    assert pattern.dtype == q.dtype


def test_rove_is_its_definition():
    """Rotate the values, attend as ever, undo at the query."""
    q, k, v = inputs()
    rotary = RotaryEmbedding(8, rotary_dim=6)
    rotation = rotary(torch.arange(4))
    there = rotation.apply(v).repeat_interleave(2, 1)
    expected = rotation.undo(attention_pattern(q, k, rotary) @ there)
    assert torch.allclose(rove_attention(q, k, v, rotary), expected, atol=1e-12)


def test_rove_is_an_attentive_convolution():
    x, W_V = normal(1, 6, 10), normal(2, 10, 8)
    q, k, rotary = normal(1, 2, 6, 8, seed=1), normal(1, 2, 6, 8, seed=2), RotaryEmbedding(8)
    pattern = attention_pattern(q, k, rotary)
    kernels = offset_kernels(W_V, rotary, torch.arange(-5, 6))
    v = torch.einsum("bpm,hmd->bhpd", x, W_V)
    expected = attentive_convolution(pattern, x, kernels)
    assert torch.allclose(rove_attention(q, k, v, rotary), expected, atol=1e-10)


def test_value_frequencies_of_zero_turn_rove_into_rope():
    q, k, v = inputs()
    for rotary in (RotaryEmbedding(8), RotaryEmbedding(8, rotary_dim=4, trailing=True)):
        still = rove_attention(q, k, v, rotary, value_rotary=rotary.planes([]))
        assert torch.equal(still, rope_attention(q, k, v, rotary))


@pytest.mark.parametrize(
    "value_rotary",
    [
        RotaryEmbedding(8).planes([2, 3]),
        RotaryEmbedding(8).planes(slice(0, 1)),
        RotaryEmbedding(8, base=77.0, interleaved=True),
        RotaryEmbedding(8, rotary_dim=2, trailing=True, scaling=YarnScaling(16.0, 64)),
    ],
    ids=str,
)
def test_values_may_have_a_rotation_of_their_own(value_rotary):
    positions, keys = [[5, 6, 7, 8]] * 2, [[0, 1, 2, 3]] * 2
    check(*inputs(), RotaryEmbedding(8), positions, keys, value_rotary=value_rotary)


def test_values_may_have_a_d_head_of_their_own():
    q, k, _ = inputs()
    v = normal(2, 2, 4, 6)
    where = [[0, 1, 2, 3]] * 2
    check(q, k, v, RotaryEmbedding(8), where, where, value_rotary=RotaryEmbedding(6, base=30.0))


def test_reference_rotary_is_the_rotation_that_is_tested():
    """`as_reference` borrows frequencies; here they are the formula's own."""
    rotary = RotaryEmbedding(8, rotary_dim=6, interleaved=True, trailing=True)
    reference = reference_rotary(8, rotary_dim=6, interleaved=True, trailing=True)
    borrowed = as_reference(rotary)
    assert [tuple(pair) for pair in borrowed.channels] == reference.channels
    assert borrowed.frequencies == pytest.approx(reference.frequencies, rel=1e-14)
