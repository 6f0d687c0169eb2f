r"""RoVE as two TransformerLens hooks a layer: turn the values, turn the sum back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor

from rove_lab.arguments import check_index
from rove_lab.lens_import import check_bridge
from rove_lab.lens_processing import check_processing
from rove_lab.rotary import RotaryEmbedding
from rove_lab.rotation import Rotation

__all__ = ["Hook", "positions_seen", "rotary_of", "rove_hooks"]

Hook = tuple[str, Callable[..., Any]]
_POSITIONS = "_rove_lab_positions"


def rove_hooks(
    bridge: Any,
    layers: Sequence[int] | int | None = None,
    planes: Sequence[int] | slice | Tensor | None = None,
) -> list[Hook]:
    r"""RoVE, :math:`z_i = R_i^{-1} \sum_j A_{ij} R_j v_j`, as forward hooks for a bridge.

    ``bridge.run_with_hooks(tokens, fwd_hooks=rove_hooks(bridge))``, or ``with
    bridge.hooks(fwd_hooks=rove_hooks(bridge)):`` around anything, cached decoding and ``generate``
    included: positions are those that the model itself uses in that call, padding accounted for.
    Values are turned at ``blocks.{l}.attn.v.hook_out``, on the KV heads, and z is turned back at
    ``blocks.{l}.attn.o.hook_in``; hooks that come later in the list see them so. Decode all tokens
    with these hooks or none: the cache holds rotated values. YaRN's factor never scales values.
    Switching RoVE on in a model that was trained without it changes what the model computes and
    does not improve it. García-Castellanos et al. (2026), arXiv:2606.11275.

    Args:
        bridge: Of a model with RoPE, best from :func:`bridge_from_huggingface`.
        layers: Which layers, counted from 0; all by default.
        planes: Which rotary planes turn the values, 0 the fastest, or a slice; all by default.

    Returns:
        ``(name, function)`` pairs, two a layer.

    Raises:
        TypeError: If it is not a bridge, or layers or planes are not integers.
        ValueError: If a layer or plane does not exist or comes twice, the model rotates values
            already, has no rotation that is known, or its value biases were folded.

    Example:
        >>> from transformers import GPTJConfig, GPTJForCausalLM
        >>> from rove_lab.lens import bridge_from_huggingface
        >>> config = GPTJConfig(n_embd=8, n_head=2, n_layer=3, rotary_dim=2, vocab_size=4)
        >>> len(rove_hooks(bridge_from_huggingface(GPTJForCausalLM(config)), layers=[0, 2]))
        4
    """
    check_processing(bridge)
    hooks: list[Hook] = []
    for layer in _layers(bridge, layers):
        rotary = rotary_of(bridge, layer)
        turning = rotary if planes is None else rotary.planes(planes)
        attention = bridge.blocks[layer].attn
        _watch_positions(attention)
        hooks += _pair(layer, attention, turning)
    return hooks


def rotary_of(bridge: Any, layer: int) -> RotaryEmbedding:
    """The rotation :math:`R_t` of queries and keys in one layer of a bridge.

    Args:
        bridge: Of a Hugging Face model, or of the lab's GPT.
        layer: Counted from 0.

    Returns:
        The family, for :mod:`rove_lab.circuits` too.

    Raises:
        TypeError: If it is not a bridge.
        ValueError: If the layer does not exist, or its rotation is not known.

    Example:
        >>> from transformers import GPTJConfig, GPTJForCausalLM
        >>> from rove_lab.lens import bridge_from_huggingface
        >>> config = GPTJConfig(n_embd=8, n_head=2, n_layer=3, rotary_dim=2, vocab_size=4)
        >>> rotary_of(bridge_from_huggingface(GPTJForCausalLM(config)), 0)
        RotaryEmbedding(4, base=10000.0, rotary_dim=2, interleaved=True)
    """
    config = getattr(check_bridge(bridge).original_model, "config", None)
    if config is None or not hasattr(config, "model_type"):
        raise ValueError(
            f"expected a bridge whose model says how it rotates, got one of "
            f"{type(bridge.original_model).__name__}: make it with bridge_from_huggingface or "
            "bridge_from_gpt."
        )
    return RotaryEmbedding.from_config(config, layer=layer)


def positions_seen(attention: Any) -> Tensor:
    """The positions of the call that an attention module of a bridge is in.

    Args:
        attention: ``bridge.blocks[l].attn``, of a bridge with :func:`rove_hooks`.

    Returns:
        ``[batch, pos]`` or ``[1, pos]``, integers in tokens.

    Raises:
        RuntimeError: If the module is in no call, or was given no positions.

    Example:
        >>> positions_seen(object())
        Traceback (most recent call last):
        RuntimeError: ...
    """
    positions = getattr(attention, "__dict__", {}).get(_POSITIONS)
    if positions is None:
        raise RuntimeError(
            "expected the positions of the tokens, got none: hooks of rove_hooks(bridge) run "
            "inside a forward pass of the bridge they were made for, whose attention must be given "
            "position_ids; make new ones for a copy of the bridge."
        )
    return positions  # type: ignore[no-any-return]


def _pair(layer: int, attention: Any, rotary: RotaryEmbedding) -> list[Hook]:
    def turn(x: Tensor, rotate: Callable[[Rotation, Tensor], Tensor]) -> Tensor:
        positions = positions_seen(attention)
        if x.dim() == 3:  # remove_batch_dim=True takes the batch away
            positions = positions[0]
        rotation = rotary(positions, device=x.device)
        return rotate(rotation, x.transpose(-2, -3)).transpose(-2, -3)

    def rotate_values(v: Tensor, hook: Any) -> Tensor:
        return turn(v, Rotation.apply)

    def rotate_z_back(z: Tensor, hook: Any) -> Tensor:
        return turn(z, Rotation.undo)

    return [
        (f"blocks.{layer}.attn.v.hook_out", rotate_values),
        (f"blocks.{layer}.attn.o.hook_in", rotate_z_back),
    ]


def _watch_positions(attention: Any) -> None:
    if _POSITIONS in attention.__dict__:  # watched already
        return
    attention.__dict__[_POSITIONS] = None
    attention.register_forward_pre_hook(_keep_positions, with_kwargs=True)
    attention.register_forward_hook(_drop_positions, always_call=True)


def _keep_positions(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    module.__dict__[_POSITIONS] = kwargs.get("position_ids")


def _drop_positions(module: Any, args: tuple[Any, ...], output: Any) -> None:
    module.__dict__[_POSITIONS] = None


def _layers(bridge: Any, layers: Any) -> list[int]:
    n_layers = bridge.cfg.n_layers
    if layers is None:
        return list(range(n_layers))
    several = isinstance(layers, Iterable) and not isinstance(layers, str)
    chosen = [check_index("a layer", layer) for layer in (layers if several else [layers])]
    for layer in chosen:
        if not 0 <= layer < n_layers:
            raise ValueError(f"expected layers from 0 to {n_layers - 1}, got {layer}.")
    if len({*chosen}) != len(chosen):
        raise ValueError(f"expected each layer once, got {chosen}: it would be rotated twice.")
    return chosen
