"""Sphinx extension: under each chapter's title, what it takes and what it ran with.

Reading time, run time, whether a GPU is needed, versions and commit: one quiet list, no script.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import execution_record
import nbformat
from docutils import nodes
from myst_nb.core.execute import cache
from sphinx.errors import ExtensionError

# Adults read 238 words of plain English a minute (Brysbaert 2019, a review of 190 studies). This
# prose is dense, and a formula's symbols count as words: 180. Code is read line by line: 15.
WORDS_A_MINUTE = 180
LINES_A_MINUTE = 15

GPU = {"not needed": "No GPU needed", "helps": "No GPU needed, but one helps"}


def minutes_to_read(notebook: nbformat.NotebookNode) -> int:
    """The time to read a chapter: its words, and its code but for what the page hides."""
    words = lines = 0
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            words += len(cell.source.split())
        elif "hide-input" not in cell.metadata.get("tags", []):
            lines += sum(bool(line.strip()) for line in cell.source.splitlines())
    return max(1, round(words / WORDS_A_MINUTE + lines / LINES_A_MINUTE))


def gpu_of(notebook: nbformat.NotebookNode, name: str) -> str:
    """Whether a chapter needs a GPU, as its own metadata say, in words.

    Raises:
        ExtensionError: If they do not say it, which ends the build.
    """
    said = notebook.metadata.get("rove_lab", {}).get("gpu")
    if said not in GPU:
        raise ExtensionError(
            f"{name}: expected the notebook's metadata to say whether it needs a GPU, "
            f'"rove_lab": {{"gpu": "..."}} with one of {list(GPU)}, got {said!r}; '
            "write it beside kernelspec"
        )
    return GPU[said]


def duration(seconds: float) -> str:
    """Seconds as a reader says them, whole ones: `less than a second`, `4 s`, `1 min 20 s`."""
    whole = round(seconds)
    if whole < 1:
        return "less than a second"
    minutes, rest = divmod(whole, 60)
    return " ".join([f"{minutes} min"] * bool(minutes) + [f"{rest} s"] * bool(rest))


def facts(notebook: nbformat.NotebookNode, name: str, record: dict[str, Any]) -> dict[str, str]:
    """The box's lines, each by the class that it has in the page."""
    cores = {1: "one core", 2: "two cores"}.get(record["cores"], f"{record['cores']} cores")
    used = [name for name in execution_record.PACKAGES if name in record["versions"]]
    packages = ", ".join(f"{package} {record['versions'][package]}" for package in used)
    commit = f"commit {record['commit'] or 'unknown'}"
    changes = " and changes not committed" if record["changed"] else ""
    return {
        "rove-reading": f"{minutes_to_read(notebook)} min to read",
        "rove-running": f"{duration(record['seconds'])} to run on {cores}",
        "rove-gpu": gpu_of(notebook, name),
        "rove-versions": f"Ran with {packages}",
        "rove-commit": f"{commit}{changes}",
    }


def is_chapter(app: Any, name: str) -> bool:
    """Whether a page is written from a notebook."""
    return bool(Path(app.env.doc2path(name)).suffix == ".ipynb")


def refuse_early(app: Any, name: str, source: list[str]) -> None:
    """Say that a chapter's metadata lack something before minutes are spent on executing it."""
    if is_chapter(app, name):
        gpu_of(nbformat.reads(source[0], as_version=4), name)


def add_box(app: Any, document: nodes.document) -> None:
    """Put the box under the title of a chapter that has just been read, and so executed."""
    name = app.env.docname
    if not is_chapter(app, name):
        return
    notebook = nbformat.read(app.env.doc2path(name), as_version=4)
    record = execution_record.record_of(notebook, Path(app.config.nb_execution_cache_path))
    box = nodes.bullet_list(classes=["rove-chapter"])
    for kind, words in facts(notebook, name, record).items():
        box += nodes.list_item("", nodes.paragraph("", words), classes=[kind])
    title = next(document.findall(nodes.title))
    title.parent.insert(title.parent.index(title) + 1, box)


def setup(app: Any) -> dict[str, Any]:
    """Record what notebooks run with, which myst-nb has no hook for, and show it."""
    if not hasattr(cache.single_nb_execution, "__wrapped__"):
        cache.single_nb_execution = execution_record.recording(cache.single_nb_execution)
    app.connect("source-read", refuse_early)
    app.connect("doctree-read", add_box)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
