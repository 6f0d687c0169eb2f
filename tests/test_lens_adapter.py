"""lens_adapter: every step of the GPT's attention is hooked, and an edit at any of them counts."""

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from test_lens_gpt import TOKENS, small_gpt
from torch.testing import assert_close

from rove_lab.attention import attention_pattern
from rove_lab.lens import bridge_from_gpt, firing_hooks
from rove_lab.messages import z_from_pattern
from rove_lab.rotary import RotaryEmbedding, YarnScaling

BOTH = ["q.hook_out", "k.hook_out", "v.hook_out", "hook_rot_q", "hook_rot_k", "hook_attn_scores"]
BOTH += ["hook_pattern", "o.hook_in", "hook_z"]
ROVE = ["hook_rot_v", "hook_rot_z"]


@pytest.fixture(scope="module")
def rove():
    return bridge_from_gpt(small_gpt())


@torch.no_grad()
def test_the_cache_holds_every_step(rove):
    _, cache = rove.run_with_cache(TOKENS)
    rotary = small_gpt().config.rotaries()[0]
    turn = rotary(range(8))
    for layer in range(3):

        def held(name, layer=layer):
            return cache[f"blocks.{layer}.attn.{name}"]

        q, k, v, z = (held(f"hook_{name}").transpose(1, 2) for name in "qkvz")
        turned = [held(f"hook_rot_{name}").transpose(1, 2) for name in "qkvz"]
        for x, turned_x in zip((q, k, v, z), turned, strict=True):
            assert_close(turned_x, turn.apply(x))
        pattern = attention_pattern(q, k, rotary)
        assert_close(held("hook_pattern"), pattern)
        assert_close(held("hook_attn_scores").softmax(-1), pattern)
        assert_close(z, z_from_pattern(pattern, v, rotary))


@torch.no_grad()
def test_yarns_temperature_is_on_the_channels_that_turn():
    gpt = small_gpt()
    scaling = YarnScaling(4.0, 64, beta_fast=4.0, attention_factor=1.5)
    rotary = RotaryEmbedding(24, rotary_dim=8, trailing=True, scaling=scaling)
    for block in gpt.blocks:
        block.attn.rotary = block.attn.value_rotary = rotary
    logits, cache = bridge_from_gpt(gpt).run_with_cache(TOKENS)
    assert_close(logits, gpt(TOKENS))
    q, k = (cache[f"blocks.1.attn.hook_{name}"].transpose(1, 2) for name in "qk")
    assert_close(cache["blocks.1.attn.hook_pattern"], attention_pattern(q, k, rotary))
    turned = cache["blocks.1.attn.hook_rot_q"].transpose(1, 2)
    assert_close(turned, rotary(range(8)).apply(q))  # a rotation, which stretches nothing


@torch.no_grad()
def test_an_edited_pattern_carries_the_messages(rove):
    """A head that looks one token back, put in the place of all, gives z by the definition."""
    back = torch.eye(8, dtype=torch.float64).roll(-1, 1).expand(2, 4, 8, 8)
    seen = {}
    hooks = [("blocks.1.attn.hook_pattern", lambda pattern, hook: back.clone())]
    for name in ("v", "z"):
        hooks.append(
            (f"blocks.1.attn.hook_{name}", lambda x, hook, name=name: seen.update({name: x}))
        )
    rove.run_with_hooks(TOKENS, fwd_hooks=hooks)
    expected = z_from_pattern(back, seen["v"].transpose(1, 2), small_gpt().config.rotaries()[0])
    assert_close(seen["z"].transpose(1, 2), expected)


@pytest.mark.parametrize("name", BOTH + ROVE)
@torch.no_grad()
def test_an_edit_counts_at_every_step(rove, name):
    def double(x, hook):
        return 2 * x

    plain = rove(TOKENS)
    edited = rove.run_with_hooks(TOKENS, fwd_hooks=[(f"blocks.1.attn.{name}", double)])
    assert (edited - plain).abs().max() > 1e-3


def test_hooks_that_could_never_fire_are_not_there(rove):
    names = firing_hooks(rove, TOKENS)
    assert {f"blocks.2.attn.{name}" for name in BOTH + ROVE} <= {*names}
    rope = bridge_from_gpt(small_gpt(rotate_values=False))
    names = firing_hooks(rope, TOKENS)
    assert {f"blocks.2.attn.{name}" for name in BOTH} <= {*names}
    for name in [*ROVE, "hook_q_input", "hook_attn_in"]:
        assert f"blocks.2.attn.{name}" not in rope.hook_dict


@torch.no_grad()
def test_padding_that_sees_nobody_gives_nothing_and_a_fault_is_not_hidden(rove):
    mask = torch.ones(2, 8).long()
    mask[:, :2] = 0
    _, cache = rove.run_with_cache(TOKENS, attention_mask=mask)
    assert (cache["blocks.0.attn.hook_pattern"][:, :, :2] == 0).all()
    broken = bridge_from_gpt(small_gpt())
    broken.blocks[0].attn.q.weight[0, 0] = torch.nan
    assert broken(TOKENS).isnan().any()


def test_the_entry_point_leads_to_the_adapter():
    root = Path(__file__).resolve().parent.parent
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ((name, value),) = project["entry-points"]["transformer_lens.architectures"].items()
    assert name == "RoveLabGPT"
    found = EntryPoint(name, value, "transformer_lens.architectures").load()
    assert found is type(bridge_from_gpt(small_gpt()).adapter)


def test_per_head_results_are_refused_by_transformer_lens(rove):
    with pytest.raises((RuntimeError), match="use_attn_result"):
        rove.set_use_attn_result(True)
    with pytest.raises((RuntimeError), match="use_split_qkv_input"):
        rove.set_use_split_qkv_input(True)
