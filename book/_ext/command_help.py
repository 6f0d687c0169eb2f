"""Sphinx extension: what a command of the command line prints for --help, in the page.

A block ``{command-help} train`` is replaced while the book is built: the page is never out of date.
"""

from __future__ import annotations

import os
import re
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any
from unittest.mock import patch

from sphinx.errors import ExtensionError

from rove_lab.command_line import run

WIDTH = "80"  # columns: a page has no more
BLOCK = re.compile(r"^```\{command-help\}(.*)\n```$", re.MULTILINE)


def help_of(command: str) -> str:
    """What the command prints for --help.

    Raises:
        ExtensionError: If there is no such command, which ends the build.
    """
    said, refused = StringIO(), StringIO()
    with (
        patch.dict(os.environ, COLUMNS=WIDTH),
        redirect_stdout(said),
        redirect_stderr(refused),
    ):
        status = run([*command.split(), "--help"])
    if status:
        raise ExtensionError(f"command-help: {refused.getvalue().strip()}")
    return said.getvalue().rstrip()


def with_help(source: str) -> str:
    """A page's source with each ``{command-help}`` block replaced by what is printed."""
    return BLOCK.sub(lambda block: f"```text\n{help_of(block[1].strip())}\n```", source)


def read_page(app: Any, name: str, source: list[str]) -> None:
    """Put the help into the source of a page as Sphinx reads it."""
    if BLOCK.search(source[0]):
        source[0] = with_help(source[0])
        app.env.note_reread()  # the commands may have changed, where the page has not


def setup(app: Any) -> dict[str, Any]:
    """Follow every page that is read."""
    app.connect("source-read", read_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
