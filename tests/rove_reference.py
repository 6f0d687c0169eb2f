"""RoVE in a Hugging Face model the long way: sum_j A_ij R_{p_j - p_i} v_j, with float64 matrices.

An attention function of its own takes the place of the model's: no hook, no cache, nothing of
`rove_lab`. What each family's rotation is stands here once more, written out by hand.
"""

import copy
from functools import cache

import torch
from references import reference_rotary, yarn_frequencies
from rove_models import BASE
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "beta_fast": 4.0,
}


@cache
def rotary_of(model_type, layer, yarn=False, planes=None):
    """The `ReferenceRotary` of a layer of a model of `rove_models`; planes outside stand still."""
    d_head = 24 if model_type in {"llama", "mistral", "qwen3", "gemma2", "gemma3_text"} else 16
    rotary_dim = {"phi": 8, "gptj": 8, "gpt_neox": 4}.get(model_type, d_head)
    base = {"gptj": 10000.0, "gemma3_text": (300.0, 9000.0, 300.0)[layer]}.get(model_type, BASE)
    rotary = reference_rotary(
        d_head,
        base=base,
        rotary_dim=rotary_dim,
        interleaved=model_type in {"cohere", "gptj"},
        frequencies=yarn_frequencies(rotary_dim, base, 4.0, 64, beta_fast=4.0) if yarn else None,
    )
    if planes is not None:
        still = set(range(rotary_dim // 2)) - set(planes)
        rotary.frequencies = [0.0 if m in still else w for m, w in enumerate(rotary.frequencies)]
    return rotary


@cache
def matrix_of(offset, *which):
    return rotary_of(*which).matrix(offset)


def turned_sums(pattern, values, positions, *which):
    """sum_j A_ij R_{p_j - p_i} v_j for [batch, heads, ...]: one dense matrix for each i and j."""
    offsets = positions[:, None, :] - positions[:, :, None]  # key minus query
    matrices = [[[matrix_of(o, *which) for o in row] for row in rows] for rows in offsets.tolist()]
    R = torch.stack([torch.stack([torch.stack(row) for row in rows]) for rows in matrices])
    return torch.einsum("bhij,bijcd,bhjd->bhic", pattern, R, values)


def reference_logits(
    model, tokens, positions, attention_mask=None, *, layers=None, planes=None, grad=False
):
    """The logits with RoVE in these layers and planes (None: all), in float64.

    Args:
        model: A model of `rove_models`, RoVE off. It is copied, unless gradients are asked for.
        tokens: [batch, pos].
        positions: [batch, pos].
        attention_mask: [batch, pos], 0 where a token is padding; None for none.
        layers: Indices of layers.
        planes: A tuple of indices of planes.
        grad: Whether gradients go to the model's own parameters.
    """
    model = model if grad else copy.deepcopy(model).double()
    yarn = "yarn" in str(getattr(model.config, "rope_parameters", ""))

    def attention(module, query, key, value, mask, scaling, softcap=None, **_):
        group = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(group, dim=1) for x in (key, value))
        scores = scaling * query @ key.mT
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        pattern = torch.softmax(scores + mask, dim=-1)
        layer = module.layer_idx
        if layers is not None and layer not in layers:
            return (pattern @ value).transpose(1, 2), pattern
        z = turned_sums(pattern, value, positions, model.config.model_type, layer, yarn, planes)
        return z.transpose(1, 2), pattern

    ALL_ATTENTION_FUNCTIONS.register("rove_reference", attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register("rove_reference", eager_mask)
    before = model.config._attn_implementation
    model.set_attn_implementation("rove_reference")
    mask = torch.ones_like(tokens) if attention_mask is None else attention_mask
    with torch.set_grad_enabled(grad):
        given = {"attention_mask": mask, "position_ids": positions, "use_cache": False}
        logits = model(tokens, **given).logits
    model.set_attn_implementation(before)
    return logits
