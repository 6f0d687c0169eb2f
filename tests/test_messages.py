"""messages: z of a given pattern, and what a value bias adds to it, against loops over pairs."""

import pytest
import references_circuits as reference
import torch
from references_mixers import LAYOUTS
from samples import inputs, normal
from torch.nn.functional import softmax

from rove_lab import RotaryEmbedding, attention_pattern, rope_attention, rove_attention
from rove_lab.circuits import pair_offsets, value_bias_z, z_from_pattern

each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=repr)


def assert_close(actual, expected, atol=1e-11):
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


def random_pattern(*shape):
    return softmax(normal(*shape), -1)


@each_layout
@pytest.mark.parametrize(
    ("q_len", "k_len", "positions", "key_positions"),
    [
        (4, 4, None, None),
        (2, 5, None, None),
        (3, 4, [7.5, -2.0, 100.0], [0.0, 1.0, 1.5, 60.0]),
    ],
)
def test_z_is_the_sum_of_every_message(layout, q_len, k_len, positions, key_positions):
    pattern, values = random_pattern(4, q_len, k_len), normal(2, k_len, layout.d_head)
    at_key = key_positions or list(range(k_len))
    at_query = positions or list(range(k_len - q_len, k_len))
    expected = reference.messages(pattern, values, layout, at_query, at_key).sum(2)
    z = z_from_pattern(
        pattern,
        values,
        layout.build(RotaryEmbedding),
        positions=positions,
        key_positions=key_positions,
    )
    assert_close(z, expected)


def test_z_is_attentions_own():
    q, k, v = inputs()
    rotary, positions = RotaryEmbedding(8), torch.tensor([[0, 1, 2, 3], [-9, 4, 5, 80]])
    pattern = attention_pattern(q, k, rotary, positions=positions)
    rove = rove_attention(q, k, v, rotary, positions=positions)
    rope = rope_attention(q, k, v, rotary, positions=positions)
    assert_close(z_from_pattern(pattern, v, rotary, positions=positions), rove)
    found = z_from_pattern(pattern, v, rotary, positions=positions, rotate_values=False)
    assert_close(found, rope)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_z_has_the_dtype_of_the_values(dtype):
    pattern, values = random_pattern(4, 3, 3), normal(2, 3, 8).to(dtype)
    rotary = RotaryEmbedding(8)
    z = z_from_pattern(pattern.float(), values, rotary)
    assert z.dtype == dtype
    assert_close(z.double(), z_from_pattern(pattern, values.double(), rotary), atol=0.02)


@each_layout
def test_a_value_bias_is_carried_like_a_value(layout):
    """The z of biased values is that of the values and that of the bias."""
    pattern, values = random_pattern(4, 3, 3), normal(2, 3, layout.d_head)
    b_V, rotary = normal(2, layout.d_head), layout.build(RotaryEmbedding)
    both = z_from_pattern(pattern, values + b_V[:, None], rotary)
    apart = z_from_pattern(pattern, values, rotary) + value_bias_z(pattern, b_V, rotary)
    assert_close(both, apart)
    rope = value_bias_z(pattern, b_V, rotary, rotate_values=False)
    assert_close(rope, b_V.repeat_interleave(2, 0)[:, None].expand(-1, 3, -1))


def test_a_value_bias_moves_with_the_pattern():
    """All attention one token back: the bias arrives turned by one token, whoever asks."""
    b_V, rotary = normal(1, 6), RotaryEmbedding(6)
    pattern = torch.eye(4, dtype=torch.float64).roll(-1, 1)[None, 1:]
    z = value_bias_z(pattern, b_V, rotary)
    assert_close(z[0], (b_V @ rotary.matrix(-1).T).expand(3, -1))
    where = torch.tensor([1, 2, 3])
    moved = value_bias_z(pattern, b_V, rotary, positions=where, key_positions=torch.arange(4))
    assert_close(moved, z)
    batch = value_bias_z(pattern[None].expand(2, -1, -1, -1), b_V, rotary)
    assert_close(batch, z.expand(2, -1, -1, -1))


def test_offsets_are_key_minus_query():
    assert pair_offsets(3, 3).tolist() == [[0, 1, 2], [-1, 0, 1], [-2, -1, 0]]
    assert pair_offsets(1, 3).tolist() == [[-2, -1, 0]]
    found = pair_offsets(1, 2, torch.tensor([5]), torch.tensor([[5, 1], [2.5, 9]]))
    assert found.tolist() == [[[[0.0, -4.0]]], [[[-2.5, 4.0]]]]
    assert pair_offsets(2, 2, torch.tensor([3, 4], dtype=torch.int32)).dtype == torch.int64
    assert pair_offsets(2, 2, torch.tensor([3.0, 4.0])).dtype == torch.float64


PATTERN, VALUES, ROTARY = random_pattern(4, 3, 3), normal(2, 3, 8), RotaryEmbedding(8)


@pytest.mark.parametrize(
    ("pattern", "values", "words"),
    [
        (PATTERN[0], VALUES, r"expected pattern \[..., heads, query_pos, key_pos\], got \[3, 3\]"),
        (PATTERN[:, :0], VALUES, r"expected pattern .*got \[4, 0, 3\]"),
        (PATTERN, VALUES[:, :2], r"expected values \[n_kv_heads, 3, 8\] .*got \[2, 2, 8\]"),
        (PATTERN, VALUES[..., :6], r"expected values \[n_kv_heads, 3, 8\] .*got \[2, 3, 6\]"),
        (PATTERN, VALUES[None], r"expected values .*got \[1, 2, 3, 8\].*swapped"),
        (PATTERN[None], VALUES, r"expected values \[1, n_kv_heads, 3, 8\] .*got \[2, 3, 8\]"),
        (PATTERN[:3], VALUES, r"divisible by n_kv_heads, got 3 in the pattern and 2 in values"),
        (PATTERN, VALUES[:0], r"divisible by n_kv_heads, got 4 in the pattern and 0 in values"),
        (PATTERN, VALUES.to("meta"), r"expected all on cpu, got values on meta"),
    ],
)
def test_shapes_that_do_not_fit(pattern, values, words):
    with pytest.raises(ValueError, match=words):
        z_from_pattern(pattern, values, ROTARY)


def test_types_that_do_not_fit():
    with pytest.raises(TypeError, match="expected pattern to be a floating-point tensor"):
        z_from_pattern(PATTERN > 0, VALUES, ROTARY)
    with pytest.raises(TypeError, match="expected values to be a floating-point tensor"):
        z_from_pattern(PATTERN, VALUES.long(), ROTARY)
    with pytest.raises(TypeError, match="expected a RotaryEmbedding, got NoneType"):
        z_from_pattern(PATTERN, VALUES, None)
    with pytest.raises(TypeError, match="expected rotate_values to be True or False"):
        z_from_pattern(PATTERN, VALUES, ROTARY, rotate_values="yes")
    with pytest.raises(TypeError, match="expected b_V to be a floating-point tensor"):
        value_bias_z(PATTERN, None, ROTARY)
    with pytest.raises(TypeError, match="expected a RotaryEmbedding, got int"):
        value_bias_z(PATTERN, torch.ones(2, 8), 8)
    with pytest.raises(TypeError, match="expected pattern to be a floating-point tensor"):
        value_bias_z(None, torch.ones(2, 8), ROTARY)


def test_a_pattern_that_carries_no_bias():
    with pytest.raises(ValueError, match=r"expected pattern .*got \[3, 3\]: one head needs"):
        value_bias_z(PATTERN[0], torch.ones(2, 8), ROTARY)
    with pytest.raises(ValueError, match=r"got 4 in the pattern and 3 in b_V"):
        value_bias_z(PATTERN, torch.ones(3, 8), ROTARY)


@pytest.mark.parametrize("b_V", [torch.ones(16), torch.ones(2, 6), torch.ones(2, 1, 8)])
def test_a_bias_that_does_not_fit(b_V):
    with pytest.raises(ValueError, match=r"expected b_V \[n_kv_heads, d_head=8\], got .*unflatten"):
        value_bias_z(PATTERN, b_V, ROTARY)


def test_positions_that_do_not_fit():
    with pytest.raises(ValueError, match=r"expected positions \[pos\] or \[batch, pos\] for 3"):
        z_from_pattern(PATTERN, VALUES, ROTARY, positions=[0, 1])
    with pytest.raises(ValueError, match=r"expected key_positions \[pos\]"):
        pair_offsets(2, 3, key_positions=[0, 1])
