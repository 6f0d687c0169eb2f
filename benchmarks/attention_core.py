"""Rotations and the attention kernel between them: RoVE beside RoPE, both ours, and Hugging Face's.

Cosines and sines are made before the clock starts, once for all layers as in a model.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from paired import DEVICE, Scores, interleaved, milliseconds, ratio
from peers import hugging_face
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from turning import compiled

from rove_lab import RotaryEmbedding
from rove_lab.masking import attend

Core = Callable[[Tensor, Tensor, Tensor], Tensor]


def cores(x: Tensor) -> dict[str, Core]:
    """RoPE and RoVE, ours, and RoPE with Hugging Face's rotation, for tensors like ``x``."""
    turn = RotaryEmbedding(x.shape[-1])(torch.arange(x.shape[-2]), device=x.device)
    scale, their_turn = x.shape[-1] ** -0.5, hugging_face(x)

    def rope(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(turn.apply(q), turn.apply(k), v, None, True, scale)

    def rove(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        z = attend(turn.apply(q), turn.apply(k), turn.apply(v), None, True, scale)
        return turn.undo(z)

    def theirs(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k = their_turn(q, k)
        return scaled_dot_product_attention(q, k, v, is_causal=True)

    return {"RoPE": rope, "RoVE": rove, "Hugging Face's RoPE": theirs}


def measured(
    shape: tuple[int, ...], dtype: torch.dtype, budget: float
) -> dict[str, dict[str, Scores]]:
    """Forward, and forward with backward: milliseconds and ratios by name.

    Args:
        shape: Batch, heads, tokens, channels.
        dtype: Of queries, keys and values.
        budget: Seconds for the rounds of each of the two.

    Returns:
        ``"forward"`` and ``"forward and backward"`` to rows.
    """
    torch.manual_seed(0)
    qkv = torch.randn(3, *shape, device=DEVICE).to(dtype).unbind()
    ways: dict[str, Callable[..., object]] = dict(cores(qkv[0]))
    ways |= {f"{name}, compiled": compiled(core) for name, core in ways.items()}
    found = {}
    with torch.no_grad():
        cases = {name: lambda core=core: core(*qkv) for name, core in ways.items()}
        found["forward"] = rows(interleaved(cases, budget))
    leaves = [tensor.clone().requires_grad_() for tensor in qkv]
    grad = torch.randn_like(qkv[0])
    cases = {name: lambda core=core: gradients(core, leaves, grad) for name, core in ways.items()}
    found["forward and backward"] = rows(interleaved(cases, budget))
    torch.compiler.reset()
    return found


def gradients(core: Core, leaves: list[Tensor], grad: Tensor) -> object:
    """Attention, and the gradients through it."""
    return torch.autograd.grad(core(*leaves), leaves, grad)


def rows(times: dict[str, list[float]]) -> dict[str, Scores]:
    """Every case's milliseconds; RoVE beside RoPE and beside Hugging Face's RoPE, in kind."""
    found = milliseconds(times)
    for kind in ("", ", compiled"):
        found |= ratio(times, f"RoVE{kind}", f"RoPE{kind}")
        found |= ratio(times, f"RoVE{kind}", f"Hugging Face's RoPE{kind}")
    return found | ratio(times, "RoVE, compiled", "Hugging Face's RoPE")
