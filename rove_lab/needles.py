r"""Needles in a haystack of noise: keys with their values, asked at the end."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rove_lab.arguments import check_size
from rove_lab.placement import distinct, places, put
from rove_lab.tasks import TaskDraw
from rove_lab.token_answers import TokenAnswers

__all__ = ["Needles"]


@dataclass(frozen=True, kw_only=True)
class Needles(TokenAnswers):
    """Find what was said of a key, somewhere in noise.

    ``C 7 b A 3 d C 1 a A 5 ? C 7 1``: each needle, ``C 7`` say, is a key and a value at a random
    place in noise; here two keys have two each. Questions end the sequence: after ``? C`` the
    values of C are asked, in the order of the text. Other keys distract. Guessing values is right
    in one of ``n_symbols ** n_values`` cases (1/16), naming one in sight in about one of ``n_keys``
    where each has one (1/8), and more often in later questions, whose value none before has had.
    After the needle tasks of RULER: Hsieh et al. (2024), arXiv:2404.06654.

    Args:
        n_symbols: Tokens of a kind.
        n_ctx: Length of a sequence in tokens.
        n_keys: Distinct keys in the haystack.
        n_values: Needles, each with a value of its own, for one key.
        n_queries: Keys asked about.

    Raises:
        TypeError: If a size is not an integer.
        ValueError: If a size is not positive, there are fewer than ``n_keys`` keys, more queries
            than keys, or the needles and the questions do not fit.

    Example:
        >>> task = Needles(n_symbols=3, n_ctx=14, n_keys=2, n_values=2)
        >>> tokens, targets = next(task.batches(1, seed=0))
        >>> task.spell(tokens[0]), task.spell(targets[0][targets[0] >= 0])
        ('B 2 c B 0 a b A 2 A 2 ? B 2', '2 0')
    """

    n_keys: int = 8
    n_values: int = 1
    n_queries: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("n_keys", "n_values", "n_queries"):
            check_size(name, getattr(self, name))
        self._check_symbols(self.n_keys, f"{self.n_keys} distinct keys")
        if self.n_queries > self.n_keys:
            raise ValueError(
                f"expected at most n_keys={self.n_keys} queries, got {self.n_queries}: each asks "
                "about another key."
            )
        self._check_room(
            2 * self.n_needles + self.n_questions,
            f"{self.n_needles} needles and {self.n_queries} questions",
        )

    @property
    def n_needles(self) -> int:
        """Needles in the haystack."""
        return self.n_keys * self.n_values

    @property
    def n_questions(self) -> int:
        """Tokens of all questions with their answers, at the end."""
        return self.n_queries * (2 + self.n_values)

    @property
    def choices(self) -> tuple[int, ...]:
        """Each of the ``n_values`` tokens of an answer is among the values."""
        return (self.n_symbols,) * self.n_values

    def sequences(self, draw: TaskDraw) -> tuple[Tensor, Tensor]:
        """Tokens ``[batch, n_ctx + 1]``, and whether the next one is asked, ``[batch, n_ctx]``."""
        batch, room = draw.batch_size, self.n_ctx + 1 - self.n_questions
        tokens = draw.integers(self.n_symbols, self.n_ctx + 1)
        keys = self.first_key + distinct(draw, self.n_symbols, self.n_keys)
        values = self.first_value + draw.integers(self.n_symbols, self.n_needles)
        starts = places(draw, room, self.n_needles, 2)
        whose = distinct(draw, self.n_needles, self.n_needles) % self.n_keys
        put(tokens, starts, torch.stack((keys.gather(1, whose), values), -1))

        # The needles of each key from left to right: sorted by key, ties as they stand.
        of_key = whose.argsort(dim=1, stable=True)
        answers = values.gather(1, of_key).unflatten(1, (self.n_keys, self.n_values))
        asked_keys = distinct(draw, self.n_keys, self.n_queries)[..., None]
        questions = torch.cat(
            (
                torch.full((batch, self.n_queries, 1), self.question),
                keys[..., None].gather(1, asked_keys),
                answers.gather(1, asked_keys.expand(-1, -1, self.n_values)),
            ),
            -1,
        )
        tokens[:, room:] = questions.flatten(1)
        asked = torch.zeros(batch, self.n_ctx + 1, dtype=torch.bool)
        asked[:, room:].unflatten(1, (self.n_queries, -1))[..., 1:-1] = True
        return tokens, asked[:, :-1]
