r"""Which offset's message mattered? Messages of a bridge swapped, head by head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from rove_lab.arguments import check_index, check_size
from rove_lab.head_weights import as_offsets
from rove_lab.lens_arguments import check_bridge, check_layer, check_tokens
from rove_lab.lens_messages import watch_messages
from rove_lab.offset_attribution import patch_offset

__all__ = ["patch_offsets"]

Metric = Callable[[Tensor], Tensor | float]


def patch_offsets(
    bridge: Any,
    tokens: Tensor,
    other_tokens: Tensor | None,
    layer: int,
    offsets: Tensor | Sequence[float],
    metric: Metric,
    *,
    heads: Sequence[int] | None = None,
    max_bytes: int = 2**28,
) -> Tensor:
    r"""How a metric changes when one head's messages of one offset are another prompt's.

    :math:`m(\text{patched}_{\delta h}) - m(\text{clean})`, where the pass over ``tokens`` is
    repeated with :math:`z^h_i = \sum_j A^h_{ij} R_{\delta_{ij}} v'_{ij}` in one layer: v' is the
    value that ``other_tokens`` has at the key where :math:`j - i = \delta`, and :math:`v_j`
    elsewhere; pattern and all else stay, and later layers answer to the change. R is I for RoPE;
    for RoVE, call this within ``with bridge.hooks(fwd_hooks=rove_hooks(bridge)):``, or on the
    bridge of a RoVE GPT. Activation patching: Meng et al. (2022), arXiv:2202.05262.

    Args:
        bridge: From :func:`bridge_from_huggingface` or :func:`bridge_from_gpt`.
        tokens: Ids ``[batch, pos]`` or ``[pos]``, without padding.
        other_tokens: Ids of the same shape; ``None`` ablates, with zeros for values.
        layer: Its index, from the end where negative.
        offsets: ``[n_offsets]`` in tokens, key minus query, 0 or less.
        metric: From logits ``[batch, pos, d_vocab]`` to a number, as a difference of two logits at
            the last position: ``lambda logits: (logits[:, -1, a] - logits[:, -1, b]).mean()``.
        heads: Which, all by default; the cost is a pass for each head and offset.
        max_bytes: Of logits at once.

    Returns:
        ``[n_offsets, heads]`` float64, on the CPU, in the metric's unit.

    Raises:
        TypeError: If it is not a bridge, tokens are not integers, or the metric gives no number.
        ValueError: If tokens, layer, head or offsets do not fit, or the bridge shows no patterns.

    Example:
        >>> from rove_lab.lens import bridge_from_gpt
        >>> from rove_lab.model import GPT, GPTConfig
        >>> bridge, ids = bridge_from_gpt(GPT(GPTConfig())), torch.tensor([1, 2, 3])
        >>> change = patch_offsets(bridge, ids, None, 0, [-1, 0], lambda x: x[0, -1, 5])
    """
    tokens, layer = check_tokens(check_bridge(bridge), tokens), check_layer(bridge, layer)
    chosen = _heads(bridge.cfg.n_heads, heads)
    wanted = as_offsets(offsets).tolist()
    (own,) = watch_messages(bridge, tokens, [layer])
    other = torch.zeros_like(own.values)
    if other_tokens is not None:
        other_tokens = check_tokens(bridge, other_tokens, "other_tokens")
        if other_tokens.shape != tokens.shape:
            raise ValueError(
                f"expected other_tokens of the shape of tokens, {list(tokens.shape)}, got "
                f"{list(other_tokens.shape)}: messages are swapped position by position."
            )
        other = watch_messages(bridge, other_tokens, [layer])[0].values

    def patched_z(offset: float) -> Tensor:
        return patch_offset(
            own.pattern, own.values, other, own.rotary, offset, rotate_values=own.rotate_values
        )

    with torch.no_grad():
        logits = bridge(tokens)
        clean = _number(metric(logits))
        at_once = max(1, check_size("max_bytes", max_bytes) // (logits.nbytes or 1))
        runs = iter([(o, h) for o in wanted for h in chosen])
        changes: list[float] = []
        while some := list(islice(runs, at_once)):
            z_of = {offset: patched_z(offset) for offset in {offset for offset, _ in some}}
            z = torch.stack([z_of[offset][:, head] for offset, head in some])
            put = (f"blocks.{layer}.attn.o.hook_in", _put([head for _, head in some], z))
            logits = bridge.run_with_hooks(tokens.repeat(len(some), 1), fwd_hooks=[put])
            each = logits.unflatten(0, (len(some), -1))
            changes += [_number(metric(one)) - clean for one in each]
    return torch.tensor(changes, dtype=torch.float64).reshape(len(wanted), len(chosen))


def _put(heads: list[int], new: Tensor) -> Callable[..., Tensor]:
    """A hook at z ``[run * batch, pos, heads, d_head]`` that gives each run its head's new z."""

    def put(z: Tensor, hook: Any) -> Tensor:
        z = z.clone().unflatten(0, (len(heads), -1))
        for run, head in enumerate(heads):
            z[run, :, :, head] = new[run]
        return z.flatten(0, 1)

    return put


def _heads(n_heads: int, heads: Sequence[int] | None) -> list[int]:
    if heads is None:
        return list(range(n_heads))
    chosen = [check_index("a head", head) for head in heads]
    for head in chosen:
        if not -n_heads <= head < n_heads:
            raise ValueError(f"expected heads among 0..{n_heads - 1}, got head {head}.")
    return [head % n_heads for head in chosen]


def _number(measured: Any) -> float:
    try:
        return float(measured)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"expected the metric to give a number, got {type(measured).__name__} "
            f"{list(getattr(measured, 'shape', []))}: reduce it with .mean() or .sum()."
        ) from error
