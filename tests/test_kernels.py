"""The kernels psi_delta = W_V R_delta^T and their spectrum, against references_mixers."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from references_mixers import LAYOUTS, Layout, kernel, spectrum

from rove_lab import RotaryEmbedding, kernel_spectrum, offset_kernels
from rove_lab.kernels import channel_frequencies, quarter_turn

OFFSETS = [0, 1, -1, 5, -17, 2.5, -0.25, 1000.125]
HEADS, D_MODEL = 3, 5


@pytest.fixture(params=LAYOUTS, ids=repr)
def layout(request) -> Layout:
    return request.param


@pytest.fixture
def W_V(layout):
    torch.manual_seed(0)
    return torch.randn(HEADS, D_MODEL, layout.d_head, dtype=torch.float64)


def test_kernels_are_the_values_turned_by_every_offset(layout, W_V):
    kernels = offset_kernels(W_V, layout.build(RotaryEmbedding), OFFSETS)
    assert kernels.shape == (len(OFFSETS), HEADS, D_MODEL, layout.d_head)
    for n, delta in enumerate(OFFSETS):
        expected = torch.stack([kernel(W_V[h], layout, delta) for h in range(HEADS)])
        torch.testing.assert_close(kernels[n], expected, rtol=0, atol=1e-12)


def test_kernels_turn_counter_clockwise_with_the_offset():
    """One plane, one radian a token: the row (1, 0) goes to (cos delta, sin delta)."""
    W_V = torch.tensor([[[1.0, 0.0]]], dtype=torch.float64)
    ahead, behind = offset_kernels(W_V, RotaryEmbedding(2), [0.5, -0.5])[:, 0, 0].tolist()
    assert ahead == pytest.approx([math.cos(0.5), math.sin(0.5)], abs=1e-15)
    assert behind == pytest.approx([math.cos(0.5), -math.sin(0.5)], abs=1e-15)


def test_stored_kernel_agrees_with_the_matrix_on_columns(layout, W_V):
    """The paper's R_delta W_V, on columns, is the transpose of the kernel we store."""
    rotary = layout.build(RotaryEmbedding)
    columns = rotary.matrix(OFFSETS)[:, None] @ W_V.mT  # R_delta W_V^T
    kernels = offset_kernels(W_V, rotary, OFFSETS)
    torch.testing.assert_close(kernels, columns.mT, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_kernels_keep_the_dtype_of_the_weights(layout, W_V, dtype):
    weights = W_V.to(dtype)
    kernels = offset_kernels(weights, layout.build(RotaryEmbedding), OFFSETS)
    assert kernels.dtype == dtype
    expected = torch.stack(
        [torch.stack([kernel(W, layout, delta) for W in weights]) for delta in OFFSETS]
    )
    # one rounding of the result: half a unit in the last place, of entries that are below 8
    atol = 4 * torch.finfo(dtype).eps if dtype != torch.float64 else 1e-12
    torch.testing.assert_close(kernels.double(), expected, rtol=0, atol=atol)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_offset_zero_is_the_weight_itself(layout, W_V, dtype):
    weights = W_V.to(dtype)
    kernels = offset_kernels(weights, layout.build(RotaryEmbedding), [0, 3])
    assert torch.equal(kernels[0], weights)


def test_unrotated_channels_are_bit_identical(layout, W_V):
    kernels = offset_kernels(W_V.float(), layout.build(RotaryEmbedding), OFFSETS)
    for c in layout.unrotated:
        assert torch.equal(kernels[..., c], W_V.float()[..., c].expand(len(OFFSETS), -1, -1))


def test_offsets_may_be_any_numbers(layout, W_V):
    rotary = layout.build(RotaryEmbedding)
    expected = offset_kernels(W_V, rotary, [-2, -1, 0, 1])
    for offsets in (
        range(-2, 2),
        (-2.0, -1.0, 0.0, 1.0),
        torch.arange(-2, 2),
        torch.arange(-2, 2, dtype=torch.int32),
        torch.arange(-2.0, 2.0),
        torch.arange(-2.0, 2.0, dtype=torch.float64),
    ):
        torch.testing.assert_close(offset_kernels(W_V, rotary, offsets), expected, rtol=0, atol=0)


def test_no_offsets_give_no_kernels(layout, W_V):
    kernels = offset_kernels(W_V, layout.build(RotaryEmbedding), [])
    assert kernels.shape == (0, HEADS, D_MODEL, layout.d_head)


def test_gradients_reach_the_weights(layout, W_V):
    rotary = layout.build(RotaryEmbedding)
    W_V.requires_grad_()
    assert torch.autograd.gradcheck(lambda W: offset_kernels(W, rotary, [-3, 0, 0.5]), W_V)
    assert torch.autograd.gradcheck(lambda W: kernel_spectrum(W, rotary), W_V)


def test_kernels_do_not_share_memory_with_the_weights():
    """Writing into a kernel must not change the model."""
    W_V = torch.ones(1, 2, 2)
    offset_kernels(W_V, RotaryEmbedding(2, base=10.0), [0]).zero_()
    offset_kernels(W_V, RotaryEmbedding(2).planes([]), [0, 1]).zero_()
    assert torch.equal(W_V, torch.ones(1, 2, 2))


layouts = st.sampled_from(LAYOUTS)
offsets = st.floats(-1e4, 1e4)
seeds = st.integers(0, 2**32 - 1)


@given(layouts, seeds, offsets)
def test_norms_do_not_depend_on_the_offset(layout, seed, delta):
    torch.manual_seed(seed)
    W_V = torch.randn(HEADS, D_MODEL, layout.d_head, dtype=torch.float64)
    (kernels,) = offset_kernels(W_V, layout.build(RotaryEmbedding), [delta])
    torch.testing.assert_close(kernels.norm(dim=-1), W_V.norm(dim=-1), rtol=1e-12, atol=0)
    torch.testing.assert_close(
        torch.linalg.svdvals(kernels), torch.linalg.svdvals(W_V), rtol=1e-9, atol=1e-12
    )


@given(layouts, seeds, offsets)
def test_the_spectrum_says_how_the_kernel_forgets(layout, seed, delta):
    """<psi_0, psi_delta> / ||W_V||^2 = sum_m s_m cos(delta omega_m) + s_unrotated."""
    torch.manual_seed(seed)
    W_V = torch.randn(HEADS, D_MODEL, layout.d_head, dtype=torch.float64)
    rotary = layout.build(RotaryEmbedding)
    start, turned = offset_kernels(W_V, rotary, [0.0, delta])
    overlap = (start * turned).sum((-2, -1)) / W_V.square().sum((-2, -1))
    cosines = [math.cos(delta * omega) for omega in layout.frequencies] + [1.0]
    expected = kernel_spectrum(W_V, rotary) @ torch.tensor(cosines, dtype=torch.float64)
    torch.testing.assert_close(overlap, expected, rtol=0, atol=1e-12)


def test_spectrum_is_the_share_of_each_plane(layout, W_V):
    shares = kernel_spectrum(W_V, layout.build(RotaryEmbedding))
    assert shares.shape == (HEADS, layout.width // 2 + 1)
    expected = torch.stack([spectrum(W, layout) for W in W_V])
    torch.testing.assert_close(shares, expected, rtol=1e-13, atol=0)
    torch.testing.assert_close(shares.sum(-1), torch.ones(HEADS).double(), rtol=1e-14, atol=0)


def test_the_last_share_is_the_unrotated_one():
    W_V = torch.zeros(2, 3, 6)
    W_V[0, 1, 2] = 7.0  # in plane 0, channels (2, 4)
    W_V[1, 0, 0] = -1.0  # in no plane
    rotary = RotaryEmbedding(6, rotary_dim=4, trailing=True)
    assert kernel_spectrum(W_V, rotary).tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    assert kernel_spectrum(W_V, RotaryEmbedding(6))[:, -1].tolist() == [0.0, 0.0]


def test_a_frozen_plane_keeps_its_share(W_V, layout):
    rotary = layout.build(RotaryEmbedding)
    torch.testing.assert_close(
        kernel_spectrum(W_V, rotary.planes([])), kernel_spectrum(W_V, rotary), rtol=0, atol=0
    )


def test_a_zero_head_has_no_shares_and_no_nan():
    W_V = torch.randn(2, 5, 4)
    W_V[0] = 0
    shares = kernel_spectrum(W_V, RotaryEmbedding(4))
    assert shares[0].tolist() == [0.0, 0.0, 0.0]
    assert shares[1].sum() == pytest.approx(1)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_the_spectrum_does_not_depend_on_the_scale(scale):
    W_V = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(1))
    rotary = RotaryEmbedding(6, rotary_dim=4)
    torch.testing.assert_close(kernel_spectrum(W_V * scale, rotary), kernel_spectrum(W_V, rotary))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_the_spectrum_is_computed_in_at_least_float32(dtype):
    W_V = torch.full((1, 4096, 2), 100.0, dtype=dtype)  # the sum of squares overflows float16
    shares = kernel_spectrum(W_V, RotaryEmbedding(2))
    assert shares.dtype == torch.promote_types(dtype, torch.float32)
    assert shares.tolist() == [[1.0, 0.0]]


def test_channel_frequencies_are_those_of_each_channels_plane(layout):
    expected = torch.zeros(layout.d_head, dtype=torch.float64)
    for (a, b), omega in zip(layout.pairs, layout.frequencies, strict=True):
        expected[a] = expected[b] = omega
    frequencies = channel_frequencies(layout.build(RotaryEmbedding))
    torch.testing.assert_close(frequencies, expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_quarter_turn_is_the_sum_of_every_j(layout, W_V, dtype):
    J = sum(layout.quarter_turn(m) for m in range(layout.width // 2))
    turned = quarter_turn(W_V.to(dtype), layout.build(RotaryEmbedding))
    assert turned.dtype == dtype
    assert torch.equal(turned.double(), W_V.to(dtype).double() @ J.T)


def test_a_quarter_turn_has_gradients(layout, W_V):
    rotary = layout.build(RotaryEmbedding)
    assert torch.autograd.gradcheck(lambda W: quarter_turn(W, rotary), W_V.requires_grad_())


def test_what_a_quarter_turn_refuses():
    with pytest.raises(ValueError, match=r"expected x \[..., d_head=4\], got \[2, 6\]"):
        quarter_turn(torch.ones(2, 6), RotaryEmbedding(4))
    with pytest.raises(TypeError, match=r"expected x .*tensor, got torch.int64"):
        quarter_turn(torch.ones(4, dtype=torch.int64), RotaryEmbedding(4))
    for call in (lambda: quarter_turn(torch.ones(4), None), lambda: channel_frequencies(None)):
        with pytest.raises(TypeError, match=r"expected .*RotaryEmbedding, got None"):
            call()


ROTARY = RotaryEmbedding(4)
GOOD = torch.ones(2, 6, 4)


@pytest.mark.parametrize("function", [lambda W, r: offset_kernels(W, r, [0, 1]), kernel_spectrum])
class TestBadInput:
    """Every error says what was expected, what came and what to do."""

    def test_a_transposed_weight(self, function):
        with pytest.raises(ValueError, match=r"W_V .*d_head=4.*got \[2, 4, 6\].*transpose"):
            function(GOOD.mT, ROTARY)

    def test_a_single_head(self, function):
        with pytest.raises(ValueError, match=r"expected W_V .*got \[6, 4\].*W_V\[None\]"):
            function(GOOD[0], ROTARY)

    def test_an_axis_too_many(self, function):
        with pytest.raises(ValueError, match=r"expected W_V .*got \[1, 2, 6, 4\]"):
            function(GOOD[None], ROTARY)

    def test_another_d_head(self, function):
        with pytest.raises(ValueError, match=r"d_head=8\], got \[2, 6, 4\]"):
            function(GOOD, RotaryEmbedding(8))

    @pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
    def test_a_weight_that_is_not_real(self, function, dtype):
        with pytest.raises(TypeError, match=rf"expected W_V .*tensor, got {dtype}: convert"):
            function(GOOD.to(dtype), ROTARY)

    def test_a_weight_that_is_no_tensor(self, function):
        with pytest.raises(TypeError, match=r"expected W_V .*tensor, got list"):
            function(GOOD.tolist(), ROTARY)

    def test_a_rotary_that_is_none(self, function):
        with pytest.raises(TypeError, match=r"expected .*RotaryEmbedding, got None"):
            function(GOOD, None)


@pytest.mark.parametrize("offsets", [3, torch.tensor(3), [[0, 1]], torch.zeros(1, 1, 2)])
def test_offsets_are_one_axis(offsets):
    with pytest.raises(ValueError, match=r"expected offsets \[n_offsets\], got .*flatten, or pass"):
        offset_kernels(GOOD, ROTARY, offsets)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.bool, torch.complex64])
def test_offsets_too_coarse_to_count_tokens(dtype):
    with pytest.raises(TypeError, match=rf"expected integer, float32 or float64 .*got {dtype}"):
        offset_kernels(GOOD, ROTARY, torch.zeros(3).to(dtype))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_offsets_are_finite(value):
    with pytest.raises(ValueError, match=r"expected finite .*got NaN or infinity"):
        offset_kernels(GOOD, ROTARY, [0.0, value])


def test_offsets_are_numbers():
    with pytest.raises(TypeError, match=r"expected .*numbers, got '12'"):
        offset_kernels(GOOD, ROTARY, "12")


def test_offsets_without_values_for_weights_with_values():
    with pytest.raises(ValueError, match=r"expected .*cpu.*got .*meta"):
        offset_kernels(GOOD, ROTARY, torch.arange(3, device="meta"))


def test_weights_without_values_give_kernels_without_values():
    kernels = offset_kernels(GOOD.to("meta"), ROTARY, [0, 1, 2])
    assert kernels.shape == (3, 2, 6, 4)
    assert kernels.is_meta
    assert kernel_spectrum(GOOD.to("meta"), ROTARY).shape == (2, 3)
