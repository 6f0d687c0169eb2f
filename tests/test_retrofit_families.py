"""retrofit: every other family it takes on, each held against the long way once."""

from functools import cache

import pytest
import torch
from hf_models import small_config
from rove_models import ARCHITECTURES, draw_weights
from rove_reference import reference_logits
from rove_situations import POSITIONS, TOKENS
from transformers import AutoModelForCausalLM

from rove_lab import RotaryEmbedding
from rove_lab.hf_config import HALVES, INTERLEAVED, rotating_layers
from rove_lab.huggingface import enable_rove
from rove_lab.retrofit import DIRECT


def model_of(model_type):
    """In float32: the experts of mixtures know no float64."""
    torch.manual_seed(0)
    return draw_weights(AutoModelForCausalLM.from_config(small_config(model_type))).eval()


def logits_the_long_way(model):
    """As `RotaryEmbedding.from_config` has it, which is held against Hugging Face elsewhere."""
    turning = rotating_layers(model.config)

    @cache
    def matrix(layer, offset):
        return RotaryEmbedding.from_config(model.config, layer).matrix(offset)

    how = {"dtype": torch.float32, "layers": turning, "matrix": matrix}
    return reference_logits(model, TOKENS, POSITIONS, **how)


@pytest.mark.parametrize("model_type", sorted(DIRECT - set(ARCHITECTURES)))
def test_a_family_equals_the_long_way(model_type):
    model = model_of(model_type)
    expected = logits_the_long_way(model)
    with torch.no_grad():
        off = model(TOKENS).logits
        with enable_rove(model) as rove:
            assert rove.layers == rotating_layers(model.config)
            torch.testing.assert_close(model(TOKENS).logits, expected, rtol=0, atol=2e-4)
    assert (off - expected).abs().max() > 1.5 * off.std()


def test_families_that_put_something_between_would_be_seen(monkeypatch):
    """BitNet has a norm between its heads' sums and their projection."""
    monkeypatch.setattr("rove_lab.retrofit.DIRECT", DIRECT | {"bitnet"})
    model = model_of("bitnet")
    with enable_rove(model), torch.no_grad():
        assert (model(TOKENS).logits - logits_the_long_way(model)).abs().max() > 1.5


def test_no_family_is_on_the_list_whose_rotation_is_not_known():
    assert DIRECT <= HALVES | INTERLEAVED
