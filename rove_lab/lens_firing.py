"""Which hooks of a bridge fire, found by running it: some exist and never do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rove_lab.lens_arguments import check_bridge, check_tokens

__all__ = ["check_fires", "firing_hooks"]


def firing_hooks(bridge: Any, tokens: Tensor) -> list[str]:
    """The names of the hooks that fire in a forward pass, in the order they first do.

    A bridge names hooks that its architecture never calls, as ``hook_rot_q`` and ``hook_rot_k`` of
    GPT-NeoX, Phi-3 and GPT-J; a function given to one of them does nothing, without a word. A hook
    with several names, as ``attn.o.hook_in`` and ``attn.hook_z``, is listed under all of them.
    GPT-J's ``hook_pattern`` can be read, but an edit of it comes too late (TransformerLens warns),
    and its ``hook_attn_scores`` shows the pattern once more.

    Args:
        bridge: The bridge.
        tokens: Ids ``[batch, pos]`` or ``[pos]`` on the bridge's device.

    Returns:
        Names as ``run_with_hooks`` takes them.

    Raises:
        TypeError: If it is not a bridge, or tokens are not integers.
        ValueError: If tokens do not fit.

    Example:
        >>> from transformers import GPTJConfig, GPTJForCausalLM
        >>> from rove_lab.lens import bridge_from_huggingface
        >>> config = GPTJConfig(n_embd=8, n_head=2, n_layer=3, rotary_dim=2, vocab_size=4)
        >>> names = firing_hooks(bridge_from_huggingface(GPTJForCausalLM(config)), torch.arange(4))
    """
    fired: dict[int, list[str]] = {}

    def note(x: Any, hook: Any) -> None:
        fired.setdefault(id(hook), [])

    tokens, points = check_tokens(check_bridge(bridge), tokens), bridge.hook_dict
    ungated = [name for name in points if bridge._gated_hook_reason(points[name].name) is None]
    with torch.no_grad():
        bridge.run_with_hooks(tokens, fwd_hooks=[(name, note) for name in ungated])
    for name, point in points.items():
        fired.get(id(point), []).append(name)
    return [name for names in fired.values() for name in names]


def check_fires(bridge: Any, missing: Sequence[str]) -> None:
    """Refuses to go on without hooks that did not fire.

    Args:
        bridge: The bridge that ran.
        missing: The names of those that should have fired and did not.

    Raises:
        ValueError: If there is one.

    Example:
        >>> check_fires(None, [])
    """
    if missing:
        raise ValueError(
            f"expected {missing[0]} to fire, and it never did: the attention of this "
            f"{bridge.cfg.architecture} runs where its bridge cannot look. Make the bridge with "
            "bridge_from_huggingface; firing_hooks(bridge, tokens) lists the hooks that do fire."
        )
