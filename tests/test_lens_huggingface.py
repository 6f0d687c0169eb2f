"""lens_huggingface: a bridge from a model in memory, on a copy, without a network."""

import pytest
import tokenizers
import torch
import transformers
from rove_models import ARCHITECTURES
from torch.testing import assert_close

from rove_lab.circuits import ov_circuit, qk_circuit
from rove_lab.huggingface import enable_rove, value_weights
from rove_lab.lens import bridge_from_huggingface, rotary_of, rove_hooks

TOKENS = torch.tensor([[3, 4, 5, 6, 3, 4], [9, 8, 7, 9, 8, 7]])


@pytest.fixture(scope="module")
def model():
    return ARCHITECTURES["llama"]()


def word_tokenizer(n_words=8, **special):
    words = {word: i for i, word in enumerate(["<s>", "</s>", *"abcdefghijkl"][:n_words])}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="a"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **special)


@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_a_bridge_computes_what_its_model_does(model_type):
    model = ARCHITECTURES[model_type](dtype=torch.float32)
    with torch.no_grad():
        expected = model(TOKENS).logits
        assert_close(bridge_from_huggingface(model)(TOKENS), expected, atol=1e-4, rtol=0)


def test_the_model_stays_as_it_was(model):
    before, attention = model(TOKENS).logits, model.config._attn_implementation
    modules = [type(module) for module in model.modules()]
    weights = {name: id(weight) for name, weight in model.named_parameters()}
    bridge = bridge_from_huggingface(model)
    with torch.no_grad():
        bridge.W_E.zero_()
    assert torch.equal(model(TOKENS).logits, before)
    assert [type(module) for module in model.modules()] == modules
    assert {name: id(weight) for name, weight in model.named_parameters()} == weights
    assert model.config._attn_implementation == attention
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_model_in_training_stays_so_and_draws_nothing():
    model = ARCHITECTURES["llama"](attention_dropout=0.5).train()
    model.activation_checkpointing_enable()
    state = torch.get_rng_state()
    bridge = bridge_from_huggingface(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert bridge.training
    assert all(module.training for module in bridge.modules())


@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_weights_are_as_the_circuits_want_them(model_type):
    """[heads, d_model, d_head], on n_kv_heads where they are fewer; fused ones taken apart."""
    bridge = bridge_from_huggingface(ARCHITECTURES[model_type]())
    for layer, block in enumerate(bridge.blocks):
        rotary = rotary_of(bridge, layer)
        W_Q, W_K, W_V, W_O = (
            getattr(block.attn, name).detach() for name in ("W_Q", "W_K", "W_V", "W_O")
        )
        assert torch.equal(W_V, bridge.W_V[layer])
        assert_close(qk_circuit(W_Q, W_K, rotary, [0])[0], bridge.QK.AB[layer].detach())
        assert_close(ov_circuit(W_V, W_O, rotary, [0])[0], bridge.OV.AB[layer].detach())
    assert_close(bridge.W_V.detach(), value_weights(ARCHITECTURES[model_type]()))


def test_the_tokenizer_is_the_users_own_and_stays_as_it_was(model):
    tokenizer = word_tokenizer(bos_token="<s>", eos_token="</s>")
    bridge = bridge_from_huggingface(model, tokenizer)
    assert tokenizer.pad_token is None
    assert bridge.tokenizer is not tokenizer
    assert bridge.tokenizer.get_vocab() == tokenizer.get_vocab()
    assert bridge.to_tokens("a b").tolist() == [[0, 2, 3]]
    assert bridge.to_tokens("a b", prepend_bos=False).tolist() == [[2, 3]]
    assert bridge.to_tokens(["a b", "c"]).tolist() == [[0, 2, 3], [0, 4, 1]]


def test_a_tokenizer_that_starts_with_bos_does_it_once(model):
    tokenizer = word_tokenizer(bos_token="<s>", eos_token="</s>")
    tokenizer.backend_tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    bridge = bridge_from_huggingface(model, tokenizer)
    assert bridge.to_tokens("a b").tolist() == [[0, 2, 3]]
    assert bridge.to_tokens("a b", prepend_bos=False).tolist() == [[2, 3]]


def test_without_special_tokens_there_is_still_padding(model):
    bridge = bridge_from_huggingface(model, word_tokenizer(unk_token="a"))
    assert bridge.to_tokens(["a b", "c"]).tolist() == [[2, 3], [4, 2]]


def test_refuses_a_tokenizer_of_another_model():
    small = ARCHITECTURES["llama"](vocab_size=6)
    assert bridge_from_huggingface(small, word_tokenizer(6)).tokenizer is not None
    with pytest.raises(ValueError, match=r"at most 6 tokens, .* got ids up to 6: take the model's"):
        bridge_from_huggingface(small, word_tokenizer(7))
    with pytest.raises(TypeError, match=r"expected a tokenizer of transformers, got str: load it"):
        bridge_from_huggingface(small, "gpt2")


def test_a_model_with_rove_is_refused_and_the_words_lead_to_the_same_logits():
    model = ARCHITECTURES["llama"]()
    with torch.no_grad():
        rove = enable_rove(model, layers=[0, 2], planes=[1, 3])
        expected = model(TOKENS).logits
        words = r"model\.rove\.remove\(\), .* layers=\[0, 2\], planes=\[1, 3\]\)"
        with pytest.raises(ValueError, match=words):
            bridge_from_huggingface(model)
        rove.remove()
        bridge = bridge_from_huggingface(model)
        hooks = rove_hooks(bridge, layers=[0, 2], planes=[1, 3])
        actual = bridge.run_with_hooks(TOKENS, fwd_hooks=hooks)
    assert_close(actual, expected, atol=1e-5, rtol=0)


def test_a_config_that_says_rove_is_not_passed_over():
    model = ARCHITECTURES["llama"]()  # as from_pretrained of transformers loads a saved one
    model.config.rove = {"layers": [0], "planes": None}
    with pytest.raises(
        ValueError, match=r"del model\.config\.rove, and then run its bridge with rov"
    ):
        bridge_from_huggingface(model)


def test_refuses_what_it_cannot_bridge(model):
    with pytest.raises(TypeError, match=r"expected a causal LM of transformers, got str: load one"):
        bridge_from_huggingface("gpt2")
    with pytest.raises(ValueError, match=r"TransformerLens knows, got LlamaModel: pass the model"):
        bridge_from_huggingface(model.model)
