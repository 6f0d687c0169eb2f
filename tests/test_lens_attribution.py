"""lens_attribution: a logit taken apart by head and offset, against sums by hand and the stream."""

from contextlib import nullcontext

import pytest
import torch
from hf_models import small_config
from references_lens import run
from rove_models import ARCHITECTURES, draw_weights
from rove_reference import matrix_of
from test_lens_gpt import small_gpt
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

from rove_lab.lens import attribute_offsets, bridge_from_gpt, bridge_from_huggingface, rove_hooks

TOKENS = torch.tensor([[3, 4, 5, 6, 3, 4, 9], [9, 8, 7, 9, 8, 7, 3]])
OFFSETS = [-2, 0, -5]
EVERY = range(-6, 1)


def rove_on(bridge, rove):
    return bridge.hooks(fwd_hooks=rove_hooks(bridge)) if rove else nullcontext()


@pytest.mark.parametrize("rove", [False, True])
def test_equals_the_sum_by_hand(rove):
    model = ARCHITECTURES["llama"]()
    bridge = bridge_from_huggingface(model)
    unembedding = model.lm_head.weight.detach()  # [d_vocab, d_model]
    u = unembedding[7] - unembedding[11]
    stream = []
    handle = model.model.norm.register_forward_pre_hook(lambda module, x: stream.append(x[0]))
    _, seen = run(model, TOKENS, rove)
    handle.remove()
    size = (stream[0][:, 4].pow(2).mean(-1) + model.config.rms_norm_eps).sqrt()
    expected = torch.zeros(3, 2, 4, 3, dtype=torch.float64)
    for layer, (pattern, values) in seen.items():
        W_O = model.model.layers[layer].self_attn.o_proj.weight.detach().T.unflatten(0, (4, 24))
        for place, offset in enumerate(OFFSETS):
            if 4 + offset < 0:
                continue
            turn = matrix_of(offset, "llama", layer) if rove else torch.eye(24).double()
            sent = pattern[:, :, 4, 4 + offset, None] * (values[:, :, 4 + offset] @ turn.T)
            out = torch.einsum("bhd,hdm->bhm", sent, W_O) * model.model.norm.weight.detach()
            expected[layer, :, :, place] = out @ u / size[:, None]
    with rove_on(bridge, rove):
        found = attribute_offsets(bridge, TOKENS, u, OFFSETS, query=4)
    assert_close(found, expected, atol=1e-5, rtol=0)
    assert (found[..., 2] == 0).all()  # nobody stands before the first token
    assert found[..., :2].abs().min() > 1e-5


def check_sums(bridge, rove):
    """A layer's offsets and heads sum to what its output adds to the logit, norms held fast."""
    u = bridge.W_U.detach()[:, [7, 9]].T  # one for each sequence
    with torch.no_grad(), rove_on(bridge, rove):
        found = attribute_offsets(bridge, TOKENS, u, EVERY)
        _, cache = bridge.run_with_cache(TOKENS)
    norm = bridge.ln_final
    for layer, block in enumerate(bridge.blocks):
        out = cache[f"blocks.{layer}.hook_attn_out"][:, -1]
        if getattr(block.attn, "b_O", None) is not None:
            out = out - block.attn.b_O.detach()
        if not norm.uses_rms_norm:
            out = out - out.mean(-1, keepdim=True)
        weight = getattr(norm.original_component, "weight", torch.ones(64)).detach()
        direct = (out * (weight + norm.uses_weight_offset) * u).sum(-1)
        direct = direct / cache["ln_final.hook_scale"][:, -1, 0]
        assert direct.abs().max() > 1e-3
        assert_close(found[layer].sum((-1, -2)), direct, atol=1e-5, rtol=0)


@pytest.mark.parametrize("rove", [False, True])
@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_offsets_and_heads_sum_to_the_direct_contribution(model_type, rove):
    check_sums(bridge_from_huggingface(ARCHITECTURES[model_type]()), rove)


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [("granite", {"residual_multiplier": 0.3}), ("olmo", {}), ("nemotron", {}), ("glm4", {})],
)
def test_norms_and_scales_of_other_families(model_type, changes):
    model = AutoModelForCausalLM.from_config(small_config(model_type, **changes))
    check_sums(bridge_from_huggingface(draw_weights(model)), rove=True)


def test_all_parts_together_are_the_logit():
    """Embedding, attention and MLPs of the lab's GPT, which has no biases."""
    bridge = bridge_from_gpt(small_gpt())
    u = bridge.W_U.detach()[:, 7]
    with torch.no_grad():
        logits, cache = bridge.run_with_cache(TOKENS)
    attention = attribute_offsets(bridge, TOKENS, u, EVERY).sum((0, 2, 3))
    others = cache["hook_embed"] + sum(cache[f"blocks.{layer}.hook_mlp_out"] for layer in range(3))
    read = u * bridge.ln_final.weight.detach()
    rest = (others[:, -1] @ read) / cache["ln_final.hook_scale"][:, -1, 0]
    assert_close(attention + rest, logits[:, -1, 7])


def test_a_bridge_of_a_rove_gpt_answers_like_hooks_on_its_rope_twin():
    planes = (0, 3)
    rove = bridge_from_gpt(small_gpt(value_planes=planes))
    rope = bridge_from_gpt(small_gpt(rotate_values=False))
    u = rove.W_U.detach()[:, 7]
    found = attribute_offsets(rove, TOKENS, u, OFFSETS, layers=[1])
    with rope.hooks(fwd_hooks=rove_hooks(rope, planes=planes)):
        hooked = attribute_offsets(rope, TOKENS, u, OFFSETS)
    assert_close(hooked[1:2], found, atol=1e-6, rtol=0)
    plain = attribute_offsets(rope, TOKENS, u, OFFSETS, layers=slice(1, 2))
    assert (plain - found).abs().max() > 1e-3


def test_refuses_what_does_not_fit():
    bridge = bridge_from_gpt(small_gpt())
    u = bridge.W_U.detach()[:, 7]
    with pytest.raises(ValueError, match="expected query among the 7 positions of tokens, got 7"):
        attribute_offsets(bridge, TOKENS, u, OFFSETS, query=7)
    with pytest.raises(
        ValueError, match=r"expected direction \[d_model=64\] or \[batch=2, 64\], got"
    ):
        attribute_offsets(bridge, TOKENS, u[None], OFFSETS)
    with pytest.raises(
        ValueError, match="expected direction on cpu, where the bridge is, got it on"
    ):
        attribute_offsets(bridge, TOKENS, u.to("meta"), OFFSETS)
    with pytest.raises(TypeError, match="expected direction to be a floating-point tensor"):
        attribute_offsets(bridge, TOKENS, 7, OFFSETS)
    with pytest.raises(ValueError, match="expected each offset once"):
        attribute_offsets(bridge, TOKENS, u, [0, 0])
