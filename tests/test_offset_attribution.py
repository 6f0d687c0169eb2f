"""offset_attribution: logits by head and offset, and one offset's messages swapped, by loops."""

import itertools

import pytest
import references_circuits as reference
import torch
from hypothesis import given
from hypothesis import strategies as st
from references_mixers import LAYOUTS
from samples import normal
from torch.nn.functional import softmax

from rove_lab import RotaryEmbedding, RotarySelfAttention, attention_pattern
from rove_lab.circuits import offset_attribution, patch_offset, z_from_pattern

HEADS, KV_HEADS, N, D_MODEL = 4, 2, 5, 6
ALL = range(1 - N, N)
PATTERN = softmax(normal(HEADS, N, N), -1)

each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=repr)


def assert_close(actual, expected, atol=1e-11):
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


def sample(layout):
    """Values, W_O and the direction of a logit."""
    d = layout.d_head
    return normal(KV_HEADS, N, d), normal(HEADS, d, D_MODEL, seed=1), normal(D_MODEL, seed=2)


@each_layout
@pytest.mark.parametrize("positions", [None, [0.0, 1.0, 2.5, 4.0, 7.0]])
def test_each_message_is_counted_at_its_offset(layout, positions):
    values, W_O, u = sample(layout)
    at = positions or list(range(N))
    offsets = sorted({b - a for a in at for b in at})[::-1]  # in any order
    found = offset_attribution(
        PATTERN, values, W_O, u, layout.build(RotaryEmbedding), offsets, positions=positions
    )
    expected = torch.zeros(HEADS, N, len(offsets), dtype=torch.float64)
    sent = reference.messages(PATTERN, values, layout, at, at)
    for h, i, j in itertools.product(range(HEADS), range(N), range(N)):
        expected[h, i, offsets.index(at[j] - at[i])] += sent[h, i, j] @ W_O[h] @ u
    assert_close(found, expected)


@each_layout
@pytest.mark.parametrize("rotate_values", [True, False])
def test_all_offsets_and_heads_sum_to_the_layers_contribution(layout, rotate_values):
    values, W_O, u = sample(layout)
    rotary = layout.build(RotaryEmbedding)
    how = {"rotate_values": rotate_values}
    found = offset_attribution(PATTERN, values, W_O, u, rotary, ALL, **how)
    z = z_from_pattern(PATTERN, values, rotary, **how)
    by_head = torch.einsum("hid,hdm,m->hi", z, W_O, u)
    assert_close(found.sum(-1), by_head)
    assert_close(found.sum((0, -1)), torch.einsum("hid,hdm,m->i", z, W_O, u))


def test_it_is_a_layers_own_contribution_to_a_difference_of_logits():
    torch.manual_seed(0)
    layer = RotarySelfAttention(D_MODEL, HEADS, KV_HEADS, d_head=8).double()
    x, W_U = normal(2, N, D_MODEL), normal(D_MODEL, 11)
    q, k, v = (torch.einsum("bpm,hmd->bhpd", x, W) for W in (layer.W_Q, layer.W_K, layer.W_V))
    u = W_U[:, [3, 5]].T - W_U[:, [4, 1]].T  # a difference for each sequence
    pattern = attention_pattern(q, k, layer.rotary)
    found = offset_attribution(pattern, v, layer.W_O, u, layer.rotary, range(1 - N, 1))
    assert found.shape == (2, HEADS, N, N)
    assert_close(found.sum((1, 3)), torch.einsum("bpm,bm->bp", layer(x), u))


@given(st.sampled_from(LAYOUTS), st.floats(-1e3, 1e3))
def test_only_offsets_matter(layout, shift):
    values, W_O, u = sample(layout)
    rotary, moved = layout.build(RotaryEmbedding), torch.arange(N) + round(shift)
    found = offset_attribution(PATTERN, values, W_O, u, rotary, ALL, positions=moved)
    assert_close(found, offset_attribution(PATTERN, values, W_O, u, rotary, ALL), atol=1e-9)


def test_chosen_queries_and_chosen_offsets():
    values, W_O, u = sample(LAYOUTS[0])
    rotary = RotaryEmbedding(6)
    every = offset_attribution(PATTERN, values, W_O, u, rotary, ALL)
    last = offset_attribution(PATTERN[:, -1:], values, W_O, u, rotary, [-2, 0])
    assert_close(last, every[:, -1:, [N - 3, N - 1]])
    one = offset_attribution(
        PATTERN[:, [1]], values, W_O, u, rotary, ALL, positions=[1], key_positions=range(N)
    )
    assert_close(one, every[:, [1]])
    nothing = offset_attribution(PATTERN, values, W_O, u, rotary, [0.5, -99])
    assert torch.equal(nothing, torch.zeros(HEADS, N, 2, dtype=torch.float64))
    assert offset_attribution(PATTERN, values, W_O, u, rotary, []).shape == (HEADS, N, 0)


def test_padded_batches_have_positions_of_their_own():
    values, W_O, u = sample(LAYOUTS[0])
    rotary, positions = RotaryEmbedding(6), torch.tensor([[0, 1, 2, 3, 4], [0, 0, 0, 1, 2]])
    both = [x.expand(2, *x.shape) for x in (PATTERN, values)]
    found = offset_attribution(*both, W_O, u, rotary, ALL, positions=positions)
    for b in range(2):
        alone = offset_attribution(PATTERN, values, W_O, u, rotary, ALL, positions=positions[b])
        assert_close(found[b], alone)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_real_positions_are_as_far_apart_as_one_says(dtype):
    """0.3 - 0.1 is not 0.2 in floating point, and no message may go missing for that."""
    values, W_O, u = sample(LAYOUTS[0])
    rotary, positions = RotaryEmbedding(6), torch.arange(N, dtype=dtype) / 10
    offsets = [d / 10 for d in ALL]
    found = offset_attribution(PATTERN, values, W_O, u, rotary, offsets, positions=positions)
    z = z_from_pattern(PATTERN, values, rotary, positions=positions)
    assert_close(found.sum(-1), torch.einsum("hid,hdm,m->hi", z, W_O, u))
    without = patch_offset(PATTERN, values, 0 * values, rotary, -0.2, positions=positions)
    lost = torch.einsum("hid,hdm,m->hi", z - without, W_O, u)
    assert_close(found[..., offsets.index(-0.2)], lost)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_attribution_is_at_least_float32(dtype):
    values, W_O, u = (x.to(dtype) for x in sample(LAYOUTS[0]))
    found = offset_attribution(PATTERN.to(dtype), values, W_O, u, RotaryEmbedding(6), ALL)
    assert found.dtype == torch.promote_types(dtype, torch.float32)
    exact = offset_attribution(
        PATTERN.to(dtype).double(), *(x.double() for x in (values, W_O, u)), RotaryEmbedding(6), ALL
    )
    assert_close(found.double(), exact, atol=1e-5)


def test_gradients_reach_all_of_it():
    given = [x.requires_grad_() for x in (PATTERN.clone(), *sample(LAYOUTS[2]))]
    rotary = LAYOUTS[2].build(RotaryEmbedding)
    assert torch.autograd.gradcheck(
        lambda *x: offset_attribution(*x, rotary, [-1, 0, 2]), given, fast_mode=True
    )


@each_layout
@pytest.mark.parametrize("delta", [-4, -1, 0, 2])
def test_a_patch_replaces_the_messages_of_one_offset(layout, delta):
    values, other = normal(KV_HEADS, N, layout.d_head), normal(KV_HEADS, N, layout.d_head, seed=9)
    sent, instead = (
        reference.messages(PATTERN, v, layout, range(N), range(N)) for v in (values, other)
    )
    expected = torch.zeros(HEADS, N, layout.d_head, dtype=torch.float64)
    for i, j in itertools.product(range(N), range(N)):
        expected[:, i] += (instead if j - i == delta else sent)[:, i, j]
    assert_close(
        patch_offset(PATTERN, values, other, layout.build(RotaryEmbedding), delta), expected
    )


@pytest.mark.parametrize("rotate_values", [True, False])
def test_patches_of_all_offsets_replace_everything(rotate_values):
    rotary, how = RotaryEmbedding(6), {"rotate_values": rotate_values}
    values, other = normal(KV_HEADS, N, 6), normal(KV_HEADS, N, 6, seed=9)
    z, new = (z_from_pattern(PATTERN, v, rotary, **how) for v in (values, other))
    changes = [patch_offset(PATTERN, values, other, rotary, d, **how) - z for d in ALL]
    assert_close(z + sum(changes), new)
    assert_close(patch_offset(PATTERN, values, values, rotary, -1, **how), z, atol=1e-14)


def test_ablating_an_offset_takes_its_attribution_away():
    """The two calls agree: what a logit loses is what the messages of that offset added."""
    values, W_O, u = sample(LAYOUTS[0])
    rotary, positions = RotaryEmbedding(6), [0.0, 1.0, 2.5, 4.0, 5.0]
    z = z_from_pattern(PATTERN, values, rotary, positions=positions)
    without = patch_offset(PATTERN, values, 0 * values, rotary, -1.5, positions=positions)
    lost = torch.einsum("hid,hdm,m->hi", z - without, W_O, u)
    by_offset = offset_attribution(PATTERN, values, W_O, u, rotary, [-1.5], positions=positions)
    assert_close(lost, by_offset[..., 0])


def test_a_patch_in_half_precision_rounds_once():
    values, other = (normal(KV_HEADS, N, 6, seed=s).bfloat16() for s in (1, 9))
    found = patch_offset(PATTERN.bfloat16(), values, other, RotaryEmbedding(6), -1)
    exact = patch_offset(
        PATTERN.bfloat16().double(), values.double(), other.double(), RotaryEmbedding(6), -1
    )
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), exact, rtol=2**-8, atol=1e-5)


class TestBadInput:
    rotary = RotaryEmbedding(6)
    values, W_O, u = sample(LAYOUTS[0])

    def test_values_of_another_length(self):
        for call in (
            lambda v: offset_attribution(PATTERN, v, self.W_O, self.u, self.rotary, [0]),
            lambda v: patch_offset(PATTERN, v, v, self.rotary, 0),
        ):
            with pytest.raises(ValueError, match=r"expected values \[n_kv_heads, 5, 6\]"):
                call(self.values[:, :3])

    def test_output_weights(self):
        with pytest.raises(ValueError, match=r"expected W_O \[heads, d_head=6, d_model\], got"):
            offset_attribution(PATTERN, self.values, self.W_O[..., :5].mT, self.u, self.rotary, [0])
        with pytest.raises(ValueError, match="expected W_O of 4 heads, as the pattern has, got 2"):
            offset_attribution(PATTERN, self.values, self.W_O[:2], self.u, self.rotary, [0])
        W_O = self.W_O.to("meta")
        with pytest.raises(ValueError, match="expected all on cpu, got W_O on meta"):
            offset_attribution(PATTERN, self.values, W_O, self.u, self.rotary, [0])

    @pytest.mark.parametrize("u", [torch.ones(5), torch.ones(2, 6), torch.tensor(1.0)])
    def test_a_direction_that_does_not_fit(self, u):
        with pytest.raises(ValueError, match=r"expected direction \[d_model=6\] or \[6\], got"):
            offset_attribution(PATTERN, self.values, self.W_O, u, self.rotary, [0])

    def test_a_direction_elsewhere(self):
        u = self.u.to("meta")
        with pytest.raises(ValueError, match="expected all on cpu, got direction on meta"):
            offset_attribution(PATTERN, self.values, self.W_O, u, self.rotary, [0])
        with pytest.raises(TypeError, match="expected direction to be a floating-point tensor"):
            offset_attribution(PATTERN, self.values, self.W_O, 3, self.rotary, [0])

    def test_an_offset_twice(self):
        with pytest.raises(ValueError, match="expected each offset once, got one twice"):
            offset_attribution(PATTERN, self.values, self.W_O, self.u, self.rotary, [0, -1, 0])

    @pytest.mark.parametrize("other", [torch.ones(4, 5, 6).double(), torch.ones(2, 5, 6)])
    def test_other_values_unlike_the_values(self, other):
        with pytest.raises(ValueError, match=r"expected other_values like values, \[2, 5, 6\]"):
            patch_offset(PATTERN, self.values, other, self.rotary, 0)

    def test_other_values_that_do_not_fit(self):
        with pytest.raises(ValueError, match=r"expected other_values \[n_kv_heads, 5, 6\]"):
            patch_offset(PATTERN, self.values, self.values[:, 1:], self.rotary, 0)

    @pytest.mark.parametrize("offset", [5, -5, 0.5])
    def test_an_offset_that_no_pair_has(self, offset):
        with pytest.raises(ValueError, match=r"expected an offset between a query and a key.*got"):
            patch_offset(PATTERN, self.values, self.values, self.rotary, offset)

    def test_an_offset_that_is_no_number(self):
        with pytest.raises(TypeError, match="expected offset to be a number"):
            patch_offset(PATTERN, self.values, self.values, self.rotary, [0])
