"""The exercises on the built pages: each empty answer not solved yet, each solution solved."""

import html
import re

import pytest
from book_exercises import CHAPTERS, ROOT, read_chapter

BUILT = ROOT / "_build" / "html" / "book"
OUTPUT = re.compile(
    r'<div class="output stream highlight-myst-ansi.*?<pre>(.*?)</pre>', flags=re.DOTALL
)
each_chapter = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)


def printed(page: str) -> list[str]:
    """The lines that the cells of a part of a page printed."""
    outputs = (html.unescape(re.sub(r"<[^>]+>", "", one)) for one in OUTPUT.findall(page))
    return [line for output in outputs for line in output.splitlines()]


@pytest.mark.book
@each_chapter
def test_an_empty_answer_is_not_solved_yet_and_the_solution_is(chapter):
    path = BUILT / f"{chapter.stem}.html"
    if not path.exists():
        pytest.fail(f"{path} is not there; run `make book` first")
    page = path.read_text(encoding="utf-8")
    labels = [exercise.label for exercise in read_chapter(chapter).exercises]
    starts = [page.index(f'<div class="exercise admonition" id="{label}">') for label in labels]
    for start, end in zip(starts, [*starts[1:], len(page)], strict=True):
        answer, mark, solution = page[start:end].partition('<div class="solution dropdown')
        assert mark
        assert [line.partition(":")[0] for line in printed(answer)] == ["Not solved yet"]
        verdicts = [line for line in printed(solution) if re.match("Solved|Not solved", line)]
        assert [line.partition(":")[0] for line in verdicts] == ["Solved"]
    assert "Traceback" not in page[starts[0] :]
