"""benchmarks/mutation.py: changes that are made, and what becomes of them."""

import ast

import pytest
from experiment_scripts import ROOT, script

SOURCE = '''
def double(x: int = 2, *, slow: bool = False) -> int:
    """Twice x, or an error of 5 words."""
    if x < 0:
        raise ValueError(f"expected 0 or more, got {x + 1}")
    return x * 2
'''
TEST = """
import pytest
from rove_lab.sums import double


def test_double():
    assert double(3) == 6
    with pytest.raises(ValueError, match="or more, got -1"):
        double(-2)
"""

EXPECTED = {
    "False -> True": "survived",
    "x * 2 -> x / 2": "killed",
}


@pytest.fixture
def mutation(monkeypatch):
    return script("mutation", monkeypatch, "benchmarks")


def test_one_thing_changes_and_it_is_no_docstring_and_no_words_of_an_error(mutation):
    found = mutation.mutants("sums", SOURCE)
    assert [mutant.words for mutant in found] == [
        "False -> True",
        "2 -> 3",
        "if x < 0: -> if not x < 0:",
        "x < 0 -> x <= 0",
        "0 -> 1",
        "raise ValueError(f'expected 0 or more, got {x + 1}') -> pass",
        "return x * 2 -> return None",
        "x * 2 -> x / 2",
        "2 -> 3",
    ]
    assert [mutant.line for mutant in found] == [2, 2, 4, 4, 4, 5, 6, 6, 6]
    plain = ast.unparse(ast.parse(SOURCE))
    assert len({plain, *(mutant.source for mutant in found)}) == 10
    for mutant in found:
        assert plain.count("\n") == mutant.source.count("\n")
        lines = zip(plain.splitlines(), mutant.source.splitlines(), strict=True)
        assert sum(a != b for a, b in lines) == 1
    assert str(found[0]) == "sums.py:2: False -> True"


def test_every_module_and_test_file_is_there(mutation):
    for module, files in mutation.TESTS.items():
        assert (ROOT / "rove_lab" / f"{module}.py").exists()
        assert all((ROOT / "tests" / f"{name}.py").exists() for name in files.split())


def test_a_sample_is_the_seeds(mutation, monkeypatch):
    monkeypatch.setattr(mutation, "TESTS", {"kernels": ""})
    sample, counts = mutation.drawn(20, 7)
    assert sample == mutation.drawn(20, 7)[0] != mutation.drawn(20, 8)[0]
    assert len({mutant.source for mutant in sample}) == 20 < counts["kernels"]


def test_what_a_test_sees_is_killed_and_what_none_sees_survives(mutation, tmp_path, monkeypatch):
    root = tmp_path / "root"
    for name in ("rove_lab", "tests"):
        (root / name).mkdir(parents=True)
    (root / "rove_lab" / "__init__.py").touch()
    (root / "rove_lab" / "sums.py").write_text(SOURCE)
    (root / "tests" / "test_sums.py").write_text(TEST)
    (root / "tests" / "conftest.py").touch()
    for name in ("pyproject.toml", "README.md"):
        (root / name).touch()
    monkeypatch.setattr(mutation, "ROOT", root)
    monkeypatch.setattr(mutation, "TESTS", {"sums": "test_sums"})
    sample, counts = mutation.drawn(99, 0)
    assert counts == {"sums": len(sample)}
    chosen = [mutant for mutant in sample if mutant.words in EXPECTED]
    found = mutation.tried(chosen, workers=1, timeout=300.0)
    assert {mutant.words: said for mutant, said in found.items()} == EXPECTED
    assert (root / "rove_lab" / "sums.py").read_text() == SOURCE
    tree = mutation.Tree(tmp_path / "hurried", 0.01)
    assert tree.outcome("sums", SOURCE) == "timed out"
    with pytest.raises(RuntimeError, match=r"the tests of sums to pass unchanged within 0\.01 s"):
        mutation.tried(chosen, workers=1, timeout=0.01)
