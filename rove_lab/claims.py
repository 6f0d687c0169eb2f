r"""The claims made for RoVE, each with a verdict, and what the verdict rests on.

They are kept in ``claims.toml``. A verdict on something measured follows from the records: what is
for a claim in every pair, and by more than two standard errors, is seen.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from rove_lab.effects import Effect

__all__ = ["VERDICTS", "Claim", "Part", "claims", "claims_in_markdown"]

VERDICTS = (
    "shown exactly",
    "seen at our scale",
    "not seen at our scale",
    "refuted",
    "out of reach here",
)


@dataclass(frozen=True)
class Part:
    """A claim, or a part of one that has a verdict of its own.

    Args:
        verdict: One of :data:`VERDICTS`.
        words: What was seen, with ``{name.mean:.3f}`` for a number of the effect of that name.
        chapter: Where it is told: the file's name in the book, without its ending.
        anchor: The heading there, as an address has it.
        of: Which part it is; empty where it is the whole.
        tests: What holds it, as pytest names it.
        records: Slugs of records that it rests on, beside those of the effects.
        effects: What was measured.

    Raises:
        ValueError: If the verdict is another than the effects bear out, or rests on nothing.

    Example:
        >>> Part("shown exactly", "It is.", "04_rove", "three-lenses-one-operator").verdict
        Traceback (most recent call last):
        ValueError: expected a test behind 'shown exactly', got none.
    """

    verdict: str
    words: str
    chapter: str
    anchor: str
    of: str = ""
    tests: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    effects: tuple[Effect, ...] = ()

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(
                f"expected a verdict among {', '.join(VERDICTS)}, got {self.verdict!r}."
            )
        if self.verdict == "shown exactly" and not self.tests:
            raise ValueError("expected a test behind 'shown exactly', got none.")
        if self.verdict == "seen at our scale" and not self.effects:
            raise ValueError("expected an effect behind 'seen at our scale', got none.")
        if self.verdict != "out of reach here" and not (self.tests or self.slugs):
            raise ValueError(
                f"expected a test, a record or an effect behind {self.verdict!r}, got none."
            )
        if self.verdict not in self.possible:
            raise ValueError(
                f"expected {' or '.join(self.possible)} by what {', '.join(self.slugs)} holds, got "
                f"{self.verdict!r}."
            )
        try:
            self.seen  # noqa: B018  (its words may call an effect that is not there)
        except (KeyError, AttributeError, IndexError) as error:
            raise ValueError(f"expected words about the part's effects, got {error}.") from error

    @property
    def possible(self) -> tuple[str, ...]:
        """The verdicts that the effects allow; all of them where nothing was measured."""
        if not self.effects:
            return VERDICTS
        if all(effect.borne for effect in self.effects):
            return ("seen at our scale",)
        if all(effect.against for effect in self.effects):
            return ("not seen at our scale", "refuted")
        return ("not seen at our scale",)

    @property
    def slugs(self) -> tuple[str, ...]:
        """The records that it rests on, each once."""
        return tuple(dict.fromkeys([*(e.record for e in self.effects), *self.records]))

    @property
    def place(self) -> str:
        """The chapter, as a reader calls it."""
        number, _, name = self.chapter.partition("_")
        return f"chapter {int(number)}" if number.isdigit() else f"the chapter on {number + name}"

    @property
    def seen(self) -> str:
        """What was seen, in words with the numbers of the records."""
        return self.words.format(**{effect.name: effect for effect in self.effects})


@dataclass(frozen=True)
class Claim:
    """What is said of RoVE, and by whom.

    Args:
        name: ``"C1"`` and so on.
        words: The claim.
        made: Who makes it: ``"paper"``, ``"summaries"``, or both.
        cite: Keys of the book's bibliography.
        parts: Its verdict, or verdicts.

    Raises:
        ValueError: If nobody makes it, or it has no part.

    Example:
        >>> claims()[0].words
        'RoPE makes attention scores depend only on the offset'
    """

    name: str
    words: str
    made: tuple[str, ...]
    cite: tuple[str, ...]
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        if not self.made or not set(self.made) <= {"paper", "summaries"}:
            raise ValueError(f"expected {self.name} made by paper or summaries, got {self.made}.")
        if not self.parts:
            raise ValueError(f"expected a verdict on {self.name}, got none.")


@cache
def claims() -> tuple[Claim, ...]:
    """The fourteen claims, C1 to C14.

    Returns:
        One entry a claim.

    Example:
        >>> [claim.name for claim in claims() if claim.parts[0].verdict == "refuted"]
        ['C13']
    """
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    return tuple(_made(Claim, table) for table in tomllib.loads(text)["claim"])


def claims_in_markdown() -> str:
    """The list of claims as the book's introduction shows it: a row each, in MyST Markdown.

    Returns:
        A table.

    Example:
        >>> claims_in_markdown().splitlines()[9]
        '| C8 | compatible with ... | shown exactly ({doc}`chapter 4 <04_rove>`) |'
    """
    rows = ["| | claim | verdict |", "|---|---|---|"]
    for claim in claims():
        verdicts = "; ".join(
            f"{part.of + ': ' if part.of else ''}{part.verdict} "
            f"({{doc}}`{part.place} <{part.chapter}>`)"
            for part in claim.parts
        )
        rows.append(f"| {claim.name} | {claim.words} | {verdicts} |")
    return "\n".join(rows) + "\n"


_INSIDE = {"part": ("parts", Part), "effect": ("effects", Effect)}


def _made(kind: type, table: dict[str, Any]) -> Any:
    """A table of the file as its class, lists as tuples; an unknown name raises."""
    given: dict[str, Any] = {}
    for key, value in table.items():
        if key in _INSIDE:
            name, inner = _INSIDE[key]
            given[name] = tuple(_made(inner, one) for one in value)
        else:
            given[key] = _tuples(value)
    unknown = set(given) - {field.name for field in fields(kind)}
    if unknown:
        raise ValueError(f"expected the fields of a {kind.__name__}, got {sorted(unknown)}.")
    return kind(**given)


def _tuples(value: Any) -> Any:
    """Lists of lists as tuples of tuples: what a frozen class holds."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
