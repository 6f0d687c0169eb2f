"""Other people's rotations, as they say they are to be called: two tensors in, two turned out.

Hugging Face's is transformers' Llama; its cosines and sines are made once, in the dtype of what is
turned. `make bench` puts the two others into a folder that nothing else of the project reads.
"""

from __future__ import annotations

import site
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import torch
from torch import Tensor

FOLDER = Path(__file__).resolve().parents[1] / ".bench"
PACKAGES = ("transformers", "rotary-embedding-torch", "x-transformers")

Pair = tuple[Tensor, Tensor]
Turn = Callable[[Tensor, Tensor], Pair]


def hugging_face(x: Tensor) -> Turn:
    """Halves, by `rotate_half`; for tensors like ``x``."""
    from transformers.models.llama.configuration_llama import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    heads, n, d_head = x.shape[-3:]
    config = LlamaConfig(
        hidden_size=heads * d_head, num_attention_heads=heads, max_position_embeddings=n
    )
    positions = torch.arange(n, device=x.device)[None]
    cos, sin = LlamaRotaryEmbedding(config).to(x.device)(x, positions)

    def turn(x: Tensor, y: Tensor) -> Pair:
        turned: Pair = apply_rotary_pos_emb(x, y, cos, sin)
        return turned

    return turn


def rotary_embedding_torch(x: Tensor) -> Turn:
    """Neighbours; a module that keeps its own tables."""
    from rotary_embedding_torch import RotaryEmbedding

    rotary = RotaryEmbedding(x.shape[-1]).to(x.device)

    def turn(x: Tensor, y: Tensor) -> Pair:
        return rotary.rotate_queries_or_keys(x), rotary.rotate_queries_or_keys(y)

    return turn


def x_transformers(x: Tensor) -> Turn:
    """Neighbours, by einops; angles are made once."""
    from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb

    rotary = RotaryEmbedding(x.shape[-1]).to(x.device)
    freqs, scale = rotary.forward_from_seq_len(x.shape[-2])

    def turn(x: Tensor, y: Tensor) -> Pair:
        return apply_rotary_pos_emb(x, freqs, scale), apply_rotary_pos_emb(y, freqs, scale)

    return turn


PEERS: dict[str, Callable[[Tensor], Turn]] = {
    "Hugging Face": hugging_face,
    "rotary-embedding-torch": rotary_embedding_torch,
    "x-transformers": x_transformers,
}


def find_peers() -> dict[str, str]:
    """Puts the peers within reach.

    Returns:
        Their versions.

    Raises:
        PackageNotFoundError: If one is not installed.
    """
    site.addsitedir(str(FOLDER))
    return {package: version(package) for package in PACKAGES}


def peers_here() -> dict[str, str]:
    """Puts those peers within reach that run here: a machine that is lent has not all.

    Returns:
        Their names in :data:`PEERS`, and their versions.
    """
    site.addsitedir(str(FOLDER))
    found = {}
    for (name, build), package in zip(PEERS.items(), PACKAGES, strict=True):
        try:
            build(torch.zeros(1, 1, 2, 4))
            found[name] = version(package)
        except ImportError:
            continue
    return found
