"""hf_config: frequencies and arguments, at the sizes of published models."""

from types import SimpleNamespace

import pytest
import torch
import transformers
from hf_models import LLAMA3, YARN, rotary_module, small_config

from rove_lab import LinearScaling, Llama3Scaling, RotaryEmbedding, YarnScaling
from rove_lab.hf_config import rotary_arguments


def check_frequencies(config, monkeypatch, layer=None, label=""):
    """Our frequencies and attention factor against those of transformers; returns our embedding."""
    ours = RotaryEmbedding.from_config(config, layer)
    theirs = getattr(rotary_module(config), f"{label}inv_freq")
    assert theirs.dtype == torch.float32
    # 2e-7 but for rounded exponents (Phi-3's 96 channels) and ramps (YaRN)
    torch.testing.assert_close(theirs.double(), ours.inv_freq, rtol=3e-7, atol=0)
    with monkeypatch.context() as patch:  # the same code run in float64
        patch.setattr(torch, "float", torch.float64)
        patch.setattr(torch, "float32", torch.float64)
        module = rotary_module(config)
    torch.testing.assert_close(
        getattr(module, f"{label}inv_freq"), ours.inv_freq, rtol=1e-12, atol=0
    )
    factor = getattr(module, f"{label}attention_scaling")
    assert ours.attention_factor == pytest.approx(factor, rel=1e-12)
    return ours


def published(name, **arguments):
    return pytest.param(getattr(transformers, f"{name}Config")(**arguments), id=name)


@pytest.mark.parametrize(
    "config",
    [
        published("Llama", rope_theta=5e5, rope_scaling=LLAMA3, max_position_embeddings=131072),
        published("Llama", head_dim=64, rope_theta=1e5),  # SmolLM2
        published("Mistral", rope_theta=1e6),
        published("Mixtral", rope_theta=1e6),
        published("Qwen2", rope_theta=1e6, rope_scaling=YARN | {"beta_fast": None}),
        published("Qwen3", rope_theta=1e6),
        published("Gemma2"),
        published("GPTNeoX", hidden_size=2048, num_attention_heads=32),
        published("Phi"),
        published("Phi3"),
        published("Cohere", rope_theta=8e6),
        published("GptOss"),
        published("Olmo2", rope_theta=5e5),
        published("Starcoder2"),
        published("Ministral3"),
        published("Glm"),
    ],
)
def test_frequencies_are_those_of_transformers(config, monkeypatch):
    check_frequencies(config, monkeypatch)


@pytest.mark.parametrize("config", [published("Cohere2"), published("SmolLM3", rope_theta=5e6)])
def test_frequencies_where_some_layers_do_not_turn(config, monkeypatch):
    check_frequencies(config, monkeypatch, layer=2)
    with pytest.raises(ValueError, match=r"no rotation in layer 3"):
        RotaryEmbedding.from_config(config, 3)


def test_gpt_oss_has_an_untruncated_ramp():
    scaling = rotary_arguments(transformers.GptOssConfig())["scaling"]
    assert scaling == YarnScaling(32.0, 4096, truncate=False)


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        (transformers.Gemma3TextConfig(), {0: "sliding_attention", 5: "full_attention"}),
        (
            transformers.Gemma3TextConfig(
                rope_theta=1e6, rope_scaling={"rope_type": "linear", "factor": 8.0}
            ),
            {24: "sliding_attention", 23: "full_attention"},
        ),
        (
            transformers.Olmo3Config(rope_scaling=YARN | {"rope_theta": 5e5}),
            {0: "sliding_attention", 31: "full_attention"},
        ),
        (
            transformers.DeepseekV4Config(
                num_hidden_layers=3,
                layer_types=[
                    "sliding_attention",
                    "compressed_sparse_attention",
                    "heavily_compressed_attention",
                ],
                rope_scaling=YARN | {"factor": 16.0},
            ),
            {0: "main", 1: "compress", 2: "compress"},
        ),
    ],
    ids=["Gemma3", "Gemma3-linear", "Olmo3-yarn", "DeepSeekV4-yarn"],
)
def test_frequencies_by_layer_are_those_of_transformers(config, layers, monkeypatch):
    for layer, label in layers.items():
        check_frequencies(config, monkeypatch, layer, f"{label}_")


def test_reads_deepseek_v4_as_its_attention_does():
    config = transformers.DeepseekV4Config()
    assert rotary_arguments(config) == {
        "d_head": 512,
        "base": 160000.0,
        "rotary_dim": 64,
        "interleaved": True,
        "trailing": True,
        "scaling": None,
    }
    config.layer_types[-1] = "sliding_attention"
    assert rotary_arguments(config, 42)["base"] == 10000.0
    with pytest.raises(ValueError, match=r"differs by layer \(layer 42 is not as layer 0\)"):
        rotary_arguments(config)


@pytest.mark.parametrize("model_type", ["gptj", "codegen"])
def test_frequencies_of_models_that_keep_a_table_of_sines(model_type):
    config = small_config(model_type)
    table = rotary_module(config).embed_positions  # [n_positions, sines then cosines]
    angles = torch.arange(512)[:, None] * RotaryEmbedding.from_config(config).inv_freq
    torch.testing.assert_close(
        table.double(), torch.cat((angles.sin(), angles.cos()), -1), rtol=0, atol=3e-5
    )
    assert rotary_arguments(config)["base"] == 10000.0


# YaRN's own rules


@pytest.mark.parametrize(
    "changes",
    [
        {"attention_factor": 1.0},
        {"attention_factor": 1.25},
        {"mscale": 0.707, "mscale_all_dim": 1.0},
        {"mscale": 1.0, "mscale_all_dim": 1.0},
        {"mscale": 0.707},
        {"attention_factor": 1.1, "mscale": 0.707, "mscale_all_dim": 1.0},
        {"factor": None},
        {"beta_fast": None, "beta_slow": None},
        {"beta_fast": None, "original_max_position_embeddings": 4096, "truncate": False},
        {"beta_fast": 16, "beta_slow": 2},
        {"truncate": False},
        {"original_max_position_embeddings": 2048},
        {"original_max_position_embeddings": 64, "factor": 1.0},
    ],
    ids=str,
)
def test_yarn_is_read_as_transformers_reads_it(changes, monkeypatch):
    config = transformers.LlamaConfig(
        head_dim=64,
        max_position_embeddings=2048,
        rope_parameters=YARN | {"rope_theta": 1e4} | changes,
    )
    check_frequencies(config, monkeypatch)


def test_the_original_length_is_the_configs_own_then_the_parameters_then_the_longest(monkeypatch):
    parameters = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}
    config = transformers.LlamaConfig(
        rope_parameters=YARN | parameters, original_max_position_embeddings=1024
    )
    assert check_frequencies(config, monkeypatch).scaling.original_n_ctx == 1024
    config = transformers.LlamaConfig(rope_parameters=YARN | parameters)
    assert check_frequencies(config, monkeypatch).scaling.original_n_ctx == 64
    config = transformers.LlamaConfig(rope_parameters=parameters)
    assert check_frequencies(config, monkeypatch).scaling.original_n_ctx == 2048


def test_truncate_is_honoured_inside_parameters_by_layer_type(monkeypatch):
    # transformers 5.24 looks for it beside the layer types and not inside: as if it were True
    yarn = YARN | {"rope_theta": 1e6, "truncate": False}
    flat = check_frequencies(
        transformers.LlamaConfig(head_dim=256, rope_parameters=dict(yarn)), monkeypatch
    )
    sliding = {"rope_type": "default", "rope_theta": 1e4}
    for parameters in (
        {"full_attention": dict(yarn)},
        {"full_attention": yarn | {"truncate": True}},
        {"full_attention": {k: v for k, v in yarn.items() if k != "truncate"}, "truncate": False},
    ):
        config = transformers.Gemma3TextConfig(
            rope_parameters=parameters | {"sliding_attention": dict(sliding)}
        )
        scaling = RotaryEmbedding.from_config(config, 5).scaling
        assert (scaling == flat.scaling) is (not scaling.truncate)
        assert scaling.truncate is (parameters["full_attention"].get("truncate") is True)


def test_llama_3_is_read_whole():
    config = transformers.LlamaConfig(rope_theta=5e5, rope_scaling=LLAMA3)
    assert rotary_arguments(config) == {
        "d_head": 128,
        "base": 500000.0,
        "rotary_dim": 128,
        "interleaved": False,
        "trailing": False,
        "scaling": Llama3Scaling(8.0, 1.0, 4.0, 128),
    }


# Older configs, and configs inside configs


def test_reads_the_attributes_of_transformers_4():
    size = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
    old = {
        "llama": {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}},
        "gpt_neox": {"rotary_pct": 0.25, "rotary_emb_base": 20000, "rope_scaling": None},
        "phi": {"partial_rotary_factor": 0.5, "rope_theta": 1e4},
        "qwen2": {"rope_theta": 1e6, "head_dim": None},
    }
    read = {
        kind: rotary_arguments(SimpleNamespace(model_type=kind, **size, **attributes))
        for kind, attributes in old.items()
    }
    assert read["llama"]["scaling"] == LinearScaling(2.0)
    assert (read["gpt_neox"]["rotary_dim"], read["gpt_neox"]["base"]) == (4, 20000.0)
    assert read["phi"]["rotary_dim"] == 8
    assert (read["qwen2"]["d_head"], read["qwen2"]["base"]) == (16, 1e6)


def test_before_transformers_5_sliding_layers_had_no_scaling():
    layers = {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]}
    old = {
        "rope_theta": 1e6,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "head_dim": 16,
    }
    gemma = SimpleNamespace(model_type="gemma3_text", rope_local_base_freq=1e4, **layers, **old)
    olmo = SimpleNamespace(model_type="olmo3", **layers, **old)
    for config, local in ((gemma, 1e4), (olmo, 1e6)):
        sliding, full = (rotary_arguments(config, layer) for layer in (0, 1))
        assert (sliding["base"], sliding["scaling"]) == (local, None)
        assert (full["base"], full["scaling"]) == (1e6, LinearScaling(8.0))


def test_parameters_win_over_attributes_as_in_transformers(monkeypatch):
    config = transformers.GPTNeoXConfig()
    config.rope_theta, config.partial_rotary_factor = 7.0, 1.0  # set too late to be heard
    assert check_frequencies(config, monkeypatch).rotary_dim == 24


def test_reads_the_decoder_inside_a_multimodal_config():
    gemma = transformers.Gemma3Config()
    assert rotary_arguments(gemma, 5) == rotary_arguments(gemma.text_config, 5)
    llava = transformers.LlavaConfig()
    assert rotary_arguments(llava) == rotary_arguments(transformers.LlamaConfig())


def test_reads_each_layer_of_a_config_that_changes_by_layer():
    config = transformers.LlamaConfig(num_hidden_layers=3, per_layer_config={1: {"head_dim": 64}})
    assert [rotary_arguments(config, layer)["d_head"] for layer in range(3)] == [128, 64, 128]
    with pytest.raises(ValueError, match="differs by layer"):
        rotary_arguments(config)


def test_a_layer_is_not_needed_where_all_agree_and_reading_changes_nothing():
    config = transformers.Olmo3Config()  # parameters by layer type, but the same ones
    before = config.to_dict()
    assert rotary_arguments(config) == rotary_arguments(config, 3) == rotary_arguments(config, 0)
    assert config.to_dict() == before
