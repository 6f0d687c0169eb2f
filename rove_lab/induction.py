r"""Induction: say what followed the last time, at a distance that no offset knows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rove_lab.arguments import check_size
from rove_lab.placement import distinct
from rove_lab.tasks import TaskDraw
from rove_lab.token_answers import TokenAnswers

__all__ = ["Induction"]


@dataclass(frozen=True, kw_only=True)
class Induction(TokenAnswers):
    """Repeat a random segment: after ``A 3 c 7 b D A`` comes ``3``.

    The segment opens the sequence; its tokens, all different, come nowhere else. The other symbols
    fill the rest of each period, so that nothing but its return tells the segment. The period is
    drawn for each sequence, from ``n_segment`` (nothing between) to the longest that two rounds
    leave room for: with one period for all, a head that looks back a fixed number of tokens would
    do. From the second round on, every token of the segment but its first is asked: the one before
    it stood once in each round before, and the same token followed. Guessing a symbol is right in
    one of 3 ``n_symbols`` cases (1/48), a token of the segment in one of ``n_segment`` (1/8). Each
    round says the same: to find the token before in the opening round alone is enough, and where
    there are three rounds or more the task does not tell that from looking at the latest one.
    Olsson et al. (2022), arXiv:2209.11895, measure it on repeated random tokens.

    Args:
        n_symbols: Tokens of a kind.
        n_ctx: Length of a sequence in tokens.
        n_segment: Tokens of the segment, 2 or more.

    Raises:
        TypeError: If a size is not an integer.
        ValueError: If a size is not positive, there are no symbols beside the segment's, or two
            segments do not fit.

    Example:
        >>> task = Induction(n_symbols=3, n_ctx=12, n_segment=3)
        >>> tokens, targets = next(task.batches(1, seed=0))
        >>> task.spell(tokens[0]), task.spell(targets[0][targets[0] >= 0])
        ('c A B 2 C b a 2 2 a c A', 'A B')
    """

    n_segment: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        if check_size("n_segment", self.n_segment) < 2:
            raise ValueError(
                "expected n_segment of 2 or more, got 1: one token is followed by none."
            )
        self._check_symbols(self.n_segment // 3 + 1, f"a segment of {self.n_segment} and others")
        self._check_room(2 * self.n_segment, f"two segments of {self.n_segment}")

    @property
    def choices(self) -> tuple[int, ...]:
        """One token among all symbols."""
        return (self.question,)

    def sequences(self, draw: TaskDraw) -> tuple[Tensor, Tensor]:
        """Tokens ``[batch, n_ctx + 1]``, and whether the next one is asked, ``[batch, n_ctx]``."""
        n, last = self.n_segment, self.n_segment - 1
        symbols = distinct(draw, self.question, self.question)
        others = symbols.gather(1, n + draw.integers(self.question - n, self.n_ctx + 1))
        period = n + draw.integers(self.n_ctx + 2 - 2 * n, 1)
        t = torch.arange(self.n_ctx + 1)
        within = t % period
        tokens = symbols.gather(1, within.clamp(max=last)).where(within <= last, others)
        asked = (t >= period) & (within < last)
        return tokens, asked[:, :-1]
