r"""Files and folders on disk that are whole or not there at all, and the hash of a file."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["read_json", "sha256", "whole_file", "write_folder"]


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write that appears under its name when it is whole, and not at all otherwise.

    It is written under another name, forced to the disk, then renamed: not even a power cut leaves
    a half of it. What fails leaves nothing behind.

    Args:
        path: Of the file, replaced where there is one.

    Yields:
        The open file.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, whole_file(Path(folder) / "a") as file:
        ...     file.write(b"text"), (Path(folder) / "a").exists()
        (4, False)
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    _names_to_disk(path.parent)


def write_folder(folder: Path | str, write: Callable[[Path], None]) -> Path:
    """Make a folder whole or not at all: write it under another name, then rename it.

    The other names are ``.NAME.partial`` and, for what is replaced, ``.NAME.replaced``; they are
    this function's own. Where a kill fell between the two renames the next call puts the latter
    back first. A link to a folder stays a link.

    Args:
        folder: The folder to be; one that is there is replaced.
        write: Writes the files into the path it is given.

    Returns:
        The folder.

    Raises:
        OSError: If it cannot be written; the folder is as it was.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write_folder(f"{folder}/new", lambda place: None).name
        'new'
    """
    asked, folder = Path(folder), Path(folder).resolve()
    partial, old = (folder.parent / f".{folder.name}.{end}" for end in ("partial", "replaced"))
    shutil.rmtree(partial, ignore_errors=True)
    try:
        if old.exists() and not folder.exists():
            old.rename(folder)
        partial.mkdir(parents=True)
        write(partial)
        for file in partial.rglob("*"):
            if file.is_file():
                # A rename may reach the disk before what it names: after a power cut the file would
                # be empty. Windows forces none to the disk that is open for reading alone.
                with file.open("r+b") as opened:
                    os.fsync(opened.fileno())
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)
            folder.rename(old)
        partial.rename(folder)
        _names_to_disk(folder.parent)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        if old.exists() and not folder.exists():
            old.rename(folder)
        raise OSError(
            f"expected room to write {asked}, got: {error}. Make room, or choose another folder."
        ) from error
    shutil.rmtree(old, ignore_errors=True)
    return asked


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hex.

    Args:
        path: The file.

    Returns:
        64 hex digits.

    Example:
        >>> len(sha256(Path(__file__)))
        64
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Args:
        path: The file.

    Returns:
        Its names and values.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it holds no JSON object.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder) / "a.json"
        ...     file.write_text('{"n": 1}'), read_json(file)
        (8, {'n': 1})
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"expected {path.name} in {path.parent}, got none: is this the right folder?"
        )
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"expected JSON in {path}, got a damaged file: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"expected names and values in {path}, got {type(found).__name__}.")
    return found


def _names_to_disk(folder: Path) -> None:
    """The names in a folder; where folders cannot be opened, as on Windows, the system's matter."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
