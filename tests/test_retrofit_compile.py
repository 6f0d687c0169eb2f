"""retrofit under `torch.compile`: no more compilations than without, none that is out of date."""

from contextlib import nullcontext

import pytest
import torch
import torch._dynamo.testing  # not imported by `import torch`
from rove_models import ARCHITECTURES
from rove_situations import GAPS, POSITIONS, TOKENS, gradients_of, largest, loss_of
from test_retrofit import logits_of
from transformers import StaticCache

from rove_lab.huggingface import enable_rove

MODELS = ["llama", pytest.param("gemma3_text", marks=pytest.mark.slow), "gpt_neox"]


@pytest.fixture(autouse=True)
def _forget_compiled_graphs():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compilations(model, calls, on):
    """How often the model is compiled for these calls."""
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    with torch.no_grad(), enable_rove(model) if on else nullcontext():
        compiled = torch.compile(model, backend=counter, fullgraph=True)
        for tokens, given in calls:
            compiled(tokens, **given)
    return counter.frame_count


@pytest.mark.parametrize("architecture", MODELS)
def test_growing_lengths_are_compiled_twice_as_without(architecture):
    model = ARCHITECTURES[architecture]()
    calls = [(TOKENS[:, :n], {"use_cache": False}) for n in (3, 7, 11)]
    assert compilations(model, calls, on=True) == compilations(model, calls, on=False) == 2


@pytest.mark.parametrize("architecture", MODELS)
def test_decoding_is_compiled_as_often_as_without(architecture):
    model = ARCHITECTURES[architecture]()

    def calls():
        cache = StaticCache(config=model.config, max_cache_len=16)
        for first, last in ((0, 6), (6, 7), (7, 8), (8, 9), (9, 10)):
            positions = POSITIONS[:, first:last].clone()
            given = {"cache": cache, "use_cache": True, "position_ids": positions}
            yield TOKENS[:, first:last], given

    assert compilations(model, calls(), on=True) <= compilations(model, calls(), on=False)


def test_a_model_that_was_compiled_before_turns_and_stops_turning():
    model = ARCHITECTURES["llama"]()
    compiled = torch.compile(model, backend="eager")
    off = logits_of(compiled)
    with enable_rove(model):
        torch.testing.assert_close(logits_of(compiled), logits_of(model), rtol=0, atol=1e-12)
        assert largest(logits_of(compiled) - off) > 1.5
    assert torch.equal(logits_of(compiled), off)


def test_gradients_of_a_compiled_model_are_those_of_the_model():
    model = ARCHITECTURES["llama"]()
    given = {"attention_mask": torch.ones_like(TOKENS), "use_cache": False, "position_ids": GAPS}
    with enable_rove(model):
        expected = gradients_of(model, loss_of(model(TOKENS, **given).logits))
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        found = gradients_of(model, loss_of(compiled(TOKENS, **given).logits))
    assert largest(expected) > 0.05
    assert largest(found - expected) < 1e-7
