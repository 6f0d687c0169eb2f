"""Random attention layers of DeepSeek-V4 as transformers has them, and what goes in and out."""

import torch
from samples import normal, window_of
from torch import nn
from transformers import DeepseekV4Config
from transformers.masking_utils import create_sliding_window_causal_mask
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as deepseek

from rove_lab import RotaryEmbedding
from rove_lab.frames import shared_kv_attention

HEADS, D_MODEL, D_HEAD, WINDOW = 4, 32, 16, 5


def config_of(kind="sliding_attention", **changes):
    """A small config of one layer; half of each head turns, the window is five tokens."""
    sizes = {
        "hidden_size": D_MODEL,
        "head_dim": D_HEAD,
        "num_attention_heads": HEADS,
        "num_hidden_layers": 1,
        "layer_types": [kind],
        "sliding_window": WINDOW,
        "partial_rotary_factor": 0.5,
        "q_lora_rank": 24,
        "o_groups": 2,
        "o_lora_rank": 8,
        "index_n_heads": 2,
        "index_head_dim": 8,
        "index_topk": 2,
        "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 6},
    }
    config = DeepseekV4Config(**sizes | changes)
    config._attn_implementation = "eager"
    return config


class Layer:
    """Their layer with random weights, sinks and norms, and its attention by ours.

    `said` holds what the heads of their last run said, before the output is projected; `entries`
    what their compressor gave: rotated latents and a mask for them.
    """

    def __init__(self, config, seed=0):
        self.config = config
        self.theirs = deepseek.DeepseekV4Attention(config, 0).eval()
        self.embedding = deepseek.DeepseekV4RotaryEmbedding(config)
        for i, weight in enumerate(self.theirs.parameters()):
            drawn = normal(*weight.shape, dtype=torch.float32, seed=1000 * seed + i)
            spread = weight.shape[-1] ** -0.5 if weight.dim() == 2 else 1.0
            weight.data = drawn * spread
        self.theirs.o_a_proj.register_forward_pre_hook(self._hear)
        self.entries = None
        if self.theirs.compressor is not None:
            self.theirs.compressor.register_forward_hook(self._keep)
        self.rotary = RotaryEmbedding.from_config(config, layer=0)

    def _hear(self, _: nn.Module, given):
        self.said = given[0].flatten(2).unflatten(-1, (HEADS, D_HEAD)).transpose(1, 2)

    def _keep(self, _: nn.Module, given, entries):
        self.entries = entries

    @torch.no_grad()
    def run(self, x, positions, cache=None):
        """Their output for x [batch, pos, d_model] at positions [batch, pos]."""
        tables = {
            kind: self.embedding(x, position_ids=positions, layer_type=kind)
            for kind in ("main", "compress")
        }
        mask = create_sliding_window_causal_mask(
            config=self.config,
            inputs_embeds=x,
            attention_mask=None,
            cache=cache,
            position_ids=positions,
        )
        return self.theirs(x, tables, positions, mask, cache=cache)[0]

    @torch.no_grad()
    def queries_and_latents(self, x):
        """Their projections, not rotated: q [batch, heads, pos, d_head], kv [batch, 1, ...]."""

        def heads(y):
            return y.unflatten(-1, (-1, D_HEAD)).transpose(1, 2)

        layer = self.theirs
        q = layer.q_b_norm(heads(layer.q_b_proj(layer.q_a_norm(layer.q_a_proj(x)))))
        return q, layer.kv_norm(heads(layer.kv_proj(x)))

    @torch.no_grad()
    def projected(self, z):
        """Their output projection of what heads say, [batch, pos, d_model]."""
        said = z.transpose(1, 2).flatten(2).unflatten(-1, (self.config.o_groups, -1))
        return self.theirs.o_b_proj(self.theirs.o_a_proj(said).flatten(2))

    def ours(self, x, positions, **how):
        """What the heads say by shared_kv_attention, sinks and window included."""
        how = {
            "sinks": self.theirs.sinks.detach(),
            "attn_mask": window_of(x.shape[1], self.config.sliding_window),
        } | how
        q, kv = self.queries_and_latents(x)
        return shared_kv_attention(q, kv, self.rotary, positions=positions, **how)
