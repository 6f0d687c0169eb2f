"""The page of the command line shows what the commands print."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from sphinx.errors import ExtensionError

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "book" / "_ext"))

import command_help

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "book" / "command_line.md"


def test_the_page_shows_every_command():
    listed = re.findall(r"• ([\w-]+) ", command_help.help_of(""))
    shown = [command.strip() for command in command_help.BLOCK.findall(PAGE.read_text("utf-8"))]
    assert shown[0] == ""
    assert sorted(shown[1:]) == sorted(listed)


def test_the_page_shows_what_is_printed(monkeypatch):
    monkeypatch.setenv("COLUMNS", command_help.WIDTH)
    typed = [sys.executable, "-m", "rove_lab", "train", "--help"]
    printed = subprocess.run(typed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    monkeypatch.delenv("COLUMNS")
    assert command_help.help_of("train") == printed.rstrip()


def test_a_block_is_replaced_by_help_that_fits():
    source = "# Title\n\n```{command-help} generate\n```\n\nWords.\n"
    app, read = SimpleNamespace(env=SimpleNamespace(note_reread=lambda: None)), [source]
    command_help.read_page(app, "page", read)
    printed = command_help.help_of("generate")
    assert read == [f"# Title\n\n```text\n{printed}\n```\n\nWords.\n"]
    assert max(map(len, printed.splitlines())) <= int(command_help.WIDTH)


def test_another_page_stays_as_it_is():
    read = ["```python\n1\n```"]
    command_help.read_page(None, "page", read)
    assert read == ["```python\n1\n```"]


def test_an_unknown_command_ends_the_build():
    with pytest.raises(ExtensionError, match="no-command; Available subcommands"):
        command_help.help_of("no-command")
