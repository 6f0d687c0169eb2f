"""lens_messages: what a layer sends, with RoVE from hooks, from the model or not at all."""

import pytest
import torch
from hf_models import small_config
from rove_models import ARCHITECTURES
from test_lens_gpt import small_gpt
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

from rove_lab.lens import bridge_from_gpt, bridge_from_huggingface, rotary_of, rove_hooks
from rove_lab.lens_messages import watch_messages
from rove_lab.messages import z_from_pattern

TOKENS = torch.tensor([[3, 4, 5, 6, 3, 4, 9], [9, 8, 7, 9, 8, 7, 3]])


@torch.no_grad()
def check_z(bridge, hooks=()):
    """The messages give the z that the bridge has."""
    with bridge.hooks(fwd_hooks=[*hooks]):
        z = {}
        keep = [
            (f"blocks.{layer}.attn.o.hook_in", lambda x, hook: z.update({hook.name: x}))
            for layer in (0, 2)
        ]
        found = watch_messages(bridge, TOKENS, [0, 2], keep)
    for (pattern, values, rotary, rotate), seen in zip(found, z.values(), strict=True):
        expected = z_from_pattern(pattern, values, rotary, rotate_values=rotate)
        assert_close(seen.transpose(1, 2), expected, atol=1e-6, rtol=0)
    return found


@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_messages_of_a_hugging_face_model(model_type):
    bridge = bridge_from_huggingface(ARCHITECTURES[model_type]())
    off = check_z(bridge)
    assert [each.rotate_values for each in off] == [False, False]
    hooks = rove_hooks(bridge, layers=[2], planes=[0, 1])
    first, second = check_z(bridge, hooks)
    assert (first.rotate_values, second.rotate_values) == (False, True)
    turning = second.rotary.inv_freq.nonzero().flatten().tolist()
    assert turning == [0, 1]
    assert torch.equal(second.rotary.inv_freq[:2], rotary_of(bridge, 2).inv_freq[:2])
    assert_close(second.values, off[1].values, atol=1e-5, rtol=0)  # before they turn


@pytest.mark.parametrize("changes", [{}, {"rotate_values": False}, {"value_planes": (1, 4)}])
def test_messages_of_the_labs_gpt(changes):
    bridge = bridge_from_gpt(small_gpt(**changes))
    found = check_z(bridge)
    assert found[0].rotate_values is changes.get("rotate_values", True)
    if not found[0].rotate_values:
        assert check_z(bridge, rove_hooks(bridge))[0].rotate_values


def test_refuses_a_family_that_has_not_been_checked():
    bridge = bridge_from_huggingface(
        AutoModelForCausalLM.from_config(small_config("falcon", num_hidden_layers=3))
    )
    with pytest.raises(ValueError, match=r"takes the values as they leave their hook, .* 'falcon'"):
        watch_messages(bridge, TOKENS, [0])
