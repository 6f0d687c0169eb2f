"""positional_scores: what a QK circuit makes of the offset alone, against loops over tokens."""

import math

import pytest
import references_circuits as reference
import torch
from hypothesis import given
from hypothesis import strategies as st
from references_mixers import LAYOUTS, Layout
from samples import D_MODEL, HEADS, attention_weights, normal

from rove_lab import RotaryEmbedding, YarnScaling, attention_pattern, kernel_spectrum
from rove_lab.circuits import fast_share, positional_scores, qk_circuit, qk_spectrum
from rove_lab.temperature import with_temperature

OFFSETS = [0, -1, 3, -17.25]
N = 5

each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=repr)


def assert_close(actual, expected, atol=1e-11):
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


def queries_and_keys(layout, n=N):
    x = normal(n, D_MODEL)
    W_Q, W_K, _, _ = attention_weights(layout)
    return x @ W_Q, x @ W_K


@each_layout
@pytest.mark.parametrize("share", [None, [3.0, 0.0, 1.0, 1.0, 5.0]])
def test_the_curve_is_the_mean_over_pairs_of_tokens(layout, share):
    q, k = queries_and_keys(layout)
    weights = None if share is None else torch.tensor(share)
    found = positional_scores(q, k, layout.build(RotaryEmbedding), OFFSETS, weights=weights)
    share = [s / sum(share or [1.0] * N) for s in share or [1.0] * N]
    for n, delta in enumerate(OFFSETS):
        for h in range(HEADS):
            keys = reference.kv(k, h, HEADS)
            mean = reference.mean_score(q[h], keys, layout, delta, share, layout.d_head**-0.5)
            assert found[n, h].item() == pytest.approx(mean, abs=1e-12)


@pytest.mark.parametrize("rotary_dim", [6, 4])
def test_one_token_has_the_scores_that_attention_gives_it(rotary_dim):
    """The logits of the pattern, up to the constant that a softmax takes away; YaRN's included."""
    rotary = RotaryEmbedding(6, rotary_dim=rotary_dim, scaling=YarnScaling(4.0, 64))
    q, k = queries_and_keys(Layout(6), 1)
    pattern = attention_pattern(q.expand(-1, 7, -1), k.expand(-1, 7, -1), rotary)
    curve = positional_scores(q, k, rotary, torch.arange(-6, 1))
    assert_close(curve.softmax(0).T, pattern[:, -1])
    assert_close(positional_scores(q, k, rotary, [-2], scale=3.0), curve[4:5] * 3 * 6**0.5)


@pytest.mark.parametrize("trailing", [False, True])
def test_yarns_temperature_multiplies_what_turns_of_a_score(trailing):
    layout = Layout(6, rotary_dim=4, trailing=trailing)
    rotary = layout.build(RotaryEmbedding)
    scaling = YarnScaling(1.0, 64, attention_factor=1.5)  # no plane is slowed
    hot = RotaryEmbedding(6, rotary_dim=4, trailing=trailing, scaling=scaling)
    q, k = queries_and_keys(layout)
    still = torch.zeros(6, dtype=torch.float64).index_fill(0, torch.tensor(layout.unrotated), 1)
    rest = positional_scores(q * still, k, rotary, OFFSETS)
    turning = positional_scores(q * (1 - still), k, rotary, OFFSETS)
    assert_close(positional_scores(q, k, hot, OFFSETS), 1.5**2 * turning + rest)


@pytest.mark.parametrize("rotary_dim", [4, None])
@pytest.mark.parametrize("trailing", [False, True])
def test_yarns_temperature_is_in_the_shares_and_comes_before_a_circuit(rotary_dim, trailing):
    """As Hugging Face has it: m on the turning channels of both sides of a score."""
    scaling = YarnScaling(1.0, 64, attention_factor=1.5)  # no plane is slowed
    how = {"rotary_dim": rotary_dim, "trailing": trailing}
    plain, rotary = RotaryEmbedding(6, **how), RotaryEmbedding(6, **how, scaling=scaling)
    m = torch.ones(6, dtype=torch.float64)
    m[rotary.plane_channels.flatten()] = 1.5
    W_Q, W_K, _, _ = attention_weights(Layout(6, rotary_dim=rotary_dim, trailing=trailing))
    assert_close(qk_spectrum(W_Q, W_K, rotary), qk_spectrum(W_Q * m, W_K * m, plain))
    warmed, scale = with_temperature(W_Q, rotary, 1.0)
    expected = qk_circuit(W_Q * m, W_K * m, plain, OFFSETS)
    assert_close(scale * qk_circuit(warmed, W_K, rotary, OFFSETS), expected)


def test_batches_are_averaged_over():
    layout, rotary = LAYOUTS[0], RotaryEmbedding(6)
    q, k = queries_and_keys(layout, 6)
    batched = [x.unflatten(-2, (2, 3)).movedim(-3, 0) for x in (q, k)]  # [2, heads, 3, d_head]
    expected = positional_scores(q, k, rotary, OFFSETS)
    assert_close(positional_scores(*batched, rotary, OFFSETS), expected)


def test_the_mean_of_embeddings_is_enough():
    layout, rotary = LAYOUTS[0], RotaryEmbedding(6)
    W_Q, W_K, _, _ = attention_weights(layout)
    W_E = normal(9, D_MODEL)
    mean = W_E.mean(0, keepdim=True)
    expected = positional_scores(W_E @ W_Q, W_E @ W_K, rotary, OFFSETS)
    assert_close(positional_scores(mean @ W_Q, mean @ W_K, rotary, OFFSETS), expected)
    qk = qk_circuit(W_Q, W_K, rotary, OFFSETS)
    assert_close(expected, (mean @ qk @ mean.T)[..., 0, 0] / 6**0.5)


@given(st.sampled_from(LAYOUTS), st.floats(-1e3, 1e3))
def test_the_other_way_round_queries_and_keys_change_places(layout, delta):
    q, k = queries_and_keys(layout)
    q, rotary = q[: len(k)], layout.build(RotaryEmbedding)
    back = positional_scores(k, q, rotary, [-delta])
    assert_close(positional_scores(q, k, rotary, [delta]), back)


@each_layout
def test_the_spectrum_is_the_energy_of_each_plane(layout):
    W_Q, W_K, _, _ = attention_weights(layout)
    found = qk_spectrum(W_Q, W_K, layout.build(RotaryEmbedding))
    for h in range(HEADS):
        energies = reference.qk_energies(W_Q[h], reference.kv(W_K, h, HEADS), layout)
        assert_close(found[h], energies / energies.sum())
    assert_close(found.sum(-1), torch.ones(HEADS, dtype=torch.float64))


@pytest.mark.parametrize(
    "how", [{}, {"interleaved": True}, {"trailing": True}, {"interleaved": True, "trailing": True}]
)
def test_the_energies_add_up_to_the_mean_over_all_offsets(how):
    """Planes at 1 and 3 radians a token: 16 offsets around the circle average all products."""
    layout = Layout(7, base=1 / 9, rotary_dim=4, **how)
    assert layout.frequencies == pytest.approx([1.0, 3.0])
    W_Q, W_K, _, _ = attention_weights(layout)
    offsets = [2 * math.pi * n / 16 for n in range(16)]
    circuits = qk_circuit(W_Q, W_K, layout.build(RotaryEmbedding), offsets)
    mean = circuits.square().sum((-2, -1)).mean(0)
    for h in range(HEADS):
        energies = reference.qk_energies(W_Q[h], reference.kv(W_K, h, HEADS), layout)
        assert_close(mean[h], energies.sum(), atol=1e-9)


def test_a_frozen_plane_keeps_its_share_and_scale_does_not_count():
    W_Q, W_K, _, _ = attention_weights(LAYOUTS[0])
    spectrum = qk_spectrum(W_Q, W_K, RotaryEmbedding(6))
    assert torch.equal(qk_spectrum(W_Q, W_K, RotaryEmbedding(6).planes([])), spectrum)
    assert_close(qk_spectrum(1e-30 * W_Q, 1e20 * W_K, RotaryEmbedding(6)), spectrum)
    zero = qk_spectrum(0 * W_Q, W_K, RotaryEmbedding(6))
    assert torch.equal(zero, torch.zeros(HEADS, 4, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_both_are_computed_in_float64(dtype):
    q, k = (x.to(dtype) for x in queries_and_keys(LAYOUTS[0]))
    W_Q, W_K = (W.to(dtype) for W in attention_weights(LAYOUTS[0])[:2])
    rotary = RotaryEmbedding(6)
    pairs = [
        (
            positional_scores(q, k, rotary, OFFSETS),
            positional_scores(q.double(), k.double(), rotary, OFFSETS),
        ),
        (qk_spectrum(W_Q, W_K, rotary), qk_spectrum(W_Q.double(), W_K.double(), rotary)),
    ]
    for found, exact in pairs:
        assert found.dtype == torch.promote_types(dtype, torch.float32)
        assert_close(found.double(), exact, atol=1e-6)


def test_gradients_reach_the_weights():
    q, k = (x.requires_grad_() for x in queries_and_keys(LAYOUTS[2]))
    rotary = LAYOUTS[2].build(RotaryEmbedding)
    assert torch.autograd.gradcheck(
        lambda *x: positional_scores(*x, rotary, [-3, 0.5]), (q, k), fast_mode=True
    )
    W = [W.requires_grad_() for W in attention_weights(LAYOUTS[2])[:2]]
    assert torch.autograd.gradcheck(lambda *W: qk_spectrum(*W, rotary), W, fast_mode=True)


@pytest.mark.parametrize("n_ctx", [1, 6, 7, 600, 1e9])
def test_fast_planes_turn_once_or_more_in_the_context(n_ctx):
    layout = Layout(7, rotary_dim=6, base=1000.0)  # 1, 0.1 and 0.01 radians a token
    rotary = layout.build(RotaryEmbedding)
    spectrum = kernel_spectrum(normal(2, D_MODEL, 7), rotary)
    fast = [m for m, omega in enumerate(layout.frequencies) if omega * n_ctx >= 2 * math.pi]
    assert_close(fast_share(spectrum, rotary, n_ctx), spectrum[:, fast].sum(-1))
    assert fast_share(spectrum, rotary.planes([]), n_ctx).tolist() == [0.0, 0.0]
    assert fast_share(spectrum[None], rotary, n_ctx).shape == (1, 2)


class TestBadInput:
    rotary = RotaryEmbedding(6)
    q, k = queries_and_keys(LAYOUTS[0])

    def test_another_d_head(self):
        with pytest.raises(ValueError, match=r"rotation's d_head=8, got 6: use RotaryEmb.*\(6\)"):
            positional_scores(self.q, self.k, RotaryEmbedding(8), [0])

    def test_heads_that_cannot_be_grouped(self):
        with pytest.raises(ValueError, match="expected heads divisible by n_kv_heads, got 3 and 2"):
            positional_scores(self.q[:3], self.k, self.rotary, [0])

    def test_no_tokens(self):
        with pytest.raises(ValueError, match=r"expected k of one token or more, got \[2, 0, 6\]"):
            positional_scores(self.q, self.k[:, :0], self.rotary, [0])

    def test_weights_of_another_length(self):
        with pytest.raises(ValueError, match=r"expected weights \[pos=5\].* of q, got \[4\]"):
            positional_scores(self.q, self.k, self.rotary, [0], weights=torch.ones(4))

    @pytest.mark.parametrize("bad", [[1, -1, 1, 1, 1], [0] * 5, [math.nan] * 5, [math.inf] * 5])
    def test_weights_that_are_no_shares(self, bad):
        weights = torch.tensor(bad, dtype=torch.float32)
        with pytest.raises(ValueError, match="expected weights that are finite, not negative"):
            positional_scores(self.q, self.k, self.rotary, [0], weights=weights)

    def test_types(self):
        with pytest.raises(TypeError, match="expected a RotaryEmbedding, got NoneType"):
            positional_scores(self.q, self.k, None, [0])
        with pytest.raises(TypeError, match="expected weights to be a floating-point tensor"):
            positional_scores(self.q, self.k, self.rotary, [0], weights=[1.0] * 5)
        with pytest.raises(TypeError, match="expected scale to be a number"):
            positional_scores(self.q, self.k, self.rotary, [0], scale="1")
        with pytest.raises(TypeError, match="expected spectrum to be a floating-point tensor"):
            fast_share([0.5], self.rotary, 9)
        with pytest.raises(TypeError, match="expected a RotaryEmbedding, got int"):
            fast_share(torch.ones(4), 6, 9)

    def test_weights_of_another_shape(self):
        W_Q, W_K, _, _ = attention_weights(LAYOUTS[0])
        with pytest.raises(ValueError, match=r"expected W_Q .*got \[4, 6, 5\]"):
            qk_spectrum(W_Q.mT, W_K, self.rotary)
        with pytest.raises(ValueError, match=r"expected W_K .*got \[2, 6, 5\]"):
            qk_spectrum(W_Q, W_K.mT, self.rotary)
        with pytest.raises(ValueError, match="multiple of the KV heads, got 3 and 2 in W_K"):
            qk_spectrum(W_Q[:3], W_K, self.rotary)
        with pytest.raises(
            ValueError, match="expected all weights on one device, got cpu and meta"
        ):
            qk_spectrum(W_Q, W_K.to("meta"), self.rotary)

    def test_a_spectrum_of_another_rotation(self):
        for spectrum in (torch.ones(2, 5), torch.tensor(1.0)):
            with pytest.raises(ValueError, match=r"rotary_dim / 2 \+ 1 = 4\], got"):
                fast_share(spectrum, self.rotary, 9)

    def test_a_context_without_tokens(self):
        with pytest.raises(ValueError, match="expected n_ctx to be positive, got 0"):
            fast_share(torch.ones(4), self.rotary, 0)
