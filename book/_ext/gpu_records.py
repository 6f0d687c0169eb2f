"""Sphinx extension: what was measured on a GPU, in the page, or that nothing was yet.

A block ``{gpu-record} checks`` (or ``speed``, ``training``, ``larger``) is replaced while the book
is built: by tables from results/gpu_.../record.json with the card's name above, or by a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from sphinx.errors import ExtensionError

from rove_lab.learning_curves import first_reached
from rove_lab.records import Record, read_record

RESULTS = Path(__file__).resolve().parents[2] / "results"
BLOCK = re.compile(r"^```\{gpu-record\} *(\S*)\n```$", re.MULTILINE)
NOT_YET = "**Not measured yet.** No GPU was at hand."
ARMS = ("RoPE", "RoVE")
RATIOS = (
    "RoVE / RoPE",
    "RoVE, compiled / RoPE, compiled",
    "RoVE / RoPE, peak memory",
    "ours / clone",
    "ours, compiled / clone",
    "ours / Hugging Face",
)


def found(results: Path, slug: str) -> Record | None:
    """A record of a GPU, where there is one.

    Raises:
        ExtensionError: If it was made on a processor, which ends the build.
    """
    if not (results / slug / "record.json").exists():
        return None
    record = read_record(results / slug)
    if "CPU" in record.device:
        raise ExtensionError(
            f"expected a GPU's record in results/{slug}, got one of {record.device}: remove it"
        )
    return record


def label(record: Record) -> str:
    """The card, and what it ran."""
    failed = record.config.get("failed", {}) | dict.fromkeys(
        record.config.get("no time for", []), "no time was left"
    )
    words = [
        f"Measured on one **{record.device}**, torch {record.versions['torch']}, commit "
        f"{record.commit[:7]}, in {record.wall_s:.0f} s."
    ]
    words += [f"Not measured: {name} ({why})." for name, why in failed.items()]
    return " ".join(words)


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Rows as Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def checks(results: Path) -> str:
    """How far off each part of the core is, by dtype."""
    record = found(results, "gpu_checks")
    if record is None:
        return NOT_YET
    by_dtype = record.values
    names = dict.fromkeys(name for cases in by_dtype.values() for name in cases)

    def cell(case: Mapping[str, list[float]] | None) -> str:
        if case is None:
            return "–"
        over = "" if case["met"][0] else ", **over the limit**"
        return f"{case['relative error'][0]:.1e}{over}"

    rows = [(name, *(cell(by_dtype[dtype].get(name)) for dtype in by_dtype)) for name in names]
    return f"{label(record)}\n\n{table(('relative error', *by_dtype), rows)}"


def ratios(values: Mapping[str, Any], *place: str) -> Iterator[tuple[str, ...]]:
    """The rows that a table of speeds shows: where, which ratio, its median and its deciles."""
    for name, inner in values.items():
        if name in RATIOS:
            spread = [inner[end][0] for end in ("low", "high") if end in inner]
            words = f" ({' to '.join(f'{end:.3g}' for end in spread)})" if spread else ""
            yield ", ".join(place), name, f"{inner['ratio'][0]:.3g}{words}"
        elif isinstance(inner, dict):
            yield from ratios(inner, *place, name)


def speed(results: Path) -> str:
    """What rotations cost."""
    record = found(results, "gpu_speed")
    if record is None:
        return NOT_YET
    rows = [*ratios(record.values)]
    return f"{label(record)}\n\n{table(('where', 'what', 'ratio'), rows)}"


def half_there(values: Mapping[str, Any], arm: str) -> list[float]:
    """The steps to one half of the answers, by seed."""
    curve = values["2 layers, 2 heads"]["learned"][arm]
    by_seed = zip(*(at["accuracy"] for at in curve.values()), strict=True)
    steps: list[float] = first_reached([*map(int, curve)], [*map(list, by_seed)], 0.5).tolist()
    return steps


# The record of a GPU, that of a processor beside it, what is read from both, and how.
Reader = Callable[[Mapping[str, Any], str], list[float]]
TRAININGS: tuple[tuple[str, str, str, Reader], ...] = (
    (
        "gpu_training",
        "training",
        "{doc}`10_training`: nats per byte held out, after 800 steps",
        lambda values, arm: [*values["held out"][arm].values()][-1]["all"],
    ),
    (
        "gpu_training",
        "training",
        "{doc}`10_training`: milliseconds a step, by the wall clock",
        lambda values, arm: [1e3 * wall for wall in values["seconds a step"][arm]["wall"]],
    ),
    (
        "gpu_length",
        "length",
        "{doc}`11_length`: nats per byte, read at the trained length",
        lambda values, arm: values["pair"]["plain"][arm]["128"]["nats per byte"],
    ),
    (
        "gpu_length",
        "length",
        "{doc}`11_length`: nats per byte, read at four times that",
        lambda values, arm: values["pair"]["plain"][arm]["512"]["nats per byte"],
    ),
    (
        "gpu_retrieval",
        "retrieval",
        "{doc}`12_retrieval`: share of needles found at eight times the trained length",
        lambda values, arm: values["accuracy"]["needles"]["as trained"][arm]["8 ×"]["accuracy"],
    ),
    (
        "gpu_induction",
        "induction",
        "{doc}`13_in_context`: steps until half of the answers are right",
        half_there,
    ),
)


def mean_and_range(seeds: list[float]) -> str:
    """Of one cell: the mean, the least and the most, and of how many seeds."""
    if len(seeds) == 1:
        return f"{seeds[0]:.4g}"
    return f"{fmean(seeds):.4g} ({min(seeds):.4g} to {max(seeds):.4g}; {len(seeds)})"


def trainings(results: Path) -> str:
    """What the chapters train, here and in their records."""
    labels, rows = [], []
    for slug, other, what, read in TRAININGS:
        here = found(results, slug)
        if here is not None:
            labels.append(label(here))
            both = (here, read_record(results / other))
            cells = [mean_and_range(read(one.values, arm)) for one in both for arm in ARMS]
            rows.append((what, *cells))
    if not rows:
        return NOT_YET
    head = ("", *(f"{arm}, {where}" for where in ("GPU", "processor") for arm in ARMS))
    return "\n\n".join([*dict.fromkeys(labels), table(head, rows)])


def larger(results: Path) -> str:
    """The larger pair."""
    record = found(results, "gpu_larger")
    if record is None:
        return NOT_YET
    losses = record.values["held out"]
    rows = [
        (f"after {step} steps", *(mean_and_range(losses[arm][step]["all"]) for arm in ARMS))
        for step in losses["RoPE"]
    ]
    return f"{label(record)}\n\n{table(('nats per byte held out', *ARMS), rows)}"


TABLES = {"checks": checks, "speed": speed, "training": trainings, "larger": larger}


def with_records(source: str, results: Path = RESULTS) -> str:
    """A page's source with each block replaced.

    Raises:
        ExtensionError: If a block asks for something else, which ends the build.
    """

    def shown(block: re.Match[str]) -> str:
        if block[1] not in TABLES:
            raise ExtensionError(f"gpu-record: expected one of {[*TABLES]}, got {block[1]!r}")
        return TABLES[block[1]](results)

    return BLOCK.sub(shown, source)


def read_page(app: Any, name: str, source: list[str]) -> None:
    """Put the tables into the source of a page as Sphinx reads it."""
    if BLOCK.search(source[0]):
        source[0] = with_records(source[0])
        app.env.note_reread()  # a record may have come, where the page has not changed


def setup(app: Any) -> dict[str, Any]:
    """Follow every page that is read."""
    app.connect("source-read", read_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
