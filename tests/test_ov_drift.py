"""ov_drift: how OV_delta turns away from OV_0, against dense matrices."""

import math
from functools import partial

import pytest
import references_circuits as reference
import torch
from hypothesis import given
from hypothesis import strategies as st
from references_mixers import LAYOUTS
from samples import D_MODEL, HEADS, attention_weights, normal

from rove_lab import RotaryEmbedding, kernel_spectrum
from rove_lab.circuits import factored_ov, ov_cosine, ov_drift, ov_subspace_overlap

OFFSETS = [0, -1, 3, -17.25]

each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=repr)


def value_weights(layout):
    return attention_weights(layout)[2:]


def assert_close(actual, expected, atol=1e-11):
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


@each_layout
def test_drift_by_plane(layout):
    W_V, W_O = value_weights(layout)
    drift = ov_drift(W_V, W_O, layout.build(RotaryEmbedding), OFFSETS)
    assert drift.shape == (len(OFFSETS), HEADS, layout.width // 2 + 1)
    for n, delta in enumerate(OFFSETS):
        for h in range(HEADS):
            expected = reference.drift(reference.kv(W_V, h, HEADS), W_O[h], layout, delta)
            assert_close(drift[n, h], expected)


@each_layout
def test_its_sum_and_the_cosine_are_those_of_the_circuits(layout):
    W_V, W_O = value_weights(layout)
    rotary = layout.build(RotaryEmbedding)
    drift, cosine = (score(W_V, W_O, rotary, OFFSETS) for score in (ov_drift, ov_cosine))
    whole = reference.ov(W_V, W_O, layout, 0).flatten(1)
    for n, delta in enumerate(OFFSETS):
        turned = reference.ov(W_V, W_O, layout, delta).flatten(1)
        product = (turned * whole).sum(1)
        assert_close(drift[n].sum(-1), product / whole.square().sum(1))
        assert_close(cosine[n], product / (whole.norm(dim=1) * turned.norm(dim=1)))
    assert_close(cosine[0], torch.ones(HEADS, dtype=torch.float64))


@given(st.sampled_from(LAYOUTS), st.floats(-1e3, 1e3), st.floats(1e-3, 1e3))
def test_drift_is_blind_to_scale_and_cosines_are_bounded(layout, delta, factor):
    W_V, W_O = value_weights(layout)
    rotary = layout.build(RotaryEmbedding)
    assert (ov_cosine(W_V, W_O, rotary, [delta]).abs() <= 1 + 1e-12).all()
    for score in (ov_drift, ov_cosine):
        scaled = score(-factor * W_V, factor * W_O, rotary, [delta])
        assert_close(scaled, score(W_V, W_O, rotary, [delta]), atol=1e-9)


@given(st.sampled_from(LAYOUTS), st.floats(-1e3, 1e3))
def test_where_w_o_is_the_transpose_of_orthonormal_w_v_only_the_spectrum_matters(layout, delta):
    """Then <OV_delta, OV_0> is that of the kernels, and the same in both directions."""
    W_V = torch.linalg.qr(normal(2, 8, layout.d_head)).Q
    rotary = layout.build(RotaryEmbedding)
    drift = ov_drift(W_V, W_V.mT, rotary, [delta, -delta])
    assert_close(drift[0], drift[1])
    cosines = [math.cos(delta * omega) for omega in layout.frequencies]
    expected = kernel_spectrum(W_V, rotary) * torch.tensor([*cosines, 1.0], dtype=torch.float64)
    assert_close(drift[0], expected)
    assert_close(ov_cosine(W_V, W_V.mT, rotary, [delta])[0], expected.sum(-1))


def test_planes_that_do_not_turn_do_not_drift():
    W_V, W_O = value_weights(LAYOUTS[0])
    rotary = RotaryEmbedding(6).planes([0])
    drift = ov_drift(W_V, W_O, rotary, OFFSETS)
    assert_close(drift[:, :, 1:], drift[:1, :, 1:].expand(4, -1, -1))
    assert (drift[1:, :, 0] - drift[0, :, 0]).abs().min() > 1e-3
    assert_close(ov_cosine(W_V, W_O, rotary.planes([]), OFFSETS), torch.ones(4, HEADS).double())


def test_a_zero_head_has_no_drift_and_no_nan():
    W_V, W_O = value_weights(LAYOUTS[0])
    rotary = RotaryEmbedding(6)
    assert torch.equal(ov_drift(0 * W_V, W_O, rotary, [0]), torch.zeros(1, HEADS, 4).double())
    assert torch.equal(ov_cosine(0 * W_V, W_O, rotary, [0]), torch.zeros(1, HEADS).double())


@each_layout
@pytest.mark.parametrize("k", [1, 2, 4])
def test_overlap_is_that_of_the_leading_subspaces(layout, k):
    W_V, W_O = value_weights(layout)
    found = ov_subspace_overlap(W_V, W_O, layout.build(RotaryEmbedding), OFFSETS, k)
    for n, delta in enumerate(OFFSETS):
        pairs = zip(
            reference.ov(W_V, W_O, layout, delta),
            reference.ov(W_V, W_O, layout, 0),
            strict=True,
        )
        for h, (turned, whole) in enumerate(pairs):
            reading, writing = reference.overlap(turned, whole, k)
            assert found.reading[n, h].item() == pytest.approx(reading, abs=1e-6)
            assert found.writing[n, h].item() == pytest.approx(writing, abs=1e-6)


def test_all_directions_together_never_change():
    W_V, W_O = normal(2, 9, 6), normal(4, 6, 9)
    found = ov_subspace_overlap(W_V, W_O, RotaryEmbedding(6), OFFSETS, 6)
    for overlap in found:
        assert_close(overlap, torch.ones_like(overlap))


@each_layout
def test_the_way_back_reads_what_the_way_there_writes(layout):
    """Where W_O = W_V^T, OV_{-delta} is the transpose of OV_delta."""
    W_V, _ = value_weights(layout)
    there, back = (
        ov_subspace_overlap(W_V, W_V.mT, layout.build(RotaryEmbedding), [sign * 2.5], 2)
        for sign in (1, -1)
    )
    assert_close(there.reading, back.writing, atol=1e-7)
    assert_close(there.writing, back.reading, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_scores_are_computed_in_float64(dtype):
    W_V, W_O = (W.to(dtype) for W in value_weights(LAYOUTS[0]))
    rotary = RotaryEmbedding(6)

    def scores(W_V, W_O):
        overlap = ov_subspace_overlap(W_V, W_O, rotary, OFFSETS, 2)
        return ov_drift(W_V, W_O, rotary, OFFSETS), ov_cosine(W_V, W_O, rotary, OFFSETS), *overlap

    for found, exact in zip(scores(W_V, W_O), scores(W_V.double(), W_O.double()), strict=True):
        assert found.dtype == torch.promote_types(dtype, torch.float32)
        assert_close(found.double(), exact, atol=1e-6)


def test_gradients_reach_the_weights():
    W_V, W_O = (W.requires_grad_() for W in value_weights(LAYOUTS[2]))
    rotary = LAYOUTS[2].build(RotaryEmbedding)
    for score in (ov_drift, ov_cosine):
        at = partial(score, rotary=rotary, offsets=[-3, 0.5])
        assert torch.autograd.gradcheck(at, (W_V, W_O), fast_mode=True)


def test_no_offsets_give_no_scores():
    W_V, W_O = value_weights(LAYOUTS[0])
    assert ov_drift(W_V, W_O, RotaryEmbedding(6), []).shape == (0, HEADS, 4)
    assert ov_cosine(W_V, W_O, RotaryEmbedding(6), []).shape == (0, HEADS)
    assert ov_subspace_overlap(W_V, W_O, RotaryEmbedding(6), [], 2).reading.shape == (0, HEADS)
    assert factored_ov(W_V, W_O, RotaryEmbedding(6), []).eigenvalues().shape == (0, HEADS, 6)


def test_what_is_refused():
    W_V, W_O = value_weights(LAYOUTS[0])
    rotary = RotaryEmbedding(6)
    for score in (ov_drift, ov_cosine):
        with pytest.raises(ValueError, match=r"expected W_V .*got \[2, 6, 5\]"):
            score(W_V.mT, W_O, rotary, [0])
        with pytest.raises(ValueError, match=r"expected W_O .*got \[4, 5, 6\]"):
            score(W_V, W_O.mT, rotary, [0])
    with pytest.raises(ValueError, match=f"expected k of at most {D_MODEL} directions, got 6"):
        ov_subspace_overlap(W_V, W_O, rotary, [0], 6)
    with pytest.raises(ValueError, match="expected k to be positive, got 0"):
        ov_subspace_overlap(W_V, W_O, rotary, [0], 0)
    with pytest.raises(TypeError, match=r"expected k to be an integer, got 1\.5"):
        ov_subspace_overlap(W_V, W_O, rotary, [0], 1.5)
