"""copying: the copying score from a core of d_head x d_head, against d_vocab x d_vocab matrices."""

import math

import pytest
import references_circuits as reference
import torch
from hypothesis import given
from hypothesis import strategies as st
from references_mixers import LAYOUTS
from samples import D_MODEL, HEADS, attention_weights, normal

from rove_lab import RotaryEmbedding, copying
from rove_lab.circuits import copying_eigenvalues, copying_score, full_ov_circuit

OFFSETS = [0, -1, 3, -17.25]
D_VOCAB = 11
W_E, W_U = normal(D_VOCAB, D_MODEL, seed=5), normal(D_MODEL, D_VOCAB, seed=6)

each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=repr)


def value_weights(layout):
    return attention_weights(layout)[2:]


def assert_close(actual, expected, atol=1e-9):
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


@each_layout
@pytest.mark.parametrize("heads", [HEADS, 2])
def test_the_score_is_that_of_the_whole_matrix(layout, heads):
    W_V, W_O = value_weights(layout)
    W_O = W_O[:heads]
    rotary = layout.build(RotaryEmbedding)
    scores = copying_score(W_E, W_V, W_O, W_U, rotary, OFFSETS)
    assert scores.shape == (len(OFFSETS), heads)
    for n, delta in enumerate(OFFSETS):
        for h, circuit in enumerate(reference.ov(W_V, W_O, layout, delta)):
            expected = reference.copying(W_E @ circuit @ W_U)
            assert scores[n, h].item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("chunk", [1, 4, 11, 100])
@pytest.mark.parametrize("d_model", [3, 30])  # below and above the heads' channels together
def test_both_ways_through_the_vocabulary_agree(monkeypatch, chunk, d_model):
    monkeypatch.setattr(copying, "_CHUNK", chunk)
    W_E, W_U = normal(D_VOCAB, d_model, seed=1), normal(d_model, D_VOCAB, seed=2)
    W_V, W_O = normal(2, d_model, 6, seed=3), normal(4, 6, d_model, seed=4)
    rotary = RotaryEmbedding(6)
    found = copying_eigenvalues(W_E, W_V, W_O, W_U, rotary, OFFSETS)
    expected = full_ov_circuit(W_E, W_V, W_O, W_U, rotary, OFFSETS).eigenvalues()
    for power in range(1, 4):
        difference = found.pow(power).sum(-1) - expected.pow(power).sum(-1)
        assert difference.abs().max() <= 1e-12 * expected.abs().max() ** power * 6


@each_layout
def test_plain_rope_has_one_score_for_all_offsets(layout):
    W_V, W_O = value_weights(layout)
    rotary = layout.build(RotaryEmbedding)
    rope = copying_score(W_E, W_V, W_O, W_U, rotary, OFFSETS, rotate_values=False)
    still = copying_score(W_E, W_V, W_O, W_U, rotary.planes([]), OFFSETS)
    assert_close(rope, still)
    assert_close(rope, copying_score(W_E, W_V, W_O, W_U, rotary, [0]).expand_as(rope))


def test_layers_may_be_stacked():
    """Three KV heads a layer and nine heads: KV head l * 3 + h // 3 serves head l * 9 + h."""
    rotary = RotaryEmbedding(4)
    W_V, W_O = normal(2, 3, D_MODEL, 4), normal(2, 9, 4, D_MODEL)
    together = copying_score(W_E, W_V.flatten(0, 1), W_O.flatten(0, 1), W_U, rotary, OFFSETS)
    apart = [copying_score(W_E, W_V[n], W_O[n], W_U, rotary, OFFSETS) for n in range(2)]
    assert_close(together, torch.cat(apart, 1))


def test_a_copying_head_and_its_opposite():
    """One-hot tokens copied as they are: 1 at offset 0, and the mean of the cosines at others."""
    rotary, eye = RotaryEmbedding(6, base=100.0), torch.eye(6)
    scores = copying_score(eye, eye[None], eye[None], eye, rotary, [0, -2])
    cosines = [math.cos(2 * omega) for omega in rotary.inv_freq.tolist()]
    assert scores[:, 0].tolist() == pytest.approx([1.0, sum(cosines) / 3], abs=1e-6)
    opposite = copying_score(eye, -eye[None], eye[None], eye, rotary, [0])
    assert opposite.tolist() == [[-1.0]]


def test_a_zero_head_scores_zero():
    W_V, W_O = value_weights(LAYOUTS[0])
    scores = copying_score(W_E, 0 * W_V, W_O, W_U, RotaryEmbedding(6), [0, 1])
    assert torch.equal(scores, torch.zeros(2, HEADS, dtype=torch.float64))


@given(st.sampled_from(LAYOUTS), st.floats(-1e3, 1e3), st.floats(1e-3, 1e3), st.integers(0, 2**31))
def test_the_score_is_bounded_and_blind_to_scale(layout, delta, factor, seed):
    W_V, W_O = normal(2, D_MODEL, layout.d_head, seed=seed), value_weights(layout)[1]
    rotary = layout.build(RotaryEmbedding)
    score = copying_score(W_E, W_V, W_O, W_U, rotary, [delta])
    assert (score.abs() <= 1 + 1e-12).all()
    scaled = copying_score(factor * W_E, W_V / factor**2, factor * W_O, W_U, rotary, [delta])
    assert_close(score, scaled, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_scores_are_computed_in_float64(dtype):
    weights = [W.to(dtype) for W in (W_E, *value_weights(LAYOUTS[0]), W_U)]
    scores = copying_score(*weights, RotaryEmbedding(6), OFFSETS)
    exact = copying_score(*(W.double() for W in weights), RotaryEmbedding(6), OFFSETS)
    assert scores.dtype == torch.promote_types(dtype, torch.float32)
    assert_close(scores.double(), exact, atol=1e-7)


def test_no_offsets_give_no_scores():
    weights = (W_E, *value_weights(LAYOUTS[0]), W_U)
    assert copying_score(*weights, RotaryEmbedding(6), []).shape == (0, HEADS)
    rope = copying_score(*weights, RotaryEmbedding(6), [], rotate_values=False)
    assert rope.shape == (0, HEADS)


def test_what_is_refused():
    W_V, W_O = value_weights(LAYOUTS[0])
    rotary = RotaryEmbedding(6)
    with pytest.raises(ValueError, match=r"expected W_E \[d_vocab, d_model=5\], got \[5, 11\]"):
        copying_score(W_E.T, W_V, W_O, W_U, rotary, [0])
    with pytest.raises(ValueError, match=r"expected W_U \[d_model=5, d_vocab\], got \[11, 5\]"):
        copying_score(W_E, W_V, W_O, W_U.T, rotary, [0])
    with pytest.raises(ValueError, match=r"expected W_E and W_U of one vocabulary, got 10 and 11"):
        copying_score(W_E[:10], W_V, W_O, W_U, rotary, [0])
    with pytest.raises(TypeError, match=r"expected W_E to be a floating-point tensor"):
        copying_score(W_E.long(), W_V, W_O, W_U, rotary, [0])
    with pytest.raises(TypeError, match=r"expected rotate_values to be True or False"):
        copying_score(W_E, W_V, W_O, W_U, rotary, [0], rotate_values=None)
