"""The glossary: every term defined, named in five languages, and met in the text."""

import json
import re
from pathlib import Path

import pytest

BOOK = Path(__file__).resolve().parent.parent / "book"
TEXTS = {
    path.name: "\n".join("".join(cell["source"]) for cell in json.loads(path.read_text())["cells"])
    for path in sorted(BOOK.glob("*.ipynb"))
} | {path.name: path.read_text() for path in BOOK.glob("*.md") if path.name != "glossary.md"}
LINK = re.compile(r"\{term\}`(?:[^`<]*<)?([^`>]+)>?`")


def entries() -> dict[str, str]:
    """The terms and what is said of them."""
    text = (BOOK / "glossary.md").read_text().split("```{glossary}\n")[1].split("```")[0]
    entry = re.compile(r"^(\S.*)\n((?: {2}.*\n|\n)+)", re.MULTILINE)
    return dict(entry.findall(text))


def test_the_glossary_is_read_whole():
    assert len(entries()) > 20
    assert "offset" in entries()


@pytest.mark.parametrize("term", entries())
def test_a_term_is_defined_and_named_in_dutch_french_italian_and_chinese(term):
    words = entries()[term]
    assert len(words.split("\n\n")[0]) > 20
    names = dict(re.findall(r'(\w\w): <span lang="\1">([^<]+)</span>', words))
    if term != "YaRN":  # a name, the same in all
        assert list(names) == ["nl", "fr", "it", "zh"]
        assert re.search("[\u4e00-\u9fff]", names["zh"])
        assert all(name == name.strip() for name in names.values())


@pytest.mark.parametrize("term", entries())
def test_a_term_is_linked_from_the_text(term):
    assert term in {
        " ".join(link.split()) for text in TEXTS.values() for link in LINK.findall(text)
    }


@pytest.mark.parametrize("chapter", [name for name in TEXTS if name.endswith(".ipynb")])
def test_a_chapter_links_terms_where_they_are_first_met(chapter):
    assert len(set(LINK.findall(TEXTS[chapter]))) >= 2
