r"""RoVE as three hooks on the attention module of a layer: take positions, turn values, turn back.

The values turn as they leave their projection, before any cache sees them, so that whatever keeps
them keeps :math:`R_j v_j`; the heads' sums turn back as they enter the output projection.
"""

from __future__ import annotations

import threading
from typing import Any

from torch import Tensor, nn

from rove_lab.rotary import RotaryEmbedding
from rove_lab.rotation import Rotation
from rove_lab.value_projections import AttentionLayer, ValueLayout

__all__ = ["ValueHooks"]


class _Call(threading.local):
    """What the call of the attention module that is running turns by; each thread has its own."""

    positions: Tensor | None = None
    rotation: Rotation | None = None

    def __reduce__(self) -> tuple[type[_Call], tuple[()]]:
        return _Call, ()  # a copy of the model is not in the middle of a call


class ValueHooks:
    r"""The hooks that make :math:`\sum_j A_{ij} v_j` of a layer :math:`\sum_j A_{ij} R_{j-i} v_j`.

    Positions are those that each call of the attention module is given, so that a pass that is
    computed again (gradient checkpointing) or runs in another thread turns by its own. The hooks
    are methods: a deep copy of the model has hooks of its own.

    Args:
        layer: The layer's attention module and its projections.
        layout: Where the values are in the projection's output.
        rotary: The layer's rotation family.

    Example:
        >>> from transformers import GPTJConfig, GPTJForCausalLM
        >>> from rove_lab.value_projections import attention_layers, value_layout
        >>> model = GPTJForCausalLM(GPTJConfig(n_embd=8, n_head=2, n_layer=1, rotary_dim=2))
        >>> ValueHooks(attention_layers(model)[0], value_layout(model.config), RotaryEmbedding(4))
        ValueHooks(h.0.attn, RotaryEmbedding(4, base=10000.0))
    """

    def __init__(self, layer: AttentionLayer, layout: ValueLayout, rotary: RotaryEmbedding) -> None:
        self.layer, self.layout, self.rotary = layer, layout, rotary
        self._values = self._child(layer.projection)
        self._output = self._child(layer.output)
        self._call = _Call()
        self._handles = [
            layer.attention.register_forward_pre_hook(self.take_positions, with_kwargs=True),
            self._values.register_forward_hook(self.turn_values),
            self._output.register_forward_pre_hook(self.turn_back),
        ]

    def remove(self) -> None:
        """Take the hooks off; once more does nothing."""
        for handle in self._handles:
            handle.remove()
        self._call = _Call()

    def take_positions(self, attention: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        """The hook before attention: which positions this call is for.

        Raises:
            ValueError: If the call has none, or a projection has been replaced.
        """
        for name, hooked in (
            (self.layer.projection, self._values),
            (self.layer.output, self._output),
        ):
            if self._child(name) is not hooked:
                raise ValueError(
                    f"expected the {name} of {self.layer.name} that RoVE was switched on in, got "
                    f"another ({type(self._child(name)).__name__}): an adapter must be put in "
                    "before enable_rove. Call remove() on its handle, then enable_rove again."
                )
        positions = kwargs.get("position_ids")
        if not isinstance(positions, Tensor):
            raise ValueError(
                f"expected position_ids in the call of {self.layer.name}, got {positions!r}: call "
                "the model itself, which makes them."
            )
        self._call.positions, self._call.rotation = positions, None

    def turn_values(self, projection: nn.Module, args: Any, projected: Tensor) -> Tensor:
        """The hook after the projection: :math:`v_j` to :math:`R_j v_j`; a value bias turns, too.

        Raises:
            ValueError: If the attention module is not running.
        """
        positions = self._call.positions
        if positions is None:
            raise ValueError(
                f"expected {self.layer.name} to be called as a module, got a call of its "
                f"{self.layer.projection} alone, for which there are no positions: call the model, "
                "or remove RoVE first."
            )
        self._call.rotation = rotation = self.rotary(positions, device=projected.device)
        values = self.layout.read(projected).transpose(-2, -3)  # [batch, head, pos, d_head]
        return self.layout.write(projected, rotation.apply(values).transpose(-2, -3))

    def turn_back(self, output: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The hook before the output projection: each head's sum by :math:`R_i^{-1}`.

        Raises:
            ValueError: If the attention module is not running.
        """
        rotation = self._call.rotation
        if rotation is None:
            raise ValueError(
                f"expected {self.layer.name} to be called as a module, got a call of its "
                f"{self.layer.output} alone, for which there are no positions: call the model, or "
                "remove RoVE first."
            )
        z = args[0].unflatten(-1, (-1, self.rotary.d_head)).transpose(-2, -3)
        turned = rotation.undo(z).transpose(-2, -3).flatten(-2)
        self._call.positions = self._call.rotation = None
        return (turned, *args[1:])

    def _child(self, name: str) -> nn.Module:
        return self.layer.attention.get_submodule(name)

    def __repr__(self) -> str:
        return f"ValueHooks({self.layer.name}, {self.rotary})"
