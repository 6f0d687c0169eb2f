"""What holds for every rotation, position and input, as hypothesis properties."""

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rove_lab import (
    LinearScaling,
    Llama3Scaling,
    NTKScaling,
    RotaryEmbedding,
    RotarySelfAttention,
    YarnScaling,
    attention_pattern,
    rope_attention,
    rove_attention,
)

factors = st.floats(1.0, 64.0)
windows = st.integers(64, 65_536)
scalings = st.one_of(
    st.none(),
    st.builds(LinearScaling, factors),
    st.builds(NTKScaling, factors),
    st.builds(
        YarnScaling,
        factors,
        windows,
        beta_fast=st.floats(4.0, 64.0),
        beta_slow=st.floats(0.5, 4.0),
        truncate=st.booleans(),
        attention_factor=st.one_of(st.none(), st.floats(0.5, 3.0)),
    ),
    st.builds(Llama3Scaling, factors, st.floats(0.5, 2.0), st.floats(2.5, 8.0), windows),
)
integers = st.integers(-1_000_000, 1_000_000)
reals = st.floats(-1e6, 1e6)


@st.composite
def rotaries(draw, d_head=None):
    d_head = draw(st.sampled_from([4, 6, 10, 16])) if d_head is None else d_head
    return RotaryEmbedding(
        d_head,
        base=draw(st.floats(2.0, 1e7)),
        rotary_dim=draw(st.sampled_from([None, *range(4, d_head + 1, 2)])),
        interleaved=draw(st.booleans()),
        trailing=draw(st.booleans()),
        scaling=draw(scalings),
    )


def vectors(seed, *shape, dtype=torch.float32):
    """Unit-scale channels."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


seeds = st.integers(0, 2**31)
positions_of_five = st.lists(integers, min_size=5, max_size=5)


@given(rotaries())
@settings(max_examples=30)
def test_rotation_by_zero_is_the_identity(rotary):
    assert torch.equal(rotary.matrix(0), torch.eye(rotary.d_head, dtype=torch.float64))
    x = vectors(0, 2, 1, rotary.d_head)
    assert torch.equal(rotary([0]).apply(x), x)
    assert torch.equal(rotary([0]).undo(x), x)


@given(rotaries(), st.one_of(integers, reals), st.one_of(integers, reals))
@settings(max_examples=60)
def test_rotations_add_up(rotary, a, b):
    """R_a R_b = R_{a+b}; an angle of 1e6 radians is known to about 1e-10 in float64."""
    product = rotary.matrix(a) @ rotary.matrix(b)
    assert torch.allclose(product, rotary.matrix(a + b), rtol=0, atol=2e-9)


@given(rotaries(), st.one_of(integers, reals))
@settings(max_examples=30)
def test_the_inverse_is_the_transpose_and_the_opposite_rotation(rotary, t):
    inverse = torch.linalg.inv(rotary.matrix(t))
    assert torch.allclose(inverse, rotary.matrix(t).T, atol=1e-12)
    assert torch.allclose(inverse, rotary.matrix(-t), atol=1e-12)


@given(rotaries(), st.lists(st.one_of(integers, reals), min_size=1, max_size=6), seeds)
@settings(max_examples=60)
def test_apply_is_the_matrix_on_columns_and_undo_its_inverse(rotary, positions, seed):
    x = vectors(seed, 3, len(positions), rotary.d_head, dtype=torch.float64)
    matrices, rotation = rotary.matrix(positions), rotary(positions)
    assert torch.allclose(rotation.apply(x), (matrices @ x[..., None])[..., 0], atol=1e-12)
    assert torch.allclose(rotation.undo(x), (matrices.mT @ x[..., None])[..., 0], atol=1e-12)
    assert torch.equal(rotation.dual(x), rotation.apply(x))


@given(rotaries(), positions_of_five, seeds)
@settings(max_examples=60)
def test_norms_are_kept_plane_by_plane(rotary, positions, seed):
    x = vectors(seed, 3, 5, rotary.d_head)
    y = rotary(positions).apply(x)
    pairs = rotary.plane_channels
    assert torch.allclose(x[..., pairs].norm(dim=-1), y[..., pairs].norm(dim=-1), rtol=1e-6)
    assert torch.allclose(x.norm(dim=-1), y.norm(dim=-1), rtol=1e-6)


@given(rotaries(), positions_of_five, seeds)
@settings(max_examples=60)
def test_fault_02_undo_after_apply_is_the_identity_with_gain_one(rotary, positions, seed):
    x, rotation = vectors(seed, 3, 5, rotary.d_head), rotary(positions)
    for there_and_back in (rotation.undo(rotation.apply(x)), rotation.apply(rotation.undo(x))):
        gain = (there_and_back * x).sum() / x.square().sum()
        assert abs(gain.item() - 1) <= 1e-6
        assert (there_and_back - x).abs().max() <= 1e-6 * x.abs().max()


shifts = st.one_of(integers, st.sampled_from([17, -1, 1_000_000, -1_000_000]))


@given(rotaries(8), shifts, seeds, st.booleans())
@settings(max_examples=60)
def test_fault_01_shifting_every_position_leaves_the_outputs(rotary, shift, seed, is_causal):
    q, k, v = vectors(seed, 3, 2, 2, 6, 8)
    here, there = torch.arange(6), torch.arange(6) + shift
    for attention in (rope_attention, rove_attention):
        before = attention(q, k, v, rotary, positions=here, is_causal=is_causal)
        after = attention(q, k, v, rotary, positions=there, is_causal=is_causal)
        assert (after - before).abs().max() <= 1e-5 * v.abs().max()


@given(rotaries(8), shifts, seeds)
@settings(max_examples=30)
def test_fault_01_and_so_it_is_with_positions_and_lengths_that_differ(rotary, shift, seed):
    q, k, v = vectors(seed, 3, 2, 2, 7, 8)
    q = q[:, :, :3]
    positions, keys = torch.tensor([[2, 5, 40], [8, 8, -3]]), torch.arange(7) * 3
    how = [{"positions": positions + s, "key_positions": keys + s} for s in (0, shift)]
    before, after = (rove_attention(q, k, v, rotary, **h) for h in how)
    assert (after - before).abs().max() <= 1e-5 * v.abs().max()
    before, after = (attention_pattern(q, k, rotary, **h) for h in how)
    assert (after - before).abs().max() <= 1e-5


@given(shifts, seeds)
@settings(max_examples=20)
def test_fault_01_without_undoing_at_the_query_a_shift_would_show(shift, seed):
    """The test above can fail: rotated values that are never rotated back move with the shift."""
    assume(abs(math.sin(shift / 2)) > 0.1)  # the fastest plane has not come round
    rotary, (q, k, v) = RotaryEmbedding(8), vectors(seed, 3, 1, 2, 6, 8)
    moved = []
    for s in (0, shift):
        positions = torch.arange(6) + s
        turned = rotary(positions).apply(v)
        moved.append(rope_attention(q, k, turned, rotary, positions=positions))
    assert (moved[1] - moved[0]).abs().max() > 1e-3 * v.abs().max()


@given(rotaries(8), positions_of_five, seeds)
@settings(max_examples=40)
def test_value_frequencies_of_zero_turn_rove_into_rope(rotary, positions, seed):
    q, k, v = vectors(seed, 3, 1, 2, 5, 8)
    rope = rope_attention(q, k, v, rotary, positions=positions)
    rove = rove_attention(
        q, k, v, rotary, value_rotary=rotary.planes([]), positions=positions
    )  # fmt: skip
    assert torch.equal(rove, rope)


@given(rotaries(8), st.sets(st.integers(0, 1)), positions_of_five, seeds)
@settings(max_examples=30)
def test_planes_that_do_not_turn_carry_ropes_output(rotary, keep, positions, seed):
    q, k, v = vectors(seed, 3, 1, 2, 5, 8)
    rope = rope_attention(q, k, v, rotary, positions=positions)
    kept = rotary.planes(sorted(keep))
    rove = rove_attention(q, k, v, rotary, value_rotary=kept, positions=positions)
    turning = rotary.plane_channels[sorted(keep)].flatten().tolist()
    still = [c for c in range(8) if c not in turning]
    assert torch.allclose(rove[..., still], rope[..., still], atol=1e-6)


@given(rotaries(8), positions_of_five, seeds)
@settings(max_examples=30)
def test_a_token_alone_sends_itself_its_value_unturned(rotary, positions, seed):
    q, k, v = vectors(seed, 3, 1, 2, 5, 8)
    alone = torch.eye(5, dtype=torch.bool)
    z = rove_attention(q, k, v, rotary, positions=positions, attn_mask=alone)
    assert (z - v).abs().max() <= 2e-6 * v.abs().max()


@given(rotaries(8), st.integers(0, 10**6), seeds)
@settings(max_examples=20)
def test_the_layer_does_not_feel_a_shift(rotary, shift, seed):
    torch.manual_seed(seed)
    layer, x = RotarySelfAttention(16, 2, rotary=rotary), torch.randn(1, 5, 16)
    before, after = layer(x), layer(x, positions=torch.arange(5) + shift)
    assert (after - before).abs().max() <= 1e-5 * max(1.0, x.abs().max().item())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_feels_a_shift_only_by_its_own_rounding(dtype):
    q, k, v = vectors(0, 3, 2, 4, 16, 64).to(dtype)
    rotary = RotaryEmbedding(64)
    before = rove_attention(q, k, v, rotary).float()
    after = rove_attention(q, k, v, rotary, positions=torch.arange(16) + 1_000_000).float()
    assert (after - before).abs().max() <= 8 * torch.finfo(dtype).eps * v.abs().max()
