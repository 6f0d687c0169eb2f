"""What every mixer does: its shape, blocks, dense matrix and product, and the errors of each."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from references_mixers import Layout, dense_from_kernels, dense_from_positions

from rove_lab import (
    BlockToeplitzMixer,
    GatedBlockToeplitzMixer,
    KroneckerMixer,
    RotaryEmbedding,
    rove_mixer,
)

D_IN, D_OUT = 3, 4
LAYOUT = Layout(D_OUT, base=50.0)


@dataclass
class Kind:
    """One kind of mixer: how it is made, of what, and what its matrix should be."""

    make: Callable
    takes: tuple[str, ...]
    dense: Callable

    def factors(self, q_len=5, k_len=7, dtype=torch.float64):
        k_len = q_len if self is TOEPLITZ else k_len
        torch.manual_seed(0)
        drawn = {
            "pattern": torch.randn(q_len, k_len, dtype=dtype).softmax(-1),
            "W": torch.randn(D_IN, D_OUT, dtype=dtype),
            "kernels": torch.randn(q_len + k_len - 1, D_IN, D_OUT, dtype=dtype),
        }
        return [drawn[name] for name in self.takes]


def rotary_mixer(A, W):
    where = {"positions": range(A.shape[0]), "key_positions": range(A.shape[1])}
    return rove_mixer(A, W, LAYOUT.build(RotaryEmbedding), **where)


KRONECKER = Kind(
    KroneckerMixer,
    ("pattern", "W"),
    lambda A, W: dense_from_kernels(A, W.expand(sum(A.shape) - 1, -1, -1)),
)
GATED = Kind(GatedBlockToeplitzMixer, ("pattern", "kernels"), dense_from_kernels)
TOEPLITZ = Kind(
    BlockToeplitzMixer,
    ("kernels",),
    lambda kernels: dense_from_kernels(
        torch.ones((len(kernels) + 1) // 2, (len(kernels) + 1) // 2), kernels
    ),
)
ROTARY = Kind(
    rotary_mixer,
    ("pattern", "W"),
    lambda A, W: dense_from_positions(A, W, LAYOUT, range(A.shape[0]), range(A.shape[1])),
)
every_kind = pytest.mark.parametrize(
    "kind",
    [KRONECKER, GATED, TOEPLITZ, ROTARY],
    ids=["kronecker", "gated", "toeplitz", "rotary"],
)


@every_kind
@pytest.mark.parametrize("shape", [(5, 7), (7, 5), (1, 6), (6, 1), (1, 1), (6, 6)])
def test_dense_matrix_and_blocks(kind, shape):
    factors = kind.factors(*shape)
    mixer, expected = kind.make(*factors), kind.dense(*factors)
    assert mixer.shape == tuple(expected.shape)
    M = mixer.to_dense()
    assert M.shape == mixer.shape
    assert M.is_contiguous()
    torch.testing.assert_close(M, expected, rtol=0, atol=1e-12)
    for i in range(mixer.q_len):
        for j in range(mixer.k_len):
            rows = slice(i * D_OUT, (i + 1) * D_OUT)
            block = expected[rows, j * D_IN : (j + 1) * D_IN]
            torch.testing.assert_close(mixer.block(i, j), block, rtol=0, atol=1e-12)


@every_kind
@pytest.mark.parametrize("batch", [(), (2,), (2, 3), (0,)])
def test_product_is_the_dense_matrix_on_tokens_laid_end_to_end(kind, batch):
    factors = kind.factors()
    mixer, expected = kind.make(*factors), kind.dense(*factors)
    x = torch.randn(*batch, mixer.k_len, D_IN, dtype=torch.float64)
    y = mixer @ x
    assert y.shape == (*batch, mixer.q_len, D_OUT)
    flat = x.reshape(*batch, mixer.k_len * D_IN) @ expected.T
    torch.testing.assert_close(y.reshape(flat.shape), flat, rtol=0, atol=1e-12)


@every_kind
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_dtype_stays(kind, dtype):
    factors = kind.factors(dtype=dtype)
    mixer, expected = kind.make(*factors), kind.dense(*factors)
    x = torch.randn(2, mixer.k_len, D_IN, dtype=dtype)
    M, y = mixer.to_dense(), mixer @ x
    assert mixer.dtype == M.dtype == y.dtype == mixer.block(0, 0).dtype == dtype
    eps = torch.finfo(dtype).eps
    scale = expected.abs().max()
    assert (M.double() - expected).abs().max() <= 2 * eps * scale
    exact = (x.double().flatten(1) @ expected.T).view(y.shape)
    # A few roundings on the way, each of numbers no larger than the sum of the absolute terms.
    terms = (x.double().abs().flatten(1) @ expected.abs().T).max()
    assert (y.double() - exact).abs().max() <= 4 * eps * terms
    assert mixer.double().dtype == torch.float64
    torch.testing.assert_close(mixer.double().to_dense(), expected, rtol=0, atol=1e-12)


@every_kind
def test_gradients_flow_through_product_block_and_dense_matrix(kind):
    factors, make = kind.factors(3, 4), kind.make
    x = torch.randn(2, make(*factors).k_len, D_IN, dtype=torch.float64, requires_grad=True)
    for factor in factors:
        factor.requires_grad_()
    assert torch.autograd.gradcheck(lambda x, *f: make(*f) @ x, (x, *factors))
    assert torch.autograd.gradcheck(lambda *f: make(*f).to_dense(), factors)
    assert torch.autograd.gradcheck(lambda *f: make(*f).block(1, 2), factors)


@every_kind
def test_dense_matrix_is_the_callers_own(kind):
    factors = kind.factors()
    mixer, expected = kind.make(*factors), kind.dense(*factors)
    mixer.to_dense().zero_()
    mixer.block(0, 0).zero_()
    torch.testing.assert_close(mixer.to_dense(), expected, rtol=0, atol=1e-12)


@every_kind
def test_the_matrix_follows_its_factors(kind):
    """Weights may be trained further while a mixer of them is at hand."""
    factors = kind.factors()
    mixer = kind.make(*factors)
    mixer.to_dense()
    for factor in factors:
        factor.mul_(-1.5).add_(0.25)
    expected = kind.dense(*factors)
    torch.testing.assert_close(mixer.to_dense(), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(mixer.block(0, 0), expected[:D_OUT, :D_IN], rtol=0, atol=1e-12)
    x = torch.randn(mixer.k_len, D_IN, dtype=torch.float64)
    torch.testing.assert_close((mixer @ x).flatten(), expected @ x.flatten(), rtol=0, atol=1e-12)


@every_kind
@pytest.mark.parametrize("trained", [False, True], ids=["", "with gradients"])
def test_autocast_does_not_round_the_matrix(kind, trained):
    factors = kind.factors(dtype=torch.float32)
    expected = kind.make(*factors).to_dense()
    for factor in factors:
        factor.requires_grad_(trained)
    mixer = kind.make(*factors)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(mixer.to_dense(), expected, rtol=0, atol=1e-6)
        torch.testing.assert_close(mixer.block(0, 0), expected[:D_OUT, :D_IN], rtol=0, atol=1e-6)


def test_the_largest_matrix_to_build_is_the_callers_choice():
    mixer = KroneckerMixer(torch.eye(8), torch.ones(D_IN, D_OUT))
    size = 8 * D_OUT * 8 * D_IN * 4
    assert mixer.to_dense(max_bytes=size).shape == (32, 24)
    with pytest.raises(ValueError, match=rf"max_bytes={size - 1} .*{size} bytes.*mixer @ x.*raise"):
        mixer.to_dense(max_bytes=size - 1)


@every_kind
def test_more_than_a_gibibyte_is_refused_by_default(kind):
    n = 2**13
    huge = {
        "pattern": torch.zeros(1, 1).expand(n, n),
        "W": torch.zeros(D_IN, D_OUT),
        "kernels": torch.zeros(1, D_IN, D_OUT).expand(2 * n - 1, -1, -1),
    }
    mixer = kind.make(*(huge[name] for name in kind.takes))
    assert mixer.shape == (n * D_OUT, n * D_IN)
    with pytest.raises(ValueError, match=rf"expected .*{2**30} bytes, got .*{n * n * 48} bytes"):
        mixer.to_dense()


class TestBadInput:
    """Every error says what was expected, what came and what to do."""

    mixer = ROTARY.make(*ROTARY.factors())

    @pytest.mark.parametrize(("i", "j"), [(-1, 0), (5, 0), (0, -1), (0, 7), (7, 5)])
    def test_block_out_of_range(self, i, j):
        name, size, got = ("i", 5, i) if not 0 <= i < 5 else ("j", 7, j)
        with pytest.raises(ValueError, match=rf"expected 0 <= {name} < {size}, got {got}"):
            self.mixer.block(i, j)

    @pytest.mark.parametrize(("i", "j"), [(0.0, 1), (0, 1.0), ("0", 0), (slice(0, 1), 0)])
    def test_block_of_no_integer(self, i, j):
        with pytest.raises(TypeError, match=r"expected [ij] to be an integer, got"):
            self.mixer.block(i, j)

    def test_block_takes_whatever_is_an_integer(self):
        zero, one = torch.tensor(0), torch.tensor(1)
        torch.testing.assert_close(self.mixer.block(one, zero), self.mixer.block(1, 0))

    @pytest.mark.parametrize("shape", [(21,), (2, 21), (3, 7), (6, 3), (7, 4), (7, 3, 1), (5, 3)])
    def test_x_of_another_shape(self, shape):
        x = torch.zeros(shape, dtype=torch.float64)
        with pytest.raises(ValueError, match=r"key_pos=7, d_in=3\], got .*x\.unflatten"):
            self.mixer @ x

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
    def test_x_of_another_dtype(self, dtype):
        x = torch.zeros(7, 3, dtype=dtype)
        with pytest.raises(TypeError, match=rf"expected x .*float.*got {dtype}: (cast|convert)"):
            self.mixer @ x

    def test_x_on_another_device(self):
        with pytest.raises(ValueError, match=r"expected x on cpu, got meta: move"):
            self.mixer @ torch.zeros(7, 3, dtype=torch.float64, device="meta")

    def test_two_mixers_multiplied(self):
        with pytest.raises(TypeError, match=r"expected a tensor, got a mixer: apply one after"):
            self.mixer @ self.mixer

    def test_x_that_is_no_tensor(self):
        with pytest.raises(TypeError, match=r"expected x .*tensor, got list"):
            self.mixer @ ([[0.0] * 3] * 7)

    def test_x_on_the_wrong_side(self):
        with pytest.raises(TypeError, match="unsupported operand"):
            torch.zeros(7, 3, dtype=torch.float64) @ self.mixer
