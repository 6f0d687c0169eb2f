"""The pages of the book, in the order of its table of contents."""

from collections.abc import Iterator
from pathlib import Path

import yaml

TOC = yaml.safe_load((Path(__file__).resolve().parent.parent / "_toc.yml").read_text("utf-8"))


def pages(entries: list[dict]) -> Iterator[str]:
    """The pages of these entries of the contents and of their sections, in reading order."""
    for entry in entries:
        yield entry["file"]
        yield from pages(entry.get("sections", []))


PAGES = [TOC["root"], *(page for part in TOC["parts"] for page in pages(part["chapters"]))]
