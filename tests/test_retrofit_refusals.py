"""retrofit: what cannot be done exactly is refused, and the model left as it was."""

import pytest
import torch
from hf_models import small_config
from rove_models import ARCHITECTURES
from rove_situations import TOKENS
from test_retrofit import Adapter, assert_as_before, logits_of, state_of
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, OPTConfig

from rove_lab.huggingface import enable_rove


@pytest.fixture
def model():
    return ARCHITECTURES["llama"]()


def deepseek_v3():
    return AutoConfig.for_model(
        "deepseek_v3",
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        first_k_dense_replace=2,
        kv_lora_rank=8,
        q_lora_rank=8,
        qk_rope_head_dim=4,
        qk_nope_head_dim=4,
        v_head_dim=8,
        vocab_size=64,
    )


def qwen3_next():
    sizes = {"hidden_size": 32, "num_hidden_layers": 4, "vocab_size": 64, "head_dim": 16}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    linear = {"linear_num_key_heads": 1, "linear_num_value_heads": 1, "linear_key_head_dim": 8}
    experts = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8}
    return AutoConfig.for_model("qwen3_next", **sizes, **heads, **linear, **experts)


def opt():
    sizes = {"hidden_size": 16, "ffn_dim": 16, "word_embed_proj_dim": 16, "vocab_size": 64}
    return OPTConfig(num_hidden_layers=2, num_attention_heads=2, **sizes)


REFUSED = {
    "gpt2": (lambda: GPT2Config(n_embd=16, n_head=2, n_layer=1, vocab_size=64), "no rotary embed"),
    "opt": (opt, "no rotary embedding"),
    "deepseek_v3": (deepseek_v3, r"latent attention \(MLA\)"),
    "qwen3_next": (qwen3_next, r"some of its layers \(linear_attention\) have no pattern"),
    "bitnet": (
        lambda: small_config("bitnet"),
        r"has not been checked\. Take a model of another type: apertus, ",
    ),
}


@pytest.mark.parametrize("model_type", REFUSED)
def test_refuses_a_family_it_cannot_do_and_says_why(model_type):
    config, reason = REFUSED[model_type]
    model = AutoModelForCausalLM.from_config(config()).eval()
    before = state_of(model)
    with pytest.raises(ValueError, match=f"RoVE on in model type '{model_type}': .*{reason}"):
        enable_rove(model)
    assert_as_before(model, before)


def test_refuses_values_that_are_clipped():
    model = AutoModelForCausalLM.from_config(small_config("olmo", clip_qkv=4.0))
    before = state_of(model)
    with pytest.raises(ValueError, match=r"type 'olmo': it clips values \(clip_qkv=4.0\) after"):
        enable_rove(model)
    assert_as_before(model, before)


def test_refuses_a_layer_that_has_no_rotation():
    model = AutoModelForCausalLM.from_config(small_config("smollm3"))
    before = state_of(model)
    with pytest.raises(ValueError, match="smollm3 has no rotation in layer 3"):
        enable_rove(model, layers=[2, 3])
    assert_as_before(model, before)
    with enable_rove(model) as rove:
        assert rove.layers == [0, 1, 2, 4, 5, 6]


def test_refuses_a_model_of_a_known_family_that_has_no_rotation_at_all():
    full = {"layer_types": ["full_attention"] * 8}
    model = AutoModelForCausalLM.from_config(small_config("cohere2", **full))
    with pytest.raises(ValueError, match="cohere2 has no rotation in layer 0"):
        enable_rove(model, planes=[0])


def test_refuses_a_rotation_it_cannot_read(model):
    model.config.rope_parameters = {"rope_type": "dynamic", "rope_theta": 500.0, "factor": 2.0}
    before = state_of(model)
    with pytest.raises(ValueError, match="cannot honour the rope_type 'dynamic' of llama"):
        enable_rove(model)
    assert_as_before(model, before)


def test_refuses_to_switch_it_on_twice(model):
    with enable_rove(model, layers=[0]) as rove:
        on = logits_of(model)
        with pytest.raises(ValueError, match=r"without RoVE, .* call remove\(\) on its handle"):
            enable_rove(model, layers=[1])
        assert model.rove is rove
        assert torch.equal(logits_of(model), on)


def test_refuses_to_switch_it_on_around_a_part_where_it_is_on(model):
    with enable_rove(model.model):
        before = state_of(model)
        with pytest.raises(ValueError, match="without RoVE, got one where it is on already"):
            enable_rove(model)
        assert_as_before(model, before)


@pytest.mark.parametrize(
    ("layers", "planes", "error", "words"),
    [
        ([3], None, ValueError, r"expected layers among 0..2, got layer 3"),
        ([0, -4], None, ValueError, r"expected layers among 0..2, got layer -4"),
        (1, None, TypeError, r"layers as integer indices or a slice, got 1: one layer is \[l\]"),
        ([1.0], None, TypeError, "layers as integer indices or a slice, got"),
        ([True, False, True], None, TypeError, "layers as integer indices or a slice, got"),
        (None, [12], ValueError, r"expected planes among 0..11 .*got plane 12"),
        (None, 3, TypeError, "planes as integer indices or a slice, got 3"),
        (None, torch.ones(12, dtype=torch.bool), TypeError, "planes as integer indices"),
        ([], [12], ValueError, r"expected planes among 0..11"),
    ],
)
def test_refuses_layers_and_planes_that_are_not_there(model, layers, planes, error, words):
    before = state_of(model)
    with pytest.raises(error, match=words):
        enable_rove(model, layers, planes)
    assert_as_before(model, before)


@pytest.mark.parametrize("thing", ["llama", None, nn.Linear(2, 2)])
def test_refuses_what_is_no_model(thing):
    with pytest.raises(TypeError, match="expected a Hugging Face causal LM, got "):
        enable_rove(thing)


@pytest.mark.parametrize("projection", ["v_proj", "o_proj"])
def test_refuses_to_run_with_an_adapter_that_came_later(model, projection):
    with enable_rove(model):
        attention = model.model.layers[1].self_attn
        base = attention.get_submodule(projection)
        setattr(attention, projection, Adapter(base))
        with pytest.raises(ValueError, match=rf"expected the {projection} of layers.1.self_attn"):
            logits_of(model)
        setattr(attention, projection, base)


def test_refuses_to_guess_positions(model):
    attention = model.model.layers[1].self_attn
    x = torch.randn(1, 5, 64, dtype=torch.float64)
    with enable_rove(model):
        model(TOKENS)  # which leaves no positions behind
        turned = model.model.rotary_emb(x, torch.arange(5)[None])
        with pytest.raises(
            ValueError, match=r"position_ids in the call of layers.1.self_attn, got"
        ):
            attention(x, position_embeddings=turned, attention_mask=None)
        with pytest.raises(ValueError, match="got a call of its v_proj alone"):
            attention.v_proj(x)
        with pytest.raises(ValueError, match="got a call of its o_proj alone"):
            attention.o_proj(torch.randn(1, 5, 96, dtype=torch.float64))


def test_refuses_a_bridge_and_names_the_way_for_it(model):
    from rove_lab.lens import bridge_from_huggingface

    with pytest.raises(
        TypeError, match=r"got a bridge of TransformerLens: run it with .*rove_hook"
    ):
        enable_rove(bridge_from_huggingface(model))
