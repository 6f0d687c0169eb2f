r"""Functions learned in context: examples of one that no sequence before has named."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rove_lab.arguments import check_size
from rove_lab.placement import places, put
from rove_lab.tasks import TaskDraw
from rove_lab.token_answers import TokenAnswers

__all__ = ["FunctionClassification"]


@dataclass(frozen=True, kw_only=True)
class FunctionClassification(TokenAnswers):
    r"""Classify as the examples do: :math:`f(x) = x_i \oplus b` of bits x, with i and b unknown.

    ``A B B 0 c B A B 1 a A A B 0 ? B B A 1``: an example is ``n_features`` tokens, ``A`` for 0 and
    ``B`` for 1, then its class ``0`` or ``1``. One feature decides, or its opposite: which one is
    drawn for each sequence and known by its place alone. The examples stand at random places in
    noise. No two features agree, or disagree, in all of them: they leave one function. No question
    repeats an example. Guessing a class is right in half of the cases, the class that fewer of the
    examples have in 0.57, half a point where both are as frequent (a bit is 1 in half of all
    inputs, and the question's is none of theirs), the majority among the examples that differ least
    from the question in 0.77 (both measured, sizes as by default). Garg et al. (2022),
    arXiv:2208.01066, ask it of real functions, Bhattamishra et al. (2023), arXiv:2310.03016, of
    Boolean ones.

    Args:
        n_symbols: Tokens of a kind, 2 or more.
        n_ctx: Length of a sequence in tokens.
        n_examples: Examples, at least ``n_features`` and at most half of the inputs there are.
        n_features: Bits of an input.
        n_queries: Questions at the end.

    Raises:
        TypeError: If a size is not an integer.
        ValueError: If a size is not positive, the examples are too few to tell the functions apart
            or too many to leave questions, or they do not fit.

    Example:
        >>> task = FunctionClassification(n_symbols=2, n_ctx=16, n_examples=3, n_features=3)
        >>> tokens, targets = next(task.batches(1, seed=0))
        >>> task.spell(tokens[0]), task.spell(targets[0][targets[0] >= 0])
        ('B B B 1 B A B 1 A B B 1 ? B B A', '0')
    """

    n_examples: int = 8
    n_features: int = 4
    n_queries: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("n_examples", "n_features", "n_queries"):
            check_size(name, getattr(self, name))
        self._check_symbols(2, "two bits and two classes")
        if not self.n_features <= self.n_examples <= 2 ** (self.n_features - 1):
            raise ValueError(
                f"expected {self.n_features} to {2 ** (self.n_features - 1)} examples of "
                f"{self.n_features} features, got n_examples={self.n_examples}: fewer may leave "
                "two functions, more leave few inputs to ask about; change n_features."
            )
        width = self.n_features + 1
        self._check_room(
            self.n_examples * width + self.n_queries * (width + 1),
            f"{self.n_examples} examples and {self.n_queries} questions of {self.n_features} "
            "features",
        )

    @property
    def choices(self) -> tuple[int, ...]:
        """One of two classes."""
        return (2,)

    def sequences(self, draw: TaskDraw) -> tuple[Tensor, Tensor]:
        """Tokens ``[batch, n_ctx + 1]``, and whether the next one is asked, ``[batch, n_ctx]``."""
        batch, k, width = draw.batch_size, self.n_examples, self.n_features + 1
        room = self.n_ctx + 1 - self.n_queries * (width + 1)
        tokens = draw.integers(self.n_symbols, self.n_ctx + 1)
        bits = torch.cat(self._inputs(draw), 1)
        feature, flipped = draw.integers(self.n_features, 1), draw.integers(2, 1)
        deciding = bits.gather(2, feature[..., None].expand(-1, bits.shape[1], -1))
        classes = self.first_value + (deciding ^ flipped[..., None])
        items = torch.cat((self.first_key + bits, classes), -1)
        put(tokens, places(draw, room, k, width), items[:, :k])
        question = torch.full((batch, self.n_queries, 1), self.question)
        tokens[:, room:] = torch.cat((question, items[:, k:]), -1).flatten(1)
        asked = torch.zeros(batch, self.n_ctx, dtype=torch.bool)
        asked[:, room + self.n_features :: width + 1] = True
        return tokens, asked

    def _inputs(self, draw: TaskDraw) -> tuple[Tensor, Tensor]:
        """Bits of examples that leave one function, and of questions that repeat none of them."""
        examples = self._bits(draw, self.n_examples)
        while bool((bad := self._undecided(examples)).any()):
            examples = self._bits(draw, self.n_examples).where(bad[:, None, None], examples)
        queries = self._bits(draw, self.n_queries)
        while bool((bad := _repeats(queries, examples)).any()):
            queries = self._bits(draw, self.n_queries).where(bad[..., None], queries)
        return examples, queries

    def _bits(self, draw: TaskDraw, n: int) -> Tensor:
        bits: Tensor = draw.integers(2, n * self.n_features).unflatten(1, (n, self.n_features))
        return bits

    def _undecided(self, examples: Tensor) -> Tensor:
        """Whether two features agree, or disagree, in all examples ``[batch, k, m]``."""
        signs = 2 * examples - 1
        overlap = (signs.mT @ signs).abs() == self.n_examples
        undecided: Tensor = overlap.sum((1, 2)) > self.n_features  # each overlaps with itself
        return undecided


def _repeats(queries: Tensor, examples: Tensor) -> Tensor:
    """Whether each query ``[batch, q, m]`` is one of the examples ``[batch, k, m]``."""
    return (queries[:, :, None] == examples[:, None]).all(-1).any(-1)
