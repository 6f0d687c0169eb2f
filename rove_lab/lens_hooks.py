r"""RoVE as two TransformerLens hooks a layer: turn the values, turn the sum back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from rove_lab.hf_config import rotating_layers
from rove_lab.lens_arguments import check_bridge, check_layer, layer_indices
from rove_lab.lens_calls import begin_turning, positions_seen, rotation_seen, watch_calls
from rove_lab.lens_processing import check_processing
from rove_lab.model import GPTConfig
from rove_lab.retrofit import DIRECT, check_table
from rove_lab.rotary import RotaryEmbedding

__all__ = ["Hook", "check_family", "rotary_of", "rove_hooks"]

Hook = tuple[str, Callable[..., Any]]


def rove_hooks(
    bridge: Any,
    layers: Sequence[int] | slice | None = None,
    planes: Sequence[int] | slice | Tensor | None = None,
) -> list[Hook]:
    r"""RoVE, :math:`z_i = R_i^{-1} \sum_j A_{ij} R_j v_j`, as forward hooks for a bridge.

    ``bridge.run_with_hooks(tokens, fwd_hooks=rove_hooks(bridge))``, or ``with
    bridge.hooks(fwd_hooks=rove_hooks(bridge)):`` around anything, cached decoding and ``generate``
    included: positions are those that the model itself uses in that call, padding accounted for.
    Values are turned at ``blocks.{l}.attn.v.hook_out``, on the KV heads, and z is turned back at
    ``blocks.{l}.attn.o.hook_in``. What is hooked in later sees them so: within the context,
    ``run_with_cache`` keeps :math:`R_j v_j` as ``hook_v`` and RoVE's z as ``hook_z``. Decode all
    tokens with these hooks or none: the cache holds rotated values. YaRN's factor never scales
    values.
    Switching RoVE on in a model that was trained without it changes what the model computes and
    does not improve it. García-Castellanos et al. (2026), arXiv:2606.11275.

    Args:
        bridge: Of a model with RoPE, best from :func:`bridge_from_huggingface`.
        layers: Indices of layers or a slice, from the end where negative; None for all that have a
            rotation (in SmolLM3 and Cohere 2 not all do).
        planes: Indices of planes (0 turns fastest) or a slice; None for all.

    Returns:
        ``(name, function)`` pairs, two a layer.

    Raises:
        TypeError: If it is not a bridge, or layers or planes are not integers.
        ValueError: If a layer or plane does not exist, the model rotates values already or has no
            rotation that is known, or its value biases were folded.

    Example:
        >>> from transformers import GPTJConfig, GPTJForCausalLM
        >>> from rove_lab.lens import bridge_from_huggingface
        >>> config = GPTJConfig(n_embd=8, n_head=2, n_layer=3, rotary_dim=2, vocab_size=4)
        >>> len(rove_hooks(bridge_from_huggingface(GPTJForCausalLM(config)), layers=[0, 2]))
        4
    """
    check_processing(bridge)
    _check_rope(bridge)
    check_family(bridge)
    hooks: list[Hook] = []
    for layer in _turning(bridge) if layers is None else layer_indices(bridge, layers):
        rotary = rotary_of(bridge, layer)
        turning = rotary if planes is None else rotary.planes(planes)
        attention = bridge.blocks[layer].attn
        watch_calls(attention)
        hooks += _pair(bridge, layer, attention, turning)
    return hooks


def rotary_of(bridge: Any, layer: int) -> RotaryEmbedding:
    """The rotation :math:`R_t` of queries and keys in one layer of a bridge.

    Args:
        bridge: Of a Hugging Face model, or of the lab's GPT.
        layer: Its index, from the end where negative.

    Returns:
        The family, for :mod:`rove_lab.circuits` too.

    Raises:
        TypeError: If it is not a bridge.
        ValueError: If the layer does not exist, its rotation is not known, or the model's own table
            of frequencies is not what its config says.

    Example:
        >>> from transformers import GPTJConfig, GPTJForCausalLM
        >>> from rove_lab.lens import bridge_from_huggingface
        >>> config = GPTJConfig(n_embd=8, n_head=2, n_layer=3, rotary_dim=2, vocab_size=4)
        >>> rotary_of(bridge_from_huggingface(GPTJForCausalLM(config)), 0)
        RotaryEmbedding(4, base=10000.0, rotary_dim=2, interleaved=True)
    """
    config = getattr(check_bridge(bridge).original_model, "config", None)
    layer = check_layer(bridge, layer)
    if isinstance(config, GPTConfig):
        return config.rotaries()[0]
    if config is None or not hasattr(config, "model_type"):
        raise ValueError(
            f"expected a bridge whose model says how it rotates, got one of "
            f"{type(bridge.original_model).__name__}: make it with bridge_from_huggingface or "
            "bridge_from_gpt."
        )
    rotary = RotaryEmbedding.from_config(config, layer=layer)
    check_table(bridge.original_model, layer, rotary)
    return rotary


def check_family(bridge: Any) -> None:
    """Refuses a bridge whose attention is not known to take values straight from their hook.

    Args:
        bridge: The bridge.

    Raises:
        ValueError: If it is of a family that :func:`enable_rove` does not take, nor the lab's.

    Example:
        >>> from types import SimpleNamespace as Namespace
        >>> check_family(Namespace(original_model=Namespace(config=GPTConfig())))
    """
    config = getattr(bridge.original_model, "config", None)
    kind = getattr(config, "model_type", type(bridge.original_model).__name__)
    if isinstance(config, GPTConfig) or (kind in DIRECT and not getattr(config, "clip_qkv", None)):
        return
    reason = "it clips values after their hook" if kind in DIRECT else "that has not been checked"
    raise ValueError(
        f"expected a bridge whose attention takes the values as they leave their hook, got one of "
        f"{kind!r}: {reason}. Take the lab's GPT or one of {', '.join(sorted(DIRECT))}."
    )


def _pair(bridge: Any, layer: int, attention: Any, rotary: RotaryEmbedding) -> list[Hook]:
    def rotate_values(v: Tensor, hook: Any) -> Tensor:
        check_processing(bridge)  # it may have been folded since the hooks were made
        positions = positions_seen(attention)
        if v.dim() == 3:  # remove_batch_dim=True takes the batch away
            positions = positions[0]
        rotation = rotary(positions, device=v.device)
        begin_turning(attention, rotary, rotation)
        return rotation.apply(v.transpose(-2, -3)).transpose(-2, -3)

    def rotate_z_back(z: Tensor, hook: Any) -> Tensor:
        return rotation_seen(attention).undo(z.transpose(-2, -3)).transpose(-2, -3)

    return [
        (f"blocks.{layer}.attn.v.hook_out", rotate_values),
        (f"blocks.{layer}.attn.o.hook_in", rotate_z_back),
    ]


def _turning(bridge: Any) -> list[int]:
    config = bridge.original_model.config
    return layer_indices(bridge, None if isinstance(config, GPTConfig) else rotating_layers(config))


def _check_rope(bridge: Any) -> None:
    config = getattr(bridge.original_model, "config", None)
    if getattr(config, "rotate_values", False):
        raise ValueError(
            "expected a bridge of a model with RoPE, got one whose attention rotates the values "
            "itself: run it without hooks, it is RoVE already."
        )
