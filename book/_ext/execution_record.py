"""What a chapter ran with and how long it took, kept with its outputs in the notebooks' cache.

A page may be written long after its chapter was executed, by another commit with other packages
installed. So the record is made while the chapter's kernel is still there, which knows what it has
imported, and it is kept in the metadata of the cached notebook.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import Any

import nbformat
from jupyter_cache import get_cache

ROOT = Path(__file__).resolve().parents[2]
KEY = "rove_lab_execution"  # of the executed notebook's metadata
CORES = 2
PACKAGES = ("rove_lab", "torch", "plotly", "transformers")

# Asked of the chapter's own kernel, of what it has really imported: a chapter without transformers
# does not name it.
QUESTION = f"""
import json, sys
print(json.dumps({{n: sys.modules[n].__version__ for n in {PACKAGES} if n in sys.modules}}))
"""


def recording(execute: Callable[..., Any]) -> Callable[..., Any]:
    """Jupyter-cache's `single_nb_execution`, with the record put into the notebook's metadata."""

    @wraps(execute)
    def executed(notebook: nbformat.NotebookNode, **how: Any) -> Any:
        commit, changed = commit_of(ROOT)  # first: the next commit may come while a chapter runs
        question = nbformat.v4.new_code_cell(QUESTION)
        notebook.cells.append(question)
        try:
            with few_cores() as cores:
                result = execute(notebook, **how, record_timing=True)
        finally:
            notebook.cells.remove(question)
            # The cache compares metadata: these times would make every notebook a new one.
            times = [cell.metadata.pop("execution", {}) for cell in notebook.cells]
        if result.err is None:
            notebook.metadata[KEY] = {
                "seconds": sum(map(seconds, times)),
                "cores": cores,
                "versions": json.loads("".join(output.text for output in question.outputs)),
                "commit": commit,
                "changed": changed,
            }
        return result

    return executed


def seconds(times: dict[str, str]) -> float:
    """How long a cell ran, from its kernel's own clock."""
    if not times:  # no code in it
        return 0.0
    began, ended = (
        datetime.fromisoformat(times[mark]) for mark in ("iopub.status.busy", "iopub.status.idle")
    )
    return (ended - began).total_seconds()


@contextmanager
def few_cores() -> Iterator[int]:
    """Let what starts in here run on two cores where the system can; yield how many it has."""
    if not hasattr(os, "sched_setaffinity"):  # not Linux
        yield os.cpu_count() or 1
        return
    before = os.sched_getaffinity(0)
    mine = set(sorted(before)[:CORES])
    os.sched_setaffinity(0, mine)
    try:
        yield len(mine)
    finally:
        os.sched_setaffinity(0, before)


def commit_of(root: Path) -> tuple[str | None, bool]:
    """The commit of the checkout at `root`, short, and whether something in it is not committed.

    None where there is no git or no checkout: a downloaded archive has none, even when it lies
    inside another project's checkout.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != root.resolve():
            return None, False
        return git("rev-parse", "--short", "HEAD"), bool(git("status", "--porcelain"))
    except (OSError, subprocess.CalledProcessError):
        return None, False


def record_of(notebook: nbformat.NotebookNode, cache_folder: Path) -> dict[str, Any]:
    """The record of a notebook's execution, as the cache holds it beside the outputs.

    Raises:
        LookupError: If the cache does not hold the notebook, or holds it without a record.
    """
    cache = get_cache(str(cache_folder))
    try:
        found = cache.get_cache_bundle(cache.match_cache_notebook(notebook).pk).nb
        record: dict[str, Any] = found.metadata[KEY]
    except KeyError as error:
        raise LookupError(
            f"expected the notebook's outputs and their record in {cache_folder}, got none: the "
            "notebook was not executed. The cell that failed is named above; `make book` goes on "
            "from the chapters that are done. `make clean` empties another version's cache."
        ) from error
    return record
