"""`Rotation`: turning tensors and turning them back, against explicit 2 x 2 matrices."""

import itertools

import numpy as np
import pytest
import torch
from references import plane_channels, reference_rotary, reference_rotate

from rove_lab import LinearScaling, Llama3Scaling, NTKScaling, RotaryEmbedding, YarnScaling

LAYOUTS = [
    dict(zip(("rotary_dim", "interleaved", "trailing"), values, strict=True))
    for values in itertools.product((None, 6, 2), (False, True), (False, True))
]
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def _same_numbers():
    torch.manual_seed(0)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_apply_and_undo_equal_the_reference(layout):
    x = torch.randn(2, 3, 4, 10, dtype=torch.float64)
    positions = torch.tensor([[0, 1, 2, 3], [7, -3, 1000, 5]])
    rotation = RotaryEmbedding(10, **layout)(positions)
    reference = reference_rotary(10, **layout)
    expected = reference_rotate(x, positions.tolist(), reference)
    assert torch.allclose(rotation.apply(x), expected, rtol=0, atol=1e-12)
    expected = reference_rotate(x, positions.tolist(), reference, sign=-1)
    assert torch.allclose(rotation.undo(x), expected, rtol=0, atol=1e-12)


def test_plane_turns_counter_clockwise():
    quarter = torch.pi / 2
    for interleaved in (False, True):
        rotation = RotaryEmbedding(2, interleaved=interleaved)([quarter])
        east, north = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
        assert torch.allclose(rotation.apply(east), north, atol=1e-7)
        assert torch.allclose(rotation.apply(north), -east, atol=1e-7)
        assert torch.allclose(rotation.undo(north), east, atol=1e-7)


def test_halves_pair_channels_half_the_rotary_dim_apart_and_interleaved_pairs_neighbours():
    for layout in LAYOUTS:
        rotary = RotaryEmbedding(10, **layout)
        assert rotary.plane_channels.tolist() == [list(p) for p in plane_channels(10, **layout)]
    assert plane_channels(4) == [(0, 2), (1, 3)]
    assert plane_channels(4, interleaved=True) == [(0, 1), (2, 3)]
    assert plane_channels(6, 4, trailing=True) == [(2, 4), (3, 5)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("trailing", [False, True])
def test_fault_04_unrotated_channels_are_bit_identical(trailing, dtype):
    x = torch.randn(2, 3, 5, 12).to(dtype)
    x[0, 0, 0, :] = 1e-40  # a denormal: even multiplying by one may flush it to zero
    for interleaved in (False, True):
        rotary = RotaryEmbedding(12, rotary_dim=8, trailing=trailing, interleaved=interleaved)
        rest, turned = (slice(0, 4), slice(4, 12)) if trailing else (slice(8, 12), slice(0, 8))
        for move in (rotary(range(5)).apply, rotary(range(5)).undo):
            y = move(x)
            assert torch.equal(y[..., rest], x[..., rest])
            assert not torch.equal(y[..., 1:, turned], x[..., 1:, turned])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rotary_dim", [None, 4])
def test_fault_06_result_has_the_inputs_dtype_and_shape(dtype, rotary_dim):
    rotation = RotaryEmbedding(8, rotary_dim=rotary_dim)(torch.arange(5) + 999_000)
    x = torch.randn(2, 3, 5, 8).to(dtype)
    for move in (rotation.apply, rotation.undo, rotation.dual):
        assert move(x).dtype == dtype
        assert move(x).shape == x.shape


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("position", [0, 2049, 65_537, 1_000_000])
def test_fault_06_half_precision_input_is_turned_in_float32(dtype, position):
    """The only error of a half-precision input is the rounding of the result."""
    x = torch.randn(1, 1, 1, 64).to(dtype)
    rotary = reference_rotary(64)
    expected = reference_rotate(x, [[position]], rotary)
    error = (RotaryEmbedding(64)([position]).apply(x).double() - expected).abs()
    half_a_unit = torch.finfo(dtype).eps / 2
    assert (error <= expected.abs() * half_a_unit * 1.001 + 1e-6).all()


@pytest.mark.parametrize("scaling", [
    None,
    LinearScaling(8.0),
    NTKScaling(8.0),
    YarnScaling(16.0, 64, beta_fast=4.0),
    YarnScaling(16.0, 64, beta_fast=4.0, attention_factor=3.0),
    Llama3Scaling(8.0, 1.0, 4.0, 64),
], ids=str)  # fmt: skip
def test_fault_02_turning_and_undoing_has_gain_one_under_every_scaling(scaling):
    x = torch.randn(3, 200, 32)
    rotation = RotaryEmbedding(32, scaling=scaling)(torch.arange(200) * 97)
    there_and_back = rotation.undo(rotation.apply(x))
    gain = there_and_back.norm(dim=-1) / x.norm(dim=-1)
    assert (gain - 1).abs().max() <= 1e-6
    assert torch.allclose(there_and_back, x, rtol=0, atol=2e-6)
    assert (rotation.apply(x).norm(dim=-1) / x.norm(dim=-1) - 1).abs().max() <= 1e-6


def test_dual_equals_apply():
    x = torch.randn(2, 3, 5, 8)
    rotation = RotaryEmbedding(8)(torch.arange(5))
    assert torch.equal(rotation.dual(x), rotation.apply(x))


def test_dual_keeps_the_product_of_vector_and_covector():
    x, y = torch.randn(2, 1, 5, 8, dtype=torch.float64)
    rotation = RotaryEmbedding(8)(torch.arange(5))
    products = (rotation.dual(y) * rotation.apply(x)).sum(-1)
    assert torch.allclose(products, (y * x).sum(-1))


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (4, 2, 3), (5, 4, 2, 3)])
def test_any_leading_axes(lead):
    x = torch.randn(*lead, 6, 8, dtype=torch.float64)
    rotation = RotaryEmbedding(8)(torch.arange(6))
    rows = x.reshape(1, -1, 6, 8)
    expected = reference_rotate(rows, [range(6)], reference_rotary(8)).reshape(x.shape)
    assert torch.allclose(rotation.apply(x), expected, atol=1e-12)


def test_rows_of_positions_pair_with_the_batch_axis_before_the_heads():
    x = torch.randn(4, 2, 3, 5, 8)  # another axis, batch, heads, pos, d_head
    rows = torch.tensor([[0, 1, 2, 3, 4], [9, 8, -7, 0, 100]])
    turned = RotaryEmbedding(8)(rows).apply(x)
    for b in range(2):
        assert torch.equal(turned[:, b], RotaryEmbedding(8)(rows[b]).apply(x[:, b]))
    one = RotaryEmbedding(8)(rows[:1]).apply(x)  # one row serves the whole batch
    assert torch.equal(one, RotaryEmbedding(8)(rows[0]).apply(x))


def test_fault_17_heads_are_not_positions():
    """Six heads, six positions: each head turns alike, each position by its own angle."""
    x = torch.ones(6, 6, 8)
    turned = RotaryEmbedding(8)(torch.arange(6)).apply(x)
    assert torch.equal(turned, turned[:1].expand(6, -1, -1))
    assert torch.equal(turned[:, 0], x[:, 0])
    assert not torch.allclose(turned[:, 1], x[:, 1], atol=0.1)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_fault_18_gradients_are_right(layout):
    x = torch.randn(2, 3, 10, dtype=torch.float64, requires_grad=True)
    rotation = RotaryEmbedding(10, **layout)(torch.tensor([0, 5, -2]))
    for move in (rotation.apply, rotation.undo):
        assert torch.autograd.gradcheck(move, x)
        assert torch.autograd.gradgradcheck(move, x)


def test_fault_18_the_input_is_left_alone():
    x = torch.randn(2, 3, 10)
    before = x.clone()
    y = RotaryEmbedding(10)(range(3)).apply(x)
    assert torch.equal(x, before)
    y.zero_()
    assert torch.equal(x, before)


def test_inputs_need_not_be_contiguous():
    x = torch.randn(8, 5, 3).permute(2, 1, 0)
    rotation = RotaryEmbedding(8, rotary_dim=4)(range(5))
    assert torch.equal(rotation.apply(x), rotation.apply(x.contiguous()))
    wide = torch.randn(3, 5, 8).expand(2, 3, 5, 8)
    assert torch.equal(rotation.apply(wide)[1], rotation.apply(wide[0]))


def test_empty_tensors_pass_through():
    rotary = RotaryEmbedding(8)
    assert rotary([]).apply(torch.empty(2, 3, 0, 8)).shape == (2, 3, 0, 8)
    assert rotary(range(5)).apply(torch.empty(0, 3, 5, 8)).shape == (0, 3, 5, 8)
    rows = torch.zeros(0, 5)
    assert rotary(rows).apply(torch.empty(0, 3, 5, 8)).shape == (0, 3, 5, 8)


# torch's forward mode itself calls torch.jit.script, which warns that it is deprecated
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_vmap_and_forward_mode_derivatives():
    rotation = RotaryEmbedding(8)(range(5))
    x, dx = torch.randn(2, 4, 3, 5, 8)
    assert torch.allclose(torch.func.vmap(rotation.apply)(x), rotation.apply(x), atol=1e-6)
    _, tangent = torch.func.jvp(rotation.apply, (x,), (dx,))
    assert torch.allclose(tangent, rotation.apply(dx), atol=1e-6)  # a rotation is linear


@pytest.mark.parametrize("shape", [(5, 3, 8), (3, 4, 8), (3, 6, 8), (3, 1, 8), (2, 3, 8, 5)])
def test_fault_13_wrong_number_of_positions_is_refused(shape):
    with pytest.raises(ValueError, match=r"pos=5 .*d_head=8.*got \[.*swapped\?"):
        RotaryEmbedding(8)(range(5)).apply(torch.zeros(shape))


@pytest.mark.parametrize("d_head", [7, 9, 4, 16, 1])
def test_wrong_d_head_is_refused(d_head):
    for move in (RotaryEmbedding(8)(range(5)).apply, RotaryEmbedding(8)(range(5)).undo):
        with pytest.raises(ValueError, match=r"d_head=8.*got"):
            move(torch.zeros(3, 5, d_head))


def test_a_vector_is_not_enough():
    with pytest.raises(ValueError, match=r"heads, pos, d_head.*got \[8\]"):
        RotaryEmbedding(8)([0]).apply(torch.zeros(8))


def test_fault_09_rows_of_positions_must_fit_the_batch():
    rotation = RotaryEmbedding(8)(torch.zeros(3, 5))
    for shape in ((2, 4, 5, 8), (1, 4, 5, 8), (3, 5, 8), (3, 3, 1, 4, 5, 8)):
        with pytest.raises(ValueError, match=r"batch=3 .*positions \[batch, pos\], got"):
            rotation.apply(torch.zeros(shape))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_only_floating_point_tensors_turn(dtype):
    with pytest.raises(TypeError, match=r"floating-point tensor, got torch\.\w+.*float"):
        RotaryEmbedding(8)(range(5)).apply(torch.zeros(3, 5, 8, dtype=dtype))


@pytest.mark.parametrize("x", [np.zeros((3, 5, 8), np.float32), [[0.0] * 8] * 5, None, 1.0])
def test_only_tensors_turn(x):
    with pytest.raises(TypeError, match=r"floating-point tensor, got"):
        RotaryEmbedding(8)(range(5)).apply(x)


def test_mixed_devices_are_refused():
    with pytest.raises(ValueError, match=r"on cpu, got meta.*device=x\.device"):
        RotaryEmbedding(8)(range(5)).apply(torch.zeros(3, 5, 8, device="meta"))
    with pytest.raises(ValueError, match=r"on meta, got cpu.*device=x\.device"):
        RotaryEmbedding(8)(range(5), device="meta").apply(torch.zeros(3, 5, 8))
