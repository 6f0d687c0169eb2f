"""What attention refuses, and whether its words help."""

import math

import numpy as np
import pytest
import torch
from samples import normal

from rove_lab import RotaryEmbedding, attention_pattern, rope_attention, rove_attention

ROTARY = RotaryEmbedding(8)
Q, K, V = normal(2, 4, 5, 8, seed=1), normal(2, 2, 5, 8, seed=2), normal(2, 2, 5, 8, seed=3)


def pattern(q, k, v, rotary, **how):
    return attention_pattern(q, k, rotary, **how)


ALL = pytest.mark.parametrize("attention", [rope_attention, rove_attention, pattern])
WITH_VALUES = pytest.mark.parametrize("attention", [rope_attention, rove_attention])


@ALL
def test_heads_and_positions_swapped_are_refused(attention):
    """[batch, pos, heads, d_head], as other libraries have it."""
    swapped = [x.transpose(1, 2) for x in (Q, K, V)]
    with pytest.raises(ValueError, match=r"got 4 queries and 2 keys .*swapped"):
        attention(*swapped, ROTARY)
    with pytest.raises(ValueError, match=r"for 4 queries, got .*swapped"):
        attention(*swapped, ROTARY, positions=torch.arange(5), key_positions=torch.arange(2))
    with pytest.raises(ValueError, match=r"heads divisible by n_kv_heads.*swapped"):
        attention(Q, K.transpose(1, 2), V.transpose(1, 2), ROTARY)


@ALL
@pytest.mark.parametrize(("n_heads", "n_kv_heads"), [(4, 3), (2, 4), (3, 2), (4, 0)])
def test_heads_must_divide(attention, n_heads, n_kv_heads):
    q, k = normal(2, n_heads, 5, 8), normal(2, n_kv_heads, 5, 8)
    with pytest.raises(
        ValueError, match=rf"divisible by n_kv_heads, got {n_heads} and {n_kv_heads}"
    ):
        attention(q, k, k, ROTARY)


@ALL
@pytest.mark.parametrize("d_head", [6, 7, 16])
def test_d_head_must_be_the_rotarys(attention, d_head):
    x = normal(2, 2, 5, d_head)
    with pytest.raises(ValueError, match=rf"d_head=8.*{d_head}"):
        attention(x, x, x, ROTARY)


@ALL
def test_queries_and_keys_have_one_d_head(attention):
    with pytest.raises(ValueError, match=r"same d_head, got 8 and 6"):
        attention(Q, K[..., :6], V, ROTARY)


def test_values_of_another_d_head_need_a_rotary_of_their_own():
    with pytest.raises(ValueError, match=r"d_head=8, got 6.*value_rotary=RotaryEmbedding\(6\)"):
        rove_attention(Q, K, V[..., :6], ROTARY)
    with pytest.raises(ValueError, match=r"d_head=4, got 8.*value_rotary"):
        rove_attention(Q, K, V, ROTARY, value_rotary=RotaryEmbedding(4))


@WITH_VALUES
def test_values_have_the_keys_heads_and_positions(attention):
    for v in (V[:, :1], V[:, :, :4], V.repeat(1, 2, 1, 1), V.transpose(1, 2)):
        with pytest.raises(ValueError, match=r"n_kv_heads and key positions of k, got"):
            attention(Q, K, v, ROTARY)


@ALL
@pytest.mark.parametrize("which", [0, 1])
def test_leading_axes_must_be_equal(attention, which):
    for change in (lambda x: x[:1], lambda x: x[0], lambda x: x[None], lambda x: torch.cat([x, x])):
        tensors = [Q, K, V]
        tensors[which] = change(tensors[which])
        with pytest.raises(ValueError, match=r"equal leading axes, got"):
            attention(*tensors, ROTARY)


@WITH_VALUES
def test_values_have_the_leading_axes_too(attention):
    with pytest.raises(ValueError, match=r"equal leading axes, got"):
        attention(Q, K, V[:1], ROTARY)


@ALL
def test_a_head_axis_is_needed(attention):
    with pytest.raises(ValueError, match=r"three axes, got \[5, 8\].*q\[None\]"):
        attention(Q[0, 0], K[0, 0], V[0, 0], ROTARY)


@ALL
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_mixed_dtypes_are_refused(attention, dtype):
    q, k, v = Q.float(), K.float(), V.float()
    with pytest.raises(TypeError, match=r"one dtype, got q .* and k .*k\.to\(q\.dtype\)"):
        attention(q, k.to(dtype), v, ROTARY)


@WITH_VALUES
def test_values_of_another_dtype_are_refused(attention):
    with pytest.raises(TypeError, match=r"one dtype, got q .* and v .*v\.to\(q\.dtype\)"):
        attention(Q, K, V.float(), ROTARY)


@ALL
def test_mixed_devices_are_refused(attention):
    with pytest.raises(ValueError, match=r"one device, got q on cpu and k on meta"):
        attention(Q, K.to("meta"), V, ROTARY)
    with pytest.raises(ValueError, match=r"one device, got q on meta and k on cpu"):
        attention(Q.to("meta"), K, V, ROTARY)


@ALL
@pytest.mark.parametrize(
    "x", [np.zeros((2, 4, 5, 8)), [[[0.0]]], None, torch.zeros(2, 4, 5, 8, dtype=torch.int64)]
)
def test_only_floating_point_tensors_attend(attention, x):
    with pytest.raises(TypeError, match=r"expected q to be a floating-point tensor, got \w+"):
        attention(x, K, V, ROTARY)
    with pytest.raises(TypeError, match=r"expected k to be a floating-point tensor, got \w+"):
        attention(Q, x, V, ROTARY)


@ALL
@pytest.mark.parametrize("rotary", [10000.0, None, ROTARY(range(5)), RotaryEmbedding, "llama"])
def test_rotary_must_be_a_rotary_embedding(attention, rotary):
    with pytest.raises(TypeError, match=r"expected a RotaryEmbedding, got \w+.*positions"):
        attention(Q, K, V, rotary)


@pytest.mark.parametrize("rotary", [10000.0, ROTARY(range(5)), RotaryEmbedding, False])
def test_value_rotary_must_be_a_rotary_embedding(rotary):
    with pytest.raises(TypeError, match=r"expected a RotaryEmbedding, got \w+.*positions"):
        rove_attention(Q, K, V, ROTARY, value_rotary=rotary)


@ALL
@pytest.mark.parametrize("scale", [math.nan, math.inf, -math.inf])
def test_scale_must_be_finite(attention, scale):
    with pytest.raises(ValueError, match=r"finite scale, got"):
        attention(Q, K, V, ROTARY, scale=scale)


@ALL
@pytest.mark.parametrize("scale", ["a", True, [0.5], 1j])
def test_scale_must_be_a_number(attention, scale):
    with pytest.raises(TypeError, match=r"scale to be a number, got"):
        attention(Q, K, V, ROTARY, scale=scale)


@ALL
def test_everything_after_the_rotary_is_named(attention):
    with pytest.raises(TypeError, match="positional"):
        attention(Q, K, V, ROTARY, torch.arange(5))
