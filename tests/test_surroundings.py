"""The commit, the versions and the device that a record is stamped with."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rove_lab.surroundings import surroundings

ROOT = Path(__file__).resolve().parents[1]


def git(root, *arguments):
    settings = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(
        ["git", *settings, *arguments], cwd=root, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_the_commit_is_the_code_s_and_says_where_that_had_changed(tmp_path, monkeypatch):
    git(tmp_path, "init", "-q")
    script, other = tmp_path / "script_of_this_test.py", tmp_path / "other.py"
    script.write_text("x = 1\n"), other.write_text("y = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "one")
    head = git(tmp_path, "rev-parse", "HEAD")
    monkeypatch.syspath_prepend(str(tmp_path))
    __import__("script_of_this_test")
    try:
        assert surroundings(tmp_path)["commit"] == head
        other.write_text("y = 2\n")  # not loaded: no part of what was measured
        assert surroundings(tmp_path)["commit"] == head
        script.write_text("x = 2\n")
        assert surroundings(tmp_path)["commit"] == f"{head}-dirty"
    finally:
        del sys.modules["script_of_this_test"]


def test_no_checkout_is_refused(tmp_path, monkeypatch):
    monkeypatch.delenv("ROVE_LAB_COMMIT", raising=False)
    with pytest.raises(ValueError, match=r"expected a git checkout at .*got none"):
        surroundings(tmp_path)


def test_a_copy_without_git_is_told_its_commit_and_a_checkout_is_not(tmp_path, monkeypatch):
    for told in ("0f" * 20, "0f" * 20 + "-dirty"):
        monkeypatch.setenv("ROVE_LAB_COMMIT", told)
        assert surroundings(tmp_path)["commit"] == told
        assert surroundings(ROOT)["commit"] != told
    monkeypatch.setenv("ROVE_LAB_COMMIT", "main")
    with pytest.raises(ValueError, match=r"set ROVE_LAB_COMMIT to what `git rev-parse HEAD`"):
        surroundings(tmp_path)


def test_versions_and_device_are_told():
    found = surroundings(ROOT)
    assert re.match(r"\d+\.\d+", found["versions"]["torch"])
    assert "python" in found["versions"]
    assert found["device"]


def test_the_threads_are_those_of_the_processes_that_work(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "CPU, 3 threads" in surroundings(Path(__file__).parent, threads=3)["device"]
