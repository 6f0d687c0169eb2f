"""A chapter's record is made in its own kernel, and comes back from the cache as it was made."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import plotly
import pytest
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupyter_cache.executors.utils import single_nb_execution

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "book" / "_ext"))

import execution_record
from execution_record import KEY, commit_of, few_cores, record_of, recording

HOW = {"cwd": None, "timeout": 120, "allow_errors": False}


def notebook(*cells: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in cells],
        metadata={"kernelspec": {"name": "python3", "display_name": "", "language": "python"}},
    )


def test_the_record_is_what_the_kernel_imported_and_how_long_its_cells_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution_record, "commit_of", lambda root: ("abc1234", True))
    given = notebook("import time, plotly", "", "time.sleep(0.3)")
    result = recording(single_nb_execution)(given, **HOW)
    assert result.err is None
    assert [cell.source for cell in given.cells] == ["import time, plotly", "", "time.sleep(0.3)"]
    assert all("execution" not in cell.metadata for cell in given.cells)
    record = given.metadata[KEY]
    assert record["versions"] == {"plotly": plotly.__version__}
    assert (record["commit"], record["changed"]) == ("abc1234", True)
    assert 0.3 <= record["seconds"] <= result.time
    assert record["cores"] in {1, 2}

    # The cache gives it back to the notebook as committed, whatever is installed by then.
    get_cache(str(tmp_path)).cache_notebook_bundle(
        CacheBundleIn(given, "chapter.ipynb", data={}), check_validity=False
    )
    monkeypatch.setattr(execution_record, "commit_of", lambda root: ("fffffff", False))
    fresh = notebook("import time, plotly", "", "time.sleep(0.3)")
    assert record_of(fresh, tmp_path) == record


def test_a_notebook_that_fails_is_given_back_whole_and_without_a_record() -> None:
    given = notebook("1 / 0")
    result = recording(single_nb_execution)(given, **HOW)
    assert "ZeroDivisionError" in str(result.err)
    assert [cell.source for cell in given.cells] == ["1 / 0"]
    assert KEY not in given.metadata


def test_a_cache_without_the_notebook_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match=r"expected the notebook's outputs .* `make clean`"):
        record_of(notebook("1"), tmp_path)


def test_cells_run_on_two_cores_and_the_build_gets_its_own_back() -> None:
    before = os.sched_getaffinity(0)
    with few_cores() as cores:
        assert os.sched_getaffinity(0) <= before
        assert cores == len(os.sched_getaffinity(0)) == min(2, len(before))
    assert os.sched_getaffinity(0) == before


def test_a_system_that_cannot_choose_cores_says_how_many_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sched_setaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 10)
    with few_cores() as cores:
        assert cores == 10


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    (root / "inside").mkdir(parents=True)
    (root / "inside" / "code.py").write_text("1\n")
    for command in (
        ["init", "--quiet"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "first"],
    ):
        subprocess.run(["git", "-C", str(root), *command], check=True)
    return root


def test_a_commit_is_named_and_changes_are_told(checkout: Path) -> None:
    commit, changed = commit_of(checkout)
    full = subprocess.check_output(["git", "-C", str(checkout), "rev-parse", "HEAD"], text=True)
    assert full.startswith(commit)
    assert 7 <= len(commit) < 40
    assert not changed
    (checkout / "inside" / "code.py").write_text("2\n")
    assert commit_of(checkout) == (commit, True)


def test_a_download_has_no_commit_not_even_that_of_what_it_lies_in(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert commit_of(checkout / "inside") == (None, False)
    assert commit_of(tmp_path) == (None, False)
    monkeypatch.setenv("PATH", "")
    assert commit_of(checkout) == (None, False)
