"""experiments/compatibility.py: what tests measured, in a record and on a page that agree."""

import lens_models
import pytest
import rove_situations
from experiment_scripts import ROOT, script

from rove_lab.records import open_record, read_record

CASE = """<testcase classname="tests.test_it" name="{name}"><properties>
<property name="route" value="{route}" />
<property name="architecture" value="{architecture}" />
<property name="situation" value="{situation}" />
<property name="error" value="{error}" /><property name="tolerance" value="1e-05" />
</properties></testcase>"""


@pytest.fixture
def compatibility(monkeypatch):
    module = script("compatibility", monkeypatch)
    monkeypatch.setattr(module.torch, "set_num_threads", lambda count: None)
    return module


def report(cases):
    body = "".join(CASE.format(name="test", **case) for case in cases)
    return f'<testsuites><testsuite time="1.5">{body}</testsuite></testsuites>'


def pretend(module, monkeypatch, words, passed=True):
    """A test run that leaves these words as its report."""

    def run(report, *_):
        report.write_text(words)
        return passed

    monkeypatch.setattr(module, "passed", run)


def test_what_tests_measured_goes_into_the_record_and_onto_the_page(
    compatibility, tmp_path, monkeypatch
):
    cases = [
        {"route": route, "architecture": each, "situation": "full pass", "error": error}
        for route in ("enable_rove", "rove_hooks")
        for each, error in (("llama", 2e-7), ("phi3", 0.0))
    ]
    pretend(compatibility, monkeypatch, report(cases))
    page = tmp_path / "page.md"
    page.write_text("before\n\n% The tables begin. Words.\nold\n% The tables end.\n\nafter\n")
    compatibility.main(folder=tmp_path, page=page)
    record = read_record(tmp_path)
    found = record.values["enable_rove"]["full pass"]
    assert found["llama"] == {"error": [2e-7], "tolerance": [1e-5]}
    assert list(record.values) == ["enable_rove", "rove_hooks"]
    assert record.cpu_s == 1.5
    words = page.read_text()
    assert "| full pass | 2e−07 | – |" in words
    assert "| 0e+00 | 1e−05 |" in words
    assert "old" not in words
    assert words.startswith("before\n\n% The tables begin. Words.\n")
    assert words.endswith("% The tables end.\n\nafter\n")
    assert compatibility.with_tables(words, record.values) == words


def test_a_failed_run_and_a_silent_test_write_nothing(compatibility, tmp_path, monkeypatch):
    pretend(compatibility, monkeypatch, report([]), passed=False)
    with pytest.raises(SystemExit, match="a test failed: no record was written"):
        compatibility.main(folder=tmp_path)
    silent = '<testsuite time="1"><testcase classname="tests.test_it" name="x" /></testsuite>'
    pretend(compatibility, monkeypatch, silent)
    with pytest.raises(ValueError, match="expected x to record what it measured"):
        compatibility.main(folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_committed_record_has_every_cell_within_its_tolerance_and_the_page_shows_it(
    compatibility,
):
    record = open_record("compatibility")
    cells = {
        "enable_rove": rove_situations.CELLS,
        "rove_hooks": [(each, name) for each, name, rove in lens_models.CELLS if rove],
        "the bridge alone": [(each, name) for each, name, rove in lens_models.CELLS if not rove],
    }
    assert {*record.values} == {*cells}
    for route, expected in cells.items():
        found = record.values[route]
        assert {(each, name) for name, row in found.items() for each in row} == {*expected}
        for cell in (cell for row in found.values() for cell in row.values()):
            assert cell["error"][0] < cell["tolerance"][0]
    page = (ROOT / "book" / "compatibility.md").read_text(encoding="utf-8")
    assert compatibility.with_tables(page, record.values) == page
