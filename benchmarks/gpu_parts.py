"""What the parts of a run on a GPU share: until when, and a record that is written as it grows."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rove_lab.records import Record, write_record
from rove_lab.surroundings import surroundings

ROOT = Path(__file__).resolve().parents[1]
Values = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One part's share of a run.

    Args:
        folder: Where the folders of its records go.
        until: When it is to be done, in seconds of `time.time`, which all processes share.
        tiny: Whether everything is small, to see on a processor that it runs.
    """

    folder: Path
    until: float
    tiny: bool

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.until - time.time()


@dataclass
class Kept:
    """A record that is there from the first number on, and whatever happens afterwards."""

    slug: str
    question: str
    config: dict[str, Any]
    run: Run
    values: Values = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    late: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.about = surroundings(ROOT)
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def attempt(self, name: str, measure: Any) -> None:
        """Adds what one measurement found, or why it found nothing, and writes the record.

        Args:
            name: For the output, and for the record where it fails.
            measure: Gives nested names with a list of one number at the ends.
        """
        if self.run.left <= 0:
            self.late.append(name)
            print(f"{self.slug}: {name}: not begun, no time is left", flush=True)
            return
        started = time.perf_counter()
        try:
            put(self.values, measure())
            outcome = "done"
        except Exception as error:  # of any kind: what comes after it may well run
            self.failed[name] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
            outcome = f"FAILED, {self.failed[name]}"
        seconds = time.perf_counter() - started
        words = f"{outcome} in {seconds:.1f} s, {max(self.run.left, 0):.0f} s left"
        print(f"{self.slug}: {name}: {words}", flush=True)
        if self.values:
            self.write()

    def write(self) -> None:
        """The record so far."""
        record = Record(
            question=self.question,
            kind="measurement",
            config=self.config | {"failed": self.failed, "no time for": self.late},
            seeds=[0],
            values=self.values,
            wall_s=round(time.perf_counter() - self.wall, 1),
            cpu_s=round(time.process_time() - self.cpu, 1),
            **self.about,
        )
        write_record(record, self.run.folder / self.slug)

    def ended(self) -> None:
        """Says how it ended.

        Raises:
            SystemExit: If something failed or was not begun, after all that could be recorded is.
        """
        if self.late and self.values:
            self.write()
        if self.failed or self.late:
            raise SystemExit(1)


def put(values: Values, found: Values) -> None:
    """Adds names to those that are there, however deep."""
    for name, inner in found.items():
        if isinstance(inner, dict) and isinstance(values.get(name), dict):
            put(values[name], inner)
        else:
            values[name] = inner
