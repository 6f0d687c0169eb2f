"""Rotations at given positions, as models that run in some dtype get them.

A model is made in float32 and run under autocast, or loaded in a dtype, or made and then cast as a
whole. On the way each library keeps, rounds or counts something else in half precision.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from paired import DEVICE
from torch import Tensor

from rove_lab import RotarySelfAttention

D_HEAD, BASE = 64, 10_000
WINDOW, FACTOR = 4096, 16  # tokens that a scaled model was trained on, and how many times longer
LONGEST = FACTOR * WINDOW
ORIGINAL = "original_max_position_embeddings"

Turn = Callable[[Tensor, Tensor], Tensor]  # of [heads, pos, d_head] at positions [pos]


@dataclass(frozen=True)
class Setting:
    """How a model comes to run in a dtype.

    Args:
        dtype: Of what is turned, and of what attention gets.
        cast: Whether the model was made in float32 and then cast as a whole, ``.to(dtype)``.
        autocast: Whether it stays in float32 and runs under ``torch.autocast``.
    """

    dtype: torch.dtype
    cast: bool = False
    autocast: bool = False

    def made(self, module: torch.nn.Module) -> torch.nn.Module:
        """A module as it is in such a model."""
        module = module.to(DEVICE)
        return module.to(self.dtype) if self.cast else module

    def running(self) -> AbstractContextManager[Any]:
        """Where such a model runs."""
        return torch.autocast(DEVICE, self.dtype) if self.autocast else nullcontext()


SETTINGS = {
    "float64": Setting(torch.float64, cast=True),
    "float32": Setting(torch.float32),
    "bfloat16, autocast": Setting(torch.bfloat16, autocast=True),
    "bfloat16, loaded": Setting(torch.bfloat16),
    "bfloat16, cast": Setting(torch.bfloat16, cast=True),
    "float16, autocast": Setting(torch.float16, autocast=True),
    "float16, loaded": Setting(torch.float16),
    "float16, cast": Setting(torch.float16, cast=True),
}


def ours(setting: Setting) -> Turn:
    """The lab's, of a layer that shared the model's fate."""
    layer: Any = setting.made(RotarySelfAttention(D_HEAD, 1))
    rotary = layer.rotary

    def turn(x: Tensor, positions: Tensor) -> Tensor:
        turned: Tensor = rotary(positions).apply(x)
        return turned

    return turn


class HuggingFace:
    """Llama's rotation, and the naive way back: the sines with the other sign.

    Cosines and sines come in the dtype of the hidden states, which under autocast is float32.

    Args:
        setting: How the model comes to its dtype.
        scaling: What ``rope_parameters`` has beside the base.
    """

    def __init__(self, setting: Setting, **scaling: Any) -> None:
        from transformers.models.llama.configuration_llama import LlamaConfig
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

        config = LlamaConfig(
            hidden_size=D_HEAD,
            num_attention_heads=1,
            # of the stretched model where the window has a name of its own, of the first otherwise
            max_position_embeddings=LONGEST if ORIGINAL in scaling else WINDOW,
            rope_parameters={"rope_type": "default", "rope_theta": float(BASE)} | scaling,
        )
        self.module = setting.made(LlamaRotaryEmbedding(config))
        dtype = torch.float32 if setting.autocast else setting.dtype
        self.hidden = torch.zeros(1, device=DEVICE, dtype=dtype)

    def tables(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines, ``[1, pos, d_head]`` each."""
        cos, sin = self.module(self.hidden, positions[None])
        return cos, sin

    def __call__(self, x: Tensor, positions: Tensor) -> Tensor:
        """Turned."""
        return turned_by(x, *self.tables(positions))

    def undo(self, x: Tensor, positions: Tensor) -> Tensor:
        """Turned back, or so one would think."""
        cos, sin = self.tables(positions)
        return turned_by(x, cos, -sin)


def turned_by(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """``[heads, pos, d_head]`` turned by Hugging Face's tables, as attention gets it."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    turned, _ = apply_rotary_pos_emb(x[None], x[None], cos, sin)
    return turned[0].to(x.dtype)


def rotary_embedding_torch(setting: Setting) -> Turn:
    """A token at a time, at its offset, as in decoding; a whole sequence gets the same."""
    from rotary_embedding_torch import RotaryEmbedding

    rotary: Any = setting.made(RotaryEmbedding(D_HEAD, theta=BASE))

    def turn(x: Tensor, positions: Tensor) -> Tensor:
        tokens = x[None].split(1, dim=-2)
        at = zip(tokens, positions.tolist(), strict=True)
        turned = [rotary.rotate_queries_or_keys(token, offset=t) for token, t in at]
        return torch.cat(turned, -2)[0]

    return turn


def x_transformers(setting: Setting) -> Turn:
    """Angles for all positions, then the turn."""
    from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb

    rotary = setting.made(RotaryEmbedding(D_HEAD, base=BASE))

    def turn(x: Tensor, positions: Tensor) -> Tensor:
        freqs, scale = rotary(positions)
        turned: Tensor = apply_rotary_pos_emb(x[None], freqs, scale)[0]
        return turned

    return turn


class Library(NamedTuple):
    """One library's rotation, and whether its planes are of neighbouring channels."""

    make: Callable[[Setting], Turn]
    interleaved: bool


LIBRARIES = {
    "ours": Library(ours, interleaved=False),
    "Hugging Face": Library(HuggingFace, interleaved=False),
    "rotary-embedding-torch": Library(rotary_embedding_torch, interleaved=True),
    "x-transformers": Library(x_transformers, interleaved=True),
}


LOADED = ("ours", "Hugging Face")  # the others have nothing that loads a model in a dtype


def libraries_in(setting: Setting) -> dict[str, Library]:
    """Those whose models come to a dtype so."""
    loaded = setting.dtype.itemsize < 4 and not (setting.cast or setting.autocast)
    return {name: LIBRARIES[name] for name in (LOADED if loaded else LIBRARIES)}
