"""A decoder as it is plainly written: what the lab's GPT is measured beside.

One fused projection to queries, keys and values, torch's causal attention, a GELU MLP, tied
embeddings, no biases. With learned positions and LayerNorm, as nanoGPT has them, or with the usual
rotation of whole tensors by `rotate_half` and cached tables, as Llama-style code has it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from rove_lab.model import GPTConfig


class Attention(nn.Module):
    """Causal self-attention with a fused projection; positions were added to the embeddings."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.n_heads = config.n_heads
        self.qkv = nn.Linear(config.d_model, 3 * config.d_model, bias=False)
        self.out = nn.Linear(config.d_model, config.d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """``[batch, pos, d_model]`` to the same."""
        batch, pos, d_model = x.shape
        heads = (batch, pos, self.n_heads, d_model // self.n_heads)
        q, k, v = (part.view(heads).transpose(1, 2) for part in self.qkv(x).split(d_model, -1))
        q, k = self.turned(q, k)
        z = scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.out(z.transpose(1, 2).reshape(x.shape))
        return out

    def turned(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys as they are."""
        return q, k


class RotaryAttention(Attention):
    """The same with queries and keys rotated, channel m paired with m + d_head / 2."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config)
        d_head = config.d_model // config.n_heads
        inv_freq = config.base ** (-torch.arange(0, d_head, 2, dtype=torch.float64) / d_head)
        angles = torch.arange(config.n_ctx)[:, None] * torch.cat((inv_freq, inv_freq))
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def turned(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys turned by their positions."""
        cos, sin = self.cos[: q.shape[-2]], self.sin[: q.shape[-2]]
        q = (q * cos + rotate_half(q) * sin).to(q.dtype)
        k = (k * cos + rotate_half(k) * sin).to(k.dtype)
        return q, k


def rotate_half(x: Tensor) -> Tensor:
    """Every plane a quarter turn on."""
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


class Block(nn.Module):
    """Attention and an MLP on the residual stream, each after its norm."""

    def __init__(self, config: GPTConfig, attention: Attention, norms: list[nn.Module]) -> None:
        super().__init__()
        self.ln1, self.ln2 = norms
        self.attn = attention
        self.fc = nn.Linear(config.d_model, 4 * config.d_model, bias=False)
        self.proj = nn.Linear(4 * config.d_model, config.d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """``[batch, pos, d_model]`` to the same."""
        x = x + self.attn(self.ln1(x))
        out: Tensor = x + self.proj(gelu(self.fc(self.ln2(x))))
        return out


class LearnedGPT(nn.Module):
    """Learned positions and LayerNorm, as in nanoGPT."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.embed = nn.Embedding(config.d_vocab, config.d_model)
        self.positions = nn.Embedding(config.n_ctx, config.d_model)
        self.blocks = nn.Sequential(
            *(
                Block(config, Attention(config), [layer_norm(config) for _ in range(2)])
                for _ in range(config.n_layers)
            )
        )
        self.ln_final = layer_norm(config)
        self.unembed = tied(self.embed)

    def forward(self, tokens: Tensor) -> Tensor:
        """``[batch, pos]`` to logits ``[batch, pos, d_vocab]``."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.embed(tokens) + self.positions(places)
        logits: Tensor = self.unembed(self.ln_final(self.blocks(x)))
        return logits


class RotaryGPT(nn.Module):
    """Rotary positions, and the norm that the lab's GPT of the same config has."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        norm = rms_norm if config.rms_norm else layer_norm
        self.embed = nn.Embedding(config.d_vocab, config.d_model)
        self.blocks = nn.Sequential(
            *(
                Block(config, RotaryAttention(config), [norm(config) for _ in range(2)])
                for _ in range(config.n_layers)
            )
        )
        self.ln_final = norm(config)
        self.unembed = tied(self.embed)

    def forward(self, tokens: Tensor) -> Tensor:
        """``[batch, pos]`` to logits ``[batch, pos, d_vocab]``."""
        logits: Tensor = self.unembed(self.ln_final(self.blocks(self.embed(tokens))))
        return logits


def layer_norm(config: GPTConfig) -> nn.Module:
    """LayerNorm without a bias."""
    return nn.LayerNorm(config.d_model, eps=1e-5, bias=False)


def rms_norm(config: GPTConfig) -> nn.Module:
    """RMSNorm."""
    return nn.RMSNorm(config.d_model, eps=1e-5)


def tied(embed: nn.Embedding) -> nn.Linear:
    """A read-out that shares the embedding's matrix, which starts small as GPT-2's does."""
    nn.init.normal_(embed.weight, std=0.02)
    unembed = nn.Linear(embed.embedding_dim, embed.num_embeddings, bias=False)
    unembed.weight = embed.weight
    return unembed
