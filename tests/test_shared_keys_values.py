"""The same operation under another name: DeepSeek-V4's shared keys and values."""

import torch
from samples import normal
from transformers import DeepseekV4Config
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as deepseek

from rove_lab import RotaryEmbedding, rove_attention

N, HEADS, D_MODEL, D_HEAD = 9, 4, 32, 16
POSITIONS = torch.arange(N) + 5


def heads_of(x):
    return x.view(1, N, -1, D_HEAD).transpose(1, 2)


def test_deepseek_v4_is_rove_whose_keys_are_its_values():
    """transformers' own layer, up to what its heads say; the sinks beside its softmax are off."""
    torch.manual_seed(0)
    config = DeepseekV4Config(
        hidden_size=D_MODEL,
        head_dim=D_HEAD,
        num_attention_heads=HEADS,
        num_hidden_layers=1,
        layer_types=["sliding_attention"],
        sliding_window=64,
        partial_rotary_factor=0.5,
        q_lora_rank=24,
        o_groups=2,
        o_lora_rank=8,
    )
    config._attn_implementation = "eager"
    layer = deepseek.DeepseekV4Attention(config, 0).eval()
    embedding = deepseek.DeepseekV4RotaryEmbedding(config)
    x = normal(1, N, D_MODEL, dtype=torch.float32)
    tables = {
        kind: embedding(x, position_ids=POSITIONS[None], layer_type=kind)
        for kind in ("main", "compress")
    }
    said = []
    layer.o_a_proj.register_forward_pre_hook(lambda _, given: said.append(given[0]))
    causal = torch.full((N, N), -torch.inf).triu(1)[None, None]
    with torch.no_grad():
        layer.sinks.fill_(-torch.inf)
        layer(x, tables, POSITIONS[None], causal)
        q = layer.q_b_norm(heads_of(layer.q_b_proj(layer.q_a_norm(layer.q_a_proj(x)))))
        shared = layer.kv_norm(heads_of(layer.kv_proj(x)))  # one head of keys that are values
        rotary = RotaryEmbedding.from_config(config, layer=0)
        z = rove_attention(q, shared, shared, rotary, positions=POSITIONS)
    (theirs,) = said
    theirs = heads_of(theirs.reshape(1, N, -1))
    assert theirs.abs().max() > 1
    assert (z - theirs).abs().max() < 2e-6
