"""head_circuits: the factors of QK and OV circuits, with and without the embeddings."""

import pytest
import references_circuits as reference
import torch
from references_mixers import LAYOUTS
from samples import D_MODEL, HEADS, attention_weights, normal

from rove_lab import RotaryEmbedding
from rove_lab.circuits import (
    factored_ov,
    factored_qk,
    fold_rms_norm,
    full_ov_circuit,
    full_qk_circuit,
)
from rove_lab.head_circuits import value_core

OFFSETS = [0, -1, 3, -17.25]
D_VOCAB = 11

each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=repr)


W_E, W_U = normal(D_VOCAB, D_MODEL, seed=5), normal(D_MODEL, D_VOCAB, seed=6)


def assert_close(actual, expected, atol=1e-11):
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


@each_layout
def test_factors_multiply_to_the_circuits(layout):
    W_Q, W_K, W_V, W_O = attention_weights(layout)
    rotary = layout.build(RotaryEmbedding)
    for n, delta in enumerate(OFFSETS):
        qk = reference.qk(W_Q, W_K, layout, delta)
        ov = reference.ov(W_V, W_O, layout, delta)
        assert_close(factored_qk(W_Q, W_K, rotary, OFFSETS).to_dense()[n], qk)
        assert_close(factored_ov(W_V, W_O, rotary, OFFSETS).to_dense()[n], ov)
        full_qk = full_qk_circuit(W_E, W_Q, W_K, rotary, OFFSETS)
        full_ov = full_ov_circuit(W_E, W_V, W_O, W_U, rotary, OFFSETS)
        assert_close(full_qk.to_dense()[n], W_E @ qk @ W_E.T)
        assert_close(full_ov.to_dense()[n], W_E @ ov @ W_U)


def test_full_circuits_keep_what_half_precision_would_lose():
    layout = LAYOUTS[0]
    W_Q, W_K, W_V, W_O = (W.bfloat16() for W in attention_weights(layout))
    rotary = layout.build(RotaryEmbedding)
    full = full_ov_circuit(W_E.bfloat16(), W_V, W_O, W_U.bfloat16(), rotary, [2])
    assert full.left.dtype == full.right.dtype == torch.float32
    expected = W_E.bfloat16().double() @ reference.ov(W_V, W_O, layout, 2) @ W_U.bfloat16().double()
    torch.testing.assert_close(full.to_dense()[0].double(), expected, rtol=1e-5, atol=1e-4)
    assert full_qk_circuit(W_E.bfloat16(), W_Q, W_K, rotary, [2]).left.dtype == torch.float32


def test_a_full_circuit_scores_tokens_as_a_first_layer_does():
    """x_a W_Q R W_K^T x_b for a norm folded in and embeddings divided by their own size."""
    layout = LAYOUTS[0]
    W_Q, W_K, _, _ = attention_weights(layout)
    weight, rotary = normal(D_MODEL, seed=7), layout.build(RotaryEmbedding)
    normed = torch.nn.functional.rms_norm(W_E, (D_MODEL,), weight, eps=0.0)
    bare = torch.nn.functional.rms_norm(W_E, (D_MODEL,), eps=0.0)
    folded = (fold_rms_norm(W, weight) for W in (W_Q, W_K))
    found = full_qk_circuit(bare, *folded, rotary, [-3]).select([1, 4], [7]).to_dense()
    expected = normed[[1, 4]] @ reference.qk(W_Q, W_K, layout, -3) @ normed[[7]].T
    assert_close(found[0], expected)


@each_layout
def test_the_core_of_values_turns_rows(layout):
    rotary = layout.build(RotaryEmbedding)
    core = value_core(rotary, OFFSETS, torch.ones(1), True)
    assert_close(core, rotary.matrix(OFFSETS).mT, atol=1e-15)
    still = value_core(rotary, OFFSETS, torch.ones(1), False)
    assert torch.equal(still, torch.eye(layout.d_head, dtype=torch.float64).expand(4, -1, -1))


def test_weights_without_values_give_circuits_without_values():
    W_Q, W_K, W_V, W_O = (W.to("meta") for W in attention_weights(LAYOUTS[0]))
    rotary = LAYOUTS[0].build(RotaryEmbedding)
    assert factored_qk(W_Q, W_K, rotary, OFFSETS).to_dense().is_meta
    assert factored_ov(W_V, W_O, rotary, OFFSETS).norm().shape == (4, HEADS)


class TestBadInput:
    rotary = RotaryEmbedding(6)
    W_Q, W_K, W_V, W_O = attention_weights(LAYOUTS[0])

    def test_heads_that_cannot_be_grouped(self):
        with pytest.raises(ValueError, match="multiple of the KV heads, got 3 and 2 in W_K"):
            factored_qk(self.W_Q[:3], self.W_K, self.rotary, [0])
        with pytest.raises(ValueError, match="multiple of the KV heads, got 3 and 2 in W_V"):
            factored_ov(self.W_V, self.W_O[:3], self.rotary, [0])

    def test_a_transposed_weight(self):
        with pytest.raises(ValueError, match=r"expected W_Q .*got \[4, 6, 5\]"):
            factored_qk(self.W_Q.mT, self.W_K, self.rotary, [0])
        with pytest.raises(ValueError, match=r"expected W_K .*got \[2, 6, 5\]"):
            factored_qk(self.W_Q, self.W_K.mT, self.rotary, [0])
        with pytest.raises(ValueError, match=r"expected W_V .*got \[2, 6, 5\]"):
            factored_ov(self.W_V.mT, self.W_O, self.rotary, [0])
        with pytest.raises(ValueError, match=r"expected W_O .*got \[4, 5, 6\]"):
            factored_ov(self.W_V, self.W_O.mT, self.rotary, [0])

    def test_embeddings_of_another_width(self):
        with pytest.raises(ValueError, match=r"expected W_E \[d_vocab, d_model=5\], got \[5, 11\]"):
            full_qk_circuit(W_E.T, self.W_Q, self.W_K, self.rotary, [0])
        with pytest.raises(ValueError, match=r"expected W_E \[d_vocab, d_model=5\], got \[5, 11\]"):
            full_ov_circuit(W_E.T, self.W_V, self.W_O, W_U, self.rotary, [0])
        with pytest.raises(ValueError, match=r"expected W_U \[d_model=5, d_vocab\], got \[11, 5\]"):
            full_ov_circuit(W_E, self.W_V, self.W_O, W_U.T, self.rotary, [0])

    def test_a_flag_that_is_none(self):
        with pytest.raises(TypeError, match="expected rotate_values to be True or False, got 0"):
            factored_ov(self.W_V, self.W_O, self.rotary, [0], rotate_values=0)

    def test_offsets_of_two_axes(self):
        with pytest.raises(ValueError, match=r"expected offsets \[n_offsets\], got \[1, 1\]"):
            factored_qk(self.W_Q, self.W_K, self.rotary, [[0]])
