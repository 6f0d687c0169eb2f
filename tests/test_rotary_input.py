"""What `RotaryEmbedding` refuses, and whether its words help."""

import math

import numpy as np
import pytest
import torch

from rove_lab import RotaryEmbedding

# --- planes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [[4], [0, 7], [-5], torch.tensor([9])], ids=str)
def test_planes_out_of_range_are_refused(keep):
    with pytest.raises(ValueError, match=r"planes among 0\.\.3 .*got plane"):
        RotaryEmbedding(8).planes(keep)


@pytest.mark.parametrize(
    "keep",
    [
        [True, False, False, True],
        torch.tensor([True, False, False, True]),
        np.array([True, False, False, True]),
    ],
    ids=["list", "tensor", "array"],
)
def test_a_boolean_mask_is_not_read_as_planes_zero_and_one(keep):
    with pytest.raises(TypeError, match=r"expected .*(ind|plane).*got"):
        RotaryEmbedding(8).planes(keep)


@pytest.mark.parametrize("keep", ["01", 1, None, [0.0], [None], ["0"], torch.tensor([0.5])])
def test_planes_of_another_kind_are_refused(keep):
    with pytest.raises(TypeError, match=r"expected .*(ind|plane).*got"):
        RotaryEmbedding(8).planes(keep)


# --- positions --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.bool, torch.complex64])
def test_fault_06_positions_in_half_precision_are_refused(dtype):
    positions = torch.ones(4).to(dtype)
    with pytest.raises(TypeError, match=r"positions, got torch\.\w+"):
        RotaryEmbedding(8)(positions)
    with pytest.raises(TypeError, match=r"got torch\.\w+"):
        RotaryEmbedding(8).matrix(positions)


@pytest.mark.parametrize(
    "positions",
    [
        np.ones(4, np.float16),
        np.ones(4, bool),
        [True, False, True, True],
        [[True, False]],
        np.ones(4, np.complex64),
        [1j],
    ],
    ids=["half array", "bool array", "bools", "rows of bools", "complex array", "complex"],
)
def test_positions_that_are_not_numbers_of_tokens_are_refused(positions):
    with pytest.raises(TypeError, match=r"expected .*positions.*got"):
        RotaryEmbedding(8)(positions)


@pytest.mark.parametrize("positions", ["abc", ["a"], None, {}, object(), [None], [[1], [1, 2]]])
def test_positions_of_another_kind_are_refused(positions):
    with pytest.raises(TypeError, match=r"expected positions .*got .*torch\.arange\(n\)"):
        RotaryEmbedding(8)(positions)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_positions_must_be_finite(bad):
    with pytest.raises(ValueError, match=r"finite positions"):
        RotaryEmbedding(8)([0.0, bad])
    with pytest.raises(ValueError, match=r"finite positions"):
        RotaryEmbedding(8)(torch.tensor([[0.0], [bad]]))
    with pytest.raises(ValueError, match=r"finite"):
        RotaryEmbedding(8).matrix(bad)


@pytest.mark.parametrize("positions", [3, torch.tensor(3), torch.zeros(1, 2, 3)], ids=str)
def test_positions_have_one_or_two_axes(positions):
    with pytest.raises(ValueError, match=r"\[pos\] or \[batch, pos\], got shape .*arange"):
        RotaryEmbedding(8)(positions)


def test_positions_without_values_give_no_tables():
    with pytest.raises(ValueError, match=r"positions with values for cpu, got .*meta"):
        RotaryEmbedding(8)(torch.arange(4, device="meta"), device="cpu")


# --- construction -----------------------------------------------------------------------------


@pytest.mark.parametrize("d_head", [7, 1])
def test_fault_16_odd_d_head_is_named(d_head):
    with pytest.raises(ValueError, match=rf"even rotary_dim .*got {d_head} \(= d_head\): pass"):
        RotaryEmbedding(d_head)


def test_fault_16_odd_rotary_dim_is_named():
    with pytest.raises(ValueError, match=r"even rotary_dim .*got 5"):
        RotaryEmbedding(8, rotary_dim=5)
    assert RotaryEmbedding(7, rotary_dim=4).d_head == 7  # odd heads with even rotary_dim are fine


def test_rotary_dim_above_d_head_is_refused():
    with pytest.raises(ValueError, match=r"rotary_dim <= d_head, got rotary_dim=10 and d_head=8"):
        RotaryEmbedding(8, rotary_dim=10)


@pytest.mark.parametrize("name", ["d_head", "rotary_dim"])
@pytest.mark.parametrize("value", [0, -2])
def test_sizes_must_be_positive(name, value):
    with pytest.raises(ValueError, match=rf"expected {name} to be positive, got {value}"):
        RotaryEmbedding(**{"d_head": 8, name: value})


@pytest.mark.parametrize("name", ["d_head", "rotary_dim"])
@pytest.mark.parametrize("value", [8.0, "8", True, [8], torch.tensor(8.0), 1 + 0j])
def test_sizes_must_be_integers(name, value):
    with pytest.raises(TypeError, match=rf"expected {name} to be an integer, got"):
        RotaryEmbedding(**{"d_head": 8, name: value})


def test_sizes_may_be_numpys():
    assert RotaryEmbedding(np.int64(8), rotary_dim=np.int32(4)).rotary_dim == 4


@pytest.mark.parametrize("base", [0, 0.0, -1.0, math.nan, math.inf, -math.inf])
def test_base_must_be_finite_and_positive(base):
    with pytest.raises(ValueError, match=r"finite.*base.*got"):
        RotaryEmbedding(8, base=base)


@pytest.mark.parametrize("base", ["10000", None, True, 1j, [1e4], torch.tensor(1e4)])
def test_base_must_be_a_number(base):
    with pytest.raises(TypeError, match=r"base to be a number, got"):
        RotaryEmbedding(8, base=base)


@pytest.mark.parametrize("base", [10**400, 5e-324])
def test_base_must_give_finite_frequencies(base):
    with pytest.raises(ValueError, match=r"base"):
        RotaryEmbedding(64, base=base)


@pytest.mark.parametrize("name", ["interleaved", "trailing"])
@pytest.mark.parametrize("value", ["no", "halves", None, 2, []])
def test_layout_switches_must_be_bools(name, value):
    with pytest.raises(TypeError, match=rf"expected {name} .*got"):
        RotaryEmbedding(8, **{name: value})


def test_everything_but_d_head_is_named():
    with pytest.raises(TypeError, match="positional"):
        RotaryEmbedding(8, 500.0)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, "float32"])
def test_a_matrix_is_of_a_floating_dtype(dtype):
    with pytest.raises(TypeError, match="expected a floating-point dtype"):
        RotaryEmbedding(4).matrix(1, dtype=dtype)


def test_planes_as_a_list_of_truths_in_tensors_are_refused():
    with pytest.raises(TypeError, match="boolean mask becomes indices"):
        RotaryEmbedding(4).planes([torch.tensor(True), torch.tensor(False)])


def test_positions_in_a_list_of_half_precision_tensors_are_refused():
    with pytest.raises(TypeError, match="half precision"):
        RotaryEmbedding(4)([torch.tensor(2049.0, dtype=torch.bfloat16)])
