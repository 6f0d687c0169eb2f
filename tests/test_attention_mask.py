"""Boolean and additive masks, and queries that may attend to nothing."""

import math

import numpy as np
import pytest
import torch
from references import reference_attention, reference_rotary
from samples import inputs, normal

from rove_lab import RotaryEmbedding, attention_pattern, rope_attention, rove_attention

ROTARY = RotaryEmbedding(8)
ATTENTIONS = [rope_attention, rove_attention]


MASK_SHAPES = [(5,), (1, 5), (4, 5), (4, 1), (1, 1), (1, 4, 5), (4, 4, 5), (4, 1, 5), (2, 1, 4, 5),
               (2, 4, 4, 5), (2, 1, 1, 5)]  # fmt: skip


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("kind", ["boolean", "additive", "penalties"])
@pytest.mark.parametrize("shape", MASK_SHAPES, ids=str)
def test_masks_broadcast_as_in_sdpa_and_combine_with_causality(shape, kind, is_causal):
    q, k, v = inputs(4, 5)
    allowed = normal(*shape) > -0.5
    mask = {
        "boolean": allowed,
        "additive": torch.zeros(shape, dtype=torch.float64).masked_fill(~allowed, -math.inf),
        "penalties": 3 * normal(*shape),
    }[kind]
    reference = reference_rotary(8)
    positions, keys = [[1, 2, 3, 4]] * 2, [[0, 1, 2, 3, 4]] * 2
    how = {"attn_mask": mask, "is_causal": is_causal}
    expected = reference_attention(q, k, v, reference, positions, keys, **how)
    assert torch.allclose(rope_attention(q, k, v, ROTARY, **how), expected, atol=1e-9)
    expected = reference_attention(
        q, k, v, reference, positions, keys, value_rotary=reference, **how
    )
    assert torch.allclose(rove_attention(q, k, v, ROTARY, **how), expected, atol=1e-9)


@pytest.mark.parametrize("axes", [3, 4, 5])
@pytest.mark.parametrize(
    "mask_dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64]
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_only_minus_infinity_masks(dtype, mask_dtype, axes):
    """The lowest finite number is a penalty, whichever of the two dtypes is smaller.

    Given to every key alike it cancels in the softmax, and the values are averaged.
    """
    shape = (1,) * (axes - 3) + (2, 4, 8)
    q = torch.full(shape, 2.0, dtype=dtype)
    v = torch.arange(4.0).to(dtype)[:, None].expand(shape)
    mask = torch.full((4, 4), torch.finfo(mask_dtype).min, dtype=mask_dtype)
    still = ROTARY.planes([])
    for attention in ATTENTIONS:
        z = attention(q, -q, v, still, attn_mask=mask, is_causal=False)
        assert torch.allclose(z.float(), torch.full(shape, 1.5), atol=0.02)
        z = attention(q, -q, v, still, attn_mask=mask)
        assert torch.allclose(z.float()[..., 0], torch.tensor([0, 0.5, 1, 1.5]), atol=0.02)
    pattern = attention_pattern(q, -q, still, attn_mask=mask, is_causal=False)
    assert torch.allclose(pattern.float(), torch.tensor(0.25), atol=1e-3)
    mask[:, 0] = -math.inf
    z = rope_attention(q, -q, v, still, attn_mask=mask, is_causal=False)
    assert torch.allclose(z.float(), torch.full(shape, 2.0), atol=0.02)


def test_a_finite_bonus_stays_finite_in_half_precision():
    q, k, v = (x.half() for x in inputs(n_kv_heads=4))
    bonus = torch.zeros(4, 4)
    bonus[:, 1] = 1e30  # beyond float16: every query that may reads key 1
    z = rope_attention(q, k, v, ROTARY, attn_mask=bonus)
    assert torch.allclose(z[:, :, 1:], v[:, :, 1:2].expand(-1, -1, 3, -1), atol=2e-3)


@pytest.mark.parametrize("kind", ["boolean", "additive", "causal"])
@pytest.mark.parametrize("axes", [3, 4, 5])
@pytest.mark.parametrize("attention", [*ATTENTIONS, attention_pattern])
def test_a_query_that_may_attend_to_nothing_gives_zeros_and_finite_gradients(attention, axes, kind):
    lead = (2,) * (axes - 3)
    q, k, v = (
        normal(*lead, heads, 4, 8, seed=seed).requires_grad_()
        for seed, heads in enumerate((4, 2, 2))
    )
    allowed = torch.tensor([[1, 1, 1, 1], [0, 0, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0]]).bool()
    inputs = (q, k) if attention is attention_pattern else (q, k, v)
    if kind == "causal":  # more queries than keys: the first two see nothing
        inputs = (q, *(x[..., :2, :] for x in inputs[1:]))
        z, empty = attention(*inputs, ROTARY, positions=range(4)), [0, 1]
    else:
        mask = torch.zeros(4, 4).masked_fill(~allowed, -math.inf)
        mask = allowed if kind == "boolean" else mask
        z, empty = attention(*inputs, ROTARY, attn_mask=mask, is_causal=False), [1, 3]
    full = [i for i in range(4) if i not in empty]
    assert (z[..., empty, :] == 0).all()
    assert (z[..., full, :] != 0).any(-1).all()
    (z * normal(*z.shape)).sum().backward()
    for x in (q, k) if attention is attention_pattern else (q, k, v):
        assert x.grad.isfinite().all()
    assert (q.grad[..., empty, :] == 0).all()
    assert (q.grad[..., full[1:], :] != 0).any()


def test_gradients_reach_a_learned_bias():
    q, k, v = inputs(3, 3, 2, 1, batch=1)
    bias = normal(2, 3, 3).requires_grad_()
    for attention in ATTENTIONS:
        assert torch.autograd.gradcheck(
            lambda b, attention=attention: attention(q, k, v, ROTARY, attn_mask=b), bias
        )


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.complex64])
def test_masks_of_zeros_and_ones_are_refused(dtype):
    q = normal(2, 4, 5, 8)
    for attention in ATTENTIONS:
        with pytest.raises(TypeError, match=r"attn_mask .*boolean .*got torch\.\w+.*\.bool\(\)"):
            attention(q, q, q, ROTARY, attn_mask=torch.ones(5, 5, dtype=dtype))
    with pytest.raises(TypeError, match=r"attn_mask .*boolean .*got torch\.\w+"):
        attention_pattern(q, q, ROTARY, attn_mask=torch.ones(5, 5, dtype=dtype))


@pytest.mark.parametrize("mask", [[[True] * 5] * 5, np.ones((5, 5), bool), "causal", True, 0.0])
def test_masks_that_are_not_tensors_are_refused(mask):
    q = normal(2, 4, 5, 8)
    for attention in ATTENTIONS:
        with pytest.raises(TypeError, match=r"attn_mask .*tensor, got \w+"):
            attention(q, q, q, ROTARY, attn_mask=mask)


@pytest.mark.parametrize(
    "shape", [(2, 5), (4,), (6,), (5, 4), (3, 5, 5), (2, 5, 5), (4, 4, 5, 5), (1, 2, 4, 5, 5)]
)
def test_masks_that_do_not_fit_are_refused(shape):
    q = normal(2, 4, 5, 8)
    for attention in ATTENTIONS:
        with pytest.raises(ValueError, match=r"broadcast to .*\[2, 4, 5, 5\], got \[.*None"):
            attention(q, q, q, ROTARY, attn_mask=torch.ones(shape, dtype=torch.bool))


def test_masks_on_another_device_are_refused():
    q = normal(2, 4, 5, 8)
    with pytest.raises(ValueError, match=r"attn_mask on cpu, got meta"):
        rove_attention(q, q, q, ROTARY, attn_mask=torch.ones(5, 5, device="meta").bool())
