r"""A record of speeds, read: ratios beside the limits that were set for them, and by case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rove_lab.tables import Table

__all__ = ["by_case", "kept", "missed"]

Row = Mapping[str, list[float]]
# Beside a limit stands what it is of. Errors are limited too, and told apart: three decimals say
# nothing of them.
_BOUNDS, _SCORES = ("at most", "at least"), ("ratio", "exponent")


def by_case(
    tables: Mapping[str, Mapping[str, Mapping[str, Row]]], name: str, score: str
) -> dict[str, list[list[float]]]:
    """One row's score in every case: kind to ``[repetitions, cases]``, as ``seed_bars`` takes them.

    Args:
        tables: Case, kind and row to scores: a section of the record ``rotation_speed``.
        name: Of the row.
        score: Which of its scores: ``"ms"`` (milliseconds) or ``"ratio"``.

    Returns:
        Kind, such as ``"forward"``, to one list a repetition.

    Raises:
        ValueError: If there is no such row or score; says what there is.

    Example:
        >>> one = {"forward": {"RoVE / RoPE": {"ratio": [1.1, 1.2]}}}
        >>> by_case({"1x12x1024x64 float32": one}, "RoVE / RoPE", "ratio")
        {'forward': [[1.1], [1.2]]}
    """
    found: dict[str, list[list[float]]] = {}
    for kinds in tables.values():
        for kind, rows in kinds.items():
            row = _look_up(_look_up(rows, name), score)
            repetitions = found.setdefault(kind, [[] for _ in row])
            for repetition, number in zip(repetitions, row, strict=True):
                repetition.append(number)
    return found


def kept(values: Mapping[str, Any]) -> Table:
    """Every row that kept its limit in each repetition: what was measured, and the limit.

    Args:
        values: A record's values or a section of them, with ``"met"`` where a limit was set.

    Returns:
        A table of the columns ``"measured"`` and ``"limit"``.

    Raises:
        ValueError: If there is none.

    Example:
        >>> print(kept({"RoVE / RoPE": {"ratio": [1.25], "at most": [1.5], "met": [1]}}))
                    measured limit
        RoVE / RoPE    1.250 1.500
    """
    return _table(values, True)


def missed(values: Mapping[str, Any]) -> Table:
    """Every row that missed its limit in one repetition or more, as :func:`kept` shows them.

    Args:
        values: A record's values or a section of them, with ``"met"`` where a limit was set.

    Returns:
        A table of the same columns.

    Raises:
        ValueError: If there is none.

    Example:
        >>> print(missed({"RoVE / RoPE": {"ratio": [1.75], "at most": [1.5], "met": [0]}}))
                    measured limit
        RoVE / RoPE    1.750 1.500
    """
    return _table(values, False)


def _table(values: Mapping[str, Any], met: bool) -> Table:
    measured, limits = {}, {}
    for name, row in _judged(values, ()):
        if "relative error" not in row and all(row["met"]) == met:
            bound, score = (_first(row, names) for names in (_BOUNDS, _SCORES))
            place = name if bound == "at most" else f"{name} (at least)"
            measured[place], limits[place] = row[score], row[bound][:1]
    if not measured:
        raise ValueError(
            f"expected rows that {'kept' if met else 'missed'} a limit, got none among "
            f"{', '.join(values)}."
        )
    return Table({"measured": measured, "limit": limits})


def _judged(values: Mapping[str, Any], place: tuple[str, ...]) -> Iterator[tuple[str, Row]]:
    """Each row with a limit, under the names that lead to it."""
    if "met" in values:
        yield ", ".join(place), values
        return
    for name, inner in values.items():
        if isinstance(inner, Mapping):
            yield from _judged(inner, (*place, name))


def _first(row: Row, names: tuple[str, ...]) -> str:
    return next(name for name in names if name in row)


def _look_up(values: Mapping[str, Any], name: str) -> Any:
    if name not in values:
        raise ValueError(f"expected a name among {', '.join(values)}, got {name!r}.")
    return values[name]
