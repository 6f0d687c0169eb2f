r"""The pattern and the values of a layer of a bridge in one call: what is sent, and to whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rove_lab.lens_calls import turning_values
from rove_lab.lens_firing import check_fires
from rove_lab.lens_hooks import check_family
from rove_lab.rotary import RotaryEmbedding

__all__ = ["Messages", "watch_messages"]


class Messages(NamedTuple):
    """What one layer's heads carry, in the arguments of :mod:`rove_lab.messages`.

    Attributes:
        pattern: ``[batch, heads, query_pos, key_pos]``.
        values: ``[batch, n_kv_heads, key_pos, d_head]``, before any rotation.
        rotary: The rotations of the values.
        rotate_values: Whether they turn: RoVE's hooks are on, or the model has RoVE.

    Example:
        >>> pattern, values = torch.eye(3)[None], torch.ones(1, 3, 4)
        >>> Messages(pattern, values, RotaryEmbedding(4), True).rotate_values
        True
    """

    pattern: Tensor
    values: Tensor
    rotary: RotaryEmbedding
    rotate_values: bool


def watch_messages(
    bridge: Any, tokens: Tensor, layers: Sequence[int], more: Sequence[tuple[str, Any]] = ()
) -> list[Messages]:
    """Runs a bridge once and keeps the messages of some layers, with the hooks that are on.

    Args:
        bridge: A bridge of a family that :func:`rove_hooks` takes, or of the lab's GPT.
        tokens: Ids ``[batch, pos]``, without padding.
        layers: Indices of layers.
        more: Further hooks to run with.

    Returns:
        The messages, layer by layer, without gradients.

    Raises:
        ValueError: If the bridge is of another family, or shows no pattern.

    Example:
        >>> from rove_lab.lens import bridge_from_gpt
        >>> from rove_lab.model import GPT, GPTConfig
        >>> bridge = bridge_from_gpt(GPT(GPTConfig(n_kv_heads=2)))
        >>> watch_messages(bridge, torch.tensor([[1, 2, 3]]), [0])[0].values.shape
        torch.Size([1, 2, 3, 32])
    """
    check_family(bridge)
    kept: dict[int, dict[str, Any]] = {layer: {} for layer in layers}

    def watch(layer: int) -> list[tuple[str, Any]]:
        attention, held = bridge.blocks[layer].attn, kept[layer]

        def at_values(v: Tensor, hook: Any) -> None:
            turned = turning_values(attention)
            values = v.transpose(1, 2)
            held["values"] = values if turned is None else turned(range(v.shape[1])).undo(values)

        def at_pattern(pattern: Tensor, hook: Any) -> None:
            held["pattern"] = pattern

        def at_z(z: Tensor, hook: Any) -> None:
            own, turned = attention.original_component, turning_values(attention)
            inside = turned is None and getattr(own, "rotate_values", False)
            held["rotary"] = own.value_rotary if inside else turned or RotaryEmbedding(z.shape[-1])
            held["rotate_values"] = inside or turned is not None

        name = f"blocks.{layer}.attn."
        return [
            (name + "v.hook_out", at_values),
            (name + "hook_pattern", at_pattern),
            (name + "o.hook_in", at_z),
        ]

    hooks = [hook for layer in layers for hook in watch(layer)]
    with torch.no_grad():
        bridge.run_with_hooks(tokens, fwd_hooks=[*hooks, *more])
    silent = [
        f"blocks.{layer}.attn.hook_pattern" for layer in layers if "pattern" not in kept[layer]
    ]
    check_fires(bridge, silent)
    return [Messages(**kept[layer]) for layer in layers]
