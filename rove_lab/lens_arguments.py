"""What the lens accepts, a bridge, its layers and its tokens; or how to get TransformerLens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from rove_lab.arguments import check_index, check_integers

try:
    from transformer_lens.model_bridge import TransformerBridge
except ImportError as error:
    raise ImportError(
        'bridges are made with TransformerLens, which is missing: pip install "rove-lab[lens]"'
    ) from error

__all__ = ["TransformerBridge", "check_bridge", "check_layer", "check_tokens", "layer_indices"]


def check_bridge(bridge: Any) -> Any:
    """Checks that something is a TransformerLens bridge.

    Args:
        bridge: What was given.

    Returns:
        The bridge.

    Raises:
        TypeError: If it is something else.

    Example:
        >>> check_bridge("gpt2")
        Traceback (most recent call last):
        TypeError: expected a TransformerBridge, got str: ...
    """
    if not isinstance(bridge, TransformerBridge):
        raise TypeError(
            f"expected a TransformerBridge, got {type(bridge).__name__}: make one with "
            "bridge_from_huggingface(model, tokenizer) or bridge_from_gpt(gpt)."
        )
    return bridge


def check_layer(bridge: Any, layer: Any) -> int:
    """Checks the index of a layer of a bridge.

    Args:
        bridge: The bridge.
        layer: What was given: from 0, or from the end where negative.

    Returns:
        The index from 0.

    Raises:
        TypeError: If it is not an integer.
        ValueError: If there is no such layer.

    Example:
        >>> from types import SimpleNamespace as Namespace
        >>> check_layer(Namespace(cfg=Namespace(n_layers=3)), -1)
        2
    """
    n_layers = bridge.cfg.n_layers
    if not -n_layers <= check_index("layer", layer) < n_layers:
        raise ValueError(f"expected layers among 0..{n_layers - 1}, got layer {layer}.")
    return int(check_index("layer", layer) % n_layers)


def layer_indices(bridge: Any, layers: Sequence[int] | slice | None) -> list[int]:
    """The layers that a caller asks for, in order.

    Args:
        bridge: The bridge.
        layers: Indices or a slice, from the end where negative; None for all.

    Returns:
        Indices from 0, each once.

    Raises:
        TypeError: If they are neither.
        ValueError: If there is no such layer.

    Example:
        >>> from types import SimpleNamespace as Namespace
        >>> layer_indices(Namespace(cfg=Namespace(n_layers=3)), [-1, 0])
        [0, 2]
    """
    n_layers = bridge.cfg.n_layers
    if layers is None or isinstance(layers, slice):
        return list(range(n_layers))[layers or slice(None)]
    try:
        return sorted({check_layer(bridge, layer) for layer in layers})
    except TypeError as error:
        raise TypeError(
            f"expected layers as integer indices or a slice, got {layers!r}: one layer is [l]."
        ) from error


def check_tokens(bridge: Any, tokens: Any, name: str = "tokens") -> Tensor:
    """Checks token ids ``[batch, pos]``, or ``[pos]`` for one sequence, for a bridge.

    Args:
        bridge: The bridge that will read them.
        tokens: What was given.
        name: What the caller calls it.

    Returns:
        The ids as int64 ``[batch, pos]``.

    Raises:
        TypeError: If they are not a tensor of integers.
        ValueError: If their shape, device or range does not fit.

    Example:
        >>> check_tokens(None, "the cat")
        Traceback (most recent call last):
        TypeError: expected tokens to be a tensor of integers, got str: ...
    """
    ids = check_integers(name, tokens, "ids of a text are bridge.to_tokens(text).")
    if ids.dim() not in (1, 2) or 0 in ids.shape:
        raise ValueError(
            f"expected {name} [batch, pos] or [pos], one or more of each, got {list(ids.shape)}."
        )
    device = bridge.W_E.device
    if ids.device != device:
        raise ValueError(
            f"expected {name} on {device}, where the bridge is, got them on {ids.device}: move "
            f"them with {name}.to({str(device)!r})."
        )
    d_vocab = bridge.W_E.shape[0]
    if int(ids.min()) < 0 or int(ids.max()) >= d_vocab:
        raise ValueError(
            f"expected {name} from 0 to {d_vocab - 1}, got {int(ids.min())} to "
            f"{int(ids.max())}: are they of another tokenizer?"
        )
    return ids.long().reshape(-1, ids.shape[-1])
