"""hf_config: the rotation of every family against the model itself, as transformers runs it."""

import pytest
import torch
import transformers
from hf_models import LLAMA3, POSITIONS, YARN, N, code_of, queries_and_keys, small_config
from transformers import AutoModelForCausalLM

from rove_lab import RotaryEmbedding
from rove_lab.hf_config import BY_LAYER_TYPE, HALVES, INTERLEAVED, PARTIAL, rotating_layers

FAMILIES = sorted(HALVES | INTERLEAVED)


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
    assert rotating_layers(config) == [layer for layer, turns in enumerate(rotated) if turns]
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


def test_where_exaone4_and_cohere2_turn_without_sliding_layers():
    full = {"layer_types": ["full_attention"] * 8}
    assert not any(check_against_model(small_config("exaone4", **full)))
    assert all(check_against_model(small_config("exaone4", sliding_window=None, **full)))
    assert not any(check_against_model(small_config("cohere2", **full)))


def test_half_of_smollm3s_layers_can_be_without_rotation():
    config = small_config("smollm3", no_rope_layers=[0, 1] * 4)  # 1: with
    assert check_against_model(config) == [False, True] * 4


def test_falcon_turns_unless_it_has_alibi(monkeypatch):
    # its attention does not go through the interface that the other tests listen to
    config = small_config("falcon", attn_implementation="eager")
    code = code_of(config)
    apply, calls = code.apply_rotary_pos_emb, []
    monkeypatch.setattr(
        code,
        "apply_rotary_pos_emb",
        lambda q, k, *t: calls.append((q, apply(q, k, *t)[0])) or (q, k),
    )
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
