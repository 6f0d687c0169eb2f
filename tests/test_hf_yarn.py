"""Transformers' YaRN in a loaded model: as if it had been built so, in every family that has it."""

import copy

import pytest
import torch
from hf_models import small_config
from rove_models import ARCHITECTURES, LAYERS, draw_weights, small_model
from transformers import AutoModelForCausalLM

from rove_lab.hf_config import HALVES, INTERLEAVED
from rove_lab.hf_yarn import hf_yarn
from rove_lab.rotary import RotaryEmbedding, YarnScaling

TOKENS = torch.randint(3, 60, (2, 40), generator=torch.Generator().manual_seed(0))
# GPT-J and CodeGen make their own tables, DeepSeek-V4 several
WITHOUT = {"gptj", "codegen", "deepseek_v4"}
SCALED = {"apertus", "cwm", "gpt_oss", "ministral3"}
OFTEN = {"llama", "gpt_neox", "phi3", "cohere", "olmo3", "llama4_text"}
BY_TYPE = {"gemma3_text", "olmo3"}


def model_of(family):
    changes = {"layer_types": LAYERS} if family in BY_TYPE else {}
    return small_model(family, dtype=torch.float32, **changes)


def logits_of(model):
    with torch.no_grad():
        return model(TOKENS).logits


@pytest.mark.parametrize(
    "family",
    [
        family if family in OFTEN else pytest.param(family, marks=pytest.mark.slow)
        for family in sorted((HALVES | INTERLEAVED) - WITHOUT - SCALED)
    ],
)
def test_it_computes_what_a_model_built_with_yarn_computes(family):
    model = model_of(family)
    plain, config = logits_of(model), repr(model.config)
    with hf_yarn(model, 4.0, 4.0, 64):
        stretched, asked = logits_of(model), copy.deepcopy(model.config)
    parameters = asked.rope_parameters.get("full_attention", asked.rope_parameters)
    assert parameters["rope_type"] == "yarn"
    built = AutoModelForCausalLM.from_config(asked).eval()
    built.load_state_dict(model.state_dict())
    assert torch.equal(stretched, logits_of(built))
    assert (stretched - plain).abs().max() > 0.05
    assert torch.equal(logits_of(model), plain)
    assert repr(model.config) == config


def test_the_config_it_asks_with_is_one_that_the_lab_reads():
    for family in ("llama", "phi3"):  # Phi-3's config has a trained window of its own
        model = model_of(family)
        with hf_yarn(model, 4.0, 4.0, 64):
            rotary = RotaryEmbedding.from_config(model.config)
        assert rotary.scaling == YarnScaling(4.0, 64, beta_fast=4.0), family


def test_layers_that_see_a_window_keep_their_rotation():
    model = model_of("gemma3_text")
    plain = [RotaryEmbedding.from_config(model.config, layer) for layer in range(3)]
    with hf_yarn(model, 4.0, 4.0, 64):
        now = [RotaryEmbedding.from_config(model.config, layer).scaling for layer in range(3)]
    assert now == [None, YarnScaling(4.0, 64, beta_fast=4.0), None]
    assert [repr(rotary) for rotary in plain] == [
        repr(RotaryEmbedding.from_config(model.config, layer)) for layer in range(3)
    ]


def test_the_new_tables_are_where_the_old_ones_were():
    model = AutoModelForCausalLM.from_config(small_config("llama")).to("meta").eval()
    with hf_yarn(model, 4.0, 4.0, 64):
        assert model.model.rotary_emb.inv_freq.device.type == "meta"
        assert not model.model.rotary_emb.training


@pytest.mark.parametrize("family", sorted(WITHOUT))
def test_a_family_without_yarn_is_refused(family):
    model = AutoModelForCausalLM.from_config(small_config(family, num_hidden_layers=2))
    words = f"one rotary module that knows YaRN in model type '{family}', got"
    with pytest.raises(ValueError, match=words), hf_yarn(model, 4.0, 4.0, 64):
        pass


@pytest.mark.parametrize("family", sorted(SCALED))
def test_a_model_that_is_scaled_already_is_refused(family):
    model = draw_weights(AutoModelForCausalLM.from_config(small_config(family))).eval()
    plain, config = logits_of(model), repr(model.config)
    with (
        pytest.raises(ValueError, match=r"not scaled yet, got (llama3|yarn): leave the block"),
        hf_yarn(model, 4.0, 4.0, 64),
    ):
        pass
    assert torch.equal(logits_of(model), plain)
    assert repr(model.config) == config


def test_a_model_of_windows_alone_needs_no_stretching():
    model = small_model("gemma3_text", layer_types=["sliding_attention"] * 3)
    with (
        pytest.raises(ValueError, match=r"this gemma3_text, got sliding_attention alone"),
        hf_yarn(model, 4.0, 4.0, 64),
    ):
        pass


def test_a_config_that_transformers_refuses_leaves_the_model_as_it_was(monkeypatch):
    model = ARCHITECTURES["llama"]()
    plain, config = logits_of(model), repr(model.config)

    def refuse(self, config):
        raise KeyError("factor")

    monkeypatch.setattr(type(model.model.rotary_emb), "__init__", refuse)
    with pytest.raises(KeyError), hf_yarn(model, 4.0, 4.0, 64):
        pass
    assert torch.equal(logits_of(model), plain)
    assert repr(model.config) == config
