"""The page of conventions: every line names a test, and the test is there."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "book" / "conventions.md"
NAMED = re.compile(r"\[`(test_\w+\.py)::(test_\w+)`\]")


def conventions():
    """The items of the page's lists, each on one line."""
    text = PAGE.read_text(encoding="utf-8").split("## Notation")[0]
    return [
        " ".join(item.split()) for item in re.findall(r"^- (.+?)(?=\n- |\n\n)", text, re.M | re.S)
    ]


@pytest.mark.parametrize("line", conventions(), ids=lambda line: line[:40])
def test_a_convention_names_a_test_that_exists(line):
    named = NAMED.search(line)
    assert named, f"this convention names no test: {line}"
    file, name = named.groups()
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_there_are_conventions():
    assert len(conventions()) > 15
