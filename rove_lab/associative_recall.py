r"""Associative recall with many queries: pairs of key and value first, the keys again later."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rove_lab.arguments import check_size
from rove_lab.placement import distinct, places, put
from rove_lab.tasks import TaskDraw
from rove_lab.token_answers import TokenAnswers

__all__ = ["AssociativeRecall"]


@dataclass(frozen=True, kw_only=True)
class AssociativeRecall(TokenAnswers):
    """Say the value that came with a key, for many keys in one sequence.

    ``A 3 C 7 b C 7 d a A 3``: the pairs come first, then some of the keys once more at random
    places in noise, each with its value after it; that value is asked. The queries are spread over
    all the rest, so that a longer sequence asks farther back. Guessing a value is right in one of
    ``n_symbols`` cases (1/16), naming one in sight in about one of ``n_pairs`` at first (1/8) and,
    if values that a query has had are left out, one of ``n_pairs - n_queries + 1`` at last (1/5).
    With as many queries as pairs that alone would be right in a third. Arora et al. (2023),
    arXiv:2312.04927.

    Args:
        n_symbols: Tokens of a kind.
        n_ctx: Length of a sequence in tokens.
        n_pairs: Pairs, of distinct keys and of any values.
        n_queries: Keys asked about, each once.

    Raises:
        TypeError: If a size is not an integer.
        ValueError: If a size is not positive, there are fewer than ``n_pairs`` keys, more queries
            than pairs, or pairs and queries do not fit.

    Example:
        >>> task = AssociativeRecall(n_symbols=3, n_ctx=12, n_pairs=2, n_queries=2)
        >>> tokens, targets = next(task.batches(1, seed=0))
        >>> task.spell(tokens[0]), task.spell(targets[0][targets[0] >= 0])
        ('A 0 B 0 A 0 B 0 b a c c', '0 0')
    """

    n_pairs: int = 8
    n_queries: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("n_pairs", "n_queries"):
            check_size(name, getattr(self, name))
        self._check_symbols(self.n_pairs, f"{self.n_pairs} distinct keys")
        if self.n_queries > self.n_pairs:
            raise ValueError(
                f"expected at most n_pairs={self.n_pairs} queries, got {self.n_queries}: each asks "
                "about another key."
            )
        self._check_room(
            2 * (self.n_pairs + self.n_queries),
            f"{self.n_pairs} pairs and {self.n_queries} queries",
        )

    @property
    def choices(self) -> tuple[int, ...]:
        """One token among the values."""
        return (self.n_symbols,)

    def sequences(self, draw: TaskDraw) -> tuple[Tensor, Tensor]:
        """Tokens ``[batch, n_ctx + 1]``, and whether the next one is asked, ``[batch, n_ctx]``."""
        n, start = self.n_pairs, 2 * self.n_pairs
        tokens = draw.integers(self.n_symbols, self.n_ctx + 1)
        keys = self.first_key + distinct(draw, self.n_symbols, n)
        pairs = torch.stack((keys, self.first_value + draw.integers(self.n_symbols, n)), -1)
        tokens[:, :start] = pairs.flatten(1)
        starts = start + places(draw, self.n_ctx + 1 - start, self.n_queries, 2)
        queried = distinct(draw, n, self.n_queries)
        put(tokens, starts, pairs.gather(1, queried[..., None].expand(-1, -1, 2)))
        asked = torch.zeros(draw.batch_size, self.n_ctx, dtype=torch.bool)
        return tokens, asked.scatter(1, starts, True)
