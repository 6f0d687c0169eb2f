"""What a transformer repeats, beside its equations."""

import math

import pytest
import torch
from torch import nn

from rove_lab.self_attention import RotarySelfAttention
from rove_lab.transformer_block import MLP, Block, norm


@pytest.mark.parametrize("rms_norm", [True, False])
def test_a_norm_has_weights_and_no_bias(rms_norm):
    x = torch.randn(3, 8, dtype=torch.float64)
    of = norm(8, rms_norm).double()
    of.weight.data = torch.randn(8, dtype=torch.float64)
    plain = x if rms_norm else x - x.mean(-1, keepdim=True)
    wanted = plain / (plain.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * of.weight
    torch.testing.assert_close(of(x), wanted)
    assert [name for name, _ in of.named_parameters()] == ["weight"]


def test_an_mlp_is_two_matrices_around_a_gelu():
    mlp = MLP(4, 6).double()
    x = torch.randn(2, 3, 4, dtype=torch.float64)
    hidden = x @ mlp.W_in.weight.T
    hidden = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
    torch.testing.assert_close(mlp(x), hidden @ mlp.W_out.weight.T)


def test_a_block_adds_to_the_stream():
    block = Block(RotarySelfAttention(8, n_heads=2), 16).double()
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    middle = x + block.attn(block.ln1(x))
    torch.testing.assert_close(block(x), middle + block.mlp(block.ln2(middle)))
    seen = block(x, attn_mask=torch.eye(5, dtype=torch.bool))
    assert not torch.allclose(seen, block(x)), "how to attend is passed on"


def test_what_writes_into_the_stream_is_small_in_deep_models():
    sizes = []
    for n_layers in (1, 8):
        torch.manual_seed(0)
        block = Block(RotarySelfAttention(32, n_heads=2), 64, n_layers)
        sizes.append(torch.stack([block.attn.W_O.norm(), block.mlp.W_out.weight.norm()]))
    torch.testing.assert_close(sizes[0], sizes[1] * math.sqrt(8))
    assert isinstance(block.ln1, nn.RMSNorm)
