"""The box under a chapter's title: its words, its place, and what a chapter must say for it."""

import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from docutils import nodes
from sphinx.errors import ExtensionError

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "book" / "_ext"))

import chapter_box
import execution_record

RECORD = {
    "seconds": 3.8,
    "cores": 2,
    "versions": {"plotly": "7.1.0", "torch": "2.13.0", "rove_lab": "0.1.0"},
    "commit": "abc1234",
    "changed": False,
}


def chapter(words: int = 180, lines: int = 15, **metadata: object) -> nbformat.NotebookNode:
    hidden = nbformat.v4.new_code_cell("hidden = 0\n" * 500, metadata={"tags": ["hide-input"]})
    return nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell("word " * words),
            hidden,
            nbformat.v4.new_code_cell("x = 0\n\n" * lines),
        ],
        metadata={"rove_lab": {"gpu": "not needed"}} | metadata,
    )


def test_reading_time_counts_words_and_the_code_that_is_shown() -> None:
    assert chapter_box.minutes_to_read(chapter(words=0, lines=0)) == 1
    assert chapter_box.minutes_to_read(chapter(words=1800, lines=0)) == 10
    assert chapter_box.minutes_to_read(chapter(words=1800, lines=60)) == 14


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "less than a second"),
        (0.6, "1 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (80.0, "1 min 20 s"),
    ],
)
def test_run_time_is_said_in_whole_seconds(seconds: float, words: str) -> None:
    assert chapter_box.duration(seconds) == words


def test_the_box_says_each_thing_once() -> None:
    assert chapter_box.facts(chapter(), "book/one", RECORD) == {
        "rove-reading": "2 min to read",
        "rove-running": "4 s to run on two cores",
        "rove-gpu": "No GPU needed",
        "rove-versions": "Ran with rove_lab 0.1.0, torch 2.13.0, plotly 7.1.0",
        "rove-commit": "commit abc1234",
    }


def test_the_box_says_what_is_otherwise() -> None:
    record = RECORD | {
        "cores": 10,
        "changed": True,
        "versions": RECORD["versions"] | {"transformers": "5.24.0"},
    }
    said = chapter_box.facts(chapter(rove_lab={"gpu": "helps"}), "book/one", record)
    assert said["rove-running"] == "4 s to run on 10 cores"
    assert said["rove-gpu"] == "No GPU needed, but one helps"
    assert said["rove-versions"].endswith("plotly 7.1.0, transformers 5.24.0")
    assert said["rove-commit"] == "commit abc1234 and changes not committed"
    assert "on one core" in chapter_box.facts(chapter(), "", RECORD | {"cores": 1})["rove-running"]
    unknown = chapter_box.facts(chapter(), "", RECORD | {"commit": None})
    assert unknown["rove-commit"] == "commit unknown"


@pytest.mark.parametrize("metadata", [{}, {"gpu": "maybe"}])
def test_a_chapter_that_does_not_say_whether_it_needs_a_gpu_ends_the_build_before_it_runs(
    metadata: dict,
) -> None:
    app = SimpleNamespace(env=SimpleNamespace(doc2path=lambda name: f"{name}.ipynb"))
    source = [nbformat.writes(chapter(rove_lab=metadata))]
    with pytest.raises(ExtensionError, match=r"book/one: expected .* whether it needs a GPU"):
        chapter_box.refuse_early(app, "book/one", source)
    chapter_box.refuse_early(app, "book/one", [nbformat.writes(chapter())])


def test_a_page_that_is_no_notebook_has_no_box(monkeypatch: pytest.MonkeyPatch) -> None:
    env = SimpleNamespace(doc2path=lambda name: f"{name}.md", docname="book/intro")
    app = SimpleNamespace(env=env)
    chapter_box.refuse_early(app, "book/intro", ["# No JSON"])
    document = nodes.section("", nodes.title("", "Intro"))
    chapter_box.add_box(app, document)
    assert len(document) == 1


def test_the_box_stands_right_under_the_title(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbformat.write(chapter(), tmp_path / "one.ipynb")
    monkeypatch.setattr(execution_record, "record_of", lambda notebook, folder: RECORD)
    env = SimpleNamespace(doc2path=lambda name: str(tmp_path / f"{name}.ipynb"), docname="one")
    app = SimpleNamespace(env=env, config=SimpleNamespace(nb_execution_cache_path=str(tmp_path)))
    document = nodes.section(
        "", nodes.section("", nodes.title("", "A claim"), nodes.paragraph("", "Question."))
    )
    chapter_box.add_box(app, document)
    title, box, question = document[0]
    assert (title.astext(), question.astext()) == ("A claim", "Question.")
    assert box["classes"] == ["rove-chapter"]
    assert [item["classes"] for item in box] == [
        [f"rove-{part}"] for part in ("reading", "running", "gpu", "versions", "commit")
    ]
