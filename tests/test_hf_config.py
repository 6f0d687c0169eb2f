"""hf_config: every family against the model itself, as transformers runs it."""

import importlib
from types import SimpleNamespace

import pytest
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rove_lab import LinearScaling, Llama3Scaling, RotaryEmbedding, YarnScaling
from rove_lab.hf_config import BY_LAYER_TYPE, HALVES, INTERLEAVED, PARTIAL, rotary_arguments

FAMILIES = sorted(HALVES | INTERLEAVED)
POSITIONS = torch.tensor([[0, 1, 5, 17, 40, 300]])
N = POSITIONS.shape[-1]
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 4}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
SMALL = {
    "hidden_size": 64,
    "n_embd": 64,
    "num_attention_heads": 4,
    "n_head": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "rotary_dim": 8,
    "num_hidden_layers": 8,
    "n_layer": 8,
    "intermediate_size": 32,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_k": 2,
    "vocab_size": 64,
    "max_position_embeddings": 512,
    "n_positions": 512,
    "sliding_window": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
OWN_SIZES = {
    "deepseek_v4": {
        "head_dim": 32,
        "partial_rotary_factor": 0.25,
        "layer_types": ["sliding_attention", "compressed_sparse_attention"] * 2
        + ["heavily_compressed_attention", "sliding_attention"] * 2,
    },
    "helium": {"head_dim": 16},
}


def small_config(model_type, **changes):
    """A config of this family with small sizes, so that a model of it is made in milliseconds."""
    fields = type(AutoConfig.for_model(model_type)).__dataclass_fields__
    sizes = {name: size for name, size in SMALL.items() if name in fields}
    return AutoConfig.for_model(model_type, **sizes | OWN_SIZES.get(model_type, {}) | changes)


def queries_and_keys(config):
    """Each layer's (query, key) as its attention gets them: at POSITIONS, and all at position 0.

    The attention gives zeros, so that no layer's input depends on positions, and what differs
    between the two is the rotation alone.
    """
    seen = {}

    def attention(module, query, key, value, mask, **_):
        seen[module.layer_idx] = (query[:, :, :N], key[:, :, :N])
        return torch.zeros(*query.shape[:2], query.shape[2], value.shape[-1]).transpose(1, 2), None

    ALL_ATTENTION_FUNCTIONS.register("recorder", attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register("recorder", eager_mask)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="recorder").eval()
    tokens = torch.arange(3, 3 + N)[None]
    turned, straight = {}, {}
    with torch.no_grad():
        for positions, kept in ((POSITIONS, turned), (0 * POSITIONS, straight)):
            seen.clear()
            model(tokens, position_ids=positions, use_cache=False)
            kept.update(seen)
    assert sorted(turned) == sorted(straight) == list(range(config.num_hidden_layers))
    return turned, straight


def check_against_model(config):
    """Every layer's queries and keys are turned by our rotation, or left alone if we refuse."""
    turned, straight = queries_and_keys(config)
    rotated = []
    for layer in turned:
        try:
            rotation = RotaryEmbedding.from_config(config, layer)(POSITIONS)
        except ValueError as error:
            assert f"no rotation in layer {layer}" in str(error)  # noqa: PT017
            rotation = None
        rotated.append(rotation is not None)
        for ours, theirs in zip(straight[layer], turned[layer], strict=True):
            expected = ours if rotation is None else rotation.apply(ours)
            # their angles are float32: at position 300 off by up to 300 * 2**-25
            torch.testing.assert_close(theirs, expected, rtol=0, atol=2e-5 * ours.abs().max())
    return rotated


@pytest.mark.parametrize("model_type", sorted(set(FAMILIES) - {"falcon"}))
def test_turns_queries_and_keys_as_the_model_of_each_family_does(model_type):
    rotated = check_against_model(small_config(model_type))
    some_do_not = model_type in {"cohere2", "exaone4", "llama4_text", "smollm3"}
    assert rotated == [not some_do_not or layer % 4 != 3 for layer in range(8)]


@pytest.mark.parametrize(
    ("model_type", "parameters"),
    [
        ("llama", {"rope_type": "linear", "factor": 4.0, "rope_theta": 5e4}),
        ("llama", LLAMA3 | {"rope_theta": 5e5}),
        ("mistral", YARN | {"rope_theta": 1e6}),
        ("gpt_neox", {"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}),
        ("glm", YARN | {"rope_theta": 1e4, "partial_rotary_factor": 0.5}),
        ("cohere", YARN | {"rope_theta": 1e4}),
        ("deepseek_v4", dict(YARN)),
        (
            "gemma3_text",
            {
                "full_attention": YARN | {"rope_theta": 1e6},
                "sliding_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4},
            },
        ),
    ],
)
def test_turns_as_a_scaled_model_does(model_type, parameters):
    assert all(check_against_model(small_config(model_type, rope_parameters=parameters)))


def test_turns_as_models_without_a_sliding_window_do():
    full = {"sliding_window": None, "layer_types": ["full_attention"] * 8}
    assert all(check_against_model(small_config("exaone4", **full)))
    # Cohere2 turns only where a window slides: without one, nowhere
    assert not any(check_against_model(small_config("cohere2", **full)))


def test_half_of_smollm3s_layers_can_be_without_rotation():
    config = small_config("smollm3", no_rope_layers=[0, 1] * 4)  # 1: with
    assert check_against_model(config) == [False, True] * 4


def test_falcon_turns_unless_it_has_alibi(monkeypatch):
    # its attention does not go through the interface that the other tests listen to
    code = importlib.import_module("transformers.models.falcon.modeling_falcon")
    apply, calls = code.apply_rotary_pos_emb, []
    monkeypatch.setattr(
        code,
        "apply_rotary_pos_emb",
        lambda q, k, *t: calls.append((q, apply(q, k, *t)[0])) or (q, k),
    )
    config = small_config("falcon", attn_implementation="eager")
    with torch.no_grad():
        AutoModelForCausalLM.from_config(config)(torch.arange(3, 3 + N)[None], use_cache=False)
    rotation = RotaryEmbedding.from_config(config)(torch.arange(N))
    for straight, turned in calls:
        torch.testing.assert_close(rotation.apply(straight), turned, rtol=0, atol=1e-5)
    assert len(calls) == config.num_hidden_layers
    with pytest.raises(ValueError, match="falcon has no rotation"):
        RotaryEmbedding.from_config(small_config("falcon", alibi=True))


def test_lists_only_families_that_transformers_has():
    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING_NAMES
    assert set(FAMILIES) <= set(known)
    assert not HALVES & INTERLEAVED
    assert set(FAMILIES) >= PARTIAL | BY_LAYER_TYPE


# Frequencies, at the sizes of published models


def code_of(config):
    return importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))


def rotary_module(config):
    """The rotary module of transformers for this config, as its own code makes it."""
    code = code_of(config)
    (module,) = [
        value
        for name, value in vars(code).items()
        if name.endswith("RotaryEmbedding")
        and "Vision" not in name
        and value.__module__ == code.__name__
    ]
    return module(config)


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


# Rotations, fed into each model's own function


@pytest.mark.parametrize(
    "model_type", ["llama", "gpt_oss", "gptj", "cohere", "gpt_neox", "phi", "glm", "deepseek_v4"]
)
def test_apply_is_the_models_own_function_fed_our_tables(model_type):
    config = small_config(model_type, **({"rope_scaling": None} if model_type == "gpt_oss" else {}))
    rotary = RotaryEmbedding.from_config(config, 0)
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(2, 3, 50, rotary.d_head, generator=generator)
    rotation = rotary(torch.arange(50) * 20_000)
    cos, sin = rotation.cos[None], rotation.sin[None]  # [1, pos, rotary_dim / 2]
    apply = code_of(config).apply_rotary_pos_emb
    if model_type == "deepseek_v4":
        theirs = apply(q, cos, sin)
    elif model_type == "gpt_oss":  # takes one angle for each pair
        theirs, _ = apply(q, q, cos, sin)
    elif model_type == "gptj":  # tokens before heads, the rotated channels alone
        turned = apply(q[..., :8].transpose(1, 2), sin, cos).transpose(1, 2)
        theirs = torch.cat((turned, q[..., 8:]), -1)
    elif model_type == "cohere":
        theirs, _ = apply(q, q, cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1))
    else:
        cos, sin = torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)
        cut = rotary.rotary_dim if model_type == "phi" else rotary.d_head  # Phi splits outside
        theirs, _ = apply(q[..., :cut], q[..., :cut], cos, sin)
        theirs = torch.cat((theirs, q[..., cut:]), -1)
    ours = rotation.apply(q)
    assert (ours - theirs).abs().max() < 1e-6
    untouched = q[..., : rotary.d_head - rotary.rotary_dim]
    if model_type == "deepseek_v4":
        assert torch.equal(ours[..., : untouched.shape[-1]], untouched)
    else:
        assert torch.equal(ours[..., rotary.rotary_dim :], q[..., rotary.rotary_dim :])


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


# What is refused


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
    with pytest.raises(ValueError, match="got no rope_theta"):
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
