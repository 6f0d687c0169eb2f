r"""Small tasks that ask how far a message came, and what a reader scores who cannot tell.

Each draws its own batches, deterministic in a seed. Here are those about symbols;
:mod:`rove_lab.filters` has those about signals.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from string import ascii_lowercase, ascii_uppercase
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from rove_lab.arguments import check_size

__all__ = ["NOT_ASKED", "DistanceRecall", "OrderedPair", "Recall", "Task", "TaskDraw"]

NOT_ASKED = -100  # what PyTorch's cross entropy leaves out


class Task(Protocol):
    """What a training loop asks of a task.

    Attributes:
        d_in: Symbols of the alphabet, or channels of a real input.
        d_out: Channels of the model's output.
        n_ctx: Positions of a sequence.
        blind: The score (:meth:`scores`, last entry) of a reader blind to the distance.
        blind_loss: Its loss.
    """

    @property
    def d_in(self) -> int:
        """Symbols of the alphabet, or channels of a real input."""

    @property
    def d_out(self) -> int:
        """Channels of the model's output."""

    @property
    def n_ctx(self) -> int:
        """Positions of a sequence."""

    @property
    def blind(self) -> float:
        """The headline score of a reader blind to the distance."""

    @property
    def blind_loss(self) -> float:
        """The loss of a reader blind to the distance."""

    def at_length(self, n_ctx: int) -> Task:
        """The same task in sequences of ``n_ctx`` positions."""

    def batches(self, batch_size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs ``[batch, pos(, d_in)]`` and targets, without end, the same for the same seed."""

    def loss(self, output: Tensor, targets: Tensor) -> Tensor:
        """A scalar to minimise, from the output ``[batch, pos, d_out]``."""

    def scores(self, output: Tensor, targets: Tensor) -> dict[str, float]:
        """Named scores; the last one is the headline."""


class Recall(ABC):
    r"""Two questions about a sequence of symbols, each with its own classes.

    The loss is the sum of both cross entropies in nats, :math:`-\log p(a) - \log p(b)`. A reader
    who answers the first question and guesses the second pays the logarithm of its classes.

    Attributes:
        questions: Name to number of classes, in the order of the output's channels.
    """

    questions: dict[str, int]

    @abstractmethod
    def batches(self, batch_size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Tokens ``[batch, pos]`` and answers ``[batch, pos, 2]``, −100 where none is asked."""

    @property
    def d_out(self) -> int:
        """Logits of both questions."""
        return sum(self.questions.values())

    @property
    def blind(self) -> float:
        """Share answered in full by who knows the first answer and guesses the second."""
        return 1 / list(self.questions.values())[-1]

    @property
    def blind_loss(self) -> float:
        """The same reader's loss in nats."""
        return math.log(list(self.questions.values())[-1])

    def loss(self, output: Tensor, targets: Tensor) -> Tensor:
        """Both cross entropies in nats, over what is asked.

        Args:
            output: Logits ``[batch, pos, d_out]``.
            targets: Answers ``[batch, pos, 2]``.

        Returns:
            A scalar.
        """
        logits = output.split(list(self.questions.values()), -1)
        parts = [
            cross_entropy(part.flatten(0, 1).float(), targets[..., q].flatten())
            for q, part in enumerate(logits)
        ]
        return parts[0] + parts[1]

    def scores(self, output: Tensor, targets: Tensor) -> dict[str, float]:
        """Share of right answers for each question, and for both at once.

        Args:
            output: Logits ``[batch, pos, d_out]``.
            targets: Answers ``[batch, pos, 2]``.

        Returns:
            Question to share, then ``"both"``.
        """
        asked = targets[..., 0] != NOT_ASKED
        logits = output[asked].split(list(self.questions.values()), -1)
        right = [part.argmax(-1) == targets[asked][:, q] for q, part in enumerate(logits)]
        named = [*zip(self.questions, right, strict=True), ("both", right[0] & right[1])]
        return {name: hits.double().mean().item() for name, hits in named}


@dataclass(frozen=True)
class DistanceRecall(Recall):
    """Report the one capital letter, and how many tokens back it stands.

    ``b a D c ?`` asks for *d* and *2 back*: small letters are noise, one capital stands at a random
    distance of 1 to ``n_distances`` tokens before the closing ``?``. Tokens are numbered small
    letters first, then capitals, then ``?``. Who knows the letter and not the distance is right in
    one of ``n_distances`` cases (1/16 = 6.25 %) and pays log(n_distances) nats.

    Args:
        n_symbols: Letters.
        n_distances: Distances in tokens, all equally likely; fewer than ``n_ctx``.
        n_ctx: Length of a sequence in tokens, the ``?`` included.

    Raises:
        TypeError: If a size is not an integer.
        ValueError: If a size is not positive or the distances do not fit.

    Example:
        >>> tokens, answers = next(DistanceRecall(4, 4, 6).batches(1, seed=0))
        >>> tokens.tolist(), answers[0, -1].tolist()  # capital 7 (letter 3), 4 back (class 3)
        ([[0, 7, 1, 0, 3, 8]], [3, 3])
    """

    n_symbols: int = 16
    n_distances: int = 16
    n_ctx: int = 24
    questions: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("n_symbols", "n_distances", "n_ctx"):
            check_size(name, getattr(self, name))
        if self.n_distances >= self.n_ctx:
            raise ValueError(
                f"expected n_distances < n_ctx, got {self.n_distances} and {self.n_ctx}: the "
                "farthest letter must be inside the sequence."
            )
        questions = {"token": self.n_symbols, "distance": self.n_distances}
        object.__setattr__(self, "questions", questions)

    @property
    def d_in(self) -> int:
        """Small letters, capitals and the question mark."""
        return 2 * self.n_symbols + 1

    def spell(self, tokens: Tensor) -> str:
        """A sequence ``[pos]`` in letters, for up to 26 symbols: ``"b a D c ?"``."""
        letters = ascii_lowercase[: self.n_symbols] + ascii_uppercase[: self.n_symbols] + "?"
        return " ".join(letters[token] for token in tokens.tolist())

    def at_length(self, n_ctx: int) -> DistanceRecall:
        """The same letters and distances in sequences of ``n_ctx`` tokens: more noise before."""
        return replace(self, n_ctx=n_ctx)

    def batches(self, batch_size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Tokens ``[batch, n_ctx]`` and answers ``[batch, n_ctx, 2]``, asked at the end only."""
        draw, rows = TaskDraw(batch_size, seed), torch.arange(batch_size)
        while True:
            tokens = draw.integers(self.n_symbols, self.n_ctx)
            letter = draw.integers(self.n_symbols, 1)[:, 0]
            distance = draw.integers(self.n_distances, 1)[:, 0] + 1
            tokens[rows, self.n_ctx - 1 - distance] = self.n_symbols + letter
            tokens[:, -1] = 2 * self.n_symbols
            answers = torch.full((batch_size, self.n_ctx, 2), NOT_ASKED)
            answers[:, -1] = torch.stack((letter, distance - 1), -1)
            yield tokens, answers


@dataclass(frozen=True)
class OrderedPair(Recall):
    r"""Report the previous token and the one before it: :math:`x_{t-1}` and :math:`x_{t-2}`.

    At the end of ``d a c b`` the answers are *c* and *a*; each position from the third on is asked.
    A sum of two equal messages is the same in either order. Who knows one answer and guesses the
    other is right in one of ``n_symbols`` cases (1/16 = 6.25 %) and pays log(n_symbols) nats.

    Args:
        n_symbols: Letters, all equally likely.
        n_ctx: Length of a sequence in tokens.

    Raises:
        TypeError: If a size is not an integer.
        ValueError: If a size is not positive, or ``n_ctx`` is below 3.

    Example:
        >>> tokens, answers = next(OrderedPair(4, 4).batches(1, seed=0))
        >>> tokens.tolist(), answers[0, -1].tolist()
        ([[0, 3, 1, 0]], [1, 3])
    """

    n_symbols: int = 16
    n_ctx: int = 16
    questions: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_size("n_symbols", self.n_symbols)
        if check_size("n_ctx", self.n_ctx) < 3:
            raise ValueError(
                f"expected n_ctx of 3 or more, got {self.n_ctx}: two tokens are asked."
            )
        questions = {"one back": self.n_symbols, "two back": self.n_symbols}
        object.__setattr__(self, "questions", questions)

    @property
    def d_in(self) -> int:
        """Letters."""
        return self.n_symbols

    def at_length(self, n_ctx: int) -> OrderedPair:
        """The same question in sequences of ``n_ctx`` tokens."""
        return replace(self, n_ctx=n_ctx)

    def batches(self, batch_size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Tokens ``[batch, n_ctx]`` and answers ``[batch, n_ctx, 2]``, asked from the third on."""
        draw = TaskDraw(batch_size, seed)
        while True:
            tokens = draw.integers(self.n_symbols, self.n_ctx)
            answers = torch.full((batch_size, self.n_ctx, 2), NOT_ASKED)
            answers[:, 2:] = torch.stack((tokens[:, 1:-1], tokens[:, :-2]), -1)
            yield tokens, answers


@dataclass
class TaskDraw:
    """Random tensors for batches, one after the other, from one seed.

    Args:
        batch_size: First axis of all of them.
        seed: Of torch's generator on the CPU, which is the same on every machine.

    Raises:
        TypeError: If the batch size is not an integer.
        ValueError: If it is not positive.

    Example:
        >>> TaskDraw(batch_size=2, seed=0).integers(10, 3)
        tensor([[4, 9, 3],
                [0, 3, 9]])
    """

    batch_size: int
    seed: int

    def __post_init__(self) -> None:
        check_size("batch_size", self.batch_size)
        self.random = torch.Generator().manual_seed(self.seed)

    def integers(self, high: int, n: int) -> Tensor:
        """Uniform from 0 to ``high`` − 1, ``[batch, n]``."""
        return torch.randint(high, (self.batch_size, n), generator=self.random)

    def normals(self, *shape: int) -> Tensor:
        """Standard normal, ``[batch, *shape]``, float32."""
        return torch.randn(self.batch_size, *shape, generator=self.random)
