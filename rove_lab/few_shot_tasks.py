r"""Small questions put with k answered examples before them, as text that bytes or tokens can read.

A line is an input, letter by letter, a colon and a label: ``a b b: Q``. The labels are capitals
drawn anew for every question, so that only the examples say what they stand for. All classes are
asked equally often: who guesses, or always says one, is right in one of ``n_classes`` cases.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from itertools import combinations
from string import ascii_lowercase, ascii_uppercase
from typing import ClassVar, NamedTuple

import torch

from rove_lab.arguments import check_index, check_size

__all__ = [
    "SUITE",
    "Copying",
    "FewShotTask",
    "Majority",
    "NearestNeighbour",
    "OneLetter",
    "PairParity",
    "Question",
]


class Question(NamedTuple):
    r"""A prompt, what may follow it, and which of these is right.

    Args:
        prompt: The examples and the question, to be continued.
        choices: Continuations, all of one length.
        answer: Index of the right one.

    Example:
        >>> Question("a b: Q\nb b:", (" Q", " R"), 1).choices[1]
        ' R'
    """

    prompt: str
    choices: tuple[str, ...]
    answer: int


class _Draw:
    """Random numbers from one seed, the same on every machine."""

    def __init__(self, seed: int) -> None:
        self.random = torch.Generator().manual_seed(seed)

    def below(self, high: int, n: int) -> list[int]:
        drawn: list[int] = torch.randint(high, (n,), generator=self.random).tolist()
        return drawn

    def distinct(self, high: int, n: int) -> list[int]:
        drawn: list[int] = torch.randperm(high, generator=self.random)[:n].tolist()
        return drawn


class FewShotTask(ABC):
    """A kind of question; :meth:`episode` draws one as inputs and classes.

    Attributes:
        name: What tables call it.
        n_classes: Labels to choose from.
        most_shots: The largest k.
    """

    name: ClassVar[str]
    n_classes: int
    most_shots: ClassVar[int] = 512

    @abstractmethod
    def episode(self, k: int, draw: _Draw) -> tuple[list[str], list[int]]:
        """``k`` + 1 inputs and their classes by one rule that is drawn; the last is asked."""

    @property
    def chance(self) -> float:
        """The share of right answers of who guesses."""
        return 1 / self.n_classes

    def questions(self, n: int, k: int, seed: int) -> list[Question]:
        """``n`` questions with ``k`` examples each, the same for the same seed.

        Args:
            n: Questions.
            k: Answered examples before each; 0 is possible, and unanswerable.
            seed: Of the draws.

        Returns:
            The questions.

        Raises:
            TypeError: If a number is not an integer.
            ValueError: If ``n`` is not positive, or k is negative or more than there are examples.
        """
        if not 0 <= check_index("k", k) <= self.most_shots:
            most = self.most_shots
            raise ValueError(f"expected k from 0 to {most} for {self.name}, got {k}: ask for less.")
        draw = _Draw(seed)
        asked = []
        for _ in range(check_size("n", n)):
            inputs, classes = self.episode(k, draw)
            labels = [ascii_uppercase[label] for label in draw.distinct(26, self.n_classes)]
            shown = zip(inputs[:-1], classes[:-1], strict=True)
            examples = "".join(f"{given}: {labels[of]}\n" for given, of in shown)
            choices = tuple(f" {label}" for label in labels)
            asked.append(Question(f"{examples}{inputs[-1]}:", choices, classes[-1]))
        return asked


@dataclass(frozen=True)
class OneLetter(FewShotTask):
    r"""Classify by one letter: ``a b b: Q``, ``b b a: R``, ``a a a:`` asks for *Q*.

    A hidden place of the string, another for every question, decides by its letter: the smallest of
    the discrete functions of Bhattamishra et al. (2023), arXiv:2310.03016. Chance is 1/2.

    Args:
        n_letters: Letters of a string.

    Raises:
        TypeError: If it is not an integer.
        ValueError: If it is not positive.

    Example:
        >>> OneLetter().questions(1, k=1, seed=0)[0].prompt
        'b b a b: C\nb b b b:'
    """

    n_letters: int = 4
    name: ClassVar[str] = "one letter"
    n_classes: int = field(default=2, init=False, repr=False)

    def __post_init__(self) -> None:
        check_size("n_letters", self.n_letters)

    def episode(self, k: int, draw: _Draw) -> tuple[list[str], list[int]]:
        """Strings, and the letter at the hidden place of each."""
        (place,) = draw.below(self.n_letters, 1)
        strings = [draw.below(2, self.n_letters) for _ in range(k + 1)]
        return [_spelt(string) for string in strings], [string[place] for string in strings]


@dataclass(frozen=True)
class Copying(FewShotTask):
    r"""Copy the label: ``q t: A``, ``c e: B``, ``q t:`` asks for *A*.

    Each example has a label of its own, and the question is one of the examples again. Without
    examples nothing can be copied. Chance is 1/``n_classes``.

    Args:
        n_classes: Labels.

    Raises:
        TypeError: If it is not an integer.
        ValueError: If it is not from 2 to 26.

    Example:
        >>> Copying().questions(1, k=2, seed=0)[0].prompt
        'q q: R\np z: Z\np z:'
    """

    n_classes: int = 4
    name: ClassVar[str] = "copying"

    def __post_init__(self) -> None:
        _check_classes(self.n_classes)

    def episode(self, k: int, draw: _Draw) -> tuple[list[str], list[int]]:
        """Pairs of letters, all different but for the last, with random labels."""
        pairs = [divmod(pair, 26) for pair in draw.distinct(26 * 26, max(k, 1))]
        (again,) = draw.below(len(pairs), 1)
        classes = draw.below(self.n_classes, len(pairs))
        inputs = [_spelt(pair) for pair in pairs][:k]
        return [*inputs, _spelt(pairs[again])], [*classes[:k], classes[again]]


@dataclass(frozen=True)
class Majority(FewShotTask):
    r"""Count: ``a b a: Q``, ``b b a: R``, ``a a b:`` asks for *Q*.

    The letter that most of the string is, decides. Chance is 1/2.

    Args:
        n_letters: Letters of a string, odd.

    Raises:
        TypeError: If it is not an integer.
        ValueError: If it is not odd and positive.

    Example:
        >>> Majority().questions(1, k=1, seed=0)[0].prompt
        'a b b a b: R\nb b b b b:'
    """

    n_letters: int = 5
    name: ClassVar[str] = "majority"
    n_classes: int = field(default=2, init=False, repr=False)

    def __post_init__(self) -> None:
        if check_size("n_letters", self.n_letters) % 2 == 0:
            raise ValueError(f"expected an odd n_letters, got {self.n_letters}: half is no most.")

    def episode(self, k: int, draw: _Draw) -> tuple[list[str], list[int]]:
        """Strings, and which letter each has more of."""
        strings = [draw.below(2, self.n_letters) for _ in range(k + 1)]
        return [_spelt(s) for s in strings], [int(2 * sum(s) > self.n_letters) for s in strings]


@dataclass(frozen=True)
class PairParity(FewShotTask):
    r"""Parity of two: ``a b b: Q``, ``a a b: R``, ``b b a:`` asks for *R*: first and second differ?

    A hidden pair of places, another for every question, decides by whether its letters are the
    same; neither says anything alone. Chance is 1/2.

    Args:
        n_letters: Letters of a string, 2 or more.

    Raises:
        TypeError: If it is not an integer.
        ValueError: If it is below 2.

    Example:
        >>> PairParity().questions(1, k=1, seed=0)[0].prompt
        'b b a: X\nb b b:'
    """

    n_letters: int = 3
    name: ClassVar[str] = "parity of two"
    n_classes: int = field(default=2, init=False, repr=False)

    def __post_init__(self) -> None:
        if check_size("n_letters", self.n_letters) < 2:
            raise ValueError(
                f"expected n_letters of 2 or more, got {self.n_letters}: it is a pair."
            )

    def episode(self, k: int, draw: _Draw) -> tuple[list[str], list[int]]:
        """Strings, and the sum modulo 2 of each one's hidden pair."""
        pairs = list(combinations(range(self.n_letters), 2))
        first, second = pairs[draw.below(len(pairs), 1)[0]]
        strings = [draw.below(2, self.n_letters) for _ in range(k + 1)]
        return [_spelt(s) for s in strings], [s[first] ^ s[second] for s in strings]


@dataclass(frozen=True)
class NearestNeighbour(FewShotTask):
    r"""The label of the nearest number: ``1 7: Q``, ``8 2: R``, ``2 0:`` asks for *Q*.

    Numbers of two digits, all different, with random labels; the one asked is nearer to one of them
    than to all others. Without examples there is none. Chance is 1/``n_classes``.

    Args:
        n_classes: Labels.

    Raises:
        TypeError: If it is not an integer.
        ValueError: If it is not from 2 to 26.

    Example:
        >>> NearestNeighbour().questions(1, k=2, seed=0)[0].prompt
        '4 4: K\n1 9: H\n9 3:'
    """

    n_classes: int = 2
    name: ClassVar[str] = "nearest neighbour"
    most_shots: ClassVar[int] = 32  # of a hundred numbers, so that some stand between two others

    def __post_init__(self) -> None:
        _check_classes(self.n_classes)

    def episode(self, k: int, draw: _Draw) -> tuple[list[str], list[int]]:
        """Numbers with random labels, and one more with its nearest neighbour's."""
        while True:
            *known, asked = draw.distinct(100, k + 1)
            classes = draw.below(self.n_classes, max(k, 1))
            by_distance = sorted((abs(number - asked), i) for i, number in enumerate(known))
            if k < 2 or by_distance[0][0] < by_distance[1][0]:
                nearest = by_distance[0][1] if k else 0
                inputs = [" ".join(f"{number:02}") for number in (*known, asked)]
                return inputs, [*classes[:k], classes[nearest]]


def _spelt(letters: list[int] | tuple[int, ...]) -> str:
    return " ".join(ascii_lowercase[letter] for letter in letters)


def _check_classes(n_classes: int) -> None:
    if not 2 <= check_index("n_classes", n_classes) <= 26:
        raise ValueError(f"expected n_classes from 2 to 26, the capitals, got {n_classes}.")


SUITE = (OneLetter(), Copying(), Majority(), PairParity(), NearestNeighbour())
