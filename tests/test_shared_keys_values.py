"""The same operation under other names: DeepSeek-V4's shared keys and values, GTA's frames."""

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


def test_gta_on_positions_is_rove():
    """Miyato et al. 2024 (arXiv:2310.10375): queries, keys, values in frames, the output back.

    Their formula holds for any group. Here the group is the shifts of a position, and the frame of
    a shift by t is R_t; all is written out with dense matrices.
    """
    rotary = RotaryEmbedding(8)
    q, k, v = (normal(6, 8, seed=seed) for seed in (1, 2, 3))
    frames = rotary.matrix(torch.arange(6))  # rho(g_i), [6, 8, 8]
    turned = [torch.einsum("ioc,ic->io", frames, x) for x in (q, k, v)]
    scores = turned[0] @ turned[1].T / 8**0.5
    causal = torch.ones(6, 6).triu(1).bool()
    mixed = scores.masked_fill(causal, -torch.inf).softmax(-1) @ turned[2]
    z = torch.linalg.solve(frames, mixed[..., None])[..., 0]
    ours = rove_attention(q[None], k[None], v[None], rotary)[0]
    assert torch.allclose(ours, z, atol=1e-12)
