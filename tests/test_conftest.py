"""The choice of a browser: skipped with one line where there is none, insisted on in CI."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import find_browser

CONFTEST = [Path(__file__).with_name(name) for name in ("conftest.py", "built_book.py")]


def browser(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_first_browser_on_the_path_is_taken(tmp_path, monkeypatch):
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_browser() is None
    last = browser(tmp_path, "google-chrome")
    assert find_browser() == last
    first = browser(tmp_path, "chromium")
    assert find_browser() == first


def test_a_chosen_browser_goes_first_and_must_exist(tmp_path, monkeypatch):
    browser(tmp_path, "chromium")
    chosen = browser(tmp_path, "mine")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CHROMIUM", str(chosen))
    assert find_browser() == chosen
    monkeypatch.setenv("CHROMIUM", "not-there")
    with pytest.raises(FileNotFoundError, match="CHROMIUM=not-there is not a program"):
        find_browser()


def run_without_a_browser(folder: Path, **environment: str) -> str:
    """What pytest prints about two tests that want a browser where there is none."""
    for file in CONFTEST:
        shutil.copy(file, folder)
    (folder / "test_page.py").write_text(
        "def test_one(chromium_path): pass\n\n\ndef test_two(chromium_path): pass\n"
    )
    kept = {key: value for key, value in os.environ.items() if key not in {"CI", "CHROMIUM"}}
    command = [sys.executable, "-m", "pytest", "-rsE", "--tb=line", "-p", "no:cacheprovider", "."]
    done = subprocess.run(
        command, cwd=folder, env={**kept, "PATH": "", **environment}, capture_output=True, text=True
    )
    return done.stdout


def test_a_newcomer_without_a_browser_reads_one_line(tmp_path):
    printed = run_without_a_browser(tmp_path)
    assert "2 skipped" in printed
    assert printed.count("no browser: none of chromium, chromium-browser, google-chrome") == 1


def test_continuous_integration_insists(tmp_path):
    printed = run_without_a_browser(tmp_path, CI="true")
    assert "2 errors" in printed
    assert "skipped" not in printed
    assert "no browser: none of chromium" in printed
