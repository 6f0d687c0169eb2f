r"""Filters as tasks, and how well a head can learn one whose messages are blind to the offset."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations

import torch
from torch import Tensor

from rove_lab.arguments import check_floating, check_size
from rove_lab.tasks import TaskDraw

__all__ = ["Filter"]


class Filter:
    r"""A filter with K taps: :math:`y_t = \sum_{k=0}^{K-1} H_k x_{t-k}` of white noise x.

    The noise has variance 1/d a channel, so that an input is about as long as a symbol, 1. The
    score is the squared error over the target's variance: 0 is perfect, answering 0 gets 1. Under
    RoPE a head whose queries and keys see positions only has taps :math:`a_k M`,
    :math:`a_k \ge 0`; :meth:`blind_error` is the floor under its error.

    Args:
        taps: The :math:`H_k`, ``[K, d, d]``, acting on columns; tap k reads k tokens back.
        n_ctx: Length of a sequence in tokens; positions from K − 1 on are asked.

    Attributes:
        taps: ``[K, d, d]``, float64.

    Raises:
        TypeError: If the taps are not floating-point.
        ValueError: If they are not square or all zero, or do not fit into ``n_ctx``.

    Example:
        >>> x, y = next(Filter.edge(n_ctx=4).batches(1, seed=0))
        >>> torch.allclose(y[0, 1:], x[0, 1:] - x[0, :-1])
        True
    """

    def __init__(self, taps: Tensor, n_ctx: int = 16) -> None:
        self.taps = check_floating("taps", taps).double()
        if taps.dim() != 3 or taps.shape[1] != taps.shape[2] or not bool(taps.any()):
            raise ValueError(
                f"expected taps [K, d, d], not all zero, got shape {list(taps.shape)}: a filter of "
                "one channel has taps [K, 1, 1]."
            )
        self.n_ctx = check_size("n_ctx", n_ctx)
        if len(taps) > n_ctx:
            raise ValueError(f"expected at most n_ctx={n_ctx} taps, got {len(taps)}.")

    def __repr__(self) -> str:
        d = self.d_in
        return f"Filter({len(self.taps)} taps of {d} x {d}, n_ctx={self.n_ctx})"

    @classmethod
    def edge(cls, n_ctx: int = 16) -> Filter:
        """The edge detector of one channel, y_t = x_t − x_{t−1}: RoPE's floor is 0.5, one head."""
        return cls(torch.tensor([[[1.0]], [[-1.0]]]), n_ctx)

    @classmethod
    def orthogonal(cls, n_taps: int = 4, d: int = 8, seed: int = 0, n_ctx: int = 16) -> Filter:
        """Random taps of one size and mutually orthogonal, the floor 1 − heads / taps under RoPE.

        Args:
            n_taps: K, at most d².
            d: Channels in and out.
            seed: Of the taps.
            n_ctx: Length of a sequence in tokens.

        Returns:
            The task; each tap has the size of an identity divided by √K.
        """
        random = torch.Generator().manual_seed(seed)
        columns = torch.randn(d * d, n_taps, generator=random, dtype=torch.float64)
        orthonormal = torch.linalg.qr(columns).Q.mT
        return cls(orthonormal.reshape(n_taps, d, d) * (d / n_taps) ** 0.5, n_ctx)

    @property
    def d_in(self) -> int:
        """Channels."""
        return self.taps.shape[-1]

    @property
    def d_out(self) -> int:
        """Channels."""
        return self.taps.shape[-1]

    @property
    def blind(self) -> float:
        """The floor under one position-only RoPE head."""
        return self.blind_error(1)

    @property
    def blind_loss(self) -> float:
        """The same: the loss is the score."""
        return self.blind

    def at_length(self, n_ctx: int) -> Filter:
        """The same taps on sequences of ``n_ctx`` tokens."""
        return Filter(self.taps, n_ctx)

    def blind_error(self, n_heads: int) -> float:
        r"""The floor under RoPE heads whose queries and keys see positions only.

        One head gives :math:`\hat H_k = a_k M`, :math:`a_k \ge 0`; its least error is
        :math:`1 - \max_{a \ge 0, |a| = 1} a^\top G a / \operatorname{tr} G` with the taps' Gram
        matrix G, which is exact. The taps of h heads, flattened, have rank h: the error is at least
        the energy beyond the h largest singular values (Eckart and Young, 1936, Psychometrika 1).
        Attention that looks at content as well can do a little better.

        Args:
            n_heads: Heads.

        Returns:
            A share of the target's variance.

        Example:
            >>> [round(Filter.orthogonal().blind_error(h), 2) for h in (1, 2, 3, 4)]
            [0.75, 0.5, 0.25, 0.0]
        """
        flat = self.taps.flatten(1)
        if check_size("n_heads", n_heads) == 1:
            gram = flat @ flat.mT
            return float(1 - _largest_form(gram) / gram.trace())
        energy = torch.linalg.svdvals(flat).square()
        return float(energy[n_heads:].sum() / energy.sum())

    def batches(self, batch_size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and targets ``[batch, n_ctx, d]``, float32, NaN where none is asked."""
        draw, taps = TaskDraw(batch_size, seed), self.taps.float()
        while True:
            x = draw.normals(self.n_ctx, self.d_in) * self.d_in**-0.5
            y = torch.full_like(x, math.nan)
            first = len(taps) - 1
            past = [x[:, first - k : self.n_ctx - k] @ H.mT for k, H in enumerate(taps)]
            y[:, first:] = torch.stack(past).sum(0)
            yield x, y

    def loss(self, output: Tensor, targets: Tensor) -> Tensor:
        """The squared error over the target's variance, no unit.

        Args:
            output: ``[batch, pos, d]``.
            targets: ``[batch, pos, d]``.

        Returns:
            A scalar.
        """
        first = len(self.taps) - 1
        error = (output - targets)[:, first:].square().sum(-1).mean()
        return error * self.d_in / self.taps.square().sum().item()

    def scores(self, output: Tensor, targets: Tensor) -> dict[str, float]:
        """The relative error.

        Args:
            output: ``[batch, pos, d]``.
            targets: ``[batch, pos, d]``.

        Returns:
            ``"relative error"`` to its value.
        """
        return {"relative error": self.loss(output.double(), targets.double()).item()}


def _largest_form(gram: Tensor) -> float:
    """The largest a^T G a over unit vectors without negative entries.

    At the maximum a is an eigenvector of the part of G that its positive entries pick out.
    """
    best = 0.0
    for size in range(1, len(gram) + 1):
        for picked in combinations(range(len(gram)), size):
            values, vectors = torch.linalg.eigh(gram[list(picked)][:, list(picked)])
            top = vectors[:, -1]
            if bool((top > -1e-9).all()) or bool((top < 1e-9).all()):
                best = max(best, values[-1].item())
    return best
