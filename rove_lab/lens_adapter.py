r"""How TransformerLens sees the lab's GPT: names, shapes, and attention with every step hooked."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rove_lab.lens_arguments import TransformerBridge
from rove_lab.masking import attention_mask
from rove_lab.rotation import Rotation
from rove_lab.temperature import with_temperature

try:
    from transformer_lens.hook_points import HookPoint
    from transformer_lens.model_bridge.architecture_adapter import ArchitectureAdapter
    from transformer_lens.model_bridge.generalized_components import (
        AttentionBridge,
        BlockBridge,
        EmbeddingBridge,
        LinearBridge,
        MLPBridge,
        NormalizationBridge,
        RMSNormalizationBridge,
        UnembeddingBridge,
    )
except ImportError as error:
    raise ImportError(
        f"a part of {TransformerBridge.__name__} could not be imported ({error}): "
        'pip install "rove-lab[lens]", which asks for transformer-lens>=4.3,<5'
    ) from error

__all__ = ["GPTAdapter", "GPTAttentionBridge"]


class GPTAttentionBridge(AttentionBridge):  # type: ignore[misc]  # TransformerLens is not typed
    r"""The attention of the lab's GPT, step by step, so that an edit at any hook takes effect.

    Beside TransformerLens's hooks there are, all ``[batch, pos, heads, d_head]``: ``hook_rot_q``,
    ``hook_rot_k`` and, under RoVE, ``hook_rot_v`` (:math:`R_j v_j`) and ``hook_rot_z``, z in the
    common frame, before it is turned back to ``hook_z``.

    Args:
        name: Of the module in the block.
        config: TransformerLens's config, with ``rotate_values``.
        submodules: Bridges of q, k, v and o.

    Example:
        >>> GPTAttentionBridge.hook_aliases["hook_z"]
        'o.hook_in'
    """

    supports_split_qkv_fork = False

    def __init__(self, name: str, config: Any, submodules: dict[str, Any]) -> None:
        super().__init__(name, config, submodules)
        if config.rotate_values:
            self.hook_rot_v, self.hook_rot_z = HookPoint(), HookPoint()

    def setup_hook_compatibility(self) -> None:
        """Show all four rotated tensors as ``[batch, pos, heads, d_head]``, as v and z are."""
        super().setup_hook_compatibility()
        for name in ("hook_rot_v", "hook_rot_z"):
            if name in self._modules:
                getattr(self, name).hook_conversion = self.hook_rot_q.hook_conversion

    def forward(
        self, x: Tensor, positions: Tensor, attn_mask: Tensor | None = None, cache: Any = None
    ) -> Tensor:
        """``[batch, pos, d_model]`` to the same, as :class:`RotarySelfAttention` does it."""
        own = self.original_component
        x = self.hook_in(x)
        turn = own.rotary(positions, device=x.device)
        q = self.hook_rot_q(turn.apply(self._heads(self.q(x))))
        k = self.hook_rot_k(turn.apply(self._heads(self.k(x))))
        v = self._heads(self.v(x))
        if own.rotate_values:
            value_turn: Rotation = own.value_rotary(positions, device=x.device)
            v = self.hook_rot_v(value_turn.apply(v))
        if cache is not None:
            k, v, places = cache.joined(k, v, positions)
            cache.k, cache.v, cache.positions = k, v, places
        z = self._softmaxed(q, k, attn_mask) @ v.repeat_interleave(q.shape[1] // v.shape[1], 1)
        if own.rotate_values:
            z = value_turn.undo(self.hook_rot_z(z))
        out: Tensor = self.hook_out(self.o(z.transpose(1, 2).flatten(2)))
        return out

    def _softmaxed(self, q: Tensor, k: Tensor, attn_mask: Tensor | None) -> Tensor:
        q, scale = with_temperature(q, self.original_component.rotary)
        scores = scale * (q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT)
        seen = attention_mask(attn_mask, True, q, k, q.dtype)
        if seen is not None:
            scores = scores.masked_fill(~seen, -torch.inf)
        scores = self.hook_attn_scores(scores)
        wide = torch.promote_types(scores.dtype, torch.float32)
        blind = (scores == -torch.inf).all(-1, keepdim=True)  # who sees nobody gets nothing
        pattern = scores.masked_fill(blind, 0.0).softmax(-1, dtype=wide).masked_fill(blind, 0.0)
        hooked: Tensor = self.hook_pattern(pattern.to(q.dtype))
        return hooked

    def _heads(self, projected: Tensor) -> Tensor:
        by_head: Tensor = projected.unflatten(-1, (-1, self.config.d_head))
        return by_head.transpose(1, 2)


class GPTAdapter(ArchitectureAdapter):  # type: ignore[misc]
    """TransformerLens's view of :class:`rove_lab.lens_gpt.LensGPT`, found by its entry point.

    Args:
        cfg: TransformerLens's config, with ``rotate_values`` and ``uses_rms_norm``.

    Example:
        >>> from rove_lab.lens import bridge_from_gpt
        >>> from rove_lab.model import GPT, GPTConfig
        >>> type(bridge_from_gpt(GPT(GPTConfig())).adapter).__name__
        'GPTAdapter'
    """

    supports_fold_ln = True
    supports_center_writing_weights = True

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        self.weight_processing_conversions = self._qkvo_weight_conversions()
        norm = RMSNormalizationBridge if cfg.uses_rms_norm else NormalizationBridge
        attention = GPTAttentionBridge("attn", cfg, {name: LinearBridge(name) for name in "qkvo"})
        mlp = MLPBridge(
            "mlp", config=cfg, submodules={"in": LinearBridge("up"), "out": LinearBridge("down")}
        )
        block = BlockBridge(
            "layers",
            config=cfg,
            submodules={
                "ln1": norm("ln1", cfg),
                "attn": attention,
                "ln2": norm("ln2", cfg),
                "mlp": mlp,
            },
        )
        # what would come before the projections is one tensor for all heads
        forks = ("hook_q_input", "hook_k_input", "hook_v_input", "hook_attn_in")
        block.hook_aliases = {
            name: path for name, path in block.hook_aliases.items() if name not in forks
        }
        self.component_mapping = {
            "embed": EmbeddingBridge("tokens"),
            "blocks": block,
            "ln_final": norm("last_norm", cfg),
            "unembed": UnembeddingBridge("head", config=cfg),
        }
