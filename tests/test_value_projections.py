"""value_projections: which numbers are the values, and which weights they come from."""

import pytest
import torch
import transformers
from hf_models import small_config
from torch import nn
from transformers import AutoModelForCausalLM

from rove_lab.value_projections import attention_layers, value_layout, value_weights

TYPES = ["llama", "cohere", "gptj", "phi", "phi3", "gpt_neox"]


# Value weights


@pytest.mark.parametrize(
    ("model_type", "projection"),
    [
        ("llama", "v_proj"),
        ("qwen2", "v_proj"),
        ("gemma3_text", "v_proj"),
        ("cohere", "v_proj"),
        ("gptj", "v_proj"),
        ("phi", "v_proj"),
        ("phi3", "qkv_proj"),
        ("gpt_neox", "query_key_value"),
    ],
)
def test_value_weights_give_the_values_that_attention_gets(model_type, projection):
    seen, inputs = [], []

    def attention(module, query, key, value, mask, **_):
        seen.append(value)
        return torch.zeros_like(query).transpose(1, 2), None

    transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS.register("values", attention)
    torch.manual_seed(0)
    config = small_config(model_type)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="values").eval()
    for name, module in model.named_modules():
        if name.endswith(f".{projection}"):
            module.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    with torch.no_grad():
        model(torch.arange(3, 9)[None], use_cache=False)
    W_V = value_weights(model)
    n_kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    assert W_V.shape[:3] == (config.num_hidden_layers, n_kv_heads, config.hidden_size)
    for x, v, weights in zip(inputs, seen, W_V, strict=True):
        torch.testing.assert_close(x[:, None] @ weights, v, rtol=0, atol=1e-5)


def test_value_weights_are_a_copy():
    model = AutoModelForCausalLM.from_config(small_config("llama"))
    W_V, before = value_weights(model), model.model.layers[0].self_attn.v_proj.weight.clone()
    assert not W_V.requires_grad
    W_V.zero_()
    assert torch.equal(model.model.layers[0].self_attn.v_proj.weight, before)


class Adapted(nn.Linear):
    """A layer whose `weight` is not all of it, as an adapter's or a quantised one's."""


@pytest.mark.parametrize("change", ["adapter", "shape"])
def test_value_weights_refuses_what_it_cannot_read(change):
    model = AutoModelForCausalLM.from_config(small_config("llama"))
    replacement = Adapted(64, 48) if change == "adapter" else nn.Linear(64, 24)
    model.model.layers[3].self_attn.v_proj = replacement
    count = "got 7 of 1 shapes" if change == "adapter" else "got 8 of 2 shapes"
    with pytest.raises(ValueError, match=f"expected one v_proj .* 8 layers of llama, {count}"):
        value_weights(model)


def test_value_weights_refuses_a_model_without_value_projections():
    config = transformers.GPT2Config(n_embd=16, n_head=2, n_layer=1, vocab_size=8)
    with pytest.raises(ValueError, match=r"1 layers of gpt2, got 0 of 0 shapes"):
        value_weights(AutoModelForCausalLM.from_config(config))


# Layouts


@pytest.mark.parametrize("model_type", TYPES)
def test_writing_changes_what_is_read_and_nothing_else(model_type):
    config = small_config(model_type)
    layout = value_layout(config)
    model = AutoModelForCausalLM.from_config(config)
    layer = attention_layers(model)[1]
    projected = layer.attention.get_submodule(layer.projection)(torch.randn(2, 5, 64)).detach()
    values = layout.read(projected)
    assert values.shape[:3] == (2, 5, layout.n_kv_heads)
    assert torch.equal(layout.write(projected, values), projected)
    before = projected.clone()
    written = layout.write(projected, values + 1.0)
    assert torch.equal(projected, before)
    torch.testing.assert_close(layout.read(written), values + 1.0)
    assert (written != projected).sum() == values.numel()


@pytest.mark.parametrize("model_type", TYPES)
def test_finds_every_layer_in_order(model_type):
    model = AutoModelForCausalLM.from_config(small_config(model_type))
    layers = attention_layers(model)
    assert [layer.attention.layer_idx for layer in layers] == list(range(8))
    for layer in layers:
        projections = layer.attention.get_submodule(layer.projection).weight.shape[0]
        assert projections in (48, 32, 64, 128, 192)
        assert layer.attention.get_submodule(layer.output).weight.shape[0] == 64


def test_refuses_a_model_where_a_layer_has_no_such_projection():
    model = AutoModelForCausalLM.from_config(small_config("llama"))
    del model.model.layers[3].self_attn.o_proj
    with pytest.raises(ValueError, match=r"v_proj and one of o_proj.* 8 layers of llama, .* in 7"):
        attention_layers(model)
