"""RoVE in a Hugging Face model the long way: sum_j A_ij R_{p_j - p_i} v_j, with float64 matrices.

An attention function of its own takes the place of the model's: no hook, no cache, nothing of
`rove_lab`. What each family's rotation is stands here once more, written out by hand.
"""

import copy
from functools import cache, partial

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


def turned_sums(pattern, values, positions, matrix):
    """sum_j A_ij R_{p_j - p_i} v_j for [batch, heads, ...]: one dense matrix for each i and j."""
    offsets = positions[:, None, :] - positions[:, :, None]  # key minus query
    matrices = [[[matrix(offset) for offset in row] for row in rows] for rows in offsets.tolist()]
    R = torch.stack([torch.stack([torch.stack(row) for row in rows]) for rows in matrices])
    z = torch.einsum("bhij,bijcd,bhjd->bhic", pattern.double(), R, values.double())
    return z.to(values.dtype)


def reference_logits(
    model,
    tokens,
    positions,
    attention_mask=None,
    *,
    layers=None,
    planes=None,
    grad=False,
    dtype=torch.float64,
    matrix=None,
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
        dtype: Of the computation, but for the sum over keys, which is float64 in any case.
        matrix: From a layer and an offset to R; None for what is written out above.
    """
    model = model if grad else copy.deepcopy(model).to(dtype)
    yarn = "yarn" in str(getattr(model.config, "rope_parameters", ""))

    def by_hand(layer, offset):
        return matrix_of(offset, model.config.model_type, layer, yarn, planes)

    def attention(module, query, key, value, mask, scaling, softcap=None, s_aux=None, **_):
        group = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(group, dim=1) for x in (key, value))
        scores = scaling * query @ key.mT
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        scores = scores + mask
        if s_aux is not None:  # a logit of each head that takes weight and brings no value
            sink = s_aux[None, :, None, None].expand(*scores.shape[:-1], 1)
            scores = torch.cat((scores, sink), -1)
        pattern = torch.softmax(scores, dim=-1)[..., : value.shape[-2]]
        layer = module.layer_idx
        if layers is not None and layer not in layers:
            return (pattern @ value).transpose(1, 2), pattern
        of_layer = partial(matrix or by_hand, layer)
        z = turned_sums(pattern, value, positions, of_layer)
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
