"""value_hooks: three hooks on one attention module, against sums written out."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from references import plane_channels, reference_rotary
from torch import nn

from rove_lab import RotaryEmbedding
from rove_lab.value_hooks import ValueHooks
from rove_lab.value_projections import AttentionLayer, value_layout

N, N_HEADS, N_KV_HEADS, D_HEAD, D_MODEL = 5, 4, 2, 6, 10
ROTARY = RotaryEmbedding(D_HEAD, base=50.0)
POSITIONS = torch.tensor([[0, 1, 4, 5, 90]])


class Config:
    model_type = "llama"
    num_attention_heads, num_key_value_heads = N_HEADS, N_KV_HEADS


class Attention(nn.Module):
    """Heads with a given pattern, so that all they compute is what becomes of the values."""

    def __init__(self, dtype=torch.float64):
        super().__init__()
        self.v_proj = nn.Linear(D_MODEL, N_KV_HEADS * D_HEAD, dtype=dtype)  # with a bias
        self.o_proj = nn.Linear(N_HEADS * D_HEAD, D_MODEL, dtype=dtype)
        self.seen = None

    def forward(self, x, pattern, position_ids=None):
        v = self.v_proj(x).unflatten(-1, (N_KV_HEADS, D_HEAD)).transpose(1, 2)
        z = pattern @ v.repeat_interleave(N_HEADS // N_KV_HEADS, dim=1)
        self.seen = v
        return self.o_proj(z.transpose(1, 2).flatten(-2))


@pytest.fixture
def attention():
    torch.manual_seed(0)
    return Attention()


def hooked(attention, rotary=ROTARY):
    layer = AttentionLayer("layers.0", attention, "v_proj", "o_proj")
    return ValueHooks(layer, value_layout(Config()), rotary)


def inputs(dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(1, N, D_MODEL, generator=generator, dtype=torch.float64)
    pattern = torch.rand(1, N_HEADS, N, N, generator=generator, dtype=torch.float64)
    return x.to(dtype), pattern.tril().to(dtype)


def expected(attention, x, pattern, positions):
    """sum_j A_ij R_{p_j - p_i} v_j, one head, one i and one j at a time."""
    rotary = reference_rotary(D_HEAD, base=50.0)
    v = attention.v_proj(x)[0].unflatten(-1, (N_KV_HEADS, D_HEAD))
    z = torch.zeros(N, N_HEADS, D_HEAD, dtype=torch.float64)
    for h in range(N_HEADS):
        for i in range(N):
            for j in range(N):
                R = rotary.matrix((positions[0, j] - positions[0, i]).item())
                z[i, h] = z[i, h] + pattern[0, h, i, j] * (R @ v[j, h // 2])
    return attention.o_proj(z.flatten(-2))[None]


def test_equals_the_sum_written_out_in_float64(attention):
    x, pattern = inputs()
    wanted = expected(attention, x, pattern, POSITIONS)
    plain = attention(x, pattern)
    hooks = hooked(attention)
    found = attention(x, pattern, position_ids=POSITIONS)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-13)
    assert (found - plain).abs().max() > 0.5
    hooks.remove()
    assert torch.equal(attention(x, pattern), plain)


def test_gradients_equal_those_of_the_sum(attention):
    x, pattern = inputs()
    parameters = list(attention.parameters())
    wanted = torch.autograd.grad(expected(attention, x, pattern, POSITIONS).sum(), parameters)
    hooked(attention)
    out = attention(x, pattern, position_ids=POSITIONS)
    for found, each in zip(torch.autograd.grad(out.sum(), parameters), wanted, strict=True):
        torch.testing.assert_close(found, each, rtol=0, atol=1e-12)


def test_every_call_turns_by_its_own_positions(attention):
    x, pattern = inputs()
    hooked(attention)
    first = attention(x, pattern, position_ids=POSITIONS)
    attention(x, pattern, position_ids=3 * POSITIONS)
    assert torch.equal(attention(x, pattern, position_ids=POSITIONS), first)


def test_calls_in_two_threads_turn_by_their_own_positions(attention):
    x, pattern = inputs()
    hooked(attention)
    rows = [POSITIONS, 3 * POSITIONS]
    alone = [attention(x, pattern, position_ids=positions) for positions in rows]
    both_have_values = threading.Barrier(2, timeout=30)

    def wait(*_):
        both_have_values.wait()

    attention.v_proj.register_forward_hook(wait)
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(lambda p: attention(x, pattern, position_ids=p), rows))
    assert all(map(torch.equal, together, alone))


def test_a_row_of_positions_for_each_sequence(attention):
    x, pattern = (torch.cat((each, each)) for each in inputs())
    rows = torch.cat((POSITIONS, 3 * POSITIONS))
    hooked(attention)
    both = attention(x, pattern, position_ids=rows)
    for row in range(2):
        alone = attention(x[:1], pattern[:1], position_ids=rows[row : row + 1])
        torch.testing.assert_close(both[row : row + 1], alone, rtol=0, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_values_are_turned_in_float32_and_rounded_once(dtype):
    torch.manual_seed(0)
    attention = Attention(dtype)
    x, pattern = inputs(dtype)
    far = 100_000 + POSITIONS
    attention(x, pattern)
    plain = attention.seen.double()
    hooked(attention)
    assert attention(x, pattern, position_ids=far).dtype == dtype
    turned = attention.seen
    assert turned.dtype == dtype
    exact = ROTARY(far).apply(plain)
    # half a unit in the last place of what the dtype can hold, and a few of float32's
    assert ((turned - exact).abs() <= torch.finfo(dtype).eps / 2 * exact.abs() + 3e-7).all()


def test_channels_that_do_not_turn_are_the_same_bit_for_bit(attention):
    x, pattern = inputs()
    attention(x, pattern)
    plain = attention.seen
    hooked(attention, RotaryEmbedding(D_HEAD, base=50.0, rotary_dim=2))
    attention(x, pattern, position_ids=POSITIONS)
    turning = {channel for pair in plane_channels(D_HEAD, 2) for channel in pair}
    for channel in range(D_HEAD):
        same = torch.equal(attention.seen[..., channel], plain[..., channel])
        assert same is (channel not in turning)


def test_says_what_it_is_on(attention):
    assert repr(hooked(attention)) == "ValueHooks(layers.0, RotaryEmbedding(6, base=50.0))"
