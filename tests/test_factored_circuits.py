"""FactoredCircuit: norms, eigenvalues and singular values, against the matrix itself."""

import pytest
import torch
from samples import normal

from rove_lab.factored_circuits import FactoredCircuit, one_thread

HEADS, OFFSETS, ROWS, COLUMNS, D_HEAD = 3, 4, 9, 7, 5


def circuit(rows=ROWS, columns=COLUMNS, d_head=D_HEAD, offsets=OFFSETS, dtype=torch.float64):
    return FactoredCircuit(
        normal(HEADS, rows, d_head, seed=1).to(dtype),
        normal(offsets, d_head, d_head, seed=2),
        normal(HEADS, d_head, columns, seed=3).to(dtype),
    )


def dense(c):
    """Every matrix by itself."""
    return torch.stack(
        [torch.stack([L @ C @ R for L, R in zip(c.left, c.right, strict=True)]) for C in c.core]
    )


def assert_close(actual, expected, atol=1e-11):
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


def test_the_matrices_themselves():
    c = circuit()
    assert c.shape == c.to_dense().shape == (OFFSETS, HEADS, ROWS, COLUMNS)
    assert_close(c.to_dense(), dense(c))
    assert_close(c.mT.to_dense(), dense(c).mT)
    assert repr(c) == f"FactoredCircuit(shape=(4, 3, 9, 7), d_head={D_HEAD})"


def test_some_tokens():
    c = circuit()
    assert_close(c.select([2, 0], torch.tensor([6])).to_dense(), dense(c)[..., [2, 0], :][..., [6]])
    assert_close(c.select(columns=[1]).to_dense(), dense(c)[..., [1]])


@pytest.mark.parametrize(("rows", "columns"), [(ROWS, COLUMNS), (3, 4), (D_HEAD, D_HEAD), (1, 9)])
def test_norms_and_singular_values(rows, columns):
    c = circuit(rows, columns)
    assert_close(c.norm(), torch.linalg.matrix_norm(dense(c)))
    expected = torch.linalg.svdvals(dense(c))
    found = c.singular_values()
    assert_close(found, expected[..., : found.shape[-1]])
    assert_close(
        expected[..., found.shape[-1] :], torch.zeros_like(expected[..., found.shape[-1] :])
    )
    assert_close(torch.linalg.matrix_norm(c.reduced()), c.norm())


def test_products_of_matrices():
    c, other = circuit(), circuit(offsets=1)
    assert_close(c.inner(other), (dense(c) * dense(other)).sum((-2, -1)))
    assert_close(c.inner(c), dense(c).square().sum((-2, -1)))


@pytest.mark.parametrize("other", [circuit(rows=8), circuit(columns=8), circuit(offsets=3)])
def test_products_of_matrices_of_two_shapes(other):
    with pytest.raises(
        ValueError, match=r"expected circuits of one shape .*got \(4, 3, 9, 7\) and"
    ):
        circuit().inner(other)


@pytest.mark.parametrize("size", [9, D_HEAD, 3])
def test_eigenvalues_are_those_of_the_matrix_and_zeros(size):
    c = circuit(size, size)
    found, expected = c.eigenvalues(), torch.linalg.eigvals(dense(c))
    for power in range(1, 6):  # the power sums of the eigenvalues name them all, zeros apart
        assert_close(found.pow(power).sum(-1), expected.pow(power).sum(-1), atol=1e-6)
    assert found.shape == (OFFSETS, HEADS, D_HEAD)


def test_scores_are_computed_in_float64_and_matrices_keep_their_dtype():
    c = circuit(5, 5, dtype=torch.bfloat16)
    assert c.to_dense().dtype == torch.bfloat16
    assert c.norm().dtype == torch.float64
    assert c.eigenvalues().dtype == torch.complex128
    exact = FactoredCircuit(c.left.double(), c.core, c.right.double())
    assert_close(c.norm(), exact.norm())
    assert_close(c.to_dense().double(), exact.to_dense(), atol=0.1)


def test_gradients_reach_the_weights():
    left, core, right = (x.requires_grad_() for x in vars(circuit(4, 4, 3, 2)).values())
    assert torch.autograd.gradcheck(lambda *x: FactoredCircuit(*x).norm(), (left, core, right))


def test_decompositions_take_one_thread_and_give_the_others_back():
    seen = []

    def fail():
        with one_thread():
            seen.append(torch.get_num_threads())
            raise KeyError

    try:
        torch.set_num_threads(2)
        with pytest.raises(KeyError):
            fail()
        seen.append(torch.get_num_threads())
    finally:
        torch.set_num_threads(1)  # as for all tests
    assert seen == [1, 2]


def test_nothing_larger_than_allowed_is_built():
    c, size = circuit(), OFFSETS * HEADS * ROWS * COLUMNS * 8
    assert c.to_dense(max_bytes=size).shape == c.shape
    with pytest.raises(ValueError, match=rf"at most max_bytes={size - 1} bytes, got .*= {size}"):
        c.to_dense(max_bytes=size - 1)
    with pytest.raises(TypeError, match="expected max_bytes to be a number"):
        c.to_dense("1G")


def test_only_square_matrices_have_eigenvalues():
    with pytest.raises(ValueError, match="expected square matrices, got 9 rows and 7 columns"):
        circuit().eigenvalues()


@pytest.mark.parametrize(
    "shapes",
    [
        [(3, 9, 5), (4, 5, 5), (2, 5, 7)],
        [(3, 9, 5), (4, 5, 6), (3, 6, 7)],
        [(3, 9, 5), (4, 5, 5), (3, 6, 7)],
        [(9, 5), (4, 5, 5), (3, 5, 7)],
        [(3, 9, 5), (5, 5), (3, 5, 7)],
    ],
)
def test_factors_that_do_not_fit(shapes):
    with pytest.raises(ValueError, match=r"expected left \[heads, rows, d_head\], core .*got"):
        FactoredCircuit(*(torch.ones(shape) for shape in shapes))


def test_factors_that_are_no_weights():
    with pytest.raises(TypeError, match="expected core to be a floating-point tensor, got None"):
        FactoredCircuit(torch.ones(1, 2, 2), None, torch.ones(1, 2, 2))


def test_factors_on_two_devices():
    with pytest.raises(ValueError, match="expected all weights on one device, got cpu and meta"):
        FactoredCircuit(
            torch.ones(1, 2, 2), torch.ones(1, 2, 2), torch.ones(1, 2, 2, device="meta")
        )
