"""RoVE goes with attention kernels that never form the pattern: they are called, and left as is."""

import pytest
import torch
import torch.nn.functional as F
from references import reference_attention
from samples import as_reference, inputs
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import profile

from rove_lab import RotaryEmbedding, rove_attention

FLASH = "aten::_scaled_dot_product_flash_attention_for_cpu"  # torch's, after Dao et al. 2022


def test_the_kernel_gets_rotated_values_and_its_output_is_undone(monkeypatch):
    calls, kernel = [], F.scaled_dot_product_attention

    def spy(*tensors, **how):
        calls.append((tensors, kernel(*tensors, **how)))
        return calls[-1][1]

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    q, k, v = inputs()
    rotary = RotaryEmbedding(8)
    at = rotary(torch.arange(4))
    z = rove_attention(q, k, v, rotary)
    ((given, mixed),) = calls
    for got, expected in zip(given, (q, k, v), strict=True):
        assert torch.equal(got, at.apply(expected))
    assert torch.equal(z, at.undo(mixed))


def test_flash_attention_gives_what_the_sum_gives():
    q, k, v = inputs(n_kv_heads=4)
    rotary = RotaryEmbedding(8)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), profile() as seen:
        z = rove_attention(q, k, v, rotary)
    assert FLASH in {event.key for event in seen.key_averages()}
    at, reference = [[0, 1, 2, 3]] * 2, as_reference(rotary)
    expected = reference_attention(q, k, v, reference, at, at, value_rotary=reference)
    assert torch.allclose(z, expected, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_flash_attention_gives_the_gradients_of_the_plain_kernel(dtype):
    found = []
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
        q, k, v = (x.to(dtype).requires_grad_() for x in inputs(n_kv_heads=4, q_len=33, k_len=33))
        with sdpa_kernel(backend):
            rove_attention(q, k, v, RotaryEmbedding(8)).square().sum().backward()
        found.append([q.grad, k.grad, v.grad])
    for flash, plain in zip(*found, strict=True):
        off = (flash.double() - plain.double()).norm() / plain.double().norm()
        assert off < 30 * torch.finfo(dtype).eps
