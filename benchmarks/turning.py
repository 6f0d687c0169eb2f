"""What RoVE adds: two tensors of the heads' shape are rotated, the values and the output.

`clone` reads and writes both once: no rotation can take less. Cosines and sines are made before
anyone's clock starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from paired import DEVICE, Scores, interleaved, milliseconds, ratio
from peers import PEERS, Turn
from torch import Tensor

from rove_lab import RotaryEmbedding

BESIDE = "Hugging Face"
OURS = ("ours", "ours, compiled")


def clone(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Both tensors, read and written once."""
    return x.clone(), y.clone()


def ours(x: Tensor) -> Turn:
    """The lab's: one tensor turned, the other turned back."""
    rotation = RotaryEmbedding(x.shape[-1])(torch.arange(x.shape[-2]), device=x.device)
    return lambda x, y: (rotation.apply(x), rotation.undo(y))


def compiled(turn: Callable[..., object]) -> Callable[..., object]:
    """The same by torch.compile: one graph for these shapes."""
    return torch.compile(turn, fullgraph=True, dynamic=False)


def measured(
    shape: tuple[int, ...], dtype: torch.dtype, peers: Mapping[str, object], budget: float
) -> dict[str, dict[str, Scores]]:
    """Forward, and forward with backward: milliseconds and ratios by name.

    Args:
        shape: Batch, heads, tokens, channels.
        dtype: Of what is rotated.
        peers: The names of :data:`peers.PEERS` to measure beside.
        budget: Seconds for the rounds of each of the two.

    Returns:
        ``"forward"`` and ``"forward and backward"`` to rows.
    """
    torch.manual_seed(0)
    x, y = torch.randn(2, *shape, device=DEVICE).to(dtype)
    turns: dict[str, Callable[..., object]] = {"clone": clone}
    turns |= {name: PEERS[name](x) for name in peers}
    turns |= {"ours": ours(x), "ours, compiled": compiled(ours(x))}
    turns[f"{BESIDE}, compiled"] = compiled(turns[BESIDE])
    found = {}
    with torch.no_grad():
        cases = {name: lambda turn=turn: turn(x, y) for name, turn in turns.items()}
        found["forward"] = rows(interleaved(cases, budget))
    leaves = [tensor.clone().requires_grad_() for tensor in (x, y)]
    cases = {name: lambda turn=turn: there_and_back(turn, leaves) for name, turn in turns.items()}
    found["forward and backward"] = rows(interleaved(cases, budget))
    torch.compiler.reset()  # and forget the graphs
    return found


def there_and_back(turn: Callable[..., object], leaves: list[Tensor]) -> object:
    """A turn, and the gradients through it."""
    turned = turn(*leaves)
    return torch.autograd.grad(turned, leaves, [leaf.detach() for leaf in leaves])


def rows(times: dict[str, list[float]]) -> dict[str, Scores]:
    """Every case's milliseconds; ours beside a clone's and beside Hugging Face's."""
    found = milliseconds(times)
    for name in OURS:
        found |= ratio(times, name, "clone") | ratio(times, name, BESIDE)
    return found | ratio(times, OURS[1], f"{BESIDE}, compiled")
