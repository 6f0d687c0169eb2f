r"""A TransformerLens bridge from the lab's own GPT."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from rove_lab.lens_adapter import GPTAdapter
from rove_lab.lens_arguments import TransformerBridge
from rove_lab.lens_processing import record_processing
from rove_lab.model import GPT
from rove_lab.self_attention import KVCache, RotarySelfAttention

try:
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.factories.architecture_adapter_factory import ArchitectureAdapterFactory
    from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module
except ImportError as error:
    raise ImportError(
        f"a part of TransformerLens could not be imported ({error}): "
        'pip install "rove-lab[lens]", which asks for transformer-lens>=4.3,<5'
    ) from error

__all__ = ["LensGPT", "bridge_from_gpt"]

ARCHITECTURE = "RoveLabGPT"  # the name of the adapter's entry point


def bridge_from_gpt(gpt: GPT) -> TransformerBridge:
    r"""A TransformerLens bridge of the lab's GPT, RoPE or RoVE, with every step hooked.

    The bridge holds a copy; the GPT stays as it is, and as fast. In each ``blocks.{l}.attn`` an
    edit takes effect at ``hook_q``, ``hook_k``, ``hook_v``, ``hook_rot_q``, ``hook_rot_k``,
    ``hook_attn_scores``, ``hook_pattern``, ``hook_z`` and, under RoVE, at ``hook_rot_v``
    (:math:`R_j v_j`) and ``hook_rot_z`` (:math:`\sum_j A_{ij} R_j v_j`, z in the common frame
    before it is turned back). All but scores and pattern are ``[batch, pos, heads, d_head]``.

    Args:
        gpt: A :class:`rove_lab.model.GPT`.

    Returns:
        A ``TransformerBridge`` on the model's device and in its dtype; it takes token ids, and
        ``generate`` decodes with the lab's own cache.

    Raises:
        TypeError: If it is something else.

    Example:
        >>> from rove_lab.model import GPT, GPTConfig
        >>> bridge = bridge_from_gpt(GPT(GPTConfig()))
        >>> _, cache = bridge.run_with_cache(torch.tensor([[82, 111, 86, 69]]))
        >>> cache["blocks.0.attn.hook_rot_z"].shape
        torch.Size([1, 4, 4, 32])
    """
    if not isinstance(gpt, GPT):
        raise TypeError(
            f"expected a rove_lab GPT, got {type(gpt).__name__}: for a model of transformers take "
            "bridge_from_huggingface(model, tokenizer)."
        )
    ArchitectureAdapterFactory.discover_entry_points()
    if ARCHITECTURE not in ArchitectureAdapterFactory._adapters:  # not installed, only on the path
        ArchitectureAdapterFactory.register_adapter(ARCHITECTURE, GPTAdapter)
    c = gpt.config
    config = TransformerBridgeConfig(
        d_model=c.d_model,
        d_head=c.rotaries()[0].d_head,
        n_heads=c.n_heads,
        n_key_value_heads=c.n_kv_heads,
        n_layers=c.n_layers,
        n_ctx=c.n_ctx,
        d_vocab=c.d_vocab,
        d_mlp=c.d_mlp or 4 * c.d_model,
        act_fn="gelu",
        normalization_type="RMS" if c.rms_norm else "LN",
        uses_rms_norm=c.rms_norm,
        final_rms=c.rms_norm,
        positional_embedding_type="rotary",
        gated_mlp=False,
        attn_only=False,
        eps=1e-5,
        architecture=ARCHITECTURE,
    )
    config.rotate_values = c.rotate_values
    bridge = build_bridge_from_module(LensGPT(gpt), ARCHITECTURE, tl_config=config)
    record_processing(bridge)
    return bridge


class LensGPT(nn.Module):
    """A copy of a GPT, called as TransformerLens calls a model and with its weights apart.

    Args:
        gpt: The GPT, of which nothing is shared.

    Example:
        >>> from rove_lab.model import GPT, GPTConfig
        >>> LensGPT(GPT(GPTConfig())).config.n_layers
        2
    """

    def __init__(self, gpt: GPT) -> None:
        super().__init__()
        own = copy.deepcopy(gpt)
        self.config = own.config
        self.tokens, self.layers = own.embed, own.blocks
        self.last_norm, self.head = own.ln_final, own.unembed
        for block in own.blocks:
            _open(block)
        self.train(gpt.training)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: tuple[KVCache, ...] | None = None,
        use_cache: bool = False,
        inputs_embeds: Tensor | None = None,
    ) -> SimpleNamespace:
        """The logits of the next token after each, and the cache they leave.

        Args:
            input_ids: ``[batch, pos]``.
            attention_mask: ``[batch, key_pos]``, 0 for padding.
            position_ids: ``[batch, pos]``; those after the cache's by default.
            past_key_values: A cache for each layer, extended in place.
            use_cache: Whether to make one.
            inputs_embeds: ``[batch, pos, d_model]``, in the place of ``input_ids``.

        Returns:
            ``logits`` ``[batch, pos, d_vocab]`` and ``past_key_values``.

        Raises:
            ValueError: If the mask has another shape.
        """
        x = self.tokens(input_ids) if inputs_embeds is None else inputs_embeds
        new: Any = tuple(KVCache() for _ in self.layers) if use_cache else None
        caches = past_key_values or new
        if position_ids is None:
            first = caches[0] if caches else KVCache()
            position_ids = first.next_positions(x.shape[1]).to(x.device)
        mask = None if attention_mask is None else _key_mask(attention_mask)
        for layer, cache in zip(self.layers, caches or [None] * len(self.layers), strict=True):
            x = layer(x, positions=position_ids, attn_mask=mask, cache=cache)
        return SimpleNamespace(logits=self.head(self.last_norm(x)), past_key_values=caches)


class _OpenAttention(nn.Module):
    """Attention with a linear layer for each of its weights; its bridge does the arithmetic."""

    def __init__(self, attention: RotarySelfAttention) -> None:
        super().__init__()
        self.rotary, self.value_rotary = attention.rotary, attention.value_rotary
        self.rotate_values = attention.rotate_values
        for name in "QKV":
            weight = getattr(attention, f"W_{name}").detach()  # [heads, d_model, d_head]
            setattr(self, name.lower(), _linear(weight.transpose(1, 2).flatten(0, 1)))
        self.o = _linear(attention.W_O.detach().flatten(0, 1).T)


class _OpenMLP(nn.Module):
    """The MLP under names that are not those of TransformerLens's own weights."""

    def __init__(self, mlp: Any) -> None:
        super().__init__()
        self.up, self.down = mlp.W_in, mlp.W_out

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(gelu(self.up(x)))
        return out


def _open(block: Any) -> None:
    block.attn, block.mlp = _OpenAttention(block.attn), _OpenMLP(block.mlp)


def _linear(weight: Tensor) -> nn.Linear:
    with torch.device("meta"):
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    layer.weight = nn.Parameter(weight.clone(memory_format=torch.contiguous_format))
    return layer


def _key_mask(attention_mask: Tensor) -> Tensor:
    if attention_mask.dim() != 2:
        raise ValueError(
            f"expected attention_mask [batch, key_pos], got {list(attention_mask.shape)}: 1 for a "
            "token, 0 for padding."
        )
    return attention_mask.bool()[:, None, None, :]
