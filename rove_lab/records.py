r"""One result, one record: what was asked, how it was measured, and every number with its seed."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import fmean
from typing import Any

from rove_lab.tables import Table

__all__ = ["Record", "open_record", "read_record", "write_record"]

_KINDS = ("experiment", "measurement", "checkpoint")
_LEAST_SEEDS = 3


@dataclass(frozen=True)
class Record:
    """One result with all it takes to read it, and to repeat it.

    Args:
        question: What was asked, in words.
        kind: ``"experiment"`` (three seeds or more), ``"measurement"`` or ``"checkpoint"``.
        config: What was set, by name.
        seeds: One for each repetition; they differ.
        values: Names, nested as the result needs, down to lists of one number a seed.
        versions: Package to version.
        device: The machine, in words.
        wall_s: Seconds the whole took.
        cpu_s: Processor seconds it took, all processes together.
        commit: Of the code, 40 hex digits; ``"-dirty"`` follows where that code
            had changed since.

    Raises:
        TypeError: If a field has another type.
        ValueError: If a value is missing, not finite, or does not fit the seeds.

    Example:
        >>> about = dict(versions={}, device="CPU", wall_s=1, cpu_s=1, commit="0" * 40)
        >>> values = {"RoVE": {"accuracy": [1.0, 0.99, 1.0]}}
        >>> Record("Can it?", "experiment", {}, [0, 1, 2], values, **about).seeds
        [0, 1, 2]
    """

    question: str
    kind: str
    config: dict[str, Any]
    seeds: list[int]
    values: dict[str, Any]
    versions: dict[str, str]
    device: str
    wall_s: float
    cpu_s: float
    commit: str

    def __post_init__(self) -> None:
        for name in ("question", "kind", "device", "commit"):
            _expect(name, getattr(self, name), str, "a string")
            if not getattr(self, name).strip():
                raise ValueError(f"expected {name} in words, got an empty string.")
        for name in ("config", "values", "versions"):
            _expect(name, getattr(self, name), dict, "a dict")
        if self.kind not in _KINDS:
            raise ValueError(f"expected a kind among {', '.join(_KINDS)}, got {self.kind!r}.")
        check_seeds(self.seeds, self.kind)
        if not self.values:
            raise ValueError("expected values, got none: a record without a number says nothing.")
        _check_values(self.values, len(self.seeds), "values")
        for name in ("wall_s", "cpu_s"):
            seconds = getattr(self, name)
            if not _is_number(seconds):
                raise TypeError(f"expected {name} in seconds, got {seconds!r}.")
            if not (math.isfinite(seconds) and seconds >= 0):
                raise ValueError(f"expected {name} of 0 seconds or more, got {seconds}.")
        if not re.fullmatch(r"[0-9a-f]{40}(-dirty)?", self.commit):
            raise ValueError(
                f"expected a commit of 40 hex digits (-dirty where files had changed), got "
                f"{self.commit!r}: git rev-parse HEAD prints it."
            )

    def table(self, *names: str, score: str) -> Table:
        """A table whose cells read "mean [least, most]" over the seeds.

        Args:
            names: Where in ``values`` it lies; below are columns, rows and scores.
            score: Which of the scores.

        Returns:
            One line a row where it is printed; a table where a notebook shows it.

        Raises:
            ValueError: If the record has no such values; says what it has.
        """
        return Table(self._columns(names, score))

    def means(self, *names: str, score: str) -> dict[str, list[float]]:
        """The means of the same cells: column to one number a row, as ``figures.bars`` takes them.

        Args:
            names: Where in ``values`` they lie; below are columns, rows and scores.
            score: Which of the scores.

        Returns:
            Column to means.

        Raises:
            ValueError: If the record has no such values; says what it has.
        """
        columns = self._columns(names, score)
        return {name: [fmean(cell) for cell in rows.values()] for name, rows in columns.items()}

    def curves(self, *names: str, score: str) -> dict[str, list[list[float]]]:
        """The same cells by seed: column to ``[seeds, rows]``, as ``figures.bands`` takes them.

        Args:
            names: Where in ``values`` they lie; below are columns, rows and scores.
            score: Which of the scores.

        Returns:
            Column to one list a seed, of one number a row.

        Raises:
            ValueError: If the record has no such values; says what it has.
        """
        columns = self._columns(names, score)
        return {
            name: [list(seed) for seed in zip(*rows.values(), strict=True)]
            for name, rows in columns.items()
        }

    def _columns(self, names: Sequence[str], score: str) -> dict[str, dict[str, list[float]]]:
        columns: Any = self.values
        for name in names:
            columns = _look_up(columns, name)
        return {
            column: {row: _look_up(cell, score) for row, cell in _named(rows).items()}
            for column, rows in _named(columns).items()
        }


def write_record(record: Record, folder: Path | str) -> Path:
    """Write ``record.json`` into a folder, made where it is missing.

    Args:
        record: The record.
        folder: ``results/<slug>``.

    Returns:
        The path of the file.

    Raises:
        TypeError: If the config holds what JSON cannot, or would bring back otherwise.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write_record(open_record("messenger"), folder).name
        'record.json'
    """
    text = json.dumps(asdict(record), indent=1, ensure_ascii=False, allow_nan=False)
    # a list of numbers belongs on one line; a text is never touched: in JSON it has no line breaks
    text = re.sub(r"\[\n[-+.\deE,\s]+\]", lambda m: "[" + " ".join(m[0][1:-1].split()) + "]", text)
    if Record(**json.loads(text)) != record:
        raise TypeError("expected a record that JSON can hold, with words for names and no tuples.")
    path = Path(folder) / "record.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def read_record(path: Path | str) -> Record:
    """Read a record back, and check it.

    Args:
        path: The file, or the folder that holds its ``record.json``.

    Returns:
        The record.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is not JSON, or its fields are not a record's.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     read_record(write_record(open_record("messenger"), folder)).kind
        'experiment'
    """
    path = Path(path)
    path = path / "record.json" if path.is_dir() else path
    try:
        hooks: Any = {"object_pairs_hook": _each_once, "parse_constant": _no_number}
        stored = json.loads(path.read_text(encoding="utf-8"), **hooks)
    except ValueError as error:
        raise ValueError(f"expected JSON in {path}, got a text that is not: {error}") from error
    names = {field.name for field in fields(Record)}
    found = set(stored) if isinstance(stored, Mapping) else set()
    if found != names:
        raise ValueError(
            f"expected the fields of a record in {path}, got {sorted(names - found)} missing and "
            f"{sorted(found - names)} unknown."
        )
    return Record(**stored)


def open_record(slug: str) -> Record:
    """The lab's own record of that name, from the checkout or from the installed package.

    Args:
        slug: The folder's name under ``results/``.

    Returns:
        The record.

    Raises:
        ValueError: If there is none; says which there are.

    Example:
        >>> open_record("messenger").kind
        'experiment'
    """
    here = Path(__file__).resolve().parent
    places = [here / "results", here.parent / "results"]  # a wheel's, a checkout's
    found = {path.parent.name: path for place in places for path in place.glob("*/record.json")}
    if slug not in found:
        raise ValueError(f"expected a record among {sorted(found)}, got {slug!r}.")
    return read_record(found[slug])


def check_folder(folder: Path | str) -> None:
    """Refuses a folder that ``record.json`` could not be written to, and makes nothing.

    Raises:
        ValueError: If the folder, what it would be made in, or the file's place is something else
            or not ours to write.
    """
    folder = Path(folder).absolute()
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK) or (folder / "record.json").is_dir():
        raise ValueError(f"expected a folder to write record.json to, got {folder}: take another.")


def check_seeds(seeds: list[int], kind: str) -> None:
    """Refuses seeds that a record of that kind could not have.

    Raises:
        TypeError: If they are no list of integers.
        ValueError: If two are the same, or they are too few.
    """
    _expect("seeds", seeds, list, "a list")
    for seed in seeds:
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise TypeError(f"expected seeds as integers, got {seed!r}.")
    if len(set(seeds)) != len(seeds):
        raise ValueError(f"expected seeds that differ, got {seeds}.")
    least = _LEAST_SEEDS if kind == "experiment" else 1
    if len(seeds) < least:
        raise ValueError(
            f"expected {least} seeds or more for kind {kind!r}, got {len(seeds)}: "
            "repeat it, for one run shows no spread."
        )


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):  # Python's own reader keeps the last and says nothing
        raise ValueError(f"a name twice in {[name for name, _ in pairs]}")
    return dict(pairs)


def _no_number(word: str) -> None:
    raise ValueError(f"{word}, which JSON has no word for")


def _named(values: Any) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise ValueError("expected columns, rows and scores below the names given: give fewer.")
    return values


def _look_up(values: Any, name: str) -> Any:
    if not isinstance(values, dict):
        raise ValueError(f"expected names down to the numbers, got one more: {name!r}.")
    if name not in values:
        raise ValueError(f"expected a name among {', '.join(values)}, got {name!r}.")
    return values[name]


def _expect(name: str, value: object, kind: type, words: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"expected {name} to be {words}, got {value!r}.")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _check_values(values: object, n_seeds: int, name: str) -> None:
    if isinstance(values, dict):
        if not values:
            raise ValueError(f"expected numbers in {name}, got none.")
        for key, inner in values.items():
            _check_values(inner, n_seeds, f"{name}[{key!r}]")
    elif not isinstance(values, list):
        raise TypeError(f"expected {name} to be a list of one number a seed, got {values!r}.")
    elif len(values) != n_seeds:
        raise ValueError(f"expected {name} with {n_seeds} numbers, one a seed, got {len(values)}.")
    else:
        for number in values:
            if not _is_number(number):
                raise TypeError(f"expected numbers in {name}, got {number!r}.")
            if not -math.inf < number < math.inf:  # isfinite cannot take integers above 2^1024
                raise ValueError(f"expected finite numbers in {name}, got {number}.")
