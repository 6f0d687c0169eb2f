"""The patterns of a GPT, against each layer's output made from them."""

import pytest
import torch

from rove_lab.gpt_patterns import gpt_patterns
from rove_lab.messenger import MessengerConfig
from rove_lab.model import GPT, GPTConfig

SIZES = {"d_vocab": 32, "n_ctx": 16, "d_model": 32, "n_layers": 2, "n_heads": 4}
TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 2, 8]])


def layer_by_hand(layer, x, pattern):
    """What a layer writes, from its pattern: each message turned by its offset."""
    v = torch.einsum("bpm,hmd->bhpd", x, layer.W_V)
    v = v.repeat_interleave(layer.W_Q.shape[0] // layer.W_V.shape[0], 1)
    place = torch.arange(x.shape[1])
    turns = layer.value_rotary.matrix(place - place[:, None], dtype=torch.float32)
    if layer.rotate_values:
        z = torch.einsum("bhij,ijcd,bhjd->bhic", pattern, turns, v)
    else:
        z = pattern @ v
    return torch.einsum("bhid,hdm->bim", z, layer.W_O)


@pytest.mark.parametrize("rotate_values", [False, True])
@pytest.mark.parametrize("n_kv_heads", [None, 2])
def test_each_layer_writes_what_its_pattern_says(rotate_values, n_kv_heads):
    torch.manual_seed(0)
    model = GPT(GPTConfig(**SIZES, rotate_values=rotate_values, n_kv_heads=n_kv_heads))
    read, written = [], []

    def note(layer, inputs, out):
        read.append(inputs[0])
        written.append(out)

    for block in model.blocks:
        block.attn.register_forward_hook(note)
    patterns = gpt_patterns(model, TOKENS)
    assert patterns.shape == (2, 2, 4, 6, 6)
    for layer in range(2):
        by_hand = layer_by_hand(model.blocks[layer].attn, read[layer], patterns[layer])
        torch.testing.assert_close(by_hand, written[layer], rtol=1e-4, atol=1e-5)


def test_the_patterns_are_causal_and_leave_nothing_in_the_model():
    model = GPT(GPTConfig(**SIZES))
    patterns = gpt_patterns(model, TOKENS)
    assert not patterns.requires_grad
    torch.testing.assert_close(patterns.sum(-1), torch.ones(2, 2, 4, 6))
    assert not patterns.triu(1).any()
    assert not any(block.attn._forward_pre_hooks for block in model.blocks)
    with pytest.raises(ValueError, match=r"expected tokens \[batch, pos\]"):
        gpt_patterns(model, TOKENS[0])
    assert not any(block.attn._forward_pre_hooks for block in model.blocks)


def test_other_models_and_tokens_are_refused():
    with pytest.raises(TypeError, match=r"expected a rove_lab\.model\.GPT, got Messenger"):
        gpt_patterns(MessengerConfig(8, 8, 8).build(), TOKENS)
    with pytest.raises(TypeError, match="tokens"):
        gpt_patterns(GPT(GPTConfig(**SIZES)), TOKENS.float())
