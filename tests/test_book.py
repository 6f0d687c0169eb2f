"""The chapters as written and the pages as built: alike, light, and open without a network."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from book_contents import PAGES

ROOT = Path(__file__).resolve().parent.parent
BUILT = ROOT / "_build" / "html"
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
CHAPTERS = [ROOT / f"{page}.ipynb" for page in PAGES if (ROOT / f"{page}.ipynb").exists()]

LARGEST_PAGE = 400_000
LARGEST_IMAGE = 300_000
OWN_NEEDS = "# What this chapter uses beyond torch:\n"
VENDOR = "_static/vendor/"

each_page = pytest.mark.parametrize("page", PAGES)
each_chapter = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
in_the_built_book = pytest.mark.book


def code_cells(chapter: Path) -> list[dict]:
    notebook = json.loads(chapter.read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def first_cell(chapter: Path) -> str:
    return "".join(code_cells(chapter)[0]["source"])


class References(HTMLParser):
    """What a page makes a browser fetch, and where its links lead."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") in {"stylesheet", "preload", "icon"}:
            self.fetched.append(given["href"])
        elif given.get("src"):
            self.fetched.append(given["src"])


@pytest.fixture(scope="module")
def built() -> Path:
    if not (BUILT / "index.html").exists():
        pytest.fail(f"{BUILT} holds no book; run `make book` first")
    return BUILT


# The sources


@each_chapter
def test_chapters_share_their_first_cell_down_to_their_own_needs(chapter: Path) -> None:
    def shared(path: Path) -> list[str]:
        head, mark, _ = first_cell(path).partition(OWN_NEEDS)
        assert mark, f"{path.name}: the first cell lacks the line {OWN_NEEDS!r}"
        return [line for line in head.splitlines() if not re.match("import |from ", line)]

    assert shared(chapter) == shared(CHAPTERS[0])


@each_chapter
@pytest.mark.parametrize("source", [None, "dist/rove_lab-0.1.0-py3-none-any.whl"])
def test_the_first_cell_installs_what_is_missing_and_nothing_else(
    chapter: Path,
    source: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    head = first_cell(chapter).partition(OWN_NEEDS)[0]
    commands: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, check: commands.append(command))
    if source is None:
        monkeypatch.delenv("ROVE_LAB_SOURCE", raising=False)
    else:
        monkeypatch.setenv("ROVE_LAB_SOURCE", source)

    exec(head, {})
    assert commands == []
    assert capsys.readouterr().out == ""

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    exec(head, {})
    (command,) = commands
    wanted = source or f"git+{CONFIG['repository']['url']}"
    assert command[:4] == [sys.executable, "-m", "pip", "install"]
    assert command[-2:] == ["--no-deps", wanted]
    assert capsys.readouterr().out == f"Installing {wanted} ...\n"


def test_the_bibliography_gives_an_address_for_every_entry() -> None:
    entries = re.split(r"\n@", (ROOT / "book/references.bib").read_text(encoding="utf-8"))
    assert len(entries) >= 15
    for entry in entries:
        assert re.search(r"url\s+= \{https://", entry), entry
        assert re.search(r"year\s+= \{\d{4}\}", entry), entry
    keys = [re.search(r"\{([^,]+),", entry)[1] for entry in entries]
    assert len(set(keys)) == len(keys)


def test_the_book_builds_without_widgets_and_runs_in_a_cache() -> None:
    assert CONFIG["execute"]["execute_notebooks"] == "cache"
    assert CONFIG["execute"]["stderr_output"] == "remove-warn"
    assert CONFIG["sphinx"]["config"]["nb_ipywidgets_js"] == {}


# The built pages


@in_the_built_book
@each_page
def test_a_page_is_light(built: Path, page: str) -> None:
    size = (built / f"{page}.html").stat().st_size
    assert 1_000 < size <= LARGEST_PAGE


@in_the_built_book
def test_no_image_is_heavy(built: Path) -> None:
    kinds = {".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp"}
    images = [path for path in built.rglob("*") if path.suffix in kinds]
    assert images
    heavy = {
        path.name: path.stat().st_size for path in images if path.stat().st_size > LARGEST_IMAGE
    }
    assert heavy == {}


@in_the_built_book
def test_everything_a_page_fetches_lies_beside_it(built: Path) -> None:
    pages = [built / f"{page}.html" for page in [*PAGES, "search", "genindex"]]
    for page in pages:
        fetched = References(page.read_text(encoding="utf-8")).fetched
        assert len(fetched) > 5
        for address in fetched:
            assert not re.match(r"(https?:)?//", address), f"{page.name} fetches {address}"
            assert (page.parent / address.partition("?")[0]).resolve().is_file(), address


@in_the_built_book
def test_no_script_or_style_names_a_cdn(built: Path) -> None:
    files = [path for kind in ("html", "js", "css") for path in built.rglob(f"*.{kind}")]
    ours = [path for path in files if VENDOR not in path.relative_to(built).as_posix()]
    assert len(ours) > 20
    network = re.compile(
        r"unpkg|jsdelivr|cdnjs|googleapis|gstatic|cdn\.plot|polyfill\.io|esm\.sh|skypack"
        r"|@import\s+(url\()?[\"']?(https?:)?//|url\([\"']?(https?:)?//"
        r"|(importScripts|import|fetch)\([\"'](https?:)?//"
    )
    named = {
        path.relative_to(built).as_posix(): found[0]
        for path in ours
        if (found := network.search(path.read_text(encoding="utf-8", errors="replace")))
    }
    assert named == {}


@in_the_built_book
@each_chapter
def test_a_chapter_opens_in_colab_and_downloads(built: Path, chapter: Path) -> None:
    page = built / "book" / f"{chapter.stem}.html"
    links = References(page.read_text(encoding="utf-8")).links
    owner_and_name = CONFIG["repository"]["url"].removeprefix("https://github.com/")
    colab = "https://colab.research.google.com/github"
    assert f"{colab}/{owner_and_name}/blob/main/book/{chapter.name}" in links
    (download,) = [link for link in links if link.endswith(f"_sources/book/{chapter.name}")]
    assert json.loads((page.parent / download).read_text(encoding="utf-8"))["cells"]


@in_the_built_book
@each_chapter
def test_a_chapters_figures_are_inert_data_with_their_words(built: Path, chapter: Path) -> None:
    html = (built / "book" / f"{chapter.stem}.html").read_text(encoding="utf-8")
    figures = re.findall(r'<div class="rove-plot".*?</noscript></div>', html, flags=re.DOTALL)
    assert len(figures) >= 2
    playing = 0
    for figure in figures:
        spec = json.loads(re.search(r'<script type="application/json">(.*?)</script>', figure)[1])
        assert "template" not in spec["layout"]
        alt = spec["layout"]["meta"]["alt"]
        assert len(alt) > 20
        assert figure.count("<noscript>") == 1
        playing += bool(spec["frames"])
    assert playing, "a chapter has a figure that moves"


@in_the_built_book
@each_chapter
def test_a_chapter_says_under_its_title_what_it_takes_and_what_it_ran_with(
    built: Path, chapter: Path
) -> None:
    html = (built / "book" / f"{chapter.stem}.html").read_text(encoding="utf-8")
    box = re.search(r'</h1>\s*<ul class="rove-chapter[ "].*?</ul>', html, flags=re.DOTALL)
    said = dict(re.findall(r'<li class="rove-(\w+)"><p>(.*?)</p></li>', box[0]))
    assert re.fullmatch(r"\d+ min to read", said["reading"])
    time = r"(less than a second|(\d+ min)? ?(\d+ s)?) to run on (one core|two cores|\d+ cores)"
    assert re.fullmatch(time, said["running"])
    assert said["gpu"].startswith("No GPU needed")
    versions = dict(package.split(" ") for package in said["versions"][9:].split(", "))
    assert said["versions"].startswith("Ran with rove_lab ")
    theirs = re.search("rove_lab.huggingface|from transformers", chapter.read_text("utf-8"))
    asked = {"rove_lab", "torch", "plotly"} | ({"transformers"} if theirs else set())
    assert set(versions) == asked
    # The pins are part of the cache's name: what is in it ran with them.
    assert {name: import_module(name).__version__ for name in versions} == versions
    assert re.fullmatch(
        r"commit (unknown|[0-9a-f]{7,40}( and changes not committed)?)", said["commit"]
    )


@in_the_built_book
def test_no_page_holds_a_widget(built: Path) -> None:
    for page in PAGES:
        html = (built / f"{page}.html").read_text(encoding="utf-8")
        assert not re.search(
            r"application/vnd\.jupyter\.widget|jupyter-widgets?|html-manager", html
        )


@in_the_built_book
def test_the_words_of_every_page_can_be_searched(built: Path) -> None:
    index = (built / "searchindex.js").read_text(encoding="utf-8")
    documents = json.loads(re.search(r'"?docnames"?:\s*(\[.*?\])', index)[1])
    assert sorted(documents) == sorted(PAGES)


@in_the_built_book
@pytest.mark.parametrize("name", ["plotly.min.js", "mathjax/tex-svg.js"])
def test_the_libraries_lie_in_the_built_book_and_nowhere_in_the_project(
    built: Path, name: str
) -> None:
    assert (built / VENDOR / name).stat().st_size > 1_000_000
    assert not list((ROOT / "book").rglob(Path(name).name))
