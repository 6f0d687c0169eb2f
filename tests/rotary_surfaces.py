"""Four ways to run RoVE, with one face: functions, a layer, the lab's GPT, a Hugging Face model.

A fault of rotary attention can return on any of them, so a test of its kind asks each. Every
surface has the same small weights at each call, runs with positions, padding and a cache, and knows
what it should give: a slow float64 sum of `references`, which shares no code with `rove_lab`.
"""

import pytest
import torch
from references import (
    reference_attention,
    reference_rotary,
    yarn_attention_factor,
    yarn_frequencies,
)
from references_gpt import by_definition
from rove_models import ARCHITECTURES, BASE
from rove_reference import YARN, reference_logits, rotary_of
from torch import nn
from transformers import DynamicCache

from rove_lab import KVCache, RotaryEmbedding, RotarySelfAttention, YarnScaling, rove_attention
from rove_lab.attention import rope_attention
from rove_lab.context_extension import yarn as yarn_of
from rove_lab.model import GPT, GPTConfig
from rove_lab.retrofit import enable_rove

D_MODEL, HEADS, KV_HEADS, D_HEAD = 24, 4, 2, 8
N = 6  # tokens
GAPS = [0, 1, 5, 6, 40, 41]
ROWS = [[0, 1, 5, 6, 40, 41], [-7, -3, 2, 3, 4, 90]]
SCALING = YarnScaling(YARN["factor"], 64, beta_fast=YARN["beta_fast"])


def rows(positions, batch, n):
    """Positions as the references want them, [batch][pos]."""
    places = torch.arange(n) if positions is None else torch.as_tensor(positions)
    return places.expand(batch, n).tolist()


def slow_family(d_head, *, yarn, planes=None, base=BASE, **layout):
    """The rotations written out, as (of queries and keys, of values)."""
    rotary_dim = layout.get("rotary_dim") or d_head
    frequencies = [base ** (-2 * m / rotary_dim) for m in range(rotary_dim // 2)]
    temperature = 1.0
    if yarn:
        how = (YARN["factor"], 64, YARN["beta_fast"])
        frequencies = yarn_frequencies(rotary_dim, base, *how)
        temperature = yarn_attention_factor(YARN["factor"]) ** 2
    turning = [w if planes is None or m in planes else 0.0 for m, w in enumerate(frequencies)]
    scores = reference_rotary(d_head, frequencies=frequencies, temperature=temperature, **layout)
    return scores, reference_rotary(d_head, frequencies=turning, **layout)


class Layer:
    """`RotarySelfAttention`; what goes in is [batch, pos, d_model]."""

    tolerance = 1e-10

    def __init__(self, *, yarn=False, planes=None, rotate_values=True, dtype=torch.float64, **how):
        self.scores, self.turns = slow_family(D_HEAD, yarn=yarn, planes=planes, **how)
        how = {"base": BASE, "scaling": SCALING if yarn else None, **how}
        self.rotary = RotaryEmbedding(D_HEAD, **how)
        self.rotate_values = rotate_values
        kept = None if planes is None else self.rotary.planes(planes)
        torch.manual_seed(0)
        self.model = self.make(kept).double().to(dtype)

    def make(self, value_rotary):
        sizes = (D_MODEL, HEADS, KV_HEADS, D_HEAD)
        return RotarySelfAttention(*sizes, self.rotary, self.rotate_values, value_rotary)

    def draw(self, n, batch=2, seed=1):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(batch, n, D_MODEL, generator=generator, dtype=torch.float64)
        return x.to(next(self.model.parameters()).dtype)

    def run(self, x, positions=None, padding=None, cache=None):
        """The output; `padding` is [batch, key_pos], False where there is no token."""
        mask = None if padding is None else padding[:, None, None, :]
        return self.model(x, positions=positions, attn_mask=mask, cache=cache)

    def reference(self, x, positions=None, attn_mask=None):
        weights = {name: weight.double() for name, weight in self.model.state_dict().items()}
        q, k, v = (torch.einsum("bpm,hmd->bhpd", x.double(), weights[f"W_{n}"]) for n in "QKV")
        where = rows(positions, *x.shape[:2])
        turns = self.turns if self.rotate_values else None
        how = {"value_rotary": turns, "attn_mask": attn_mask}
        z = reference_attention(q, k, v, self.scores, where, where, **how)
        return torch.einsum("bhpd,hdm->bpm", z, weights["W_O"])

    def new_cache(self):
        return KVCache()

    def layers_of(self, cache):
        """What each layer has kept."""
        return [cache]

    def held_values(self, cache):
        """The values of the first layer in the cache, [batch, n_kv_heads, pos, d_head]."""
        return self.layers_of(cache)[0].v

    def evict(self, cache, slots):
        """Keep these slots of every layer."""
        for held in self.layers_of(cache):
            held.k, held.v = held.k[..., slots, :], held.v[..., slots, :]
            held.positions = held.positions[..., slots]

    def equal_keys(self):
        """All keys become zero: each query sees every key alike, and only values matter."""
        self.model.W_K.data.zero_()
        return self


class Projected(nn.Module):
    """The functions between projections; its cache keeps keys and values that are not rotated."""

    def __init__(self, layer, value_rotary):
        super().__init__()
        self.rotary, self.value_rotary = layer.rotary, value_rotary
        self.rotate_values = layer.rotate_values
        for name in ("W_Q", "W_K", "W_V", "W_O"):
            setattr(self, name, nn.Parameter(getattr(layer, name).detach()))

    def forward(self, x, *, positions=None, attn_mask=None, cache=None):
        q, k, v = (torch.einsum("bpm,hmd->bhpd", x, W) for W in (self.W_Q, self.W_K, self.W_V))
        where = {"positions": positions}
        if cache is not None:
            given = cache.next_positions(x.shape[1]) if positions is None else positions
            k, v, there = cache.joined(k, v, torch.as_tensor(given))
            cache.k, cache.v, cache.positions = k, v, there
            where = {"positions": given, "key_positions": there}
        how = {"attn_mask": attn_mask, **where}
        if self.rotate_values:
            z = rove_attention(q, k, v, self.rotary, value_rotary=self.value_rotary, **how)
        else:
            z = rope_attention(q, k, v, self.rotary, **how)
        return torch.einsum("bhpd,hdm->bpm", z, self.W_O)


class Functions(Layer):
    """`rope_attention` and `rove_attention`, between the projections of a layer."""

    def make(self, value_rotary):
        return Projected(super().make(value_rotary), value_rotary)

    def held_values(self, cache):
        """As a caller who keeps them rotated does it."""
        turns = self.model.value_rotary or self.rotary
        return turns(cache.positions).apply(cache.v) if self.rotate_values else cache.v


class Gpt(Layer):
    """The lab's GPT of two layers; what goes in is tokens."""

    tolerance = 1e-9

    def __init__(self, *, yarn=False, planes=None, rotate_values=True, dtype=torch.float64):
        self.yarn = yarn
        torch.manual_seed(0)
        config = GPTConfig(
            31, 64, D_MODEL, 2, HEADS, KV_HEADS, D_HEAD,
            base=BASE, rotate_values=rotate_values, value_planes=planes,
        )  # fmt: skip
        self.model = GPT(config).double().to(dtype)
        self.turns = slow_family(D_HEAD, yarn=yarn, planes=planes)[1]
        if yarn:  # for good: the model is thrown away
            self.stretched = yarn_of(self.model, YARN["factor"], beta_fast=YARN["beta_fast"])
            self.stretched.__enter__()

    def draw(self, n, batch=2, seed=1):
        return torch.randint(31, (batch, n), generator=torch.Generator().manual_seed(seed))

    def reference(self, x, positions=None, attn_mask=None):
        scores, _ = slow_family(D_HEAD, yarn=self.yarn)
        how = {"positions": rows(positions, *x.shape), "attn_mask": attn_mask}
        return by_definition(self.model, x, scores.frequencies, scores.temperature, **how)

    def new_cache(self):
        return self.model.new_cache()

    def layers_of(self, cache):
        return cache

    def equal_keys(self):
        for block in self.model.blocks:
            block.attn.W_K.data.zero_()
        return self


class HuggingFace(Layer):
    """A small Llama (or another) of transformers with RoVE switched on; what goes in is tokens."""

    tolerance = 1e-4  # transformers rounds angles and norms to float32

    def __init__(
        self,
        *,
        yarn=False,
        planes=None,
        rotate_values=True,
        dtype=torch.float64,
        architecture="llama",
    ):
        make = ARCHITECTURES[architecture]
        self.model = make(dtype=dtype, **({"yarn": dict(YARN)} if yarn else {}))
        self.plain = make(**({"yarn": dict(YARN)} if yarn else {})).to(dtype).double()
        self.planes = planes if rotate_values else ()
        self.turns = rotary_of(architecture, 0, yarn, planes)
        if rotate_values:
            enable_rove(self.model, planes=planes)

    def draw(self, n, batch=2, seed=1):
        return torch.randint(3, 64, (batch, n), generator=torch.Generator().manual_seed(seed))

    def run(self, x, positions=None, padding=None, cache=None):
        given = {"use_cache": cache is not None, "cache": cache}
        if padding is not None:
            given["attention_mask"] = padding.long()
        if positions is not None:
            places = torch.as_tensor(positions)
            given["position_ids"] = places.expand(len(x), -1) if places.dim() == 1 else places
            if padding is None:  # else positions that jump would mean several sequences
                before = 0 if cache is None else cache.get_seq_length()
                given["attention_mask"] = torch.ones(len(x), before + x.shape[1]).long()
        return self.model(x, **given).logits

    def reference(self, x, positions=None, attn_mask=None):
        places = torch.tensor(rows(positions, *x.shape))
        if attn_mask is not None:
            causal = attn_mask & torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
            attn_mask = torch.zeros(causal.shape).masked_fill(~causal, -torch.inf)
            attn_mask = attn_mask.expand(len(x), 1, -1, -1)
        return reference_logits(self.plain, x, places, attn_mask, planes=self.planes)

    def new_cache(self):
        return DynamicCache(config=self.model.config)

    def layers_of(self, cache):
        return cache.layers

    def held_values(self, cache):
        return cache.layers[0].values

    def evict(self, cache, slots):
        for held in cache.layers:
            held.keys, held.values = held.keys[..., slots, :], held.values[..., slots, :]

    def equal_keys(self):
        for model in (self.model, self.plain):
            for layer in model.model.layers:
                layer.self_attn.k_proj.weight.data.zero_()
        return self


SURFACES = {"functions": Functions, "layer": Layer, "GPT": Gpt, "Hugging Face": HuggingFace}
each_surface = pytest.mark.parametrize("surface", SURFACES.values(), ids=SURFACES)


def differ(found, expected):
    """The largest absolute difference."""
    return (found.double() - expected.double()).detach().abs().max().item()
