r"""A table of means over seeds with their spread: text where it is printed, HTML in a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from statistics import fmean
from typing import Self, final

__all__ = ["Table"]


@final
class Table(str):
    """Cells "mean [least, most]" over the seeds, as text; a notebook shows it as a table.

    A single seed has no spread: its cell is the number.

    Args:
        columns: Column to row to one number a seed; each column has the same rows.

    Raises:
        ValueError: If there is no column, the columns' rows differ, or a cell is empty.

    Example:
        >>> print(Table({"RoVE": {"1 head": [0.9, 1.0, 0.95]}}))
                               RoVE
        1 head 0.950 [0.900, 1.000]
    """

    _columns: Mapping[str, Mapping[str, Sequence[float]]]

    def __new__(cls, columns: Mapping[str, Mapping[str, Sequence[float]]]) -> Self:
        """Lay the cells out as text, and keep the numbers for a notebook."""
        named = {name: list(column) for name, column in columns.items()}
        rows = next(iter(named.values()), [])
        if not rows or any(other != rows for other in named.values()):
            raise ValueError(
                f"expected columns with the same rows, got {named}; give every column each row"
            )
        if not all(len(seeds) for column in columns.values() for seeds in column.values()):
            raise ValueError("expected a number or more in every cell, got none; leave the row out")
        words = [
            ["", *columns],
            *(
                [row, *(" ".join(_words(column[row])).strip() for column in columns.values())]
                for row in rows
            ),
        ]
        first, *others = (max(map(len, column)) for column in zip(*words, strict=True))
        lines = [
            f"{row:{first}}"
            + "".join(f" {cell:>{width}}" for cell, width in zip(cells, others, strict=True))
            for row, *cells in words
        ]
        table = super().__new__(cls, "\n".join(lines))
        table._columns = {name: dict(column) for name, column in columns.items()}
        return table

    def __reduce__(self) -> tuple[type[Table], tuple[object]]:
        return Table, (self._columns,)  # a copy is made from the numbers, not from the text

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in self._columns)
        rows = []
        for row in next(iter(self._columns.values())):
            cells = [_words(column[row]) for column in self._columns.values()]
            told = "".join(
                f"<td>{middle} <small>{spread}</small></td>" if spread else f"<td>{middle}</td>"
                for middle, spread in cells
            )
            rows.append(f'<tr><th scope="row">{escape(row)}</th>{told}</tr>')
        return (
            f'<table class="rove-table"><thead><tr><td></td>{head}</tr></thead>'
            f"<tbody>{''.join(rows)}</tbody></table>"
        )


def _words(seeds: Sequence[float]) -> tuple[str, str]:
    spread = f"[{min(seeds):.3f}, {max(seeds):.3f}]" if len(seeds) > 1 else ""
    return f"{fmean(seeds):.3f}", spread
