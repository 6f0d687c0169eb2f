"""claim_list: text in a terminal, a list that filters in a notebook."""

import copy
import re
from html.parser import HTMLParser

import pytest

from rove_lab import claim_list
from rove_lab.claim_list import ClaimList
from rove_lab.claims import VERDICTS, claims


class Tags(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.open, self.seen = [], []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        if tag not in ("input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_it_reads_as_text():
    lines = str(ClaimList()).splitlines()
    assert sum(line.startswith("C") for line in lines) == 14
    assert len(lines) == 14 + sum(len(claim.parts) for claim in claims())
    assert repr(ClaimList()) == str(ClaimList())


def test_a_copy_is_the_same_list():
    few = ClaimList(claims()[5:7])
    again = copy.deepcopy(few)
    assert again == few
    assert again._repr_html_() == few._repr_html_()


def test_the_html_is_well_formed_and_names_every_button():
    tags = Tags(ClaimList()._repr_html_())
    assert tags.open == []
    kinds = [tag for tag, _ in tags.seen]
    assert kinds.count("li") == 14
    assert kinds.count("label") == kinds.count("input") == 6
    assert kinds.count("legend") == 1
    tested = [part for claim in claims() for part in claim.parts if part.tests]
    assert kinds.count("details") == kinds.count("summary") == len(tested)
    assert kinds.count("code") >= sum(len(part.tests) for part in tested)


@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_button_says_how_many_it_leaves(verdict):
    html = ClaimList()._repr_html_()
    (count,) = re.findall(rf"[=✓–✗?] {verdict} \((\d+)\)</label>", html)
    name = verdict.replace(" ", "-")
    items = re.findall(r'<li class="(.*?)">', html)
    assert sum(name in item.split() for item in items) == int(count)
    assert f":has(input[value={name}]:checked) li:not(.{name})" in html


@pytest.mark.parametrize(
    ("place", "link"),
    [
        ("book", '<a href="04_rove.html#three-lenses-one-operator">chapter 4</a>'),
        ("jupyter", '<a href="04_rove.ipynb">chapter 4</a>'),
        ("colab", "<small>(chapter 4)"),
    ],
)
def test_links_lead_where_there_are_pages(monkeypatch, place, link):
    monkeypatch.setattr(claim_list, "where", lambda: place)
    assert link in ClaimList(claims()[2:3])._repr_html_()
