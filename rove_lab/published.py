r"""What others have published about RoVE: their numbers, each with its source, apart from ours.

They are kept in ``published.toml``. Nothing in it was measured by this project, and no record holds
any of it.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

__all__ = ["FoundAgain", "Published", "Source", "found_again", "published", "published_tables"]

_APART = "border-left: 4px dashed #a8579f; padding-left: 0.8rem"  # a border that ours never have


@dataclass(frozen=True)
class Source:
    """Who published it.

    Args:
        words: Who, and how it reached us.
        cite: A key of the book's bibliography.
        url: Where.

    Example:
        >>> published("beyond").source.words
        'the paper, as published (through a summary)'
    """

    words: str
    cite: str
    url: str


@dataclass(frozen=True)
class Published:
    """One published table: a row a method, one number a column, no spread.

    Args:
        name: What :func:`published` calls it.
        source: Who published it.
        what: What was measured, in words.
        measure: The unit of its numbers.
        better: ``"lower"`` or ``"higher"``.
        columns: Lengths in tokens, tasks, or seeds.
        rows: Method to its numbers, one a column.

    Raises:
        ValueError: If a row has another number of columns, or better is something else.

    Example:
        >>> published("in distribution, 354M")
        the paper, as published (through a summary): ...
              RoPE  RoVE
        512  17.68 17.52
        1024 15.64 15.52
    """

    name: str
    source: Source
    what: str
    measure: str
    better: str
    columns: tuple[str, ...]
    rows: dict[str, tuple[float, ...]]

    def __post_init__(self) -> None:
        if self.better not in ("lower", "higher"):
            raise ValueError(f"expected better to be lower or higher, got {self.better!r}.")
        for method, numbers in self.rows.items():
            if len(numbers) != len(self.columns):
                raise ValueError(
                    f"expected {len(self.columns)} numbers of {method} in {self.name}, got "
                    f"{len(numbers)}."
                )

    def __getitem__(self, method: str) -> tuple[float, ...]:
        if method not in self.rows:
            raise ValueError(f"expected a method among {', '.join(self.rows)}, got {method!r}.")
        return self.rows[method]

    def nats(self, method: str) -> list[float]:
        """A method's perplexities as losses, ln of each, in nats per token.

        Args:
            method: A row.

        Returns:
            One number a column.

        Raises:
            ValueError: If the table holds no perplexities, or no such row.
        """
        if self.measure != "perplexity":
            raise ValueError(f"expected perplexities, got {self.measure} in {self.name}.")
        return [math.log(number) for number in self[method]]

    def gain(self, method: str, over: str) -> list[float]:
        r"""How many nats per token a method is ahead, :math:`\ln p_\text{over} - \ln p`.

        Args:
            method: A row.
            over: Another.

        Returns:
            One number a column, positive where ``method`` has the lower perplexity.
        """
        pairs = zip(self.nats(method), self.nats(over), strict=True)
        return [other - own for own, other in pairs]

    def __repr__(self) -> str:
        cells = self._cells()
        first, *others = (max(map(len, column)) for column in zip(*cells, strict=True))
        lines = [
            f"{name:{first}} "
            + " ".join(f"{cell:>{w}}" for cell, w in zip(row, others, strict=True))
            for name, *row in cells
        ]
        return "\n".join([f"{self.source.words}: {self.what}, {self.measure}", *lines])

    def _repr_html_(self) -> str:
        head, *body = self._cells()
        methods = "".join(f'<th scope="col">{escape(name)}</th>' for name in head[1:])
        rows = "".join(
            f'<tr><th scope="row">{escape(name)}</th>'
            + "".join(f"<td>{cell}</td>" for cell in row)
            + "</tr>"
            for name, *row in body
        )
        whose, said = escape(self.source.words), f"{escape(self.what)}, {escape(self.measure)}"
        return (
            f'<div class="rove-published" style="{_APART}"><p><b>{whose}</b><br>{said}</p>'
            f'<table class="rove-table"><thead><tr><td></td>{methods}</tr></thead>'
            f"<tbody>{rows}</tbody></table></div>"
        )

    def _cells(self) -> list[list[str]]:
        """A line a column of the table, with as many decimals as were published."""
        numbers = [number for row in self.rows.values() for number in row]
        digits = max(len(repr(number).partition(".")[2]) for number in numbers)
        digits = 0 if all(number == int(number) for number in numbers) else digits
        lines = [
            [column, *(f"{row[i]:.{digits}f}" for row in self.rows.values())]
            for i, column in enumerate(self.columns)
        ]
        return [["", *self.rows], *lines]


@dataclass(frozen=True)
class FoundAgain:
    """The same operation, in another place.

    Args:
        name: What it is called there.
        year: Of publication.
        field: What it is for.
        turns: What is turned, and by what.
        cite: A key of the book's bibliography.

    Example:
        >>> found_again()[0].name
        'GTA'
    """

    name: str
    year: int
    field: str
    turns: str
    cite: str


@cache
def published_tables() -> tuple[Published, ...]:
    """All published tables, the paper's first.

    Returns:
        One entry a table.

    Example:
        >>> [table.name for table in published_tables() if table.source.cite == "golge2026blagpt"]
        ['BlaGPT', 'BlaGPT, cost', 'BlaGPT, noise']
    """
    read = _read()
    sources = {name: Source(**fields) for name, fields in read["source"].items()}
    tables = []
    for fields in read["table"]:
        own = fields | {"source": sources[fields["source"]], "columns": tuple(fields["columns"])}
        own["rows"] = {name: tuple(numbers) for name, numbers in fields["rows"].items()}
        tables.append(Published(**own))
    return tuple(tables)


def published(name: str) -> Published:
    """A published table by its name.

    Args:
        name: As in the file.

    Returns:
        The table.

    Raises:
        ValueError: If there is none; says which there are.

    Example:
        >>> published("switched on")["RoVE"]
        (26.9,)
    """
    tables = {table.name: table for table in published_tables()}
    if name not in tables:
        raise ValueError(f"expected a table among {', '.join(map(repr, tables))}, got {name!r}.")
    return tables[name]


@cache
def found_again() -> tuple[FoundAgain, ...]:
    """Where else values are turned and the sum turned back, by year.

    Returns:
        One entry a place.

    Example:
        >>> [one.name for one in found_again() if one.year < 2026]
        ['GTA', 'VO-RoPE', 'PRoPE']
    """
    return tuple(FoundAgain(**fields) for fields in _read()["found"])


def _read() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
