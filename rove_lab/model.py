r"""A GPT in a page: rotary attention, and one flag between RoPE and RoVE."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from rove_lab.arguments import (
    check_flag,
    check_index,
    check_integers,
    check_number,
    check_size,
)
from rove_lab.bundled import bundled_folder
from rove_lab.masking import Positions
from rove_lab.rotary import RotaryEmbedding
from rove_lab.self_attention import KVCache, RotarySelfAttention, SharedRotations
from rove_lab.transformer_block import Block, norm

__all__ = ["GPT", "GPTConfig", "load_pretrained"]


@dataclass(frozen=True)
class GPTConfig:
    """The sizes of a :class:`GPT`; RoPE and RoVE differ in ``rotate_values`` alone.

    Args:
        d_vocab: Tokens of the vocabulary; 256 reads bytes.
        n_ctx: Tokens it is trained to read at once. Rotations know no end: it may read more.
        d_model: Width of the residual stream.
        n_layers: Blocks of attention and MLP.
        n_heads: Query heads of a layer.
        n_kv_heads: Key and value heads, a divisor of ``n_heads``; None for as many.
        d_head: Channels of a head, even; None for ``d_model // n_heads``.
        d_mlp: Width of the MLP; None for ``4 * d_model``.
        base: Of the rotary frequencies.
        rotate_values: ``True`` is RoVE, ``False`` RoPE.
        value_planes: The planes in which RoVE turns the values; None for all.
        tied: Whether reading in and reading out share one matrix.
        rms_norm: RMSNorm, or else GPT-2's LayerNorm; neither has a bias here.

    Raises:
        TypeError: If a size is not an integer or a flag not a bool.
        ValueError: If a size is not positive, sizes do not divide, a plane does not exist, or
            planes are named for a RoPE model.

    Example:
        >>> GPTConfig.preset("gpt2-124m").n_layers
        12
    """

    d_vocab: int = 256
    n_ctx: int = 128
    d_model: int = 128
    n_layers: int = 2
    n_heads: int = 4
    n_kv_heads: int | None = None
    d_head: int | None = None
    d_mlp: int | None = None
    base: float = 10_000.0
    rotate_values: bool = True
    value_planes: tuple[int, ...] | None = None
    tied: bool = True
    rms_norm: bool = True

    def __post_init__(self) -> None:
        for name in ("d_vocab", "n_ctx", "d_model", "n_layers", "n_heads"):
            check_size(name, getattr(self, name))
        for name in ("n_kv_heads", "d_head", "d_mlp"):
            if getattr(self, name) is not None:
                check_size(name, getattr(self, name))
        for name in ("rotate_values", "tied", "rms_norm"):
            check_flag(name, getattr(self, name))
        if self.d_head is None and self.d_model % self.n_heads:
            raise ValueError(
                f"expected d_model divisible by n_heads, got {self.d_model} and {self.n_heads}: "
                "pass d_head."
            )
        if self.n_heads % (self.n_kv_heads or self.n_heads):
            raise ValueError(
                f"expected n_heads divisible by n_kv_heads, got {self.n_heads} and "
                f"{self.n_kv_heads}."
            )
        if self.value_planes is not None:
            if not hasattr(self.value_planes, "__iter__"):
                raise TypeError(
                    f"expected value_planes as indices of planes, got {self.value_planes!r}."
                )
            if not self.rotate_values:
                raise ValueError(
                    "expected no value_planes with rotate_values=False (plain RoPE), got "
                    f"{self.value_planes}: drop them."
                )
            # A list comes back from JSON; a tuple of plain integers can be compared and hashed.
            planes = tuple(check_index("a plane", plane) for plane in self.value_planes)
            object.__setattr__(self, "value_planes", planes)
        self.rotaries()  # refuses what cannot be rotated

    @classmethod
    def preset(cls, name: str, **changes: Any) -> GPTConfig:
        """A named size, with changes.

        Args:
            name: ``"tiny"`` and ``"small"`` read bytes; ``"gpt2-124m"`` and ``"gpt2-354m"`` have
                the sizes of García-Castellanos et al. (2026), arXiv:2606.11275, and GPT-2's tokens.
            changes: Fields to set otherwise.

        Raises:
            ValueError: If there is no such preset; says which there are.

        Example:
            >>> GPTConfig.preset("tiny", rotate_values=False).rotate_values
            False
        """
        gpt2 = cls(d_vocab=50_257, n_ctx=1024, rms_norm=False)
        presets = {
            "tiny": cls(),
            "small": cls(n_ctx=256, d_model=256, n_layers=6, n_heads=8),
            "gpt2-124m": replace(gpt2, d_model=768, n_layers=12, n_heads=12),
            "gpt2-354m": replace(gpt2, d_model=1024, n_layers=24, n_heads=16),
        }
        if name not in presets:
            raise ValueError(f"expected a preset among {', '.join(presets)}, got {name!r}.")
        return replace(presets[name], **changes)

    def rotaries(self) -> tuple[RotaryEmbedding, RotaryEmbedding | None]:
        """The rotations of queries and keys, and the values' where theirs differ."""
        rotary = RotaryEmbedding(self.d_head or self.d_model // self.n_heads, base=self.base)
        return rotary, None if self.value_planes is None else rotary.planes(self.value_planes)

    def build(self) -> GPT:
        """A new model with random weights, drawn from torch's global generator."""
        return GPT(self)


class GPT(nn.Module):
    r"""A decoder like GPT-2's, with rotary attention instead of learned positions.

    Pre-norm blocks, GELU, no biases: a value bias would not be a constant under RoVE. Weights are
    drawn with deviation :math:`1/\sqrt{\text{fan-in}}`, those that write into the residual stream
    divided by :math:`\sqrt{2\,n_\text{layers}}` (Radford et al., 2019).

    Args:
        config: The sizes.

    Raises:
        TypeError: If ``config`` is not a :class:`GPTConfig`.

    Example:
        >>> model = GPT(GPTConfig.preset("tiny"))
        >>> model(torch.tensor([[82, 111, 86, 69]])).shape
        torch.Size([1, 4, 256])
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        if not isinstance(config, GPTConfig):
            raise TypeError(f"expected a GPTConfig, got {type(config).__name__}.")
        self.config = config
        self.embed = nn.Embedding(config.d_vocab, config.d_model)
        turns = config.rotaries()  # of every layer, so that a pass makes one table
        self.blocks = nn.ModuleList(self._block(*turns) for _ in range(config.n_layers))
        self.ln_final = norm(config.d_model, config.rms_norm)
        self.unembed = nn.Linear(config.d_model, config.d_vocab, bias=False)
        for weight in (self.embed.weight, self.unembed.weight):
            nn.init.normal_(weight, std=config.d_model**-0.5)
        if config.tied:
            self.unembed.weight = self.embed.weight

    def new_cache(self) -> tuple[KVCache, ...]:
        """An empty cache for each layer."""
        return tuple(KVCache() for _ in self.blocks)

    def forward(
        self,
        tokens: Tensor,
        positions: Positions = None,
        cache: tuple[KVCache, ...] | None = None,
        attn_mask: Tensor | None = None,
    ) -> Tensor:
        """The logits of the next token after each.

        Args:
            tokens: ``[batch, pos]``, integers below ``d_vocab``.
            positions: ``[pos]`` or ``[batch, pos]`` in tokens; those after the cache's by default.
            cache: From :meth:`new_cache`, extended in place.
            attn_mask: Over all keys, the cache's included, as in SDPA; causality comes on top.

        Returns:
            ``[batch, pos, d_vocab]``, in nats.

        Raises:
            TypeError: If tokens are not integers.
            ValueError: If shapes do not fit, or there is not one cache a layer, all of one length.
            IndexError: If a token is ``d_vocab`` or more, or negative.
        """
        self._check(tokens, cache)
        rotations = SharedRotations(tokens.shape[1], positions, cache[0] if cache else None)
        x = self.embed(tokens.long())
        for block, held in zip(self.blocks, cache or [None] * len(self.blocks), strict=True):
            x = block(x, attn_mask=attn_mask, cache=held, rotations=rotations)
        logits: Tensor = self.unembed(self.ln_final(x))
        return logits

    @torch.no_grad()
    def generate(
        self,
        tokens: Tensor,
        n_tokens: int,
        *,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """The prompt and ``n_tokens`` more, each drawn after the last.

        Args:
            tokens: The prompt ``[batch, pos]``.
            n_tokens: How many to add.
            temperature: Divides the logits; 0 takes the likeliest token.
            generator: Of the draws, on the model's device.

        Returns:
            ``[batch, pos + n_tokens]``.

        Raises:
            TypeError: If tokens are not integers.
            ValueError: If the temperature is negative, or the prompt is empty.

        Example:
            >>> GPT(GPTConfig()).generate(torch.tensor([[1, 2]]), 3, temperature=0.0).shape
            torch.Size([1, 5])
        """
        if check_number("temperature", temperature) < 0:
            raise ValueError(f"expected temperature of 0 or more, got {temperature}.")
        cache, new = self.new_cache(), tokens
        for _ in range(check_size("n_tokens", n_tokens)):
            logits = self(new, cache=cache)[:, -1].float()
            if temperature:
                new = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)
            else:
                new = logits.argmax(-1, keepdim=True)
            tokens = torch.cat((tokens, new), 1)
        return tokens

    def _block(self, rotary: RotaryEmbedding, value_rotary: RotaryEmbedding | None) -> Block:
        c = self.config
        attention = RotarySelfAttention(
            c.d_model, c.n_heads, c.n_kv_heads, c.d_head, rotary, c.rotate_values, value_rotary
        )
        return Block(attention, c.d_mlp or 4 * c.d_model, c.n_layers, c.rms_norm)

    def _check(self, tokens: Tensor, cache: tuple[KVCache, ...] | None) -> None:
        check_integers("tokens", tokens)
        if tokens.dim() != 2 or 0 in tokens.shape:
            raise ValueError(
                f"expected tokens [batch, pos], one or more of each, got {list(tokens.shape)}."
            )
        if cache is None:
            return
        given = cache if isinstance(cache, tuple) else ()
        held = [one for one in given if isinstance(one, KVCache)]
        if len(held) != len(self.blocks) or len({*map(id, held)}) != len(held):
            raise ValueError(
                f"expected a cache for each of {len(self.blocks)} layers, none of them twice, got "
                f"{cache!r}: make them with new_cache()."
            )
        lengths = [0 if one.k is None else one.k.shape[-2] for one in held]
        if len({*lengths}) != 1:
            raise ValueError(
                f"expected caches of one length, got {lengths}: a pass was stopped half-way; slice "
                "k, v and positions of each to the shortest, or begin anew."
            )


def load_pretrained(name: str) -> GPT:
    """A trained model that comes with the package: no network, no training.

    The two are a matched pair of the ``"tiny"`` preset, a RoPE and a RoVE model that started from
    the same weights and saw the same batches of Python's standard library as bytes; the record
    ``byte_pair`` says how. One seed: for looking into, not for comparing the two.

    Args:
        name: ``"byte-rope"`` or ``"byte-rove"``.

    Returns:
        The model on the CPU, in evaluation mode, in float32.

    Raises:
        ValueError: If there is no such model; says which there are. Or if its files are not
            those that were shipped, by their SHA-256.
        ImportError: If safetensors is missing.

    Example:
        >>> load_pretrained("byte-rove").config.rotate_values
        True
    """
    folder = bundled_folder(name)
    from rove_lab.weight_files import read_model  # safetensors is a part of the extra "training"

    return read_model(folder, GPTConfig)
