r"""Variable tracking: follow a chain of assignments to the value at its start."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rove_lab.arguments import check_size
from rove_lab.placement import distinct, places, put
from rove_lab.tasks import TaskDraw
from rove_lab.token_answers import TokenAnswers

__all__ = ["VariableTracking"]


@dataclass(frozen=True, kw_only=True)
class VariableTracking(TokenAnswers):
    """Say the value of a variable that was assigned from another, and that from another.

    ``A = 7 b B = 2 C = A a D = B ? C 7``: two chains of one hop, ``7 → A → C`` and ``2 → B → D``.
    Assignments stand at random places in noise, a chain's in its order, chains interleaved. After
    ``?`` and the last variable of a chain its value is asked: all hops must be taken within one
    token. RULER has the variables of a chain listed instead, which takes one hop a token. Guessing
    a value is right in one of ``n_symbols`` cases (1/16), naming one in sight in about one of
    ``n_chains`` (1/4), and more often in later questions, whose value none before has had. Hsieh et
    al. (2024), arXiv:2404.06654.

    Args:
        n_symbols: Tokens of a kind.
        n_ctx: Length of a sequence in tokens.
        n_chains: Chains, each with a value of its own.
        n_hops: Assignments of a chain from one variable to the next.
        n_queries: Chains asked about.

    Raises:
        TypeError: If a size is not an integer.
        ValueError: If a size is not positive, there are too few keys for all variables, more
            queries than chains, or the assignments and the questions do not fit.

    Example:
        >>> task = VariableTracking(n_symbols=4, n_ctx=16, n_chains=2, n_hops=1)
        >>> tokens, targets = next(task.batches(1, seed=0))
        >>> task.spell(tokens[0]), task.spell(targets[0][targets[0] >= 0])
        ('D = 3 B = 3 d C = B b A = D ? A', '3')
    """

    n_chains: int = 4
    n_hops: int = 2
    n_queries: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("n_chains", "n_hops", "n_queries"):
            check_size(name, getattr(self, name))
        self._check_symbols(self.n_assignments, f"{self.n_assignments} distinct variables")
        if self.n_queries > self.n_chains:
            raise ValueError(
                f"expected at most n_chains={self.n_chains} queries, got {self.n_queries}: each "
                "asks about another chain."
            )
        self._check_room(
            3 * self.n_assignments + 3 * self.n_queries,
            f"{self.n_assignments} assignments and {self.n_queries} questions",
        )

    @property
    def n_assignments(self) -> int:
        """Assignments in a sequence, each of another variable."""
        return self.n_chains * (self.n_hops + 1)

    @property
    def equals(self) -> int:
        """The token ``=``."""
        return self.question + 1

    @property
    def choices(self) -> tuple[int, ...]:
        """One token among the values."""
        return (self.n_symbols,)

    def sequences(self, draw: TaskDraw) -> tuple[Tensor, Tensor]:
        """Tokens ``[batch, n_ctx + 1]``, and whether the next one is asked, ``[batch, n_ctx]``."""
        batch, n, links = draw.batch_size, self.n_assignments, self.n_hops + 1
        room = self.n_ctx + 1 - 3 * self.n_queries
        tokens = draw.integers(self.n_symbols, self.n_ctx + 1)
        variables = self.first_key + distinct(draw, self.n_symbols, n).unflatten(1, (-1, links))
        values = self.first_value + draw.integers(self.n_symbols, self.n_chains)
        assigned = torch.cat((values[..., None], variables[..., :-1]), -1)
        equals = torch.full_like(variables, self.equals)
        chain_of = distinct(draw, n, n) % self.n_chains  # of the assignments from left to right
        in_chain = chain_of.argsort(dim=1, stable=True)  # a chain's places keep their order
        starts = places(draw, room, n, 3).gather(1, in_chain)
        put(tokens, starts, torch.stack((variables, equals, assigned), -1).flatten(1, 2))

        chains = distinct(draw, self.n_chains, self.n_queries)
        question = torch.full_like(chains, self.question)
        last = variables[..., -1].gather(1, chains)
        answers = values.gather(1, chains)
        tokens[:, room:] = torch.stack((question, last, answers), -1).flatten(1)
        asked = torch.zeros(batch, self.n_ctx, dtype=torch.bool)
        asked[:, room + 1 :: 3] = True
        return tokens, asked
