"""The mathematics against Hugging Face transformers, an independent implementation."""

import itertools
import re
from dataclasses import replace

import pytest
import torch
from gpt_neox import LIKE_GPT_NEOX, gpt_neox_of
from rove_models import rope, small_model
from rove_reference import YARN
from samples import YARN_CASES, normal
from torch.nn.functional import rms_norm
from transformers import LlamaConfig, Qwen2VLConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.cohere import modeling_cohere as cohere
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as deepseek
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.gpt_neox import modeling_gpt_neox as gpt_neox
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen

from rove_lab import (
    LinearScaling,
    Llama3Scaling,
    RotaryEmbedding,
    YarnScaling,
    attention_pattern,
    rope_attention,
)
from rove_lab.circuits import fold_rms_norm, positional_scores
from rove_lab.frames import AxialRotary
from rove_lab.model import GPT


def hugging_face(base, d_head, **rope_parameters):
    config = LlamaConfig(
        hidden_size=4 * d_head,
        num_attention_heads=4,
        head_dim=d_head,
        max_position_embeddings=131072,
        rope_parameters={"rope_theta": base, **rope_parameters},
    )
    return ROPE_INIT_FUNCTIONS[rope_parameters["rope_type"]](config, device="cpu")


def check_against_hugging_face(scaling, base, d_head, **rope_parameters):
    """Their formula in float64 is ours; what they compute in float32 is ours but for rounding.

    Where a ramp divides a frequency by 40, their float32 ramp is rounded to 2e-7 of the frequency
    before the division: relative to the divided one that is more.
    """
    rotary = RotaryEmbedding(d_head, base=base, scaling=scaling)
    inv_freq, factor = hugging_face(base, d_head, **rope_parameters)
    unscaled = RotaryEmbedding(d_head, base=base).inv_freq
    assert ((rotary.inv_freq - inv_freq).abs() <= 2e-7 * unscaled).all(), rope_parameters
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "float", torch.float64)
        patch.setattr(torch, "float32", torch.float64)
        inv_freq, _ = hugging_face(base, d_head, **rope_parameters)
    assert inv_freq.dtype == torch.float64
    assert torch.allclose(rotary.inv_freq, inv_freq, rtol=1e-12, atol=0), rope_parameters
    assert rotary.attention_factor == pytest.approx(factor, rel=1e-12), rope_parameters


def test_linear_equals_hugging_face():
    for base, d_head, factor in itertools.product((1e4, 1e6), (64, 128), (1.0, 2.0, 8.0)):
        check_against_hugging_face(
            LinearScaling(factor), base, d_head, rope_type="linear", factor=factor
        )


@pytest.mark.parametrize("attention_factor", [None, 1.0, 1.3])
def test_fault_15_yarn_equals_hugging_face(attention_factor):
    for base, d_head, factor, n_ctx, (fast, slow), truncate in YARN_CASES[::5]:
        parameters = {} if attention_factor is None else {"attention_factor": attention_factor}
        check_against_hugging_face(
            YarnScaling(factor, n_ctx, fast, slow, truncate, attention_factor),
            base,
            d_head,
            rope_type="yarn",
            factor=factor,
            original_max_position_embeddings=n_ctx,
            beta_fast=fast,
            beta_slow=slow,
            truncate=truncate,
            **parameters,
        )


def test_llama3_equals_hugging_face():
    for base, d_head, factor, low, high in itertools.product(
        (1e4, 5e5), (64, 128), (8.0, 32.0), (0.5, 1.0), (4.0, 8.0)
    ):
        check_against_hugging_face(
            Llama3Scaling(factor, low, high, 8192),
            base,
            d_head,
            rope_type="llama3",
            factor=factor,
            low_freq_factor=low,
            high_freq_factor=high,
            original_max_position_embeddings=8192,
        )


def test_plain_frequencies_equal_hugging_faces_to_2e_7():
    for base, d_head in itertools.product((1e4, 1.5e5, 5e5, 1e6), (32, 64, 128)):
        inv_freq, _ = hugging_face(base, d_head, rope_type="linear", factor=1.0)
        assert torch.allclose(
            RotaryEmbedding(d_head, base=base).inv_freq, inv_freq.double(), rtol=2e-7, atol=0
        )


# --- apply, fed with our cos and sin ----------------------------------------------------------


def tables(rotary, n):
    """cos and sin as transformers takes them, [batch, pos, rotary_dim / 2]."""
    rotation = rotary(torch.arange(n) + 1000)
    return rotation, rotation.cos[None], rotation.sin[None]


def by_llama(x, cos, sin):
    return llama.apply_rotary_pos_emb(x, x, cos.repeat(1, 1, 2), sin.repeat(1, 1, 2))[0]


def by_gpt_neox(x, cos, sin):
    return gpt_neox.apply_rotary_pos_emb(x, x, cos.repeat(1, 1, 2), sin.repeat(1, 1, 2))[0]


def by_gptj(x, cos, sin):  # GPT-J's heads come after the positions
    return gptj.apply_rotary_pos_emb(x.transpose(1, 2), sin, cos).transpose(1, 2)


def by_cohere(x, cos, sin):
    cos, sin = cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1)
    return cohere.apply_rotary_pos_emb(x, x, cos, sin)[0]


@pytest.mark.parametrize(
    ("theirs", "layout"),
    [
        (by_llama, {}),
        (by_gpt_neox, {"rotary_dim": 16}),
        (by_gptj, {"interleaved": True}),
        (by_cohere, {"interleaved": True}),
        (
            deepseek.apply_rotary_pos_emb,
            {"rotary_dim": 16, "interleaved": True, "trailing": True},
        ),
    ],
    ids=["llama", "gpt_neox", "gptj", "cohere", "deepseek_v4"],
)
def test_apply_equals_hugging_faces(theirs, layout):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 11, 64)
    rotation, cos, sin = tables(RotaryEmbedding(64, **layout), 11)
    assert (rotation.apply(x) - theirs(x, cos, sin)).abs().max() < 1e-6
    assert (rotation.undo(x) - theirs(x, cos, -sin)).abs().max() < 1e-6


def test_rope_attention_equals_hugging_faces_eager_attention():
    """Grouped-query heads and YaRN: theirs multiplies cos and sin by m, ours the logits by m²."""
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 6, 9, 32), torch.randn(2, 2, 9, 32), torch.randn(2, 2, 9, 32)
    rotary = RotaryEmbedding(32, scaling=YarnScaling(16.0, 64, beta_fast=4.0))
    m = rotary.attention_factor
    assert m > 1.2
    _, cos, sin = tables(rotary, 9)
    module = torch.nn.Module()
    module.num_key_value_groups = 3
    causal = torch.full((9, 9), -torch.inf).triu(1)[None, None]
    theirs, _ = llama.eager_attention_forward(
        module, by_llama(q, m * cos, m * sin), by_llama(k, m * cos, m * sin), v, causal, 32**-0.5
    )
    ours = rope_attention(q, k, v, rotary)
    assert (ours - theirs.transpose(1, 2)).abs().max() < 2e-6


def test_qwen2_vl_turns_the_patches_of_an_image_alike():
    """transformers' own rotation, with its float32 angles."""
    config = Qwen2VLConfig().vision_config
    d_head = config.embed_dim // config.num_heads
    embedding = qwen.Qwen2VLVisionRotaryEmbedding(config)
    rows = torch.arange(6).repeat_interleave(9)
    columns = torch.arange(9).repeat(6)
    q, k = normal(54, 2, d_head, dtype=torch.float32), normal(54, 2, d_head, dtype=torch.float32)
    cos, sin = embedding(q, torch.stack((rows, columns), -1))
    theirs = qwen.apply_rotary_pos_emb_vision(q, k, cos, sin)
    rotation = AxialRotary(d_head)(rows=rows, columns=columns)
    for x, expected in zip((q, k), theirs, strict=True):
        ours = rotation.apply(x.transpose(0, 1)).transpose(0, 1)
        torch.testing.assert_close(ours, expected, rtol=0, atol=5e-6)
    assert (theirs[0] - q).abs().max() > 1


def test_folding_gemmas_norm_multiplies_by_one_more():
    single = {"dtype": torch.float32}
    W_U, x = normal(5, 11, **single), 3 * normal(7, 5, seed=2, **single) + 1
    norm = Gemma2RMSNorm(5, eps=1e-5)
    with torch.no_grad():
        norm.weight.copy_(normal(5, seed=4))
        expected = norm(x) @ W_U
    folded = fold_rms_norm(W_U, 1 + norm.weight.detach())
    torch.testing.assert_close(rms_norm(x, (5,), eps=1e-5) @ folded, expected, rtol=0, atol=1e-5)


def test_the_gpt_with_rope_is_gpt_neox():
    torch.manual_seed(0)
    ours, tokens = LIKE_GPT_NEOX.build().double(), torch.randint(0, 31, (2, 7))
    # Hugging Face takes its angles in float32.
    theirs = gpt_neox_of(ours)(tokens).logits
    torch.testing.assert_close(ours(tokens), theirs, atol=1e-5, rtol=0)
    rove = GPT(replace(LIKE_GPT_NEOX, rotate_values=True)).double()
    rove.load_state_dict(ours.state_dict())
    assert (rove(tokens) - ours(tokens)).abs().max() > 1e-2


# --- whole models, of whose heads a part turns -------------------------------------------------

PARTS = {"glm": 0.5, "gpt_neox": 0.25, "phi": 0.5, "stablelm": 0.25}  # GLM's channels interleave


def partly_turning(model_type, factor=4.0):
    """A model of this family under YaRN, of whose heads the first channels turn."""
    how = rope(partial_rotary_factor=PARTS[model_type])
    yarn = dict(YARN, factor=factor)
    return small_model(model_type, **how, yarn=yarn, attention="eager")


def heads_and_patterns(model, tokens, positions):
    """Each layer's queries and keys before their rotation, and its own attention weights."""
    heads, n_heads = {}, model.config.num_attention_heads

    def keep(layer, name):
        def hook(module, inputs, out):
            if name == "query_key_value":  # GPT-NeoX's: a head's q, k and v side by side
                heads[layer, "q"], heads[layer, "k"], _ = (
                    out.unflatten(-1, (n_heads, 3, -1)).movedim(1, 3).unbind(2)
                )
            else:
                d_head = RotaryEmbedding.from_config(model.config).d_head
                heads[layer, name[0]] = out.unflatten(-1, (-1, d_head)).transpose(1, 2)

        return hook

    handles = []
    for name, module in model.named_modules():
        last = name.rpartition(".")[2]
        if last in ("q_proj", "k_proj", "query_key_value"):
            layer = int(re.search(r"layers\.(\d+)\.", name)[1])
            handles.append(module.register_forward_hook(keep(layer, last)))
    with torch.no_grad():
        out = model(
            tokens,
            attention_mask=torch.ones_like(tokens),  # else positions that jump begin a new text
            position_ids=positions,
            output_attentions=True,
            use_cache=False,
        )
    for handle in handles:
        handle.remove()
    return heads, out.attentions


@pytest.mark.parametrize("model_type", PARTS)
@pytest.mark.parametrize("factor", [4.0, 32.0])
def test_the_pattern_of_a_model_of_whose_heads_a_part_turns(model_type, factor):
    model = partly_turning(model_type, factor)
    rotary = RotaryEmbedding.from_config(model.config)
    assert rotary.rotary_dim < rotary.d_head
    assert rotary.attention_factor > 1.1
    tokens = torch.randint(3, 64, (2, 9), generator=torch.Generator().manual_seed(0))
    positions = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 8], [3, 4, 7, 8, 20, 21, 22, 50, 90]])
    heads, patterns = heads_and_patterns(model, tokens, positions)
    assert len(patterns) == 3
    for layer, theirs in enumerate(patterns):
        q, k = heads[layer, "q"], heads[layer, "k"]
        ours = attention_pattern(q, k, rotary, positions=positions)
        assert (ours - theirs).abs().max() < 1e-5
        whole = rotary.attention_factor**2 / rotary.d_head**0.5
        colder = with_factor(rotary, 1.0)
        everything = attention_pattern(q, k, colder, positions=positions, scale=whole)
        assert (everything - theirs).abs().max() > 0.01


@pytest.mark.parametrize("model_type", PARTS)
def test_the_positional_curve_of_a_model_of_whose_heads_a_part_turns(model_type):
    """A token that is said again and again has one query and one key: its logits are the curve."""
    model = partly_turning(model_type, 32.0)
    positions = torch.arange(9)[None]
    heads, patterns = heads_and_patterns(model, torch.full((1, 9), 7), positions)
    rotary = RotaryEmbedding.from_config(model.config)
    curve = positional_scores(heads[0, "q"], heads[0, "k"], rotary, range(-8, 1))
    assert (curve.softmax(0).T - patterns[0][0, :, -1]).abs().max() < 1e-5


def with_factor(rotary, attention_factor):
    scaling = replace(rotary.scaling, attention_factor=attention_factor)
    layout = {"rotary_dim": rotary.rotary_dim, "interleaved": rotary.interleaved}
    return RotaryEmbedding(rotary.d_head, base=rotary.base, **layout, scaling=scaling)
