"""lens: every other family that RoVE is switched on in and TransformerLens knows, held once."""

import pytest
import torch
from rove_models import ARCHITECTURES
from rove_situations import TOKENS
from test_retrofit_families import logits_the_long_way, model_of
from torch.testing import assert_close

from rove_lab.hf_config import rotating_layers
from rove_lab.lens import bridge_from_huggingface, rove_hooks
from rove_lab.retrofit import DIRECT

UNKNOWN = {"cwm", "dots1", "helium", "hyperclovax", "ministral"}  # to TransformerLens 4.3


@pytest.mark.parametrize("model_type", sorted(DIRECT - set(ARCHITECTURES) - UNKNOWN))
def test_a_bridge_agrees_with_its_model_and_with_the_long_way(model_type):
    model = model_of(model_type)
    bridge = bridge_from_huggingface(model)
    hooks = rove_hooks(bridge)
    assert len(hooks) == 2 * len(rotating_layers(model.config))
    with torch.no_grad():
        plain = model(TOKENS).logits
        expected = logits_the_long_way(model)
        assert_close(bridge(TOKENS), plain, atol=2e-4, rtol=0)
        assert_close(bridge.run_with_hooks(TOKENS, fwd_hooks=hooks), expected, atol=2e-4, rtol=0)
    assert (expected - plain).abs().max() > plain.std()


@pytest.mark.parametrize("model_type", sorted(UNKNOWN))
def test_families_that_transformer_lens_does_not_know_are_refused(model_type):
    with pytest.raises(ValueError, match="expected an architecture that TransformerLens knows"):
        bridge_from_huggingface(model_of(model_type))
