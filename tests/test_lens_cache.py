"""lens_cache: TransformerLens's silent cache is found and mended, and only where it is silent."""

import copy

import pytest
import torch
from rove_models import ARCHITECTURES
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

from rove_lab.lens import bridge_from_huggingface
from rove_lab.lens_cache import cache_is_filled, mend_cache

TOKENS = torch.tensor([[3, 4, 5, 6, 3, 4], [9, 8, 7, 9, 8, 7]])


def unmended(model):
    copied = copy.deepcopy(model)
    return build_bridge_from_module(copied, type(model).__name__, hf_config=copied.config)


def decoded(bridge):
    """The logits of TOKENS read one by one, with a cache."""
    cache, steps = None, []
    with torch.no_grad():
        for token in TOKENS.T:
            logits, cache = bridge(
                token[:, None],
                return_type="logits_and_cache",
                past_key_values=cache,
                use_cache=True,
            )
            steps.append(logits)
    return torch.cat(steps, 1)


@pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated:FutureWarning")
def test_the_fault_is_still_there():
    """When this fails, TransformerLens has mended it: take lens_cache.py out, and this file."""
    bridge = unmended(ARCHITECTURES["llama"]())
    assert not cache_is_filled(bridge)
    with torch.no_grad():
        assert (decoded(bridge) - bridge(TOKENS)).abs().max() > 0.1


def test_a_bridge_is_mended_and_decodes_what_it_reads():
    bridge = bridge_from_huggingface(ARCHITECTURES["llama"]())
    assert cache_is_filled(bridge)
    with torch.no_grad():
        torch.testing.assert_close(decoded(bridge), bridge(TOKENS), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("model_type", "silent"), [("llama", True), ("gptj", False)])
def test_only_a_silent_cache_is_mended(model_type, silent):
    bridge = unmended(ARCHITECTURES[model_type]())
    assert mend_cache(bridge) is silent
    assert cache_is_filled(bridge)
    assert len(bridge.blocks[0].attn._forward_pre_hooks) == silent


def test_a_cache_that_cannot_be_mended_is_not_passed_over(monkeypatch):
    monkeypatch.setattr("rove_lab.lens_cache._bridge_wants_past_key_values", lambda *_: None)
    with pytest.raises(RuntimeError, match="cache of this LlamaForCausalLM bridge stays empty"):
        bridge_from_huggingface(ARCHITECTURES["llama"]())


def test_refuses_what_is_no_bridge():
    for check in (cache_is_filled, mend_cache):
        with pytest.raises(TypeError, match="expected a TransformerBridge, got Linear: make one"):
            check(torch.nn.Linear(1, 1))
