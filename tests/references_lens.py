"""Messages of a small Hugging Face model swapped or added up the long way: no bridge, no hook.

An attention function of its own takes the place of the model's, with the dense matrices of
`rove_reference` for every pair of tokens.
"""

import torch
from rove_reference import matrix_of
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS


def run(model, tokens, rove, swap=None):
    """The logits, and (pattern, values) of each layer; RoVE on or off.

    Args:
        model: A model of `rove_models` in float64.
        tokens: [batch, pos].
        rove: Whether the values turn.
        swap: (layer, head, offset, values): this head's messages of this offset are those of
            other values [batch, heads, pos, d_head]. None for none.
    """
    seen = {}

    def attention(module, query, key, value, mask, scaling, softcap=None, **_):
        group = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(group, dim=1) for x in (key, value))
        scores = scaling * query @ key.mT
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        pattern = torch.softmax(scores + mask, dim=-1)
        layer = module.layer_idx
        seen[layer] = pattern, value
        z = torch.zeros_like(query)
        for i in range(query.shape[2]):
            for j in range(i + 1):
                sent = value[:, :, j].clone()
                if swap is not None and (layer, j - i) == (swap[0], swap[2]):
                    sent[:, swap[1]] = swap[3][:, swap[1], j]
                if rove:
                    sent = sent @ matrix_of(j - i, model.config.model_type, layer).T
                z[:, :, i] += pattern[:, :, i, j, None] * sent
        return z.transpose(1, 2), pattern

    ALL_ATTENTION_FUNCTIONS.register("swapping_reference", attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register("swapping_reference", eager_mask)
    before = model.config._attn_implementation
    model.set_attn_implementation("swapping_reference")
    with torch.no_grad():
        logits = model(tokens, attention_mask=torch.ones_like(tokens), use_cache=False).logits
    model.set_attn_implementation(before)
    return logits, seen
