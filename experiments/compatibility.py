"""Every architecture in every situation: run the parity tests, keep the error of each cell.

Run it from a clone: `python experiments/compatibility.py`. It runs the tests that hold RoVE against
a float64 reference, the slow ones too (about 6 minutes of two idle cores), writes the errors they
measured to results/compatibility/record.json, and lays them out in book/compatibility.md.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import torch
import tyro

from rove_lab.records import Record, write_record
from rove_lab.surroundings import surroundings

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "book" / "compatibility.md"
# What a cell measured is a property of its test.
TESTS = [
    "tests/test_retrofit_situations.py::test_equals_the_reference",
    "tests/test_lens_situations.py::test_agrees",
]
TITLES = {
    "enable_rove": "`enable_rove`: module hooks in the Hugging Face model",
    "rove_hooks": "`rove_hooks`: hooks of a TransformerLens bridge",
    "the bridge alone": "The bridge without RoVE, beside its Hugging Face model",
}
COLUMNS = 6
ROWS = [
    "full pass",
    "eager attention",
    "cached decode",
    "cached decode, dynamic",
    "cached decode, static",
    "generate",
    "greedy generate",
    "left padding",
    "generate with left padding",
    "position gaps",
    "gradients",
    "gradient checkpointing",
    "bfloat16",
    "YaRN",
    "torch.compile",
]
NAMES = {
    "llama": "Llama",
    "mistral": "Mistral",
    "qwen2": "Qwen2",
    "qwen3": "Qwen3",
    "gemma2": "Gemma 2",
    "gemma3_text": "Gemma 3",
    "olmo2": "OLMo 2",
    "cohere": "Cohere",
    "phi": "Phi",
    "gptj": "GPT-J",
    "gpt_neox": "GPT-NeoX",
    "phi3": "Phi-3",
}


def cells(report: Path) -> Iterator[tuple[str, str, str, float, float]]:
    """Route, architecture, situation, measured error and tolerance of each test in a JUnit file.

    Raises:
        ValueError: If a test says nothing of what it measured.
    """
    for case in ElementTree.parse(report).iter("testcase"):
        told = {each.attrib["name"]: each.attrib["value"] for each in case.iter("property")}
        if not told.keys() >= {"route", "architecture", "situation", "error", "tolerance"}:
            raise ValueError(f"expected {case.attrib['name']} to record what it measured: {told}.")
        numbers = float(told["error"]), float(told["tolerance"])
        yield told["route"], told["architecture"], told["situation"], *numbers


def passed(report: Path, *which: str) -> bool:
    """Run the tests, two at a time, and leave their report in a file."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", f"--junitxml={report}"]
    return subprocess.run([*command, *which, *TESTS], cwd=ROOT, check=False).returncode == 0


def tables(values: dict[str, Any]) -> str:
    """The tables of each route: the situations by the architectures, each cell an error."""
    parts = []
    for route in sorted(values, key=list(TITLES).index):
        parts.append(f"## {TITLES[route]}\n")
        parts += [table(values[route], names) for names in _batches(list(NAMES))]
    return "\n".join(parts)


def power(error: float) -> str:
    """An error in one digit; with a true minus, at which no line breaks."""
    return f"{error:.0e}".replace("-", "−")


def _batches(names: list[str]) -> list[list[str]]:
    return [names[first : first + COLUMNS] for first in range(0, len(names), COLUMNS)]


def table(situations: dict[str, Any], names: list[str]) -> str:
    """One table, of some architectures: more than a few columns do not fit a page."""
    rows = [
        "| | " + " | ".join(NAMES[name] for name in names) + " | tolerance |",
        "|---|" + "---|" * (len(names) + 1),
    ]
    for situation in sorted(situations, key=ROWS.index):
        found = situations[situation]
        errors = [power(found[name]["error"][0]) if name in found else "–" for name in names]
        widest = max(each["tolerance"][0] for each in found.values())
        rows.append(f"| {situation} | " + " | ".join(errors) + f" | {power(widest)} |")
    return "\n".join(rows) + "\n"


def with_tables(page: str, values: dict[str, Any]) -> str:
    """The page with what stands between its two marks written anew."""
    marks = re.compile(r"(% The tables begin\..*?\n).*(% The tables end\.)", re.DOTALL)
    return marks.sub(lambda found: f"{found[1]}\n{tables(values)}\n{found[2]}", page)


def main(
    folder: Path = ROOT / "results" / "compatibility",
    page: Path = PAGE,
    marks: str = "slow or not slow",
    only: str = "",
) -> None:
    """Run the tests, write the record and the page.

    Args:
        folder: Where record.json goes.
        page: The page to write the tables into.
        marks: Which tests: pytest's `-m`.
        only: Which of those: pytest's `-k`.
    """
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        if not passed(report, "-m", marks, "-k", only):
            sys.exit("a test failed: no record was written")
        found = list(cells(report))
        cpu_s = sum(float(s.attrib["time"]) for s in ElementTree.parse(report).iter("testsuite"))
    values: dict[str, Any] = {}
    for route, architecture, situation, error, tolerance in found:
        row = values.setdefault(route, {}).setdefault(situation, {})
        row[architecture] = {"error": [error], "tolerance": [tolerance]}
    torch.set_num_threads(1)
    record = Record(
        question="How far is RoVE by hooks from a float64 reference, in every architecture?",
        kind="measurement",
        config={
            "error": "largest absolute difference of logits, or of gradients in their two rows",
            "models": "small, random weights; see tests/rove_models.py",
            "tests": TESTS,
        },
        seeds=[0],
        values=values,
        wall_s=round(time.perf_counter() - started, 1),
        cpu_s=round(cpu_s, 1),
        **surroundings(ROOT),
    )
    print(f"wrote {write_record(record, folder)}", flush=True)
    page.write_text(with_tables(page.read_text(encoding="utf-8"), values), encoding="utf-8")
    print(f"wrote {page}", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
