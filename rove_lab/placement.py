r"""Where things stand in a random sequence: no two draws alike, no two places overlapping."""

from __future__ import annotations

import torch
from torch import Tensor

from rove_lab.tasks import TaskDraw

__all__ = ["distinct", "places", "put"]


def distinct(draw: TaskDraw, high: int, n: int) -> Tensor:
    """Integers below ``high`` without repeats, every ordered choice equally likely.

    Args:
        draw: The stream of random numbers.
        high: Numbers to choose from.
        n: How many, at most ``high``.

    Returns:
        ``[batch, n]``.

    Raises:
        ValueError: If there are fewer numbers than asked for.

    Example:
        >>> distinct(TaskDraw(batch_size=1, seed=0), 5, 5).tolist()
        [[2, 3, 4, 0, 1]]
    """
    if n > high:
        raise ValueError(f"expected at most {high} distinct numbers below {high}, got n={n}.")
    keys = torch.rand(draw.batch_size, high, generator=draw.random)
    return keys.argsort(dim=-1, stable=True)[:, :n]  # stable: ties fall alike on every machine


def places(draw: TaskDraw, room: int, n: int, width: int) -> Tensor:
    """Where ``n`` items of ``width`` tokens start in ``room`` tokens: no two overlap.

    Every way to lay them out is equally likely.

    Args:
        draw: The stream of random numbers.
        room: Tokens there are.
        n: Items.
        width: Tokens of an item.

    Returns:
        Starts ``[batch, n]``, from left to right.

    Raises:
        ValueError: If the items do not fit.

    Example:
        >>> places(TaskDraw(batch_size=1, seed=0), room=8, n=2, width=3).tolist()
        [[2, 5]]
    """
    if n * width > room:
        raise ValueError(f"expected at most {room} tokens in {n} items, got {n} x {width}.")
    shrunk = distinct(draw, room - n * (width - 1), n).sort(-1).values  # as if items were points
    return shrunk + torch.arange(n) * (width - 1)


def put(tokens: Tensor, starts: Tensor, items: Tensor) -> None:
    """Write items over the tokens from their starts on, in place.

    Args:
        tokens: ``[batch, pos]``.
        starts: ``[batch, n]``.
        items: ``[batch, n, width]``.

    Example:
        >>> tokens = torch.zeros(1, 5, dtype=torch.long)
        >>> put(tokens, torch.tensor([[2]]), torch.tensor([[[7, 8]]]))
        >>> tokens.tolist()
        [[0, 0, 7, 8, 0]]
    """
    where = starts[..., None] + torch.arange(items.shape[-1])
    tokens.scatter_(1, where.flatten(1), items.flatten(1))
