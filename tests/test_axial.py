"""`AxialRotary`: rows and columns, against explicit 2 x 2 matrices."""

import pytest
import torch
from references import plane_channels, rope_frequencies
from references_frames import rotary_matrix
from samples import normal

from rove_lab import RotaryEmbedding
from rove_lab.frames import AxialRotary

ROWS, COLUMNS = [0.0, 3.0, -1.5, 40.0], [2.0, 0.25, 7.0, -3.0]


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("base", [100.0, 10000.0])
def test_half_of_the_planes_turn_with_the_row_and_half_with_the_column(interleaved, base):
    x = normal(2, 4, 12)
    pairs, axis = plane_channels(12, interleaved=interleaved), rope_frequencies(6, base)
    patches = AxialRotary(12, base=base, interleaved=interleaved)
    turned = patches(rows=ROWS, columns=COLUMNS).apply(x)
    for t, (row, column) in enumerate(zip(ROWS, COLUMNS, strict=True)):
        by_row = rotary_matrix(row, axis, pairs[:3], 12)
        by_column = rotary_matrix(column, axis, pairs[3:], 12)
        expected = x[:, t] @ (by_row @ by_column).T
        torch.testing.assert_close(turned[:, t], expected, rtol=0, atol=1e-12)


def test_each_axis_has_the_frequencies_of_half_the_channels():
    inv_freq = AxialRotary(16, base=100.0).inv_freq
    assert torch.equal(inv_freq, RotaryEmbedding(8, base=100.0).inv_freq)
    assert inv_freq.dtype == torch.float64


def test_rows_and_columns_take_their_names_and_are_not_the_same():
    patches = AxialRotary(8)
    with pytest.raises(TypeError, match="positional"):
        patches(ROWS, COLUMNS)
    x = normal(1, 4, 8)
    one, other = patches(rows=ROWS, columns=COLUMNS), patches(rows=COLUMNS, columns=ROWS)
    assert not torch.allclose(one.apply(x), other.apply(x))


def test_a_batch_has_grids_of_its_own():
    x = normal(2, 3, 4, 8)
    rows, columns = torch.tensor([ROWS, COLUMNS]), torch.tensor([COLUMNS, ROWS])
    both = AxialRotary(8)(rows=rows, columns=columns).apply(x)
    for b in range(2):
        alone = AxialRotary(8)(rows=rows[b], columns=columns[b]).apply(x[b])
        assert torch.equal(both[b], alone)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rotations_made_in_inference_mode_serve_training(dtype):
    with torch.inference_mode():
        rotation = AxialRotary(8)(rows=ROWS, columns=COLUMNS)
    x = normal(1, 4, 8, dtype=dtype).requires_grad_()
    rotation.apply(x).sum().backward()
    assert x.grad.abs().sum() > 0


def test_tables_may_lie_elsewhere():
    rotation = AxialRotary(8)(rows=ROWS, columns=COLUMNS, device="meta")
    assert rotation.apply(torch.ones(1, 4, 8, device="meta")).device.type == "meta"


def test_what_has_no_values_has_none_elsewhere():
    here, nowhere = torch.zeros(2), torch.zeros(2, device="meta")
    for rows, columns in ((here, nowhere), (nowhere, here)):
        expected = rf"both on meta, got them on {rows.device} and {columns.device}: make"
        with pytest.raises(ValueError, match=expected):
            AxialRotary(8)(rows=rows, columns=columns)


def test_it_says_what_it_is():
    assert repr(AxialRotary(8)) == "AxialRotary(8, base=10000.0)"
    assert repr(AxialRotary(8, base=100, interleaved=True)) == (
        "AxialRotary(8, base=100.0, interleaved=True)"
    )


@pytest.mark.parametrize("d_head", [2, 6, 10, 9])
def test_two_axes_need_planes_in_pairs(d_head):
    with pytest.raises(ValueError, match=rf"multiple of 4 .*got {d_head}: .*SideBySide"):
        AxialRotary(d_head)


def test_sizes_bases_and_flags_are_checked():
    with pytest.raises(TypeError, match="d_head to be an integer"):
        AxialRotary(8.0)
    with pytest.raises(ValueError, match="positive base, got -1"):
        AxialRotary(8, base=-1)
    with pytest.raises(TypeError, match="interleaved to be True or False"):
        AxialRotary(8, interleaved="yes")


def test_each_patch_has_a_row_and_a_column():
    with pytest.raises(ValueError, match=r"got \[4\] rows and \[3\] columns: for a grid"):
        AxialRotary(8)(rows=ROWS, columns=COLUMNS[:3])
    with pytest.raises(ValueError, match=r"\[pos\] or \[batch, pos\], got shape \[\]"):
        AxialRotary(8)(rows=torch.tensor(1.0), columns=torch.tensor(1.0))
    with pytest.raises(TypeError, match="integer, float32 or float64 positions"):
        AxialRotary(8)(rows=torch.ones(2).half(), columns=torch.ones(2).half())
    with pytest.raises(ValueError, match="finite positions"):
        AxialRotary(8)(rows=[float("nan")], columns=[0.0])
