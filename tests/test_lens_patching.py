"""lens_patching: each head and offset swapped, against a model with messages swapped by hand."""

from contextlib import nullcontext

import pytest
import torch
from references_lens import run
from rove_models import ARCHITECTURES
from test_lens_gpt import small_gpt
from torch.testing import assert_close

from rove_lab.huggingface import load_smollm2
from rove_lab.lens import bridge_from_gpt, bridge_from_huggingface, patch_offsets, rove_hooks

TOKENS = torch.tensor([[3, 4, 5, 6, 3, 4, 9], [9, 8, 7, 9, 8, 7, 3]])
OTHER = torch.tensor([[8, 8, 3, 12, 9, 40, 11], [5, 5, 20, 6, 30, 2, 50]])
OFFSETS = [-4, -1, 0]


def answer(logits):
    return (logits[:, -1, 7] - logits[:, -1, 11]).mean()


def rove_on(bridge, rove):
    return bridge.hooks(fwd_hooks=rove_hooks(bridge)) if rove else nullcontext()


@pytest.mark.parametrize("rove", [False, True])
@pytest.mark.parametrize("other_tokens", [OTHER, None])
@pytest.mark.parametrize("model_type", ["llama", "phi3", "gpt_neox"])
def test_equals_messages_swapped_by_hand(model_type, other_tokens, rove):
    model = ARCHITECTURES[model_type]()
    bridge = bridge_from_huggingface(model)
    logits, seen = run(model, TOKENS, rove)
    other = torch.zeros_like(seen[1][1])
    if other_tokens is not None:
        other = run(model, other_tokens, rove)[1][1][1]
    expected = [
        [
            answer(run(model, TOKENS, rove, (1, head, offset, other))[0]) - answer(logits)
            for head in range(4)
        ]
        for offset in OFFSETS
    ]
    with rove_on(bridge, rove):
        found = patch_offsets(bridge, TOKENS, other_tokens, 1, OFFSETS, answer)
    assert_close(found, torch.tensor(expected).double(), atol=1e-5, rtol=0)
    assert found.abs().min() > 1e-5
    assert found.abs().max() > 1e-2


def test_a_bridge_of_a_rove_gpt_answers_like_hooks_on_its_rope_twin():
    rove, rope = (bridge_from_gpt(small_gpt(rotate_values=rotate)) for rotate in (True, False))
    found = patch_offsets(rove, TOKENS, OTHER, 0, OFFSETS, answer)
    with rove_on(rope, True):
        hooked = patch_offsets(rope, TOKENS, OTHER, 0, OFFSETS, answer)
    assert_close(found, hooked, atol=1e-6, rtol=0)
    plain = patch_offsets(rope, TOKENS, OTHER, 0, OFFSETS, answer)
    assert (plain - found).abs().max() > 1e-2


def test_few_at_once_and_some_heads_are_the_same():
    bridge = bridge_from_huggingface(ARCHITECTURES["llama"]())
    every = patch_offsets(bridge, TOKENS, OTHER, -2, OFFSETS, answer)
    assert_close(patch_offsets(bridge, TOKENS, OTHER, 1, OFFSETS, answer, max_bytes=1), every)
    some = patch_offsets(bridge, TOKENS, OTHER, 1, OFFSETS, answer, heads=[-1, 0])
    assert_close(some, every[:, [3, 0]])
    assert patch_offsets(bridge, TOKENS, TOKENS, 1, [0], answer).abs().max() < 1e-6
    assert patch_offsets(bridge, TOKENS[0], None, 1, [], answer).shape == (0, 4)


def test_refuses_what_does_not_fit():
    bridge = bridge_from_huggingface(ARCHITECTURES["llama"]())
    with pytest.raises(ValueError, match=r"expected other_tokens of the shape of tokens, \[2, 7\]"):
        patch_offsets(bridge, TOKENS, OTHER[:, :5], 1, OFFSETS, answer)
    with pytest.raises(ValueError, match=r"expected heads among 0\.\.3, got head 4"):
        patch_offsets(bridge, TOKENS, OTHER, 1, OFFSETS, answer, heads=[4])
    with pytest.raises(ValueError, match=r"expected layers among 0\.\.2, got layer 3"):
        patch_offsets(bridge, TOKENS, OTHER, 3, OFFSETS, answer)
    with pytest.raises(ValueError, match="expected an offset between a query and a key"):
        patch_offsets(bridge, TOKENS, OTHER, 1, [-7], answer)
    with pytest.raises(
        TypeError, match=r"expected the metric to give a number, got Tensor \[2, 7, "
    ):
        patch_offsets(bridge, TOKENS, OTHER, 1, OFFSETS, lambda logits: logits)


@pytest.mark.slow
def test_the_induction_head_of_smollm2_is_found_at_its_offset():
    """On a block of random tokens said twice: what followed the last time came 23 tokens ago."""
    bridge = bridge_from_huggingface(*load_smollm2())
    block = torch.randint(1000, 40_000, (24,), generator=torch.Generator().manual_seed(0))
    tokens = torch.cat((torch.tensor([1]), block, block))
    other = tokens.clone()
    other[1:25] = torch.randint(1000, 40_000, (24,), generator=torch.Generator().manual_seed(1))

    def last_of_block(logits):
        return logits[0, -2].log_softmax(-1)[block[-1]]

    heads, offsets = [5, 6, 7], [-24, -23, -22]
    change = patch_offsets(bridge, tokens, other, 18, offsets, last_of_block, heads=heads)
    assert change[1, 1] < -2  # nats
    assert change[1, 1] < change[1, 2] < -0.5
    change[1, 1:] = 0
    assert change.abs().max() < 0.2
