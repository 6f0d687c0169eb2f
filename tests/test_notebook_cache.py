"""Notebooks run again when what they import or what is pinned has changed, and only then."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "book" / "_ext"))

import notebook_cache

READ = [
    "rove_lab/rotary.py",
    "rove_lab/deep/part.py",
    "requirements.txt",
    "book/_ext/execution_record.py",
    "results/messenger/record.json",
    "tools/steps.py",
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in [*READ, "README.md"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.mark.parametrize("name", READ)
def test_a_change_in_code_or_pins_changes_the_fingerprint(project: Path, name: str) -> None:
    before = notebook_cache.fingerprint(project)
    assert notebook_cache.fingerprint(project) == before
    (project / name).write_text("changed")
    assert notebook_cache.fingerprint(project) != before


def test_moving_code_between_files_changes_it_and_prose_does_not(project: Path) -> None:
    before = notebook_cache.fingerprint(project)
    (project / "README.md").write_text("changed")
    assert notebook_cache.fingerprint(project) == before
    (project / "rove_lab/rotary.py").rename(project / "rove_lab/rotation.py")
    assert notebook_cache.fingerprint(project) != before


def test_the_build_keeps_one_cache_and_tells_kernels_where_they_are(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    monkeypatch.setenv("ROVE_BOOK_BUILD", "")
    monkeypatch.setenv("PLOTLY_RENDERER", "browser")
    monkeypatch.setenv("IPYTHONDIR", "the reader's")
    monkeypatch.setattr(sys, "path", [*sys.path])
    old = project / "_build" / ".jupyter_cache" / "0123456789ab"
    old.mkdir(parents=True)
    app = SimpleNamespace(srcdir=str(project), outdir=str(project / "_build" / "html"))
    config = SimpleNamespace(nb_execution_cache_path="")
    notebook_cache.prepare(app, config)
    chosen = Path(config.nb_execution_cache_path)
    assert chosen == project / "_build" / ".jupyter_cache" / notebook_cache.fingerprint(project)
    assert not old.exists()
    environment = notebook_cache.os.environ
    assert environment["ROVE_BOOK_BUILD"] == "1"
    assert environment["PLOTLY_RENDERER"] == "plotly_mimetype"
    assert environment["PYTHONPATH"].split(notebook_cache.os.pathsep) == [str(project), "elsewhere"]
    assert sys.path[0] == str(project)
    profile = Path(environment["IPYTHONDIR"]) / "profile_default"
    assert [path.name for path in profile.iterdir()] == ["ipython_kernel_config.py"]
