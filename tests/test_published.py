"""published: what others have published, number by number, and never as ours."""

import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rove_lab.published import found_again, published, published_tables

ROOT = Path(__file__).resolve().parents[1]

# The facts this project started from, written down a second time.
PAPER = {
    "in distribution, 124M": {"RoPE": "25.23 22.37", "RoVE": "25.05 22.30"},
    "in distribution, 354M": {"RoPE": "17.68 15.64", "RoVE": "17.52 15.52"},
    "in context": {"RoPE": "0.1375 0.1664", "RoVE": "0.1416 0.1856"},
    "beyond": {
        "RoPE": "293.24 840.10 1412.76 1630.72",
        "RoVE": "133.68 311.38 458.15 583.84",
        "RoPE + YaRN": "16.05 48.61 154.61 270.98",
        "RoVE + YaRN": "15.78 18.40 35.95 124.82",
    },
    "RULER": {
        "RoPE + YaRN": "4.31 7.61 6.40 4.53 6.62",
        "RoVE + YaRN": "4.39 3.63 5.61 2.11 4.33",
    },
}
OTHERS = {
    "BlaGPT": {"RoPE": "3.1134 3.1250", "RoVE": "3.1106 3.1240"},
    "BlaGPT, cost": {"RoVE": "2.5 0.1"},
    "BlaGPT, noise": {"another model": "0.0024"},
    "switched on": {"RoPE": "10.6", "RoVE": "26.9"},
}


class Cells(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.words = []
        self.feed(html)

    def handle_data(self, data):
        self.words.append(data)


@pytest.mark.parametrize("name", [*PAPER, *OTHERS])
def test_the_numbers_are_those_that_were_published(name):
    table = published(name)
    facts = (PAPER | OTHERS)[name]
    assert {method: " ".join(f"{x:g}" for x in row) for method, row in table.rows.items()} == {
        method: " ".join(f"{float(x):g}" for x in row.split()) for method, row in facts.items()
    }
    for i, column in enumerate(table.columns):
        (line,) = [line for line in repr(table).splitlines() if line.startswith(f"{column} ")]
        words = [row.split()[i] for row in facts.values()]
        assert line.split()[-len(words) :] == words
        assert [word for word in Cells(table._repr_html_()).words if word in words]


def test_every_table_is_pinned_here():
    assert [table.name for table in published_tables()] == [*PAPER, *OTHERS]


@pytest.mark.parametrize("table", published_tables(), ids=lambda table: table.name)
def test_every_table_says_whose_it_is(table):
    through = " (through a summary)" if table.name in PAPER else ""
    assert table.source.words.endswith(f"as published{through}")
    assert table.source.words in repr(table)
    assert table.source.words in table._repr_html_()
    assert 'class="rove-published" style="border-left' in table._repr_html_()


def test_sources_are_in_the_bibliography_under_the_same_address():
    text = (ROOT / "book/references.bib").read_text(encoding="utf-8")
    entries = {entry.split("{")[1].split(",")[0]: entry for entry in re.split(r"\n@", text)}
    for table in published_tables():
        assert table.source.url in entries[table.source.cite]
    for found in found_again():
        assert re.search(rf"year\s+= \{{{found.year}\}}", entries[found.cite])
        assert found.name.lower().replace("-", "").replace("vorope", "") in entries[
            found.cite
        ].lower().replace("-", "").replace("{", "").replace("}", "")


def test_the_same_operation_was_found_by_six_others_in_order():
    names = [found.name for found in found_again()]
    assert names == ["GTA", "VO-RoPE", "PRoPE", "RayRoPE", "RAVEN", "DeepSeek-V4"]
    years = [found.year for found in found_again()]
    assert years == sorted(years)
    assert all(found.field and found.turns for found in found_again())


def test_theirs_and_ours_are_never_mixed():
    """No experiment reads what was published, and nothing of ours stands among it."""
    for path in [*ROOT.glob("experiments/*.py"), *ROOT.glob("benchmarks/*.py")]:
        assert "published" not in path.read_text(encoding="utf-8"), path.name
    text = (ROOT / "rove_lab" / "published.toml").read_text(encoding="utf-8")
    assert "SmolLM2" not in text
    assert "open_record" not in (ROOT / "rove_lab" / "published.py").read_text(encoding="utf-8")


def test_nats_are_logarithms_of_perplexities():
    table = published("beyond")
    assert table.nats("RoPE")[0] == pytest.approx(5.681, abs=1e-3)
    assert table.gain("RoVE", over="RoPE") == pytest.approx(
        [math.log(a / b) for a, b in zip(table["RoPE"], table["RoVE"], strict=True)]
    )
    assert min(table.gain("RoVE", over="RoPE")) > 0


def test_what_means_nothing_is_refused():
    table = published("RULER")
    with pytest.raises(ValueError, match=r"expected perplexities, got loss \(nats\) in RULER"):
        table.nats("RoVE + YaRN")
    with pytest.raises(ValueError, match=r"expected a method among RoPE .*, got 'RoVE'"):
        table["RoVE"]
    with pytest.raises(ValueError, match=r"expected a table among 'in distribution, 124M'.*'none'"):
        published("none")
    with pytest.raises(ValueError, match="expected better to be lower or higher, got 'more'"):
        replace(table, better="more")
    with pytest.raises(ValueError, match=r"expected 5 numbers of RoPE in RULER, got 1"):
        replace(table, rows={"RoPE": (1.0,)})
