"""Tables: the same numbers as text and as HTML, with their spread."""

import copy
import pickle
import re
from xml.etree import ElementTree

import pytest

from rove_lab.tables import Table

COLUMNS = {
    "RoPE": {"1 head": [0.1, 0.2, 0.6], "d < 8": [0.0, 0.0, 0.0]},
    "RoVE": {"1 head": [1.0, 1.0, 0.7], "d < 8": [1.0, 1.0, 1.0]},
}


def test_text_holds_every_cell_in_its_row_and_column():
    lines = Table(COLUMNS).splitlines()
    assert [re.split(r" {2,}|(?<=\]) ", line.strip()) for line in lines] == [
        ["RoPE", "RoVE"],
        ["1 head 0.300 [0.100, 0.600]", "0.900 [0.700, 1.000]"],
        ["d < 8", "0.000 [0.000, 0.000]", "1.000 [1.000, 1.000]"],
    ]
    assert len({len(line) for line in lines}) == 1
    assert repr(Table(COLUMNS)) == str(Table(COLUMNS))


def test_html_holds_the_same_cells_with_headers_that_say_what_they_head():
    table = ElementTree.fromstring(Table(COLUMNS)._repr_html_())
    words = [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")]
    assert words == [
        ["", "RoPE", "RoVE"],
        ["1 head", "0.300 [0.100, 0.600]", "0.900 [0.700, 1.000]"],
        ["d < 8", "0.000 [0.000, 0.000]", "1.000 [1.000, 1.000]"],
    ]
    assert [head.get("scope") for head in table.iter("th")] == ["col", "col", "row", "row"]


def test_names_are_words_and_not_markup():
    html = Table({"a < b": {"<i>": [1.0]}})._repr_html_()
    assert "a &lt; b" in html
    assert "&lt;i&gt;" in html


def test_a_copy_is_the_same_and_a_later_change_of_the_numbers_leaves_it():
    columns = {"RoVE": {"1 head": [1.0]}}
    table = Table(columns)
    for copied in (copy.copy(table), copy.deepcopy(table), pickle.loads(pickle.dumps(table))):
        assert copied == table
        assert copied._repr_html_() == table._repr_html_()
    columns["RoVE"]["1 head"] = [9.0]
    assert "1.000" in table._repr_html_()


def test_a_single_seed_has_no_spread():
    table = Table({"RoPE": {"loss": [0.5]}, "RoVE": {"loss": [0.25]}})
    assert table.splitlines()[1].split() == ["loss", "0.500", "0.250"]
    assert "[" not in table._repr_html_()


def test_an_empty_cell_is_refused():
    with pytest.raises(ValueError, match="a number or more in every cell"):
        Table({"RoVE": {"1 head": []}})


@pytest.mark.parametrize(
    "columns",
    [{}, {"RoPE": {}}, {"RoPE": {"1 head": [1.0]}, "RoVE": {"2 heads": [1.0]}}],
)
def test_columns_must_have_the_same_rows(columns):
    with pytest.raises(ValueError, match=r"expected columns with the same rows, got \{.*every"):
        Table(columns)
