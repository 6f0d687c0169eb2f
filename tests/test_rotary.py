"""`RotaryEmbedding`: planes, matrices, positions, and what it refuses."""

import itertools
import math

import numpy as np
import pytest
import torch
from references import reference_rotary

from rove_lab import RotaryEmbedding, YarnScaling

LAYOUTS = [
    dict(zip(("rotary_dim", "interleaved", "trailing"), values, strict=True))
    for values in itertools.product((None, 6), (False, True), (False, True))
]


@pytest.fixture(autouse=True)
def _same_numbers():
    torch.manual_seed(0)


# --- matrix -----------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_matrix_equals_the_reference(layout):
    offsets = [0, 1, -1, 2.5, -1000, 12345]
    matrices = RotaryEmbedding(8, **layout).matrix(offsets)
    for offset, matrix in zip(offsets, matrices, strict=True):
        expected = reference_rotary(8, **layout).matrix(offset)
        assert torch.allclose(matrix, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_matrix_acts_on_columns_as_apply_does_on_channels(layout):
    rotary, x = RotaryEmbedding(8, **layout), torch.randn(3, 5, 8, dtype=torch.float64)
    positions = torch.tensor([0, 3, -4, 100, 7])
    by_matrix = (rotary.matrix(positions) @ x[..., None])[..., 0]
    assert torch.allclose(by_matrix, rotary(positions).apply(x), rtol=0, atol=1e-12)
    inverse = (rotary.matrix(-positions) @ x[..., None])[..., 0]
    assert torch.allclose(inverse, rotary(positions).undo(x), rtol=0, atol=1e-12)


def test_offset_is_key_minus_query():
    """R_i^-1 R_j = R_{j-i}: the message from j arrives at i turned by j - i."""
    rotary = RotaryEmbedding(8)
    i, j = 11, 4
    change = rotary.matrix(i).T @ rotary.matrix(j)
    assert torch.allclose(change, rotary.matrix(j - i), atol=1e-12)
    assert not torch.allclose(change, rotary.matrix(i - j), atol=0.1)


def test_matrices_are_rotations():
    matrices = RotaryEmbedding(8, rotary_dim=6).matrix(torch.arange(-5, 5))
    eye = torch.eye(8, dtype=torch.float64).expand(10, 8, 8)
    assert torch.allclose(matrices @ matrices.mT, eye, atol=1e-12)
    assert torch.allclose(torch.linalg.det(matrices), torch.ones(10).double())


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 0), (1, 2, 3)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_matrix_has_the_offsets_shape_then_d_head_twice(shape, dtype):
    matrices = RotaryEmbedding(4).matrix(torch.ones(shape, dtype=torch.int64), dtype=dtype)
    assert matrices.shape == (*shape, 4, 4)
    assert matrices.dtype == dtype


def test_matrix_is_float64_by_default():
    assert RotaryEmbedding(4).matrix(3).dtype == torch.float64
    assert RotaryEmbedding(4).matrix([1, 2]).dtype == torch.float64


# --- planes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keep", "turning"),
    [
        ([], []),
        ([0], [0]),
        ([3, 1], [1, 3]),
        ((1, 1), [1]),
        (range(2), [0, 1]),
        (slice(2, None), [2, 3]),
        (slice(None, None, 2), [0, 2]),
        (slice(None), [0, 1, 2, 3]),
        ([-4, -1], [0, 3]),
        (torch.tensor([0, 3]), [0, 3]),
        (np.array([0, 3]), [0, 3]),
    ],
    ids=str,
)
def test_planes_switches_the_others_off(keep, turning):
    rotary = RotaryEmbedding(8, base=100.0)
    kept = rotary.planes(keep)
    expected = [w if m in turning else 0.0 for m, w in enumerate(rotary.inv_freq.tolist())]
    assert kept.inv_freq.tolist() == expected
    assert kept.inv_freq.dtype == torch.float64


def test_planes_keeps_everything_else_and_leaves_the_original_alone():
    scaling = YarnScaling(8.0, 64, beta_fast=4.0)
    rotary = RotaryEmbedding(
        12, base=500.0, rotary_dim=8, interleaved=True, trailing=True, scaling=scaling
    )
    before = rotary.inv_freq.clone()
    kept = rotary.planes([0, 2])
    assert torch.equal(rotary.inv_freq, before)
    assert kept.attention_factor == rotary.attention_factor != 1.0
    assert torch.equal(kept.plane_channels, rotary.plane_channels)
    assert torch.equal(kept.inv_freq[[0, 2]], before[[0, 2]])
    assert kept.planes([1, 2]).inv_freq.nonzero().flatten().tolist() == [2]


def test_no_planes_is_the_identity():
    still = RotaryEmbedding(8).planes([])
    x = torch.randn(2, 5, 8)
    assert torch.equal(still(torch.arange(5) + 999).apply(x), x)
    assert torch.equal(still.matrix(7), torch.eye(8, dtype=torch.float64))


def test_repr_says_which_planes_turn():
    rotary = RotaryEmbedding(8)
    assert repr(rotary.planes([0])) != repr(rotary)
    assert repr(rotary.planes([0])) != repr(rotary.planes([1]))


# --- positions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "positions",
    [
        torch.arange(4),
        torch.arange(4, dtype=torch.int32),
        torch.arange(4, dtype=torch.uint8),
        torch.arange(4.0),
        torch.arange(4.0, dtype=torch.float64),
        [0, 1, 2, 3],
        (0.0, 1.0, 2.0, 3.0),
        range(4),
        np.arange(4),
        np.arange(4.0),
        [torch.tensor(t) for t in range(4)],
    ],
    ids=lambda p: type(p).__name__,
)
def test_positions_are_integers_or_reals(positions):
    expected = RotaryEmbedding(8)(torch.arange(4))
    rotation = RotaryEmbedding(8)(positions)
    assert torch.equal(rotation.cos, expected.cos)
    assert torch.equal(rotation.sin, expected.sin)


def test_fault_14_negative_and_fractional_positions():
    rotary, reference = RotaryEmbedding(8), reference_rotary(8)
    x = torch.randn(1, 4, 8, dtype=torch.float64)
    positions = [-3, 0.25, -1e5 + 0.5, 7]
    rotary(range(1000))  # a "warm" table, which must not matter
    turned = rotary(positions).apply(x)
    for t, position in enumerate(positions):
        expected = reference.turn(x[0, t].tolist(), position)
        assert torch.allclose(turned[0, t], torch.tensor(expected).double(), atol=1e-9)


def test_lists_of_reals_lose_nothing():
    rotation = RotaryEmbedding(2)([1_000_000.1])  # float32 would make it 1000000.125
    assert rotation.cos.item() == pytest.approx(math.cos(1_000_000.1), abs=1e-7)


def test_repr_can_be_read_back():
    rotary = RotaryEmbedding(
        8, base=500.0, rotary_dim=4, interleaved=True, trailing=True, scaling=YarnScaling(2.0, 64)
    )
    again = eval(repr(rotary), {"RotaryEmbedding": RotaryEmbedding, "YarnScaling": YarnScaling})
    assert repr(again) == repr(rotary)
    assert torch.equal(again.inv_freq, rotary.inv_freq)
