"""folding: norms folded exactly, a value bias where it can be and refused where it cannot."""

import pytest
import torch
from references_mixers import LAYOUTS
from samples import attention_weights, normal
from torch.nn.functional import layer_norm, rms_norm, softmax

from rove_lab import RotaryEmbedding
from rove_lab.circuits import (
    center_writing_weights,
    fold_layer_norm,
    fold_rms_norm,
    fold_value_bias,
    value_bias_z,
    z_from_pattern,
)

D, EPS = 5, 1e-5
W_U, X = normal(D, 11), 3 * normal(7, D, seed=2) + 1
W_Q = normal(4, D, 6, seed=3)
GAIN, SHIFT = normal(D, seed=4), normal(D, seed=5)


def assert_close(actual, expected, atol=1e-11):
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("W", [W_Q, W_U], ids=["heads", "unembedding"])
def test_an_rms_norm(W):
    bare = rms_norm(X, (D,), eps=EPS)
    assert_close(bare @ fold_rms_norm(W, GAIN), rms_norm(X, (D,), GAIN, eps=EPS) @ W)


def test_an_embedding_read_by_a_first_layer():
    W_E = normal(11, D)
    assert_close(fold_rms_norm(W_E.T, GAIN).T @ W_Q, W_E @ fold_rms_norm(W_Q, GAIN))


@pytest.mark.parametrize("bias", [None, SHIFT], ids=["no bias", "bias"])
@pytest.mark.parametrize("own", [False, True], ids=["W", "W and b"])
@pytest.mark.parametrize("W", [W_Q, W_U], ids=["heads", "unembedding"])
def test_a_layer_norm(W, own, bias):
    """The stream divided by its spread, and nothing else, goes into the folded weights."""
    b = normal(*W.shape[:-2], W.shape[-1], seed=6) if own else None
    folded, new = fold_layer_norm(W, GAIN, bias, b)
    spread = (X.var(-1, correction=0, keepdim=True) + EPS).sqrt()
    expected = layer_norm(X, (D,), GAIN, bias, EPS) @ W
    if own:
        expected = expected + b[..., None, :]
    assert_close((X / spread) @ folded + new[..., None, :], expected)
    assert new.shape == (*W.shape[:-2], W.shape[-1])


def test_centring_is_what_a_layer_norm_does():
    centred = center_writing_weights(X)
    assert_close(centred.mean(-1), torch.zeros(7, dtype=torch.float64))
    assert_close(layer_norm(centred, (D,), GAIN, SHIFT), layer_norm(X, (D,), GAIN, SHIFT))
    assert_close(center_writing_weights(centred), centred)
    assert center_writing_weights(W_Q.mT).shape == (4, 6, D)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_folding_rounds_once(dtype):
    W, gain, shift = (x.to(dtype) for x in (W_Q, GAIN, SHIFT))
    exact = fold_layer_norm(W.double(), gain.double(), shift.double())
    for found, expected in zip(fold_layer_norm(W, gain, shift), exact, strict=True):
        assert torch.equal(found, expected.to(dtype))
    assert torch.equal(fold_rms_norm(W, gain), fold_rms_norm(W.double(), gain.double()).to(dtype))
    centred = center_writing_weights(W)
    assert torch.equal(centred, center_writing_weights(W.double()).to(dtype))


PATTERN = softmax(normal(4, 3, 3), -1)


@pytest.mark.parametrize("b_O", [None, SHIFT])
def test_a_value_bias_folds_under_rope(b_O):
    _, _, W_V, W_O = attention_weights(LAYOUTS[0])
    values, b_V, rotary = normal(3, D) @ W_V, normal(2, 6), RotaryEmbedding(6)
    how = {"rotate_values": False}
    z = z_from_pattern(PATTERN, values + b_V[:, None], rotary, **how)
    bare = z_from_pattern(PATTERN, values, rotary, **how)
    new = fold_value_bias(b_V, W_O, rotary, b_O, **how)
    out, kept = (torch.einsum("hid,hdm->im", one, W_O) for one in (z, bare))
    assert_close(kept + new, out if b_O is None else out + b_O)


@pytest.mark.parametrize("layout", LAYOUTS[2:], ids=repr)
def test_a_value_bias_folds_under_rove_where_no_plane_turns_it(layout):
    _, _, _, W_O = attention_weights(layout)
    rotary, b_V = layout.build(RotaryEmbedding), torch.zeros(2, layout.d_head, dtype=torch.float64)
    still = layout.unrotated or list(layout.pairs[1])  # of Layout(6, keep=(0, 2)), plane 1
    b_V[:, still] = normal(2, len(still))
    z = value_bias_z(PATTERN, b_V, rotary)
    expected = torch.einsum("hid,hdm->im", z, W_O)
    assert_close(fold_value_bias(b_V, W_O, rotary).expand(3, -1), expected)
    b_V[1, layout.pairs[0][1]] = 1e-9
    with pytest.raises(ValueError, match="expected a value bias that no plane turns"):
        fold_value_bias(b_V, W_O, rotary)


def test_what_is_refused_could_not_be_folded():
    """Two patterns whose rows sum to 1 give one bias two different sums."""
    _, _, _, W_O = attention_weights(LAYOUTS[0])
    b_V, rotary = normal(2, 6), RotaryEmbedding(6)
    here = torch.eye(3, dtype=torch.float64).expand(4, -1, -1)
    first, second = (
        torch.einsum("hid,hdm->im", value_bias_z(A, b_V, rotary), W_O) for A in (PATTERN, here)
    )
    assert (first - second).abs().max() > 0.1
    with pytest.raises(
        ValueError, match=r"expected a value bias .*keep b_V, or compute value_bias"
    ):
        fold_value_bias(b_V, W_O, rotary)


class TestBadInput:
    rotary, W_O = RotaryEmbedding(6), attention_weights(LAYOUTS[0])[3]

    @pytest.mark.parametrize("fold", [fold_rms_norm, fold_layer_norm])
    def test_norms(self, fold):
        with pytest.raises(ValueError, match=r"expected weight \[d_model=6\], got \[5\]: is W the"):
            fold(W_Q.mT, GAIN)
        with pytest.raises(ValueError, match=r"expected W \[..., d_model, columns\], got \[5\]"):
            fold(GAIN, GAIN)
        with pytest.raises(ValueError, match="expected weight on cpu, got it on meta"):
            fold(W_Q, GAIN.to("meta"))
        with pytest.raises(TypeError, match="expected weight to be a floating-point tensor"):
            fold(W_Q, [1.0])
        with pytest.raises(TypeError, match="expected W to be a floating-point tensor"):
            fold(W_Q.long(), GAIN)

    def test_biases(self):
        with pytest.raises(ValueError, match=r"expected bias \[d_model=5\], got \[4\]"):
            fold_layer_norm(W_Q, GAIN, SHIFT[:4])
        with pytest.raises(ValueError, match=r"expected b \[4, 6\], the bias of W, got \[24\]"):
            fold_layer_norm(W_Q, GAIN, b=torch.ones(24))
        with pytest.raises(TypeError, match="expected b to be a floating-point tensor"):
            fold_layer_norm(W_Q, GAIN, b=0)

    def test_a_number_has_no_mean(self):
        with pytest.raises(ValueError, match=r"expected W \[..., d_model\], got a number"):
            center_writing_weights(torch.tensor(1.0))
        with pytest.raises(TypeError, match="expected W to be a floating-point tensor"):
            center_writing_weights(None)

    def test_value_biases(self):
        with pytest.raises(ValueError, match=r"expected b_V \[n_kv_heads, d_head=6\], got \[12\]"):
            fold_value_bias(torch.ones(12), self.W_O, self.rotary)
        with pytest.raises(ValueError, match=r"expected W_O .*got \[4, 5, 6\]"):
            fold_value_bias(torch.ones(2, 6), self.W_O.mT, self.rotary)
        with pytest.raises(ValueError, match=r"expected b_O \[d_model=5\], got \[6\]"):
            fold_value_bias(torch.ones(2, 6), self.W_O, self.rotary, torch.ones(6))
        with pytest.raises(ValueError, match="multiple of the KV heads, got 4 and 3 in b_V"):
            fold_value_bias(torch.zeros(3, 6), self.W_O, self.rotary)
        with pytest.raises(TypeError, match="expected b_V to be a floating-point tensor"):
            fold_value_bias(None, self.W_O, self.rotary)
        with pytest.raises(TypeError, match="expected b_O to be a floating-point tensor"):
            fold_value_bias(torch.zeros(2, 6), self.W_O, self.rotary, 0)
        with pytest.raises(TypeError, match="expected rotate_values to be True or False"):
            fold_value_bias(torch.zeros(2, 6), self.W_O, self.rotary, rotate_values=1)
