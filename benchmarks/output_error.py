"""How wrong the output of a head is, wherever its window of tokens stands.

RoPE's sees positions through scores and a softmax; RoVE's sees them through the values too. What it
should be is written out in float64 with turns by offsets, which are the same for every window.
"""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from exact_turns import channels, drawn_planes, exact_turns, planes
from paired import DEVICE, Scores
from position_error import summed_up
from rotations_in_use import BASE, D_HEAD, HuggingFace, Setting
from torch import Tensor

from rove_lab import RotaryEmbedding, rope_attention, rove_attention

HEADS, TOKENS = 2, 256
THEIR_ROPE, THEIR_ROVE = "RoPE, Hugging Face", "RoVE of Hugging Face's tables"


def outputs(setting: Setting, starts: list[int], seed: int) -> dict[str, dict[str, Scores]]:
    """Errors of both attentions, the lab's and of Hugging Face's tables.

    Args:
        setting: How the model comes to its dtype.
        starts: First positions of the window.
        seed: Of queries, keys and values, which are the same for every window.

    Returns:
        Name and start to ``rms`` and ``max``: how far a plane is from what it should be, over the
        root of the mean square of all planes of that output.
    """
    random = torch.Generator().manual_seed(seed)
    drawn = drawn_planes(3, 1, HEADS, TOKENS, D_HEAD // 2, generator=random)
    q, k, v = channels(drawn, False).to(DEVICE, setting.dtype)
    exact = dict(zip(("RoPE", "RoVE"), exact_outputs(q, k, v), strict=True))
    found: dict[str, dict[str, Scores]] = {}
    for start in starts:
        positions = start + torch.arange(TOKENS, device=DEVICE)
        with setting.running():
            made = ours(q, k, v, positions) | theirs(setting, q, k, v, positions)
        for name, z in made.items():
            found.setdefault(name, {})[str(start)] = relative(z, exact[name[:4]])
    return found


def ours(q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> dict[str, Tensor]:
    """The lab's attention."""
    rotary = RotaryEmbedding(D_HEAD, base=BASE)
    return {
        "RoPE": rope_attention(q, k, v, rotary, positions=positions),
        "RoVE": rove_attention(q, k, v, rotary, positions=positions),
    }


def theirs(
    setting: Setting, q: Tensor, k: Tensor, v: Tensor, positions: Tensor
) -> dict[str, Tensor]:
    """Llama's attention, and RoVE as one would make it of Llama's tables."""
    llama = HuggingFace(setting)
    q, k, turned = (llama(x[0], positions)[None] for x in (q, k, v))
    messages = F.scaled_dot_product_attention(q, k, turned, is_causal=True)
    return {
        THEIR_ROPE: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        THEIR_ROVE: llama.undo(messages[0], positions)[None],
    }


def exact_outputs(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """RoPE's and RoVE's output in float64, as planes, from the inputs as they were rounded."""
    q, k, v = (planes(x.cpu(), False) for x in (q, k, v))
    n = q.shape[-2]
    offsets = torch.arange(n) - torch.arange(n)[:, None]  # from a query to its key
    turns = turns_by_offset(n)[offsets + n - 1]
    logits = torch.einsum("bhim,bhjm,ijm->bhij", q.conj(), k, turns).real / D_HEAD**0.5
    pattern = logits.masked_fill(offsets > 0, -torch.inf).softmax(-1).to(v.dtype)
    return pattern @ v, torch.einsum("bhij,bhjm,ijm->bhim", pattern, v, turns)


@cache
def turns_by_offset(n: int) -> Tensor:
    """Exact turns by 1 - n to n - 1 tokens."""
    return exact_turns(torch.arange(1 - n, n), D_HEAD, BASE)


def relative(z: Tensor, exact: Tensor) -> Scores:
    """How far planes are from what they should be, over their typical length."""
    typical = exact.abs().square().mean().sqrt()
    return summed_up((planes(z.cpu(), False) - exact).abs() / typical)
