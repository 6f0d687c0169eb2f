"""circuits: QK and OV at every offset, against loops and the attention itself."""

import pytest
import references_circuits as reference
import torch
from hypothesis import given
from hypothesis import strategies as st
from references_mixers import LAYOUTS, Layout
from samples import HEADS, attention_weights, normal

from rove_lab import RotaryEmbedding, attention_pattern, offset_kernels, rove_attention
from rove_lab.circuits import ov_circuit, qk_circuit

OFFSETS = [0, -1, 3, -17.25]

each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=repr)


def assert_close(actual, expected, atol=1e-11):
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


@each_layout
def test_circuits_at_every_offset(layout):
    W_Q, W_K, W_V, W_O = attention_weights(layout)
    rotary = layout.build(RotaryEmbedding)
    qk, ov = qk_circuit(W_Q, W_K, rotary, OFFSETS), ov_circuit(W_V, W_O, rotary, OFFSETS)
    for n, delta in enumerate(OFFSETS):
        assert_close(qk[n], reference.qk(W_Q, W_K, layout, delta))
        assert_close(ov[n], reference.ov(W_V, W_O, layout, delta))


def test_plain_rope_sends_the_same_from_everywhere():
    _, _, W_V, W_O = attention_weights(LAYOUTS[0])
    rotary = LAYOUTS[0].build(RotaryEmbedding)
    rope = ov_circuit(W_V, W_O, rotary, OFFSETS, rotate_values=False)
    assert torch.equal(rope, rope[:1].expand_as(rope))
    assert_close(rope[0], ov_circuit(W_V, W_O, rotary, [0])[0])
    assert not torch.allclose(ov_circuit(W_V, W_O, rotary, [-1])[0], rope[0])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_circuits_keep_the_dtype_of_the_weights(dtype):
    W_Q, W_K, W_V, W_O = (W.to(dtype) for W in attention_weights(LAYOUTS[0]))
    rotary = LAYOUTS[0].build(RotaryEmbedding)
    qk, ov = qk_circuit(W_Q, W_K, rotary, [-2]), ov_circuit(W_V, W_O, rotary, [-2])
    assert qk.dtype == ov.dtype == dtype
    # one rounding of the result: half a unit in the last place, of entries that are below 32
    atol = 16 * torch.finfo(dtype).eps if dtype != torch.float64 else 1e-12
    assert_close(qk[0].double(), reference.qk(W_Q, W_K, LAYOUTS[0], -2), atol)
    assert_close(ov[0].double(), reference.ov(W_V, W_O, LAYOUTS[0], -2), atol)


@each_layout
def test_the_circuits_are_what_attention_does(layout):
    """One head, one layer: softmax of x QK x^T, then the sum of A x OV, is rove_attention."""
    n, x = 5, normal(5, 5)
    W_Q, W_K, W_V, W_O = attention_weights(layout)
    rotary = layout.build(RotaryEmbedding)
    offsets = list(range(1 - n, n))
    qk, ov = qk_circuit(W_Q, W_K, rotary, offsets), ov_circuit(W_V, W_O, rotary, offsets)
    scores = torch.full((HEADS, n, n), -torch.inf, dtype=torch.float64)
    for i in range(n):
        for j in range(i + 1):
            scores[:, i, j] = x[i] @ qk[j - i + n - 1] @ x[j] / layout.d_head**0.5
    pattern = scores.softmax(-1)
    assert_close(pattern, attention_pattern(x @ W_Q, x @ W_K, rotary))
    out = torch.zeros(n, 5, dtype=torch.float64)
    for h in range(HEADS):
        for i in range(n):
            for j in range(i + 1):
                out[i] += pattern[h, i, j] * (x[j] @ ov[j - i + n - 1, h])
    z = rove_attention(x @ W_Q, x @ W_K, x @ W_V, rotary)
    assert_close(out, torch.einsum("hid,hdm->im", z, W_O))


layouts = st.sampled_from(LAYOUTS)
offsets = st.floats(-1e3, 1e3)


@given(layouts, offsets, offsets)
def test_offsets_add(layout, delta, epsilon):
    """A message that travels delta and then epsilon, with nothing in between, travels the sum."""
    _, _, W_V, W_O = attention_weights(layout)
    rotary = layout.build(RotaryEmbedding)
    (moved,) = offset_kernels(W_V, rotary, [delta])
    both = ov_circuit(W_V, W_O, rotary, [delta + epsilon])
    assert_close(ov_circuit(moved, W_O, rotary, [epsilon]), both, atol=1e-9)


@given(layouts, offsets)
def test_the_other_way_round_queries_and_keys_change_places(layout, delta):
    W_Q, W_K, _, _ = attention_weights(layout)
    W_Q = W_Q[: len(W_K)]
    rotary = layout.build(RotaryEmbedding)
    back = qk_circuit(W_K, W_Q, rotary, [-delta]).mT
    assert_close(qk_circuit(W_Q, W_K, rotary, [delta]), back)


@given(layouts, offsets)
def test_the_way_back_is_the_transpose_where_w_o_is(layout, delta):
    _, _, W_V, _ = attention_weights(layout)
    rotary = layout.build(RotaryEmbedding)
    assert_close(
        ov_circuit(W_V, W_V.mT, rotary, [-delta]), ov_circuit(W_V, W_V.mT, rotary, [delta]).mT
    )


@given(layouts, offsets, offsets)
def test_a_turn_of_both_weights_is_not_seen(layout, delta, turn):
    """W_V R^T and R W_O make the same circuits: rotations commute."""
    _, _, W_V, W_O = attention_weights(layout)
    rotary = layout.build(RotaryEmbedding)
    (turned,) = offset_kernels(W_V, rotary, [turn])
    (answer,) = offset_kernels(W_O.mT, rotary, [turn]).mT
    expected = ov_circuit(W_V, W_O, rotary, [delta])
    assert_close(ov_circuit(turned, answer, rotary, [delta]), expected, atol=1e-10)


def test_planes_that_do_not_turn_make_no_difference():
    layout = Layout(6)
    W_Q, W_K, W_V, W_O = attention_weights(layout)
    still = RotaryEmbedding(6).planes([])
    moving = ov_circuit(W_V, W_O, still, OFFSETS)
    assert_close(moving, ov_circuit(W_V, W_O, still, OFFSETS, rotate_values=False))
    qk = qk_circuit(W_Q, W_K, still, OFFSETS)
    assert torch.equal(qk, qk[:1].expand_as(qk))


def test_nothing_larger_than_allowed_is_built():
    W_Q, W_K, W_V, W_O = attention_weights(LAYOUTS[0])
    rotary = LAYOUTS[0].build(RotaryEmbedding)
    with pytest.raises(ValueError, match=r"at most max_bytes=100 bytes, got \(1, 4, 5, 5\) = 800"):
        qk_circuit(W_Q, W_K, rotary, [0], max_bytes=100)
    with pytest.raises(ValueError, match=r"at most max_bytes=100 bytes, got \(1, 4, 5, 5\) = 800"):
        ov_circuit(W_V, W_O, rotary, [0], max_bytes=100)
