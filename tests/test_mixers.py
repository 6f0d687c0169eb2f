"""Each mixer against its definition: Kronecker, gated, an ordinary convolution, and RoVE."""

import pytest
import torch
import torch.nn.functional as F
from references_mixers import (
    LAYOUTS,
    Layout,
    dense_from_kernels,
    dense_from_positions,
)

from rove_lab import (
    BlockToeplitzMixer,
    GatedBlockToeplitzMixer,
    KroneckerMixer,
    RotaryEmbedding,
    attention_pattern,
    offset_kernels,
    rope_attention,
    rope_mixer,
    rove_mixer,
)

D_IN = 5


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def pattern_of(q_len, k_len):
    return torch.randn(q_len, k_len, dtype=torch.float64).softmax(-1)


def weight(d_head):
    return torch.randn(D_IN, d_head, dtype=torch.float64)


# --- RoPE: one message whatever the offset ---------------------------------------------------


@pytest.mark.parametrize("shape", [(6, 6), (3, 6), (6, 3)])
def test_ropes_mixer_is_a_kronecker_product(shape):
    A, W_V = pattern_of(*shape), weight(4)
    mixer = rope_mixer(A, W_V)
    assert isinstance(mixer, KroneckerMixer)
    kron = torch.kron(A, W_V.T.contiguous())
    torch.testing.assert_close(mixer.to_dense(), kron, rtol=0, atol=1e-15)
    x = torch.randn(shape[1], D_IN, dtype=torch.float64)
    torch.testing.assert_close((mixer @ x).flatten(), kron @ x.flatten(), rtol=0, atol=1e-13)


def test_ropes_mixer_is_rope_attention():
    rotary, W_V = RotaryEmbedding(4), weight(4)
    q, k = torch.randn(2, 1, 6, 4, dtype=torch.float64)
    x = torch.randn(6, D_IN, dtype=torch.float64)
    mixer = rope_mixer(attention_pattern(q, k, rotary)[0], W_V)
    expected = rope_attention(q, k, (x @ W_V)[None], rotary)[0]
    torch.testing.assert_close(mixer @ x, expected, rtol=0, atol=1e-13)


# --- RoVE: the message turns with the offset -------------------------------------------------

POSITIONS = {
    "in order": ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4]),
    "shifted": ([100, 101, 102, 103, 104], [100, 101, 102, 103, 104]),
    "negative": ([-9, -8, -7, -6, -5], [-9, -8, -7, -6, -5]),
    "real": ([0.5, 1.25, 2.0, 2.0, 7.125], [-0.75, 0.0, 1.5, 3.25, 10.0]),
    "gaps, out of order": ([40, 2, 17, 3, 99], [5, 50, 1, 0, 1000]),
    "fewer queries": ([3.5, -4], [0, 1, 2, 3, 4]),
    "more queries": ([0, 1, 2, 3, 4], [7, 3]),
    "one query": ([4], [0, 1, 2, 3, 4]),
    "far": ([10**6, 10**6 + 1], [10**6 - 1, 10**6, 10**6 + 0.5]),
}


@pytest.mark.parametrize("layout", LAYOUTS, ids=repr)
@pytest.mark.parametrize("where", POSITIONS)
def test_roves_blocks_turn_with_the_offset(layout, where):
    here, there = POSITIONS[where]
    A, W_V = pattern_of(len(here), len(there)), weight(layout.d_head)
    rotary = layout.build(RotaryEmbedding)
    mixer = rove_mixer(A, W_V, rotary, positions=here, key_positions=there)
    expected = dense_from_positions(A, W_V, layout, here, there)
    torch.testing.assert_close(mixer.to_dense(), expected, rtol=0, atol=1e-12)
    x = torch.randn(2, len(there), D_IN, dtype=torch.float64)
    product = (x.flatten(1) @ expected.T).view(2, len(here), layout.d_head)
    # at a million tokens the angles themselves are rounded, to 1e-10 radians
    torch.testing.assert_close(mixer @ x, product, rtol=0, atol=1e-9 if where == "far" else 1e-12)


def test_positions_default_as_in_attention():
    A, W_V, rotary = pattern_of(3, 5), weight(4), RotaryEmbedding(4)
    layout = Layout(4)

    def matrix(**where):
        return rove_mixer(A, W_V, rotary, **where).to_dense()

    ends = dense_from_positions(A, W_V, layout, [2, 3, 4], [0, 1, 2, 3, 4])
    torch.testing.assert_close(matrix(), ends, rtol=0, atol=1e-12)
    torch.testing.assert_close(matrix(key_positions=range(7, 12)), ends, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        matrix(positions=[0, 0, 9]),
        dense_from_positions(A, W_V, layout, [0, 0, 9], [0, 1, 2, 3, 4]),
        rtol=0,
        atol=1e-12,
    )
    A = pattern_of(3, 3)  # as many queries as keys: the keys stand where the queries do
    torch.testing.assert_close(
        rove_mixer(A, W_V, rotary, positions=[4, 8, 8.5]).to_dense(),
        dense_from_positions(A, W_V, layout, [4, 8, 8.5], [4, 8, 8.5]),
        rtol=0,
        atol=1e-12,
    )


def test_a_mixer_keeps_its_positions_when_the_givers_change():
    where = torch.arange(4, dtype=torch.float64)
    W_V = torch.randn(D_IN, 8, dtype=torch.float64)
    mixer = rove_mixer(pattern_of(4, 4), W_V, RotaryEmbedding(8), positions=where)
    before = mixer.to_dense()
    where += torch.tensor([0.0, 1.0, 4.0, 9.0])
    assert torch.equal(mixer.to_dense(), before)


def test_real_positions_from_a_list_keep_their_precision():
    """Float32 tells reals near a million apart by 1/16 of a token only."""
    A, W_V, rotary = pattern_of(3, 3), weight(4), RotaryEmbedding(4)
    there = [10**6 + 0.1, 10**6 + 1.1, 10**6 + 2.1]
    expected = dense_from_positions(A, W_V, Layout(4), [0, 1, 2], [0, 1, 2])
    for where in ({"key_positions": there}, {"positions": there}):
        matrix = rove_mixer(A, W_V, rotary, **where).to_dense()
        torch.testing.assert_close(matrix, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("layout", LAYOUTS, ids=repr)
@pytest.mark.parametrize("shape", [(5, 5), (3, 5), (5, 3)])
def test_gated_kernels_by_index_are_roves_mixer_in_order(layout, shape):
    q_len, k_len = shape
    A, W_V, rotary = pattern_of(*shape), weight(layout.d_head), layout.build(RotaryEmbedding)
    kernels = offset_kernels(W_V[None], rotary, range(-(q_len - 1), k_len))[:, 0]
    gated = GatedBlockToeplitzMixer(A, kernels)
    rove = rove_mixer(A, W_V, rotary, positions=range(q_len), key_positions=range(k_len))
    torch.testing.assert_close(gated.to_dense(), rove.to_dense(), rtol=0, atol=1e-12)
    x = torch.randn(k_len, D_IN, dtype=torch.float64)
    torch.testing.assert_close(gated @ x, rove @ x, rtol=0, atol=1e-12)


def test_no_turning_planes_make_rove_ropes_mixer():
    A, W_V, still = pattern_of(5, 5), weight(6), RotaryEmbedding(6).planes([])
    torch.testing.assert_close(
        rove_mixer(A, W_V, still).to_dense(), rope_mixer(A, W_V).to_dense(), rtol=0, atol=1e-15
    )


def test_a_shift_of_every_position_changes_nothing():
    A, W_V, rotary = pattern_of(5, 5), weight(6), RotaryEmbedding(6)
    shifted = rove_mixer(A, W_V, rotary, positions=torch.arange(5) + 123456)
    torch.testing.assert_close(
        shifted.to_dense(), rove_mixer(A, W_V, rotary).to_dense(), rtol=0, atol=1e-15
    )


# --- a pattern of the offset alone: an ordinary convolution ----------------------------------


def convolution_of(weights, W_V, rotary):
    """Kernels a_delta psi_delta for weights[delta + n - 1] = a_delta."""
    n = (len(weights) + 1) // 2
    return weights[:, None, None] * offset_kernels(W_V[None], rotary, range(-(n - 1), n))[:, 0]


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 9, 33])
@pytest.mark.parametrize("kind", ["constant", "decaying", "random"])
@pytest.mark.parametrize("layout", [Layout(4), Layout(5, rotary_dim=4, interleaved=True)], ids=repr)
def test_a_pattern_of_the_offset_alone_makes_a_convolution(n, kind, layout):
    offsets = torch.arange(-(n - 1), n, dtype=torch.float64)
    weights = {
        "constant": torch.full_like(offsets, 1 / n),
        "decaying": torch.exp(-offsets.abs() / 3),
        "random": torch.randn_like(offsets),
    }[kind]
    A = torch.stack([weights[n - 1 - i : 2 * n - 1 - i] for i in range(n)])
    W_V, rotary = weight(layout.d_head), layout.build(RotaryEmbedding)
    plain = BlockToeplitzMixer(convolution_of(weights, W_V, rotary))
    rove = rove_mixer(A, W_V, rotary)
    assert plain.shape == rove.shape
    slow = dense_from_positions(A, W_V, layout, range(n), range(n))
    torch.testing.assert_close(plain.to_dense(), slow, rtol=0, atol=1e-12)
    torch.testing.assert_close(rove.to_dense(), slow, rtol=0, atol=1e-12)
    x = torch.randn(3, n, D_IN, dtype=torch.float64)
    expected = (x.flatten(1) @ slow.T).view(3, n, layout.d_head)
    torch.testing.assert_close(plain @ x, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(rove @ x, expected, rtol=0, atol=1e-10)


def test_the_causal_uniform_pattern_is_a_convolution_divided_by_i_plus_1():
    n, W_V, rotary = 9, weight(4), RotaryEmbedding(4)
    A = attention_pattern(torch.zeros(1, n, 4).double(), torch.zeros(1, n, 4).double(), rotary)[0]
    torch.testing.assert_close(A[4, :5], torch.full((5,), 0.2).double())  # uniform, causal
    counts = torch.arange(1, n + 1, dtype=torch.float64)
    plain = BlockToeplitzMixer(
        convolution_of((torch.arange(-(n - 1), n) <= 0).double(), W_V, rotary)
    )
    x = torch.randn(n, D_IN, dtype=torch.float64)
    rove = rove_mixer(A, W_V, rotary)
    torch.testing.assert_close(rove @ x, (plain @ x) / counts[:, None], rtol=0, atol=1e-10)
    divided = (plain.to_dense().view(n, -1) / counts[:, None]).view(plain.shape)
    torch.testing.assert_close(rove.to_dense(), divided, rtol=0, atol=1e-12)
    with pytest.raises(AssertionError):  # and without the division it is not one
        torch.testing.assert_close(rove @ x, (plain @ x) / n, rtol=0, atol=1e-3)


def test_the_fft_product_is_torch_conv1d():
    n = 50
    kernels = torch.randn(2 * n - 1, 3, 4, dtype=torch.float64)
    x = torch.randn(2, n, 3, dtype=torch.float64)
    expected = F.conv1d(x.mT, kernels.permute(2, 1, 0), padding=n - 1).mT
    torch.testing.assert_close(BlockToeplitzMixer(kernels) @ x, expected, rtol=0, atol=1e-10)


def test_the_product_of_one_number_and_of_none():
    mixer = BlockToeplitzMixer(torch.full((1, 1, 1), 3.0))
    assert torch.allclose(mixer @ torch.full((1, 1), 2.0), torch.full((1, 1), 6.0))
    assert (mixer @ torch.zeros(0, 1, 1)).shape == (0, 1, 1)


def test_the_fft_product_of_float32_is_that_of_float64_rounded():
    n = 300
    kernels, x = torch.randn(2 * n - 1, 3, 4), torch.randn(n, 3)
    exact = BlockToeplitzMixer(kernels.double()) @ x.double()
    error = (BlockToeplitzMixer(kernels) @ x - exact).abs().max()
    assert error <= 1e-5 * exact.abs().max()


def test_gates_of_one_make_the_gated_mixer_a_convolution():
    kernels = torch.randn(11, 3, 4, dtype=torch.float64)
    gated = GatedBlockToeplitzMixer(torch.ones(6, 6, dtype=torch.float64), kernels)
    plain = BlockToeplitzMixer(kernels)
    assert torch.equal(gated.to_dense(), plain.to_dense())
    torch.testing.assert_close(
        plain.to_dense(), dense_from_kernels(torch.ones(6, 6), kernels), rtol=0, atol=0
    )
