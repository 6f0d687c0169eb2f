r"""RoVE as two TransformerLens hooks a layer: turn the values, turn the sum back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from rove_lab.hf_config import rotating_layers
from rove_lab.lens_arguments import check_bridge, check_layer, layer_indices
from rove_lab.lens_processing import check_processing
from rove_lab.model import GPTConfig
from rove_lab.retrofit import DIRECT
from rove_lab.rotary import RotaryEmbedding
from rove_lab.rotation import Rotation

__all__ = [
    "Hook",
    "check_family",
    "positions_seen",
    "rotary_of",
    "rove_hooks",
    "turning_values",
]

Hook = tuple[str, Callable[..., Any]]
_POSITIONS, _TURNING = "_rove_lab_positions", "_rove_lab_turning"


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
        _watch_positions(attention)
        hooks += _pair(layer, attention, turning)
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
        ValueError: If the layer does not exist, or its rotation is not known.

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
    return RotaryEmbedding.from_config(config, layer=layer)


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
        _check_once(attention)
        turned = turn(v, Rotation.apply)
        attention.__dict__[_TURNING] = rotary
        return turned

    def rotate_z_back(z: Tensor, hook: Any) -> Tensor:
        return turn(z, Rotation.undo)

    return [
        (f"blocks.{layer}.attn.v.hook_out", rotate_values),
        (f"blocks.{layer}.attn.o.hook_in", rotate_z_back),
    ]


def turning_values(attention: Any) -> RotaryEmbedding | None:
    """The rotation that RoVE's hooks give the values in the call an attention module is in.

    Args:
        attention: ``bridge.blocks[l].attn``.

    Returns:
        The family, or ``None`` where no such hook has turned the values.

    Example:
        >>> turning_values(object()) is None
        True
    """
    return getattr(attention, "__dict__", {}).get(_TURNING)


def _check_once(attention: Any) -> None:
    if turning_values(attention) is not None:
        raise ValueError(
            "expected RoVE's hooks once, got them twice in one pass, which would turn the values "
            "twice: leave either the context bridge.hooks(...) or fwd_hooks=... away."
        )


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


def _watch_positions(attention: Any) -> None:
    if _POSITIONS in attention.__dict__:  # watched already
        return
    attention.__dict__[_POSITIONS] = attention.__dict__[_TURNING] = None
    attention.register_forward_pre_hook(_keep_positions, with_kwargs=True)
    attention.register_forward_hook(_drop_positions, always_call=True)


def _keep_positions(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    module.__dict__[_POSITIONS] = kwargs.get("position_ids", kwargs.get("positions"))


def _drop_positions(module: Any, args: tuple[Any, ...], output: Any) -> None:
    module.__dict__[_POSITIONS] = module.__dict__[_TURNING] = None
