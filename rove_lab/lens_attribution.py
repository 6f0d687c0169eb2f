r"""What each head adds to a logit, offset by offset, read off a bridge in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rove_lab.arguments import check_floating, check_index
from rove_lab.lens_arguments import check_bridge, check_tokens, layer_indices
from rove_lab.lens_messages import watch_messages
from rove_lab.offset_attribution import offset_attribution

__all__ = ["attribute_offsets"]


def attribute_offsets(
    bridge: Any,
    tokens: Tensor,
    direction: Tensor,
    offsets: Tensor | Sequence[float],
    *,
    layers: Sequence[int] | slice | None = None,
    query: int = -1,
) -> Tensor:
    r"""What each head adds, by the messages of each offset, to a logit at one position.

    :math:`c_{lh}(\delta) = \frac{1}{s_i}\,A^{lh}_{ij}\,v^{lh}_j R_\delta^\top W_O^{lh}
    (w \odot u)` with :math:`j = i + \delta`, w the final norm's weight and :math:`s_i` its divisor
    at the query i, as they are in this pass (for LayerNorm, :math:`w \odot u` less its mean); a
    norm after the attention (Gemma 2 and 3, OLMo 2) is held as it is, too. Over heads and all
    offsets a layer sums to its direct contribution but for ``b_O``. R is I for RoPE; for RoVE, call
    this within ``with bridge.hooks(fwd_hooks=rove_hooks(bridge)):``, or on the bridge of a RoVE
    GPT. Direct logit attribution: Elhage et al. (2021), "A Mathematical Framework for Transformer
    Circuits".

    Args:
        bridge: From :func:`bridge_from_huggingface` or :func:`bridge_from_gpt`.
        tokens: Ids ``[batch, pos]`` or ``[pos]``, without padding.
        direction: u, ``[d_model]``, or ``[batch, d_model]`` for one of each sequence: a column of
            ``bridge.W_U`` or a difference of two. The norm's weight is put in here.
        offsets: ``[n_offsets]`` in tokens, key minus query, each once.
        layers: Indices of layers or a slice, from the end where negative; None for all.
        query: The position whose logit it is, from the end where negative.

    Returns:
        ``[n_layers, batch, heads, n_offsets]`` in nats (logits, before a soft cap or a scale of the
        logits as Gemma 2 and Cohere have), at least float32; 0 where no key stands at an offset.

    Raises:
        TypeError: If it is not a bridge, tokens are not integers, or dtypes do not fit.
        ValueError: If tokens, direction, layers, query or offsets do not fit, or the bridge shows
            no patterns (:func:`bridge_from_huggingface` makes bridges that do).

    Example:
        >>> from rove_lab.lens import bridge_from_gpt
        >>> from rove_lab.model import GPT, GPTConfig
        >>> bridge, ids = bridge_from_gpt(GPT(GPTConfig())), torch.tensor([1, 2, 3])
        >>> attribute_offsets(bridge, ids, bridge.W_U[:, 5].detach(), [-1, 0]).shape
        torch.Size([2, 1, 4, 2])
    """
    tokens = check_tokens(check_bridge(bridge), tokens)
    chosen, (batch, n) = layer_indices(bridge, layers), tokens.shape
    if not -n <= check_index("query", query) < n:
        raise ValueError(f"expected query among the {n} positions of tokens, got {query}.")
    at = query % n
    _check_direction(direction, batch, bridge)
    scales: dict[str, Tensor] = {}

    def keep_scale(scale: Tensor, hook: Any) -> None:
        scales[hook.name] = scale[:, at]  # [batch, 1]

    posts = [f"blocks.{layer}.ln1_post" for layer in chosen if _post_norm(bridge, layer)]
    watched = [(f"{name}.hook_scale", keep_scale) for name in ["ln_final", *posts]]
    messages = watch_messages(bridge, tokens, chosen, watched)
    u = _before_norm(bridge.ln_final, direction.detach()) / scales["ln_final.hook_scale"]
    u = u * (getattr(bridge.cfg, "residual_multiplier", None) or 1)  # of Granite
    found = []
    for layer, (pattern, values, rotary, rotate_values) in zip(chosen, messages, strict=True):
        read, post = u, _post_norm(bridge, layer)
        if post is not None:
            read = _before_norm(post, read) / scales[f"blocks.{layer}.ln1_post.hook_scale"]
        added = offset_attribution(
            pattern[:, :, at : at + 1],
            values,
            bridge.blocks[layer].attn.W_O.detach(),
            read,
            rotary,
            offsets,
            positions=torch.tensor([at]),
            key_positions=torch.arange(n),
            rotate_values=rotate_values,
        )
        found.append(added[:, :, 0])
    return torch.stack(found)


def _post_norm(bridge: Any, layer: int) -> Any:
    return bridge.blocks[layer]._modules.get("ln1_post")


def _before_norm(norm: Any, u: Tensor) -> Tensor:
    """The direction before a norm that reads as u does after it, but for its divisor."""
    weight = getattr(norm.original_component, "weight", None)  # OLMo's norm has none
    if weight is not None:
        u = u * (1 + weight.detach() if norm.uses_weight_offset else weight.detach())
    return u if norm.uses_rms_norm else u - u.mean(-1, keepdim=True)


def _check_direction(direction: Any, batch: int, bridge: Any) -> None:
    check_floating("direction", direction)
    d_model = bridge.cfg.d_model
    if list(direction.shape) not in ([d_model], [batch, d_model]):
        raise ValueError(
            f"expected direction [d_model={d_model}] or [batch={batch}, {d_model}], got "
            f"{list(direction.shape)}: a column of bridge.W_U, as bridge.W_U[:, token]."
        )
    if direction.device != bridge.W_E.device:
        raise ValueError(
            f"expected direction on {bridge.W_E.device}, where the bridge is, got it on "
            f"{direction.device}: move it there."
        )
