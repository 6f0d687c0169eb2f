"""hf_config: what a config may say that cannot be honoured, and what is not a config."""

from types import SimpleNamespace

import pytest
import transformers

from rove_lab import RotaryEmbedding
from rove_lab.hf_config import rotary_arguments


def llama(**changes):
    attributes = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "max_position_embeddings": 512,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    }
    return SimpleNamespace(**attributes | changes)


def scaled(**parameters):
    return llama(rope_parameters={"rope_theta": 1e4} | parameters)


FACTORS = {"short_factor": [1.0] * 48, "long_factor": [4.0] * 48}


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            transformers.Phi3Config(
                max_position_embeddings=131072,
                original_max_position_embeddings=4096,
                rope_scaling={"rope_type": "longrope", "factor": 32.0, **FACTORS}
                | {"original_max_position_embeddings": 4096},
            ),
            "'longrope' of phi3: its table changes",
        ),
        (scaled(rope_type="longrope"), "'longrope' of llama"),
        (scaled(type="su"), "'su' of llama"),
        (scaled(rope_type="yarn", factor=4.0, **FACTORS), "'longrope'"),
        (scaled(rope_type="dynamic", factor=2.0), "its base follows the length"),
        (scaled(rope_type="proportional"), "only some planes of a whole head"),
        (scaled(rope_type="axial"), "several axes"),
        (scaled(type="mrope"), "several axes"),
        (scaled(rope_type="ntk"), "'ntk' of llama: it is not a kind that rove_lab knows"),
        (scaled(mrope_section=[2, 3, 3]), "cannot honour the mrope_section of llama"),
        (scaled(rope_type="linear"), "expected 'factor' in the rope_parameters of type 'linear'"),
        (scaled(rope_type="linear", factor=float("inf")), "factor"),
        (scaled(rope_type="llama3", factor=8.0), "expected 'low_freq_factor'"),
        (scaled(rope_type="yarn", factor=0.5), "factor >= 1"),
        (scaled(partial_rotary_factor=0.5), "rotates whole heads and would ignore it"),
        (llama(partial_rotary_factor=0.5), "expected no partial_rotary_factor for llama, got 0.5"),
        (llama(rope_parameters={"full_attention": {"rope_theta": 1e4}}), "expected one set of"),
        (llama(rope_parameters={"rope_type": "default"}), "expected a base in the config of llama"),
        (llama(rope_parameters=None), "expected a base in the config of llama"),
        (llama(hidden_size=66), "divisible by num_attention_heads, got 66 and 4"),
        (llama(hidden_size=None), "expected hidden_size in the config of llama, got None"),
        (llama(num_hidden_layers=None), "expected num_hidden_layers in the config"),
        (llama(num_hidden_layers=0), "num_hidden_layers of at least 1, got 0"),
        (llama(model_type="gemma3_text"), "expected layer_types in the config of gemma3_text"),
        (
            llama(model_type="smollm3", no_rope_layers=[1]),
            "expected an entry of no_rope_layers for every layer, got 1",
        ),
        (
            llama(model_type="gptj", rotary_dim=None),
            "expected rotary_dim in the config of gptj, got None",
        ),
        (transformers.GPT2Config(), "'gpt2': its config has no rotary parameters"),
        (transformers.BloomConfig(), "'bloom': its config has no rotary parameters"),
        (transformers.DeepseekV3Config(), r"'deepseek_v3': it has latent attention \(MLA\)"),
        (transformers.Qwen2_5_VLConfig(), "'qwen2_5_vl_text': how it pairs the channels"),
        (transformers.NanoChatConfig(), "'nanochat': how it pairs .* is not guessed"),
        (transformers.Gemma3Config(), "pass layer=0 to layer=25"),
        (transformers.SmolLM3Config(), r"differs by layer \(layer 3 is not as layer 0\)"),
        (transformers.Cohere2Config(sliding_window=None), "cohere2 has no rotation: "),
    ],
)
def test_refuses_what_it_cannot_honour(config, reason):
    with pytest.raises(ValueError, match=reason):
        rotary_arguments(config)


def test_refuses_a_layer_type_without_parameters_or_with_none():
    layers = {"layer_types": ["sliding_attention", "full_attention"]}
    given = {"sliding_attention": {"rope_theta": 1e4}}
    config = llama(model_type="gemma3_text", rope_parameters=given, **layers)
    with pytest.raises(ValueError, match=r"for 'full_attention', got them for .*add the missing"):
        rotary_arguments(config, 1)
    given["full_attention"] = None
    with pytest.raises(ValueError, match="gemma3_text has no rotation in layer 1"):
        rotary_arguments(config, 1)
    assert rotary_arguments(config, 0)["base"] == 1e4


@pytest.mark.parametrize(("head", "factor"), [(20, 0.25), (16, 0.03)])
def test_an_odd_or_empty_rotary_part_is_refused(head, factor):
    config = llama(model_type="gpt_neox", head_dim=head)
    config.rope_parameters["partial_rotary_factor"] = factor
    with pytest.raises(ValueError, match="rotary_dim"):
        RotaryEmbedding.from_config(config)


@pytest.mark.parametrize("layer", [-1, 2, 10**6])
def test_refuses_a_layer_out_of_range(layer):
    with pytest.raises(ValueError, match=f"a layer of llama from 0 to 1, got {layer}"):
        rotary_arguments(llama(), layer)


@pytest.mark.parametrize("layer", [True, 1.0, "1"])
def test_refuses_a_layer_that_is_not_an_integer(layer):
    with pytest.raises(TypeError, match="expected layer to be an integer or None"):
        rotary_arguments(llama(), layer)


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        ("HuggingFaceTB/SmolLM2-135M", r"got str: load one with transformers\.AutoConfig"),
        ({"model_type": "llama"}, "got dict: load one with"),
        (SimpleNamespace(config=llama()), r"got SimpleNamespace: pass model\.config"),
        (SimpleNamespace(text_config={"model_type": "llama"}), "got dict: load one with"),
        (None, "got NoneType"),
    ],
)
def test_refuses_what_is_not_a_config(given, fix):
    with pytest.raises(TypeError, match=fix):
        rotary_arguments(given)


@pytest.mark.parametrize("kind", [{}, {"type": None}, {"rope_type": "default"}])
def test_a_factor_without_its_kind_is_refused(kind):
    config = llama(rope_parameters={"rope_theta": 1e4, "factor": 4.0, **kind})
    with pytest.raises(ValueError, match="expected a rope_type beside the factor"):
        rotary_arguments(config)


def test_an_old_gemma_without_its_local_base_is_refused():
    layers = {"layer_types": ["sliding_attention", "full_attention"]}
    config = llama(model_type="gemma3_text", rope_theta=1e6, **layers)
    del config.rope_parameters
    with pytest.raises(ValueError, match="expected rope_local_base_freq"):
        rotary_arguments(config, 0)


def test_truncate_must_be_a_bool():
    yarn = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}
    yarn["original_max_position_embeddings"] = 64
    config = llama(rope_parameters=yarn | {"truncate": "false"})
    with pytest.raises(TypeError, match="truncate to be True or False"):
        rotary_arguments(config)
    none = llama(rope_parameters=yarn | {"truncate": None})
    assert rotary_arguments(none)["scaling"].truncate
