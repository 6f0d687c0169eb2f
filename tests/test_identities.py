"""The identities the book gives a chapter each, from the references alone and then in the lab."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from references_mixers import (
    LAYOUTS,
    Layout,
    dense_from_positions,
    kernel,
)
from references_mixers import kronecker_rank as reference_rank

from rove_lab import (
    RotaryEmbedding,
    RotarySelfAttention,
    attention_pattern,
    kronecker_rank,
    offset_kernels,
    rope_attention,
    rove_attention,
    rove_mixer,
)

N, D_IN = 7, 5
every_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=repr)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


# --- R_delta = P_0 + sum_m cos(delta omega_m) P_m + sin(delta omega_m) J_m --------------------


def rotation_by_planes(layout, delta):
    R = layout.rest()
    for m, omega in enumerate(layout.frequencies):
        angle = torch.tensor(delta * omega, dtype=torch.float64)
        R = R + angle.cos() * layout.plane(m) + angle.sin() * layout.quarter_turn(m)
    return R


@given(st.sampled_from(LAYOUTS), st.floats(-1e4, 1e4))
def test_a_rotation_is_a_sum_over_planes(layout, delta):
    expected = rotation_by_planes(layout, delta)
    torch.testing.assert_close(layout.matrix(delta), expected, rtol=0, atol=1e-15)
    R = layout.build(RotaryEmbedding).matrix(delta)
    torch.testing.assert_close(R, expected, rtol=0, atol=1e-12)


@every_layout
def test_the_projections_share_the_channels_out(layout):
    planes = [layout.plane(m) for m in range(layout.width // 2)]
    assert torch.equal(layout.rest() + sum(planes), torch.eye(layout.d_head, dtype=torch.float64))
    for m, P in enumerate(planes):
        J = layout.quarter_turn(m)
        assert torch.equal(P @ P, P)
        assert torch.equal(J @ J, -P)
        assert torch.equal(P @ J, J)


# --- the RoVE mixer as a sum of Kronecker products --------------------------------------------


def kronecker_terms(A, W_V, layout, here, there):
    """A (x) P_0 W_V, then C^m (x) P_m W_V and D^m (x) J_m W_V for each plane (W_V on columns)."""
    W = W_V.T
    delta = torch.tensor(there, dtype=torch.float64) - torch.tensor(here).double()[:, None]
    terms = [torch.kron(A, layout.rest() @ W)]
    for m, omega in enumerate(layout.frequencies):
        C, D = A * (delta * omega).cos(), A * (delta * omega).sin()
        terms.append(torch.kron(C, layout.plane(m) @ W))
        terms.append(torch.kron(D, layout.quarter_turn(m) @ W))
    return terms


@every_layout
@pytest.mark.parametrize(
    ("here", "there"),
    [(list(range(N)), list(range(N))), ([3.5, -2.0, 900.0], [0.0, 1.0, -7.25, 12.0, 40.0])],
    ids=["in order", "anywhere"],
)
def test_roves_mixer_is_a_sum_of_kronecker_products(layout, here, there):
    A = torch.randn(len(here), len(there), dtype=torch.float64).softmax(-1)
    W_V = torch.randn(D_IN, layout.d_head, dtype=torch.float64)
    total = sum(kronecker_terms(A, W_V, layout, here, there))
    slow = dense_from_positions(A, W_V, layout, here, there)
    torch.testing.assert_close(total, slow, rtol=0, atol=1e-12)
    rotary = layout.build(RotaryEmbedding)
    mixer = rove_mixer(A, W_V, rotary, positions=here, key_positions=there)
    torch.testing.assert_close(mixer.to_dense(), total, rtol=0, atol=1e-12)


@every_layout
@pytest.mark.parametrize("base", [3.0, 10_000.0, 1e12])
def test_the_number_of_terms_bounds_the_rank(layout, base):
    """At most rotary_dim, and one more with unrotated channels; never claimed to be equal."""
    layout = Layout(**{**vars(layout), "base": base})
    A = torch.rand(12, 12, dtype=torch.float64)
    W_V = torch.randn(9, layout.d_head, dtype=torch.float64)
    mixer = rove_mixer(A, W_V, layout.build(RotaryEmbedding))
    bound = layout.width + (1 if layout.unrotated else 0)
    rank = kronecker_rank(mixer)
    assert 1 <= rank <= bound
    blocks = dense_from_positions(A, W_V, layout, range(12), range(12))
    blocks = blocks.view(12, layout.d_head, 12, 9).transpose(1, 2)
    assert rank == reference_rank(blocks)


def test_the_bound_is_reached_by_fast_planes_and_not_by_slow_ones():
    A = torch.rand(12, 12, dtype=torch.float64)
    W_V = torch.randn(9, 7, dtype=torch.float64)
    fast = rove_mixer(A, W_V, RotaryEmbedding(7, rotary_dim=6, base=3.0))
    slow = rove_mixer(A, W_V, RotaryEmbedding(7, rotary_dim=6, base=1e24))
    assert kronecker_rank(fast) == 7
    # The slowest planes turn by less than 1e-7 in 12 tokens: sine below, cosine as good as still.
    assert kronecker_rank(slow, tol=1e-6) == 3


# --- a bias on the values is not a constant under RoVE ----------------------------------------


def attention_inputs():
    q, k = torch.randn(2, 1, N, 6, dtype=torch.float64)
    v = torch.randn(1, N, 6, dtype=torch.float64)
    return q, k, v, torch.randn(6, dtype=torch.float64)


def test_under_rope_a_value_bias_is_the_same_constant_for_every_query():
    q, k, v, b = attention_inputs()
    rotary = RotaryEmbedding(6)
    added = rope_attention(q, k, v + b, rotary) - rope_attention(q, k, v, rotary)
    torch.testing.assert_close(added, b.expand(1, N, 6), rtol=0, atol=1e-12)


def biased(A, layout, b):
    """sum_j A_ij R_{j-i} b, written out."""
    out = torch.zeros(N, layout.d_head, dtype=torch.float64)
    for i in range(N):
        for j in range(N):
            out[i] += A[i, j] * (layout.matrix(j - i) @ b)
    return out


@every_layout
def test_under_rove_it_is_turned_by_the_pattern(layout):
    q, k, v = torch.randn(3, 1, N, layout.d_head, dtype=torch.float64)
    b = torch.randn(layout.d_head, dtype=torch.float64)
    rotary = layout.build(RotaryEmbedding)
    added = rove_attention(q, k, v + b, rotary) - rove_attention(q, k, v, rotary)
    A = attention_pattern(q, k, rotary)[0]
    torch.testing.assert_close(added[0], biased(A, layout, b), rtol=0, atol=1e-12)
    for c in layout.unrotated:  # there, and only there, it stays a constant
        torch.testing.assert_close(added[0, :, c], b[c].expand(N), rtol=0, atol=1e-12)


def test_so_it_cannot_be_folded_into_the_output_bias():
    """Two patterns, the same bias: what it adds differs between them and between the queries."""
    q, k, v, b = attention_inputs()
    rotary = RotaryEmbedding(6)
    added = [
        rove_attention(scale * q, k, v + b, rotary) - rove_attention(scale * q, k, v, rotary)
        for scale in (0.1, 3.0)
    ]
    torch.testing.assert_close(added[0][0, 0], b, rtol=0, atol=1e-12)  # token 0 hears itself alone
    spread = added[0][0, 1:] - added[0][0, :1]
    assert (spread.norm(dim=-1) > 0.05 * b.norm()).all()
    assert (added[0] - added[1])[0, 1:].norm(dim=-1).max() > 0.05 * b.norm()


def test_the_layer_has_no_value_bias_to_fold():
    layer = RotarySelfAttention(12, 2, bias=True)
    assert {name for name, _ in layer.named_parameters() if name.startswith("b_")} == {
        "b_Q",
        "b_K",
        "b_O",
    }


# --- the three lenses are one operator --------------------------------------------------------


@every_layout
def test_the_change_of_frame_and_the_kernels_say_the_same(layout):
    """R_i^-1 (R_j W_V^T x_j) = psi_{j-i}^T x_j for every pair of tokens."""
    W_V = torch.randn(D_IN, layout.d_head, dtype=torch.float64)
    x = torch.randn(D_IN, dtype=torch.float64)
    rotary = layout.build(RotaryEmbedding)
    for i, j in ((0, 0), (5, 2), (2, 5), (-3, 4.5)):
        framed = layout.matrix(i).T @ layout.matrix(j) @ W_V.T @ x
        torch.testing.assert_close(x @ kernel(W_V, layout, j - i), framed, rtol=0, atol=1e-12)
        (stored,) = offset_kernels(W_V[None], rotary, [j - i])
        torch.testing.assert_close(x @ stored[0], framed, rtol=0, atol=1e-12)
