"""lens_hooks: RoVE as hooks is RoVE, at the positions the model uses, in whichever call."""

import copy

import pytest
import torch
from hf_models import small_config
from rove_models import ARCHITECTURES
from rove_reference import YARN
from torch.testing import assert_close
from transformer_lens.config import TransformerBridgeConfig
from transformer_lens.model_bridge import TransformerBridge
from transformers import AutoModelForCausalLM

from rove_lab.attention import attention_pattern
from rove_lab.lens import bridge_from_huggingface, rotary_of, rove_hooks
from rove_lab.lens_calls import positions_seen, turning_values
from rove_lab.messages import z_from_pattern

TOKENS = torch.tensor([[3, 4, 5, 6, 3, 4, 9, 2], [9, 8, 7, 9, 8, 7, 3, 3]])

NATIVE = TransformerBridgeConfig(
    d_model=8, d_head=4, n_heads=2, n_layers=1, n_ctx=8, d_vocab=9, d_mlp=8, act_fn="gelu"
)


@pytest.fixture(scope="module")
def llama():
    return bridge_from_huggingface(ARCHITECTURES["llama"]())


def z_by_definition(bridge, layer, planes=None):
    """A hook that puts the sum of the definition in the place of z, from pattern and values."""
    rotary, kept = rotary_of(bridge, layer), {}
    rotary = rotary if planes is None else rotary.planes(planes)

    def keep(x, hook):
        kept[hook.name.rpartition("attn.")[2]] = x

    def replace(z, hook):
        values = kept["v.hook_out"].transpose(1, 2)
        return z_from_pattern(kept["hook_pattern"], values, rotary).transpose(1, 2)

    attention = f"blocks.{layer}.attn."
    return [
        (attention + "v.hook_out", keep),
        (attention + "hook_pattern", keep),
        (attention + "o.hook_in", replace),
    ]


@pytest.mark.parametrize("model_type", [name for name in ARCHITECTURES if name != "gptj"])
def test_the_hooks_are_the_definition(model_type):
    bridge = bridge_from_huggingface(ARCHITECTURES[model_type]())
    reference = [hook for layer in range(3) for hook in z_by_definition(bridge, layer)]
    with torch.no_grad():
        plain = bridge(TOKENS)
        expected = bridge.run_with_hooks(TOKENS, fwd_hooks=reference)
        actual = bridge.run_with_hooks(TOKENS, fwd_hooks=rove_hooks(bridge))
        assert (expected - plain).abs().max() > 1e-2
        assert_close(actual, expected, atol=1e-6, rtol=0)
        assert torch.equal(bridge(TOKENS), plain)  # nothing stays behind


def test_a_cache_within_the_context_holds_what_was_turned(llama):
    with torch.no_grad():
        _, plain = llama.run_with_cache(TOKENS)
        with llama.hooks(fwd_hooks=rove_hooks(llama)):
            _, cache = llama.run_with_cache(TOKENS)
    rotary = rotary_of(llama, 0)
    values = plain["blocks.0.attn.hook_v"].transpose(1, 2)
    turned = rotary(range(8)).apply(values)
    assert_close(cache["blocks.0.attn.hook_v"].transpose(1, 2), turned)
    z = z_from_pattern(plain["blocks.0.attn.hook_pattern"], values, rotary)
    assert_close(cache["blocks.0.attn.hook_z"].transpose(1, 2), z, atol=1e-6, rtol=0)


def test_layers_and_planes_are_those_asked_for(llama):
    hooks = rove_hooks(llama, layers=[2], planes=[0, 3])
    assert [name for name, _ in hooks] == ["blocks.2.attn.v.hook_out", "blocks.2.attn.o.hook_in"]
    with torch.no_grad():
        expected = llama.run_with_hooks(TOKENS, fwd_hooks=z_by_definition(llama, 2, [0, 3]))
        assert_close(llama.run_with_hooks(TOKENS, fwd_hooks=hooks), expected, atol=1e-6, rtol=0)
        nothing = llama.run_with_hooks(TOKENS, fwd_hooks=rove_hooks(llama, planes=[]))
        assert_close(nothing, llama(TOKENS), atol=1e-12, rtol=0)
    assert rove_hooks(llama, layers=[]) == []
    for layers in ([-1], slice(2, None), [2, -1]):
        assert [name for name, _ in rove_hooks(llama, layers)] == [name for name, _ in hooks]


def test_positions_are_those_of_the_call(llama):
    moved = torch.tensor([[0, 1, 2, 7, 8, 30, 31, 40]])
    with torch.no_grad(), llama.hooks(fwd_hooks=rove_hooks(llama)):
        here, there = (llama(TOKENS, position_ids=moved + shift) for shift in (0, 100))
        assert_close(here, there, atol=1e-4, rtol=0)  # the model's own angles are float32
        assert (here - llama(TOKENS)).abs().max() > 1e-2


def test_left_padding_changes_nothing():
    # in float64 TransformerLens's masked rows are not numbers, with RoVE or without
    llama = bridge_from_huggingface(ARCHITECTURES["llama"](dtype=torch.float32))
    padded = torch.cat((torch.zeros(2, 3, dtype=torch.int64), TOKENS), 1)
    mask = (torch.arange(11) >= 3).long().expand(2, -1)
    with torch.no_grad(), llama.hooks(fwd_hooks=rove_hooks(llama)):
        assert_close(llama(padded, attention_mask=mask)[:, 3:], llama(TOKENS), atol=1e-4, rtol=0)


def test_decoding_and_generation_use_the_right_positions(llama):
    with torch.no_grad(), llama.hooks(fwd_hooks=rove_hooks(llama)):
        whole = llama(TOKENS)
        _, cache = llama(TOKENS[:, :5], return_type="logits_and_cache", use_cache=True)
        rest = llama(TOKENS[:, 5:], past_key_values=cache)
        assert_close(rest, whole[:, 5:], atol=1e-6, rtol=0)
        settings = {"max_new_tokens": 4, "do_sample": False, "verbose": False}
        settings |= {"stop_at_eos": False, "return_type": "tokens"}
        cached = llama.generate(TOKENS, **settings)
        assert torch.equal(cached, llama.generate(TOKENS, use_past_kv_cache=False, **settings))
    assert not torch.equal(cached, llama.generate(TOKENS, **settings))


def test_turning_the_values_twice_is_refused(llama):
    hooks = rove_hooks(llama)
    with (
        llama.hooks(fwd_hooks=hooks),
        pytest.raises(ValueError, match="once, got them twice in on"),
    ):
        llama.run_with_hooks(TOKENS, fwd_hooks=rove_hooks(llama, layers=[1]))
    assert turning_values(llama.blocks[1].attn) is None


@pytest.mark.parametrize(
    ("model_type", "way"),
    [
        ("llama", "set_use_split_qkv_input"),
        ("gpt_neox", "set_use_split_qkv_input"),
        ("gpt_neox", "set_use_attn_in"),
        ("llama", "set_use_attn_result"),
        ("gpt_neox", "set_use_attn_result"),
    ],
)
def test_transformer_lenss_other_ways_through_attention_turn_too(model_type, way):
    bridge = bridge_from_huggingface(ARCHITECTURES[model_type]())
    hooks = rove_hooks(bridge)
    with torch.no_grad():
        expected = bridge.run_with_hooks(TOKENS, fwd_hooks=hooks)
        getattr(bridge, way)(True)
        assert_close(bridge.run_with_hooks(TOKENS, fwd_hooks=hooks), expected, atol=1e-6, rtol=0)


def test_a_batch_of_one_may_lose_its_axis(llama):
    hooks = rove_hooks(llama)
    with torch.no_grad():
        expected = llama.run_with_hooks(TOKENS[:1], fwd_hooks=hooks)
        actual = llama.run_with_hooks(TOKENS[:1], fwd_hooks=hooks, remove_batch_dim=True)
        assert torch.equal(actual, expected)


def test_half_precision_stays_half():
    bridge = bridge_from_huggingface(ARCHITECTURES["llama"](dtype=torch.bfloat16))
    with torch.no_grad():
        logits = bridge.run_with_hooks(TOKENS, fwd_hooks=rove_hooks(bridge))
    assert logits.dtype == torch.bfloat16
    assert logits.isfinite().all()


def test_yarn_never_scales_values():
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    bridge = bridge_from_huggingface(ARCHITECTURES["llama"](yarn=yarn))
    assert rotary_of(bridge, 0).attention_factor > 1.1
    one = TOKENS[:, :1]  # a token alone attends to itself: RoVE gives its own value back
    with torch.no_grad():
        hooked = bridge.run_with_hooks(one, fwd_hooks=rove_hooks(bridge))
        assert_close(hooked, bridge(one), atol=1e-6, rtol=0)
        reference = [hook for layer in range(3) for hook in z_by_definition(bridge, layer)]
        expected = bridge.run_with_hooks(TOKENS, fwd_hooks=reference)
        actual = bridge.run_with_hooks(TOKENS, fwd_hooks=rove_hooks(bridge))
        assert_close(actual, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("model_type", ["phi", "gpt_neox"])
@torch.no_grad()
def test_a_pattern_under_yarn_where_a_part_of_a_head_turns(model_type):
    bridge = bridge_from_huggingface(ARCHITECTURES[model_type](yarn=dict(YARN)))
    _, cache = bridge.run_with_cache(TOKENS)
    for layer in range(3):
        q, k = (cache[f"blocks.{layer}.attn.hook_{name}"] for name in "qk")
        q, k = (x.unflatten(-1, (4, -1)) if x.dim() == 3 else x for x in (q, k))
        ours = attention_pattern(q.transpose(1, 2), k.transpose(1, 2), rotary_of(bridge, layer))
        theirs = cache[f"blocks.{layer}.attn.hook_pattern"]
        assert_close(ours, theirs, atol=1e-5, rtol=0)


def test_an_exception_leaves_nothing_behind(llama):
    def stop(x, hook):
        raise ArithmeticError("stopped")

    with torch.no_grad():
        plain = llama(TOKENS)
        hooks = [*rove_hooks(llama), ("blocks.1.attn.hook_pattern", stop)]
        with pytest.raises(ArithmeticError, match="stopped"):
            llama.run_with_hooks(TOKENS, fwd_hooks=hooks)
        assert torch.equal(llama(TOKENS), plain)
    with pytest.raises(RuntimeError, match="expected the positions of the tokens, got none"):
        positions_seen(llama.blocks[1].attn)


def test_a_copy_of_a_bridge_takes_hooks_of_its_own(llama):
    hooks = rove_hooks(llama)
    copied = copy.deepcopy(llama)
    with torch.no_grad():
        expected = llama.run_with_hooks(TOKENS, fwd_hooks=hooks)
        assert_close(copied.run_with_hooks(TOKENS, fwd_hooks=rove_hooks(copied)), expected)
        with pytest.raises(RuntimeError, match="make new ones for a copy of the bridge"):
            copied.run_with_hooks(TOKENS, fwd_hooks=hooks)


def test_gradients_flow(llama):
    logits = llama.run_with_hooks(TOKENS, fwd_hooks=rove_hooks(llama))
    logits.logsumexp(-1).sum().backward()
    grads = [
        weight.grad for name, weight in llama.original_model.named_parameters() if "v_" in name
    ]
    assert len(grads) == 3
    assert all(grad is not None and grad.abs().max() > 0 for grad in grads)
    llama.zero_grad()


@pytest.mark.parametrize("layers", [[3], [-4], [0, 17]])
def test_refuses_layers_that_do_not_exist(llama, layers):
    with pytest.raises(ValueError, match=r"expected layers among 0\.\.2, got layer"):
        rove_hooks(llama, layers=layers)


def test_refuses_what_is_not_asked_for_properly(llama):
    for layers in (1, "all"):
        with pytest.raises(TypeError, match=r"as integer indices or a slice, got .*: one layer is"):
            rove_hooks(llama, layers=layers)
    with pytest.raises(TypeError, match=r"as integer indices or a slice, got .None.: one"):
        rove_hooks(llama, layers=[None])
    with pytest.raises(ValueError, match=r"expected planes among 0\.\.11"):
        rove_hooks(llama, planes=[12])
    with pytest.raises(TypeError, match="expected a TransformerBridge, got LlamaForCausalLM"):
        rove_hooks(llama.original_model)
    falcon = AutoModelForCausalLM.from_config(small_config("falcon", num_hidden_layers=3))
    with pytest.raises(ValueError, match="got one of 'falcon': that has not been checked"):
        rove_hooks(bridge_from_huggingface(falcon))
    clipped = AutoModelForCausalLM.from_config(small_config("olmo", clip_qkv=1.0))
    with pytest.raises(ValueError, match="got one of 'olmo': it clips values after their hook"):
        rove_hooks(bridge_from_huggingface(clipped))
    with pytest.raises(
        ValueError, match="expected a bridge whose model says how it rotates, got o"
    ):
        rotary_of(TransformerBridge.boot_native(NATIVE), 0)
