"""lens_firing: the hooks that fire, and none that do not."""

import pytest
import torch
from rove_models import ARCHITECTURES

from rove_lab.lens import bridge_from_huggingface, firing_hooks, rove_hooks
from rove_lab.lens_firing import check_fires

TOKENS = torch.tensor([[3, 4, 5, 6]])
SILENT = {  # of those a user might reach for
    "gpt_neox": {"hook_rot_q", "hook_rot_k"},
    "phi3": {"hook_rot_q", "hook_rot_k"},
    "gptj": {"hook_rot_q", "hook_rot_k"},
}


@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_hooks_that_never_fire_are_not_listed_and_ours_are(model_type):
    bridge = bridge_from_huggingface(ARCHITECTURES[model_type]())
    names = firing_hooks(bridge, TOKENS)
    assert len({*names}) == len(names)
    assert {*names} <= {*bridge.hook_dict}
    assert {name for name, _ in rove_hooks(bridge)} <= {*names}
    for kind in ("hook_rot_q", "hook_rot_k", "hook_pattern", "hook_attn_scores"):
        silent = kind in SILENT.get(model_type, ())
        assert f"blocks.1.attn.{kind}" in bridge.hook_dict
        assert (f"blocks.1.attn.{kind}" not in names) is silent


def test_they_come_in_the_order_they_fire():
    bridge = bridge_from_huggingface(ARCHITECTURES["llama"]())
    attention = ["v.hook_out", "hook_rot_q", "hook_pattern", "o.hook_in", "hook_z", "hook_out"]
    expected = [f"blocks.{layer}.attn.{name}" for layer in range(3) for name in attention]
    assert [name for name in firing_hooks(bridge, TOKENS[0]) if name in expected] == expected
    assert not any(point.has_hooks() for point in bridge.hook_dict.values())


def test_what_should_have_fired_is_missed():
    bridge = bridge_from_huggingface(ARCHITECTURES["gptj"]())
    with pytest.raises(
        ValueError, match="expected hook_x to fire, and it never did: the attention of this GPTJ"
    ):
        check_fires(bridge, ["hook_x"])
    with pytest.raises(TypeError, match="expected tokens to be a tensor of integers, got list"):
        firing_hooks(bridge, [1, 2])
