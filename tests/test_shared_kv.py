"""shared_kv: against double loops, RoVE with k = v; what it refuses."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from references import softmax
from samples import as_reference, normal, window_of

from rove_lab import RotaryEmbedding, YarnScaling, rove_attention
from rove_lab.frames import shared_kv_attention

ROTARY = RotaryEmbedding(8, base=50.0, rotary_dim=4, interleaved=True, trailing=True)
WHOLE = RotaryEmbedding(8, base=50.0)
YARN = RotaryEmbedding(8, interleaved=True, scaling=YarnScaling(4.0, 64))
PART_YARN = RotaryEmbedding(8, rotary_dim=4, trailing=True, scaling=YarnScaling(4.0, 64))
each_rotary = pytest.mark.parametrize(
    "rotary", [ROTARY, WHOLE, YARN, PART_YARN], ids=["part", "whole", "yarn", "part, yarn"]
)


def inputs(q_len=5, k_len=5, batch=2, heads=3, **how):
    return (
        normal(batch, heads, q_len, 8, seed=1, **how),
        normal(batch, 1, k_len, 8, seed=2, **how),
    )


def reference(q, kv, rotary, here, there, *, undo=True, sinks=None, mask=None, causal=True):
    """sum_j A_ij R_{j-i} c_j number by number, R_j c_j without undo; positions [batch][pos]."""
    turns = as_reference(rotary)
    (n_batch, heads, q_len, d_head), k_len = q.shape, kv.shape[2]
    mask = (torch.zeros(1) if mask is None else mask).expand(n_batch, heads, q_len, k_len)
    z = torch.zeros_like(q)
    for b, h, i in itertools.product(range(n_batch), range(heads), range(q_len)):
        scores, messages = [], []
        for j in range(k_len):
            c = kv[b, 0, j].tolist()
            turned = turns.turn(c, there[b][j] - here[b][i])
            seen = not causal or j - i <= k_len - q_len
            product = turns.score(q[b, h, i].tolist(), turned)
            score = product / math.sqrt(d_head) + mask[b, h, i, j].item()
            scores.append(score if seen else -math.inf)
            messages.append(turned if undo else turns.turn(c, there[b][j]))
        if sinks is not None:
            scores.append(sinks[h].item())
            messages.append([0.0] * d_head)
        for weight, message in zip(softmax(scores), messages, strict=True):
            z[b, h, i] += weight * torch.tensor(message, dtype=torch.float64)
    return z


# Against double loops


@each_rotary
@pytest.mark.parametrize("undo", [True, False])
@pytest.mark.parametrize("sinks", [None, torch.tensor([-1.0, 0.5, 3.0])])
def test_equals_the_double_loop(rotary, undo, sinks):
    q, kv = inputs()
    here = torch.tensor([[3, 4, 9, 10, 11], [0, 7, 8, 8, 9]])
    mask = normal(2, 1, 5, 5, seed=4).masked_fill(normal(5, 5, seed=5) > 0.8, -math.inf)
    for how in ({}, {"mask": mask}, {"mask": mask, "causal": False}):
        expected = reference(
            q, kv, rotary, here.tolist(), here.tolist(), undo=undo, sinks=sinks, **how
        )
        z = shared_kv_attention(
            q,
            kv,
            rotary,
            positions=here,
            undo=undo,
            sinks=sinks,
            attn_mask=how.get("mask"),
            is_causal=how.get("causal", True),
        )
        torch.testing.assert_close(z, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("sinks", [None, torch.tensor([-1.0, 0.5, 3.0])])
def test_fewer_queries_than_latents_are_the_last_ones(sinks):
    q, kv = inputs(q_len=2, k_len=6)
    here, there = [[4, 5]] * 2, [list(range(6))] * 2
    expected = reference(q, kv, ROTARY, here, there, sinks=sinks)
    z = shared_kv_attention(q, kv, ROTARY, sinks=sinks)
    torch.testing.assert_close(z, expected, rtol=0, atol=1e-12)
    again = shared_kv_attention(q, kv, ROTARY, positions=[4, 5], sinks=sinks)
    torch.testing.assert_close(again, z)
    moved = [torch.arange(4, 6) + 40, torch.arange(6) + 40]
    later = shared_kv_attention(
        q, kv, ROTARY, positions=moved[0], key_positions=moved[1], sinks=sinks
    )
    torch.testing.assert_close(later, z)


def test_a_window_of_latents_gives_what_the_mask_gives():
    q, kv = inputs(q_len=9, k_len=9)
    whole = shared_kv_attention(q, kv, ROTARY, attn_mask=window_of(9, 4))
    held = shared_kv_attention(
        q[..., -1:, :], kv[..., -4:, :], ROTARY, positions=[8], key_positions=[5, 6, 7, 8]
    )
    torch.testing.assert_close(held, whole[..., -1:, :])


# Against RoVE


@each_rotary
@pytest.mark.parametrize("k_len", [5, 8])
def test_it_is_rove_whose_keys_are_its_values(rotary, k_len):
    q, kv = inputs(k_len=k_len)
    for how in (
        {},
        {"is_causal": False, "scale": 0.3},
        {"attn_mask": normal(5, k_len, seed=6) > -0.5},
        {"positions": torch.arange(5) * 2.5 - 7, "key_positions": torch.arange(k_len) * 3},
    ):
        z = shared_kv_attention(q, kv, rotary, **how)
        torch.testing.assert_close(z, rove_attention(q, kv, kv, rotary, **how))


@settings(max_examples=25)
@given(shift=st.integers(-10_000, 10_000), sunk=st.booleans())
def test_undone_the_output_does_not_see_a_shift_and_otherwise_turns_with_it(shift, sunk):
    q, kv = inputs()
    sinks = torch.tensor([0.5, -1.0, 2.0]) if sunk else None
    moved = torch.arange(5) + shift
    for undo in (True, False):
        z, later = (
            shared_kv_attention(q, kv, ROTARY, positions=t, undo=undo, sinks=sinks)
            for t in (torch.arange(5), moved)
        )
        expected = z if undo else ROTARY([shift] * 5).apply(z)
        torch.testing.assert_close(later, expected, rtol=0, atol=1e-10)


def test_without_the_undo_the_rotary_channels_tell_absolute_positions():
    q, kv = inputs()
    z, later = (
        shared_kv_attention(q, kv, ROTARY, positions=t, undo=False)
        for t in (torch.arange(5), torch.arange(5) + 3)
    )
    moved = (later - z).abs().amax((0, 1, 2))
    assert (moved[4:] > 0.1).all()
    assert (moved[:4] < 1e-12).all()


# Sinks


def test_a_sink_takes_its_share_and_sends_nothing():
    """What is left is sigmoid(logsumexp of the logits - sink) of every message."""
    q, kv = inputs(k_len=7)
    sinks = torch.tensor([-1.0, 0.5, 3.0], dtype=torch.float64)
    here, there = ROTARY(range(2, 7)), ROTARY(range(7))
    logits = here.apply(q) @ there.apply(kv).mT / 8**0.5
    logits = logits.masked_fill(~torch.ones(5, 7).bool().tril(2), -math.inf)
    share = torch.sigmoid(logits.logsumexp(-1) - sinks[:, None])
    z = shared_kv_attention(q, kv, ROTARY)
    sunk = shared_kv_attention(q, kv, ROTARY, sinks=sinks)
    torch.testing.assert_close(sunk, share[..., None] * z)


def test_a_sink_of_minus_infinity_is_none():
    q, kv = inputs()
    sunk = shared_kv_attention(q, kv, ROTARY, sinks=torch.full((3,), -math.inf))
    torch.testing.assert_close(sunk, shared_kv_attention(q, kv, ROTARY))


@pytest.mark.parametrize("sinks", [None, torch.zeros(3)])
def test_a_query_that_may_attend_to_nothing_gives_zeros(sinks):
    q, kv = inputs()
    mask = torch.ones(5, 5).bool()
    mask[2] = False
    z = shared_kv_attention(q, kv, ROTARY, attn_mask=mask, sinks=sinks)
    assert (z[..., 2, :] == 0).all()
    assert (z[..., 3, :] != 0).all()


# Gradients, dtypes, devices


@pytest.mark.parametrize("undo", [True, False])
def test_gradients_reach_queries_latents_and_sinks(undo):
    q, kv = (x.requires_grad_() for x in inputs(q_len=2, k_len=3, batch=1, heads=2))
    sinks = normal(2, seed=7).requires_grad_()

    def attention(q, kv, sinks):
        return shared_kv_attention(q, kv, ROTARY, sinks=sinks, undo=undo)

    assert torch.autograd.gradcheck(attention, (q, kv, sinks))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("sunk", [False, True])
def test_the_result_has_the_dtype_of_the_input(dtype, sunk):
    q, kv = inputs()
    sinks = torch.tensor([0.5, -1.0, 2.0]) if sunk else None  # float32 beside any, as theirs
    z = shared_kv_attention(q.to(dtype), kv.to(dtype), ROTARY, sinks=sinks)
    assert z.dtype == dtype
    exact = shared_kv_attention(q, kv, ROTARY, sinks=sinks)
    assert (z - exact).abs().max() < 8 * torch.finfo(dtype).eps


def test_autocast_computes_in_its_own_dtype():
    q, kv = inputs(dtype=torch.float32)
    sinks = torch.zeros(3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = shared_kv_attention(q, kv, ROTARY, sinks=sinks)
    exact = shared_kv_attention(q, kv, ROTARY, sinks=sinks)
    assert (z - exact).abs().max() < 0.05


def test_no_batch_and_no_data():
    q, kv = inputs(batch=1)
    z = shared_kv_attention(q[0], kv[0], ROTARY, sinks=torch.zeros(3))
    torch.testing.assert_close(z, shared_kv_attention(q, kv, ROTARY, sinks=torch.zeros(3))[0])
    shape = shared_kv_attention(
        q.to("meta"), kv.to("meta"), ROTARY, sinks=torch.zeros(3, device="meta")
    ).shape
    assert shape == q.shape


# What is refused


def test_latents_of_several_heads_or_without_a_head_axis_are_refused():
    q, kv = inputs()
    for wrong in (kv.expand(2, 3, 5, 8), kv[:, 0], kv[0, 0], kv[:, :0]):
        with pytest.raises(ValueError, match=r"expected kv \[\.\.\., 1, key_pos, d_head\].*got \["):
            shared_kv_attention(q, wrong, ROTARY)


def test_what_is_no_tensor_of_numbers_is_refused():
    q, kv = inputs()
    for wrong in (None, [[0.0]], kv.long()):
        with pytest.raises(TypeError, match=r"expected kv to be a floating-point tensor, got"):
            shared_kv_attention(q, wrong, ROTARY)
        with pytest.raises(TypeError, match=r"expected q to be a floating-point tensor, got"):
            shared_kv_attention(wrong, kv, ROTARY)
    with pytest.raises(TypeError, match=r"expected sinks to be a floating-point tensor, got"):
        shared_kv_attention(q, kv, ROTARY, sinks=[0.0, 0.0, 0.0])
    with pytest.raises(TypeError, match=r"one dtype, got q torch.float64 and k torch.float32"):
        shared_kv_attention(q, kv.float(), ROTARY)


@pytest.mark.parametrize("sinks", [torch.zeros(2), torch.zeros(()), torch.zeros(3, 1)])
def test_a_sink_for_each_query_head(sinks):
    with pytest.raises(ValueError, match=r"expected sinks \[heads=3\] on cpu, got .*one logit"):
        shared_kv_attention(*inputs(), ROTARY, sinks=sinks)


def test_sinks_elsewhere_are_refused():
    with pytest.raises(ValueError, match=r"\[heads=3\] on cpu, got \[3\] on meta"):
        shared_kv_attention(*inputs(), ROTARY, sinks=torch.zeros(3, device="meta"))


def test_sizes_lengths_flags_and_masks_must_fit():
    q, kv = inputs()
    with pytest.raises(ValueError, match=r"d_head=16, got 8"):
        shared_kv_attention(q, kv, RotaryEmbedding(16))
    with pytest.raises(TypeError, match=r"expected a RotaryEmbedding, got Rotation"):
        shared_kv_attention(q, kv, ROTARY(range(5)))
    with pytest.raises(ValueError, match=r"expected positions .* for 5 queries, got"):
        shared_kv_attention(q, kv, ROTARY, positions=range(4))
    with pytest.raises(ValueError, match=r"at most as many queries as keys, got 5 queries and 4"):
        shared_kv_attention(q, kv[:, :, :4], ROTARY)
    with pytest.raises(TypeError, match=r"expected undo"):
        shared_kv_attention(q, kv, ROTARY, undo=1)
    with pytest.raises(ValueError, match=r"attn_mask to broadcast"):
        shared_kv_attention(q, kv, ROTARY, attn_mask=torch.ones(5, 4).bool(), sinks=torch.zeros(3))
