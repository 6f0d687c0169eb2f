r"""The values' rotations scaled apart from the scores': which of the two does a length break?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rove_lab.model import GPT
from rove_lab.rotary import RotaryEmbedding
from rove_lab.scaling import Scaling

__all__ = ["value_scaling"]


@contextmanager
def value_scaling(model: GPT, scaling: Scaling | None) -> Iterator[None]:
    r"""A RoVE model whose values turn by :math:`\omega'_m` while a ``with`` block lasts.

    Queries and keys keep what they have, YaRN say; the values get ``scaling`` instead. With
    :class:`~rove_lab.rotary.LinearScaling` of length / ``n_ctx`` no message turns farther than in
    training; with None each turns as in training, whatever the scores do.

    Args:
        model: The model.
        scaling: Of the values alone; None for the frequencies they were trained with.

    Yields:
        Nothing.

    Raises:
        TypeError: If it is not a :class:`~rove_lab.model.GPT`.
        ValueError: If its values do not turn.

    Example:
        >>> from rove_lab.model import GPTConfig
        >>> from rove_lab.rotary import LinearScaling
        >>> model = GPT(GPTConfig())
        >>> with value_scaling(model, LinearScaling(8.0)): model.blocks[0].attn.value_rotary.scaling
        LinearScaling(factor=8.0)
    """
    if not isinstance(model, GPT):
        raise TypeError(f"expected a GPT, got {type(model).__name__}.")
    if not model.config.rotate_values:
        raise ValueError(
            "expected a model with rotate_values=True, got one whose values do not turn: there is "
            "nothing to scale."
        )
    layers: list[Any] = [block.attn for block in model.blocks]
    before = [layer.value_rotary for layer in layers]
    trained, apart = model.config.rotaries()
    scaled = rescaled(apart or trained, scaling)
    try:
        for layer in layers:
            layer.value_rotary = scaled
        yield
    finally:
        for layer, rotary in zip(layers, before, strict=True):
            layer.value_rotary = rotary


def rescaled(rotary: RotaryEmbedding, scaling: Scaling | None) -> RotaryEmbedding:
    """The same family under another scaling, or none; what stood still stands still."""
    family = RotaryEmbedding(
        rotary.d_head,
        base=rotary.base,
        rotary_dim=rotary.rotary_dim,
        interleaved=rotary.interleaved,
        trailing=rotary.trailing,
        scaling=scaling,
    )
    return family.planes(rotary.inv_freq.nonzero().flatten())
