"""lens_gpt: the bridge of the lab's GPT computes what the GPT does, and the GPT stays as it was."""

import pytest
import torch
from torch.testing import assert_close
from transformer_lens.factories.architecture_adapter_factory import ArchitectureAdapterFactory

from rove_lab.lens import bridge_from_gpt, compatible, head_scores, rove_hooks
from rove_lab.lens_gpt import LensGPT
from rove_lab.model import GPT, GPTConfig

SIZES = {"d_model": 64, "n_heads": 4, "n_kv_heads": 2, "d_head": 24, "d_vocab": 80, "n_layers": 3}
VARIANTS = {
    "RoPE": {"rotate_values": False},
    "RoVE": {"rotate_values": True},
    "some planes": {"value_planes": (0, 5)},
    "layer norm": {"rms_norm": False, "tied": False},
    "one KV head each": {"n_kv_heads": None, "d_mlp": 48},
}
TOKENS = torch.tensor([[3, 4, 5, 6, 3, 4, 9, 2], [9, 8, 7, 9, 8, 7, 3, 3]])


def small_gpt(**changes):
    torch.manual_seed(0)
    gpt = GPT(GPTConfig(**SIZES | changes)).double()
    with torch.no_grad():
        for weight in gpt.parameters():
            weight += 0.2 * torch.randn_like(weight)  # norms too
    return gpt


@pytest.fixture(params=VARIANTS)
def gpt(request):
    return small_gpt(**VARIANTS[request.param])


@torch.no_grad()
def test_a_bridge_computes_what_its_gpt_does(gpt):
    bridge, expected = bridge_from_gpt(gpt), gpt(TOKENS)
    assert_close(bridge(TOKENS), expected)
    moved = torch.tensor([[0, 1, 2, 7, 8, 30, 31, 40]])
    assert_close(bridge(TOKENS, position_ids=moved), gpt(TOKENS, positions=moved))
    assert bridge.cfg.n_layers == 3


@torch.no_grad()
def test_decoding_generation_and_padding(gpt):
    bridge, expected = bridge_from_gpt(gpt), gpt(TOKENS)
    _, cache = bridge(TOKENS[:, :5], return_type="logits_and_cache", use_cache=True)
    assert_close(bridge(TOKENS[:, 5:], past_key_values=cache), expected[:, 5:])
    settings = {"do_sample": False, "verbose": False, "stop_at_eos": False}
    generated = bridge.generate(TOKENS, max_new_tokens=4, return_type="tokens", **settings)
    assert torch.equal(generated, gpt.generate(TOKENS, 4, temperature=0.0))
    padded = torch.cat((torch.zeros(2, 3, dtype=torch.int64), TOKENS), 1)
    mask = (torch.arange(11) >= 3).long().expand(2, -1)
    assert_close(bridge(padded, attention_mask=mask)[:, 3:], expected)


@torch.no_grad()
def test_compatibility_mode_changes_no_probability(gpt):
    bridge, expected = bridge_from_gpt(gpt), gpt(TOKENS).log_softmax(-1)
    assert_close(compatible(bridge)(TOKENS).log_softmax(-1), expected, atol=1e-5, rtol=0)
    assert_close(bridge.blocks[0].ln1.weight, torch.ones(64, dtype=torch.float64))


@torch.no_grad()
def test_weights_are_the_gpts_and_the_gpt_stays_as_it_was(gpt):
    before = gpt(TOKENS)
    bridge = bridge_from_gpt(gpt)
    for layer, block in enumerate(gpt.blocks):
        for name in ("W_Q", "W_K", "W_V", "W_O"):
            assert torch.equal(getattr(bridge, name)[layer], getattr(block.attn, name))
            getattr(bridge.blocks[layer].attn, name).zero_()
    bridge.W_E.zero_()
    assert torch.equal(gpt(TOKENS), before)
    assert type(gpt.blocks[0].attn).__name__ == "RotarySelfAttention"


def test_it_trains_or_not_as_the_gpt_does_and_gradients_flow():
    gpt = small_gpt()
    assert bridge_from_gpt(gpt.eval()).training is False
    bridge = bridge_from_gpt(gpt.train())
    assert bridge.training
    bridge(TOKENS).logsumexp(-1).sum().backward()
    assert all(weight.grad is not None for weight in bridge.original_model.parameters())
    assert all(weight.grad is None for weight in gpt.parameters())


@torch.no_grad()
def test_hooks_turn_a_rope_gpt_into_a_rove_gpt():
    rope, rove = small_gpt(rotate_values=False), small_gpt(rotate_values=True)
    bridge = bridge_from_gpt(rope)
    hooked = bridge.run_with_hooks(TOKENS, fwd_hooks=rove_hooks(bridge))
    assert_close(hooked, rove(TOKENS))
    with bridge.hooks(fwd_hooks=rove_hooks(bridge)):
        scores = head_scores(bridge, TOKENS)
    assert_close(scores.induction, head_scores(bridge_from_gpt(rove), TOKENS).induction)


def test_refuses_what_does_not_fit():
    with pytest.raises(
        TypeError, match=r"expected a rove_lab GPT, got Linear: for a model of tran"
    ):
        bridge_from_gpt(torch.nn.Linear(1, 1))
    bridge = bridge_from_gpt(small_gpt())
    with pytest.raises(
        ValueError, match="got one whose attention rotates the values itself: run i"
    ):
        rove_hooks(bridge)
    with pytest.raises(ValueError, match=r"expected attention_mask \[batch, key_pos\], got \[8\]"):
        LensGPT(small_gpt())(TOKENS, attention_mask=torch.ones(8))


def test_the_adapter_is_registered_where_the_package_is_not_installed(monkeypatch):
    bridge = bridge_from_gpt(small_gpt())
    adapters = {**ArchitectureAdapterFactory._adapters}
    assert adapters["RoveLabGPT"] is type(bridge.adapter)
    adapters.pop("RoveLabGPT")
    monkeypatch.setattr(ArchitectureAdapterFactory, "_adapters", adapters)
    assert type(bridge_from_gpt(small_gpt()).adapter) is type(bridge.adapter)
