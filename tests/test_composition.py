"""composition: from matrices of d_head x d_head, against dense products."""

import pytest
import references_circuits as reference
import torch
from hypothesis import given
from hypothesis import strategies as st
from references_mixers import LAYOUTS
from samples import D_MODEL, HEADS, attention_weights, normal

from rove_lab import RotaryEmbedding
from rove_lab.circuits import (
    factored_ov,
    factored_qk,
    full_qk_circuit,
    k_composition,
    q_composition,
    v_composition,
)

OFFSETS, LATER = [0, -1, 3.5], [0, -4]
LATER_HEADS = 2


def later_weights(d_head):
    """W_Q, W_K, W_V, W_O of two heads on one KV head, all of another layer."""
    return (
        normal(LATER_HEADS, D_MODEL, d_head, seed=11),
        normal(1, D_MODEL, d_head, seed=12),
        normal(1, D_MODEL, d_head, seed=13),
        normal(LATER_HEADS, d_head, D_MODEL, seed=14),
    )


def circuits(layout, later_layout, offsets=OFFSETS, later=LATER):
    """The OV of a first layer and the QK and OV of a second, which may turn otherwise."""
    _, _, W_V, W_O = attention_weights(layout)
    W_Q2, W_K2, W_V2, W_O2 = later_weights(later_layout.d_head)
    rotary, later_rotary = (one.build(RotaryEmbedding) for one in (layout, later_layout))
    return (
        factored_ov(W_V, W_O, rotary, offsets),
        factored_qk(W_Q2, W_K2, later_rotary, later),
        factored_ov(W_V2, W_O2, later_rotary, later),
    )


@pytest.mark.parametrize("later_layout", [LAYOUTS[0], LAYOUTS[3]], ids=repr)
@pytest.mark.parametrize("layout", LAYOUTS[:3], ids=repr)
def test_composition_is_that_of_the_matrices(layout, later_layout):
    _, _, W_V, W_O = attention_weights(layout)
    W_Q2, W_K2, W_V2, W_O2 = later_weights(later_layout.d_head)
    ov, qk, later_ov = circuits(layout, later_layout)
    found = q_composition(ov, qk), k_composition(ov, qk), v_composition(ov, later_ov)
    assert {score.shape for score in found} == {(3, 2, HEADS, LATER_HEADS)}
    for n, delta in enumerate(OFFSETS):
        OV = reference.ov(W_V, W_O, layout, delta)
        for m, epsilon in enumerate(LATER):
            QK = reference.qk(W_Q2, W_K2, later_layout, epsilon)
            OV2 = reference.ov(W_V2, W_O2, later_layout, epsilon)
            for h in range(HEADS):
                for g in range(LATER_HEADS):
                    expected = [
                        reference.composition(OV[h], QK[g]),
                        reference.composition(OV[h], QK[g].T),
                        reference.composition(OV[h], OV2[g]),
                    ]
                    scores = [score[n, m, h, g].item() for score in found]
                    assert scores == pytest.approx(expected, abs=1e-10)


@given(st.sampled_from(LAYOUTS), st.floats(-1e3, 1e3), st.floats(1e-3, 1e3))
def test_composition_is_bounded_and_blind_to_scale(layout, delta, factor):
    ov, qk, _ = circuits(layout, layout, [delta])
    score = k_composition(ov, qk)
    assert ((score >= 0) & (score <= 1 + 1e-12)).all()
    _, _, W_V, W_O = attention_weights(layout)
    scaled = factored_ov(factor * W_V, -factor * W_O, layout.build(RotaryEmbedding), [delta])
    torch.testing.assert_close(k_composition(scaled, qk), score, rtol=1e-9, atol=0)


def test_unrelated_weights_compose_by_one_over_the_root_of_d_model():
    rotary, d_model = RotaryEmbedding(16), 256
    W_V, W_Q, W_K = (normal(8, d_model, 16, seed=s) for s in (1, 2, 3))
    ov = factored_ov(W_V, normal(8, 16, d_model, seed=4), rotary, [-5])
    mean = q_composition(ov, factored_qk(W_Q, W_K, rotary, [-2])).mean().item()
    assert mean == pytest.approx(d_model**-0.5, rel=0.02)


def test_a_head_that_writes_where_another_reads():
    """W_O W_K = 1 between two heads: everything written is read, and nothing by a third."""
    eye, rotary = torch.eye(8), RotaryEmbedding(4)
    W_V, W_O = eye[:, :4][None], eye[4:][None]
    W_K = torch.stack((eye[:, 4:], eye[:, :4]))
    scores = k_composition(
        factored_ov(W_V, W_O, rotary, [0, -3]), factored_qk(W_K, W_K, rotary, [0])
    )
    assert scores[:, 0, 0].tolist() == [pytest.approx([0.5, 0.0], abs=1e-6)] * 2


def test_a_zero_head_composes_with_nothing():
    ov, qk, _ = circuits(LAYOUTS[0], LAYOUTS[0])
    nothing = factored_ov(
        torch.zeros(1, D_MODEL, 6), torch.zeros(1, 6, D_MODEL), RotaryEmbedding(6), [0]
    )
    assert q_composition(nothing, qk).tolist() == [[[[0.0, 0.0]], [[0.0, 0.0]]]]
    assert q_composition(ov, qk).min() > 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_scores_are_computed_in_float64(dtype):
    weights = [W.to(dtype) for W in (*attention_weights(LAYOUTS[0])[2:], *later_weights(6)[:2])]
    rotary = RotaryEmbedding(6)

    def score(W_V, W_O, W_Q, W_K):
        return q_composition(
            factored_ov(W_V, W_O, rotary, OFFSETS), factored_qk(W_Q, W_K, rotary, LATER)
        )

    found, exact = score(*weights), score(*(W.double() for W in weights))
    assert found.dtype == torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(found.double(), exact, rtol=1e-6, atol=0)


def test_no_offsets_give_no_scores():
    ov, qk, _ = circuits(LAYOUTS[0], LAYOUTS[0], [], [])
    assert k_composition(ov, qk).shape == (0, 0, HEADS, LATER_HEADS)


@pytest.mark.parametrize("score", [q_composition, k_composition, v_composition])
def test_what_is_refused(score):
    ov, qk, _ = circuits(LAYOUTS[0], LAYOUTS[0])
    for pair in ((ov, torch.ones(3)), (None, qk)):
        with pytest.raises(TypeError, match=r"expected a FactoredCircuit, got (Tensor|NoneType)"):
            score(*pair)
    W = torch.ones(1, 7, 6)
    with pytest.raises(ValueError, match="expected circuits of one d_model, got 5 and 7"):
        score(ov, factored_qk(W, W, RotaryEmbedding(6), [0]))
    full = full_qk_circuit(torch.ones(9, 7), W, W, RotaryEmbedding(6), [0])
    with pytest.raises(ValueError, match=r"got 5 and 9: .*without the embeddings"):
        score(ov, full)
    W = torch.ones(1, D_MODEL, 6, device="meta")
    with pytest.raises(ValueError, match="expected circuits on one device, got cpu and meta"):
        score(ov, factored_qk(W, W, RotaryEmbedding(6), [0]))
