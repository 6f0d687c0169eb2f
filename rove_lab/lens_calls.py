r"""What the running call of a bridge's attention turns by: its positions, and RoVE if it is on."""

from __future__ import annotations

import threading
from typing import Any

from torch import Tensor

from rove_lab.rotary import RotaryEmbedding
from rove_lab.rotation import Rotation

__all__ = ["begin_turning", "positions_seen", "rotation_seen", "turning_values", "watch_calls"]

_CALL = "_rove_lab_call"


class _Call(threading.local):
    """Of the call that is running; each thread has its own."""

    positions: Tensor | None = None
    rotary: RotaryEmbedding | None = None
    rotation: Rotation | None = None

    def __reduce__(self) -> tuple[type[_Call], tuple[()]]:
        return _Call, ()  # a copy of the bridge is not in the middle of a call


def watch_calls(attention: Any) -> None:
    """Makes an attention module of a bridge keep its positions while a call lasts; once is enough.

    Args:
        attention: ``bridge.blocks[l].attn``.

    Example:
        >>> import torch
        >>> watch_calls(torch.nn.Identity())
    """
    if _CALL in attention.__dict__:
        return
    attention.__dict__[_CALL] = _Call()
    attention.register_forward_pre_hook(_begin, with_kwargs=True)
    attention.register_forward_hook(_end, always_call=True)


def positions_seen(attention: Any) -> Tensor:
    """The positions of the call that an attention module of a bridge is in.

    Args:
        attention: ``bridge.blocks[l].attn``, watched.

    Returns:
        ``[batch, pos]`` or ``[1, pos]``, in tokens.

    Raises:
        RuntimeError: If the module is in no call, or was given no positions.

    Example:
        >>> positions_seen(object())
        Traceback (most recent call last):
        RuntimeError: expected the positions of the tokens, got none: ...
    """
    positions = _call(attention).positions
    if positions is None:
        raise RuntimeError(
            "expected the positions of the tokens, got none: hooks of rove_hooks(bridge) run "
            "inside a forward pass of the bridge they were made for, whose attention must be given "
            "position_ids; make new ones for a copy of the bridge."
        )
    return positions


def begin_turning(attention: Any, rotary: RotaryEmbedding, rotation: Rotation) -> None:
    """Notes that RoVE's hooks turn the values in the call that is running.

    Args:
        attention: ``bridge.blocks[l].attn``, watched.
        rotary: The family.
        rotation: Its rotations at the positions of the call.

    Raises:
        ValueError: If they turn already: the values would turn twice.

    Example:
        >>> import torch
        >>> attention, rotary = torch.nn.Identity(), RotaryEmbedding(4)
        >>> watch_calls(attention)
        >>> begin_turning(attention, rotary, rotary([0]))
    """
    call = _call(attention)
    if call.rotary is not None:
        raise ValueError(
            "expected RoVE's hooks once, got them twice in one pass, which would turn the values "
            "twice: leave either the context bridge.hooks(...) or fwd_hooks=... away."
        )
    call.rotary, call.rotation = rotary, rotation


def turning_values(attention: Any) -> RotaryEmbedding | None:
    """The rotation that RoVE's hooks give the values in the call that is running.

    Args:
        attention: ``bridge.blocks[l].attn``.

    Returns:
        The family, or ``None`` where no such hook has turned the values.

    Example:
        >>> turning_values(object()) is None
        True
    """
    return _call(attention).rotary


def rotation_seen(attention: Any) -> Rotation:
    """The rotations by which RoVE's hooks turned the values in the call that is running.

    Args:
        attention: ``bridge.blocks[l].attn``.

    Returns:
        The rotations at the positions of the call.

    Raises:
        RuntimeError: If they turned none.

    Example:
        >>> rotation_seen(object())
        Traceback (most recent call last):
        RuntimeError: expected values that RoVE's hooks have turned, got none: ...
    """
    rotation = _call(attention).rotation
    if rotation is None:
        raise RuntimeError(
            "expected values that RoVE's hooks have turned, got none: the two hooks of a layer go "
            "together; take both from rove_hooks(bridge)."
        )
    return rotation


def _call(attention: Any) -> _Call:
    call: _Call = getattr(attention, "__dict__", {}).get(_CALL) or _Call()
    return call


def _begin(attention: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    _end(attention)  # what an interrupted call has left
    # Hugging Face's name and the lab's
    _call(attention).positions = kwargs.get("position_ids", kwargs.get("positions"))


def _end(attention: Any, *_: Any) -> None:
    call = _call(attention)
    call.positions = call.rotary = call.rotation = None
