"""Circuits and compositions at offset 0 against TransformerLens, an independent implementation."""

import pytest
import torch
from hf_models import small_config
from references_mixers import LAYOUTS
from samples import HEADS, attention_weights
from test_composition import LATER_HEADS, circuits, later_weights
from transformer_lens import FactoredMatrix
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module
from transformers import AutoModelForCausalLM

from rove_lab import RotaryEmbedding
from rove_lab.circuits import (
    factored_ov,
    k_composition,
    ov_circuit,
    q_composition,
    qk_circuit,
    v_composition,
)


def assert_close(actual, expected, atol=1e-11):
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("layout", LAYOUTS, ids=repr)
def test_circuits_at_offset_zero_are_transformer_lenss(layout):
    W_Q, W_K, W_V, W_O = attention_weights(layout)
    rotary = layout.build(RotaryEmbedding)
    group = HEADS // len(W_K)
    QK = FactoredMatrix(W_Q, W_K.repeat_interleave(group, 0).mT)
    OV = FactoredMatrix(W_V.repeat_interleave(group, 0), W_O)
    assert_close(qk_circuit(W_Q, W_K, rotary, [0])[0], QK.AB, atol=1e-13)
    assert_close(ov_circuit(W_V, W_O, rotary, [0])[0], OV.AB, atol=1e-13)
    factored = factored_ov(W_V, W_O, rotary, [0])
    assert_close(factored.norm()[0], OV.norm())
    assert_close(factored.eigenvalues().sum(-1)[0], OV.eigenvalues.sum(-1))


@pytest.mark.parametrize("n_kv_heads", [4, 2])
def test_circuits_at_offset_zero_are_those_of_a_bridge(n_kv_heads):
    """Its weights, as TransformerLens takes them out of a Llama, and its own OV and QK."""
    config = small_config("llama", num_key_value_heads=n_kv_heads, num_hidden_layers=2)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float64)
    bridge = build_bridge_from_module(model, "LlamaForCausalLM", hf_config=config)
    rotary = RotaryEmbedding.from_config(config)
    for layer in range(2):
        W_Q, W_K, W_V, W_O = (
            weights[layer].detach() for weights in (bridge.W_Q, bridge.W_K, bridge.W_V, bridge.W_O)
        )
        assert len(W_V) == n_kv_heads
        assert_close(qk_circuit(W_Q, W_K, rotary, [0])[0], bridge.QK.AB[layer].detach())
        assert_close(ov_circuit(W_V, W_O, rotary, [0])[0], bridge.OV.AB[layer].detach())


def test_compositions_at_offset_zero_are_transformer_lenss():
    layout = LAYOUTS[0]
    _, _, W_V, W_O = attention_weights(layout)
    W_Q2, W_K2, W_V2, W_O2 = later_weights(layout.d_head)
    OV = FactoredMatrix(W_V.repeat_interleave(2, 0), W_O)
    QK = FactoredMatrix(W_Q2, W_K2.expand(2, -1, -1).mT)
    OV2 = FactoredMatrix(W_V2.expand(2, -1, -1), W_O2)
    ov, qk, later_ov = circuits(layout, layout)
    pairs = [
        (q_composition(ov, qk), QK),
        (k_composition(ov, qk), QK.T),
        (v_composition(ov, later_ov), OV2),
    ]
    for found, later in pairs:
        for h in range(HEADS):
            for g in range(LATER_HEADS):
                product = (OV[h] @ later[g]).norm() / (OV[h].norm() * later[g].norm())
                assert found[0, 0, h, g].item() == pytest.approx(product.item(), abs=1e-12)
