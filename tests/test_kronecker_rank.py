"""The Kronecker rank of a mixer, against the singular values of its rearranged reference."""

import pytest
import torch
from references_mixers import LAYOUTS, Layout, dense_from_kernels, dense_from_positions
from references_mixers import kronecker_rank as reference_rank

from rove_lab import (
    BlockToeplitzMixer,
    GatedBlockToeplitzMixer,
    RotaryEmbedding,
    kronecker_rank,
    rope_mixer,
    rove_mixer,
)


def blocks_of(M, q_len, k_len):
    """The matrix as [q, k, d_out, d_in]."""
    d_out, d_in = M.shape[0] // q_len, M.shape[1] // k_len
    return M.view(q_len, d_out, k_len, d_in).transpose(1, 2)


@pytest.mark.parametrize(("q_len", "k_len"), [(5, 7), (7, 5), (1, 4), (2, 2)])
def test_the_rank_is_that_of_the_rearranged_blocks(q_len, k_len):
    torch.manual_seed(0)
    layout = Layout(4, base=50.0)
    A = torch.rand(q_len, k_len, dtype=torch.float64)
    W = torch.randn(3, 4, dtype=torch.float64)
    kernels = torch.randn(q_len + k_len - 1, 3, 4, dtype=torch.float64)
    where = {"positions": range(q_len), "key_positions": range(k_len)}
    cases = [
        (rope_mixer(A, W), dense_from_kernels(A, W.expand_as(kernels))),
        (GatedBlockToeplitzMixer(A, kernels), dense_from_kernels(A, kernels)),
        (
            rove_mixer(A, W, layout.build(RotaryEmbedding), **where),
            dense_from_positions(A, W, layout, *where.values()),
        ),
    ]
    for mixer, expected in cases:
        assert kronecker_rank(mixer) == reference_rank(blocks_of(expected, q_len, k_len))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_ropes_rank_is_one_whatever_the_dtype(dtype):
    """The factors are promoted: the matrix itself, rounded to float32, has full rank."""
    torch.manual_seed(0)
    mixer = rope_mixer(torch.rand(9, 9, dtype=dtype), torch.randn(3, 4, dtype=dtype))
    assert kronecker_rank(mixer) == 1
    if dtype != torch.float64:
        assert reference_rank(blocks_of(mixer.to_dense(), 9, 9)) > 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("layout", LAYOUTS, ids=repr)
def test_roves_rank_is_at_most_d_head(layout, dtype):
    torch.manual_seed(0)
    A, W = torch.rand(9, 9, dtype=dtype), torch.randn(8, layout.d_head, dtype=dtype)
    rank = kronecker_rank(rove_mixer(A, W, layout.build(RotaryEmbedding)))
    assert 1 < rank <= layout.d_head
    assert rank <= 2 * sum(omega > 0 for omega in layout.frequencies) + 1


def test_ranks_that_are_known():
    torch.manual_seed(0)
    A, W = torch.rand(9, 9, dtype=torch.float64), torch.randn(8, 6, dtype=torch.float64)
    rotary = RotaryEmbedding(6, base=10.0)

    def rove(A, rotary=rotary, W=W):
        return kronecker_rank(rove_mixer(A, W, rotary))

    assert rove(A) == 6  # every plane turns fast: cosine and sine of each
    assert rove(torch.eye(9).double()) == 1  # a token hears itself: one offset, one kernel
    assert rove(torch.eye(9).double().roll(1, 1).triu()) == 1  # so does one other offset
    assert rove(torch.eye(9).double() + torch.eye(9).double().roll(1, 1).triu()) == 2
    assert rove(A, rotary.planes([])) == 1
    assert rove(A, rotary.planes([0])) == 3  # cosine, sine, and all that stands still
    assert rove(A, RotaryEmbedding(2), W[:, :2]) == 2
    assert rove(A, RotaryEmbedding(3, rotary_dim=2), W[:, :3]) == 3
    assert rove(torch.zeros_like(A)) == 0
    assert rove(A, W=torch.zeros_like(W)) == 0
    kernels = torch.randn(17, 2, 3, dtype=torch.float64)
    assert kronecker_rank(BlockToeplitzMixer(kernels)) == 6  # 17 shifts, 2 x 3 channels
    assert kronecker_rank(BlockToeplitzMixer(kernels[:3])) == 3
    assert kronecker_rank(BlockToeplitzMixer(kernels[:1].expand(17, -1, -1))) == 1


def test_tolerance_is_relative_to_the_largest_singular_value():
    """Two tokens and unit kernels: singular values sqrt(2), 1e-3 and 1e-6, times a scale."""
    for scale in (1.0, 1e-20, 1e20):
        kernels = torch.diag(torch.tensor([1e-3, 1.0, 1e-6], dtype=torch.float64)) * scale
        mixer = BlockToeplitzMixer(kernels[:, None])
        ranks = [kronecker_rank(mixer, tol=tol) for tol in (0.5, 1e-2, 1e-5, 1e-8, 1e-10)]
        assert ranks == [1, 1, 2, 3, 3]
        assert kronecker_rank(mixer) == 3


MIXER = rope_mixer(torch.eye(2), torch.eye(2))


def test_rank_of_a_matrix():
    with pytest.raises(TypeError, match=r"expected a mixer, got Tensor: .*rove_mixer"):
        kronecker_rank(MIXER.to_dense())


@pytest.mark.parametrize("tol", [0, 1, -1e-10, 2.0])
def test_tolerance_out_of_range(tol):
    with pytest.raises(ValueError, match=rf"tol between 0 and 1, got {tol}: 1e-10"):
        kronecker_rank(MIXER, tol=tol)


def test_tolerance_that_is_no_number():
    with pytest.raises(TypeError, match=r"expected tol to be a number, got None"):
        kronecker_rank(MIXER, tol=None)
    with pytest.raises(ValueError, match=r"expected a finite tol, got nan"):
        kronecker_rank(MIXER, tol=float("nan"))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_rank_of_what_is_not_finite(value):
    A = torch.eye(4)
    A[2, 3] = value
    with pytest.raises(ValueError, match=r"expected a finite mixer, got NaN or infinite"):
        kronecker_rank(rove_mixer(A, torch.ones(3, 2), RotaryEmbedding(2)))


def test_rank_of_what_is_too_large():
    n = 4096  # a mixer of megabytes, a matrix of 1.6 GB
    mixer = BlockToeplitzMixer(torch.ones(2 * n - 1, 3, 4))
    with pytest.raises(ValueError, match=r"expected a matrix of at most max_bytes=.*got"):
        kronecker_rank(mixer)
