"""The lab's GPT written out from its weights in float64, with the slow attention."""

import torch
from references import reference_attention, reference_rotary, rope_frequencies
from torch.nn.functional import gelu


def by_definition(
    model, tokens, frequencies=None, temperature=1.0, *, positions=None, attn_mask=None
):
    """The logits, written out from the weights in float64 with the slow reference attention.

    Planes turn by `frequencies` (RoPE's by default), those of the values too where they turn;
    `positions` are [batch][pos], 0, 1, 2... by default.
    """
    c = model.config
    weights = {name: value.double() for name, value in model.state_dict().items()}
    frequencies = frequencies or rope_frequencies(c.d_head, c.base)
    rotary = reference_rotary(c.d_head, frequencies=frequencies, temperature=temperature)
    kept = range(c.d_head // 2) if c.value_planes is None else c.value_planes
    turning = [w if m in kept else 0.0 for m, w in enumerate(frequencies)]
    values = reference_rotary(c.d_head, frequencies=turning) if c.rotate_values else None
    places = positions or [list(range(tokens.shape[1]))] * len(tokens)

    def normed(x, name):
        x = x if c.rms_norm else x - x.mean(-1, keepdim=True)
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weights[f"{name}.weight"]

    x = weights["embed.weight"][tokens]
    for layer in range(c.n_layers):
        here = f"blocks.{layer}"
        seen = normed(x, f"{here}.ln1")
        q, k, v = (
            torch.einsum("bpm,hmd->bhpd", seen, weights[f"{here}.attn.W_{name}"]) for name in "QKV"
        )
        how = {"value_rotary": values, "attn_mask": attn_mask}
        z = reference_attention(q, k, v, rotary, places, places, **how)
        x = x + torch.einsum("bhpd,hdm->bpm", z, weights[f"{here}.attn.W_O"])
        hidden = gelu(normed(x, f"{here}.ln2") @ weights[f"{here}.mlp.W_in.weight"].T)
        x = x + hidden @ weights[f"{here}.mlp.W_out.weight"].T
    return normed(x, "ln_final") @ weights["unembed.weight"].T
