"""Gradients, dtypes and autocast of attention."""

import pytest
import torch
import torch.nn.functional as F
from references import reference_attention
from samples import as_reference, inputs

from rove_lab import RotaryEmbedding, attention_pattern, rope_attention, rove_attention


@pytest.mark.parametrize("n_kv_heads", [1, 2])
@pytest.mark.parametrize("layout", [{}, {"rotary_dim": 2, "interleaved": True, "trailing": True}])
def test_fault_18_gradients_are_right(n_kv_heads, layout):
    q, k, v = (x.requires_grad_() for x in inputs(3, 3, 2, n_kv_heads, 4, batch=1))
    rotary = RotaryEmbedding(4, **layout)
    positions = torch.tensor([0, 5, -3])
    for attention in (rope_attention, rove_attention):
        assert torch.autograd.gradcheck(
            lambda *qkv, attention=attention: attention(*qkv, rotary, positions=positions),
            (q, k, v),
        )
    assert torch.autograd.gradcheck(lambda *qk: attention_pattern(*qk, rotary), (q, k))


def test_second_derivatives_are_right():
    """SDPA's fused CPU kernel has none, so torch's own plain form of it is asked for."""
    q, k, v = (x.requires_grad_() for x in inputs(2, 2, 2, 1, 2, batch=1))
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert torch.autograd.gradgradcheck(
            lambda *qkv: rove_attention(*qkv, RotaryEmbedding(2)), (q, k, v)
        )
    assert torch.autograd.gradgradcheck(
        lambda *qk: attention_pattern(*qk, RotaryEmbedding(2)), (q, k)
    )


def test_vmap():
    q, k, v = inputs(dtype=torch.float32)
    mapped = torch.func.vmap(lambda *qkv: rove_attention(*qkv, RotaryEmbedding(8)))(q, k, v)
    assert torch.allclose(mapped, rove_attention(q, k, v, RotaryEmbedding(8)), atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_fault_06_the_output_has_the_inputs_dtype(dtype):
    q, k, v = (x.to(dtype) for x in inputs())
    rotary, far = RotaryEmbedding(8), torch.arange(4) + 1_000_000
    reference = as_reference(rotary)
    where = [far.tolist()] * 2
    expected = reference_attention(q, k, v, reference, where, where, value_rotary=reference)
    for mask in (None, torch.ones(4, 4).bool(), torch.zeros(4, 4), torch.zeros(4, 4).to(dtype)):
        z = rove_attention(q, k, v, rotary, positions=far, attn_mask=mask)
        assert z.dtype == rope_attention(q, k, v, rotary, attn_mask=mask).dtype == dtype
        assert (z - expected).abs().max() <= 12 * torch.finfo(dtype).eps + 1e-9
        assert attention_pattern(q, k, rotary, attn_mask=mask).dtype == dtype


@pytest.mark.parametrize("cast_to", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mask", [None, torch.zeros(4, 4), torch.ones(4, 4).bool()], ids=str)
def test_autocast_gives_what_sdpa_gives(mask, dtype, cast_to):
    q, k, v = (x.to(dtype) for x in inputs(n_kv_heads=4))
    rotary, far = RotaryEmbedding(8), torch.arange(4) + 999_990
    exact = rove_attention(q.double(), k.double(), v.double(), rotary, positions=far)
    with torch.autocast("cpu", cast_to):
        plain = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        for attention in (rope_attention, rove_attention):
            z = attention(q, k, v, rotary, positions=far, attn_mask=mask)
            assert z.dtype == plain.dtype
        attention_pattern(q, k, rotary, attn_mask=mask)
    assert (z.double() - exact).abs().max() < 0.04  # half precision, at any position


def test_a_finite_penalty_stays_finite_in_autocasts_dtype():
    q, k, v = inputs(dtype=torch.float32, n_kv_heads=4)
    penalty = torch.full((4, 4), -1e6)  # the same for every key, and beyond float16
    with torch.autocast("cpu", torch.float16):
        z = rope_attention(q, k, v, RotaryEmbedding(8), attn_mask=penalty, is_causal=False)
    assert z.isfinite().all()
    assert z.any()


def test_autocast_takes_mixed_dtypes():
    q, k, v = inputs(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert rove_attention(q.bfloat16(), k, v, RotaryEmbedding(8)).dtype == torch.bfloat16


def test_autocast_does_not_take_float64_with_others():
    """It leaves float64 alone and casts the others, which then no longer fit."""
    q, k, v = inputs()
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(TypeError, match=r"one dtype, got q torch.float64 and k"),
    ):
        rove_attention(q, k.float(), v.float(), RotaryEmbedding(8))
