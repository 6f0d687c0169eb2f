r"""Text as bytes, cut into windows: Python's own standard library is a corpus in every reach."""

from __future__ import annotations

import copy
import hashlib
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Generic, NamedTuple, Self, TypeVar

import torch
from torch import Tensor

from rove_lab.arguments import check_size
from rove_lab.next_token import NextToken

__all__ = ["ByteText", "Split", "is_held_out", "standard_library", "text_files"]

_BLOCK = 4096  # bytes: what counts as a document in a file that is the whole corpus
# Not prose of programmers: tests are lists of cases, and some systems leave them out.
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}


class ByteText(NextToken):
    """A text as bytes: predict each byte from those before it, in nats per byte.

    Args:
        documents: Texts as bytes; they are read one after the other, a zero byte between two.
        n_ctx: Bytes of a window, each the context of the one after it.

    Raises:
        TypeError: If a document is not bytes.
        ValueError: If all together are shorter than a window and the byte after it.

    Example:
        >>> text = ByteText([b"RoVE turns values. "], n_ctx=8)
        >>> inputs, targets = next(text.batches(2, seed=0))
        >>> inputs.shape, bool((inputs[:, 1:] == targets[:, :-1]).all())
        (torch.Size([2, 8]), True)
    """

    d_in = 256
    unit = "byte"

    def __init__(self, documents: Sequence[bytes], n_ctx: int) -> None:
        for document in documents:
            if not isinstance(document, bytes):
                raise TypeError(
                    f"expected documents as bytes, got {type(document).__name__}: .encode() it."
                )
        self.n_documents = len(documents)
        joined = bytearray(b"\0".join(documents))
        self.n_ctx = self._check_length(n_ctx, len(joined))
        self.bytes = torch.frombuffer(joined, dtype=torch.uint8)

    def _check_length(self, n_ctx: int, n_bytes: int) -> int:
        if n_bytes <= check_size("n_ctx", n_ctx):
            raise ValueError(
                f"expected more than n_ctx={n_ctx} bytes of text, got {n_bytes} in "
                f"{self.n_documents} documents: give more text or a smaller n_ctx."
            )
        return n_ctx

    def __repr__(self) -> str:
        """Its size; the text itself would be megabytes."""
        return (
            f"ByteText({self.n_documents} documents, {len(self.bytes)} bytes, n_ctx={self.n_ctx})"
        )

    @property
    def n_tokens(self) -> int:
        """Bytes in all."""
        return len(self.bytes)

    @property
    def counts(self) -> Tensor:
        """How often each byte occurs, ``[256]``."""
        return self.bytes.bincount(minlength=256)

    def at_length(self, n_ctx: int) -> Self:
        """The same text, not copied, in windows of ``n_ctx`` bytes."""
        other = copy.copy(self)
        other.n_ctx = self._check_length(n_ctx, len(self.bytes))
        return other

    def batches(self, batch_size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Windows that start anywhere, without end, the same for the same seed.

        Args:
            batch_size: Windows of a batch.
            seed: Of their places.

        Yields:
            Bytes ``[batch, n_ctx]`` as integers, and the byte after each, ``[batch, n_ctx]``.
        """
        generator = torch.Generator().manual_seed(seed)
        within = torch.arange(self.n_ctx + 1)
        while True:
            starts = torch.randint(
                len(self.bytes) - self.n_ctx, (batch_size, 1), generator=generator
            )
            windows = self.bytes[starts + within].long()
            yield windows[:, :-1], windows[:, 1:]


TextT = TypeVar("TextT", bound=NextToken)


class Split(NamedTuple, Generic[TextT]):
    """A corpus in two parts that share no document.

    Args:
        train: To learn from.
        held_out: To be scored on.

    Example:
        >>> Split(*(ByteText([word], n_ctx=2) for word in (b"learn", b"score"))).held_out
        ByteText(1 documents, 5 bytes, n_ctx=2)
    """

    train: TextT
    held_out: TextT


def is_held_out(name: str, one_in: int = 10) -> bool:
    """Whether a document is kept for scoring: its name alone decides, so it is the same everywhere.

    The first byte of the SHA-256 hash of the name is below 256 / ``one_in``.

    Args:
        name: The document's name, or whatever else identifies it.
        one_in: About one document in this many is held out, 256 at most.

    Returns:
        True for a document to score on, False for one to learn from.

    Raises:
        ValueError: If ``one_in`` is not between 2 and 256.

    Example:
        >>> sum(is_held_out(f"document {number}") for number in range(1000))
        116
    """
    if not 2 <= check_size("one_in", one_in) <= 256:
        raise ValueError(f"expected one_in from 2 to 256, got {one_in}: 10 holds out a tenth.")
    return hashlib.sha256(name.encode(errors="surrogateescape")).digest()[0] * one_in < 256


def standard_library(n_ctx: int, folder: Path | str | None = None) -> Split[ByteText]:
    """The sources of Python's standard library, about 10 MB, in every Python and offline.

    Each document is a file; a tenth, chosen by the hash of its name, is held out, so that the
    split is the same on every machine with the same Python. Tests are left out. Files resemble one
    another, above all the tables of ``encodings``: a twelfth of the strings of 200 bytes in the
    held-out files stand in the others, too (Python 3.11). Models are compared on the same ones.

    Args:
        n_ctx: Bytes of a window.
        folder: Another folder whose ``.py`` files to read.

    Returns:
        The two parts.

    Raises:
        FileNotFoundError: If there is no such folder, or no ``.py`` file in it.
        ValueError: If a part is shorter than a window and the byte after it.

    Example:
        >>> standard_library(n_ctx=128).train.n_ctx
        128
    """
    root = Path(folder or sysconfig.get_paths()["stdlib"])
    files = sorted(
        file for file in root.rglob("*.py") if not _LEFT_OUT & {*file.relative_to(root).parts}
    )
    if not files:
        raise FileNotFoundError(
            f"expected .py files in {root}, got none: pass a folder that holds some."
        )
    return _split(((file.relative_to(root).as_posix(), file.read_bytes()) for file in files), n_ctx)


def text_files(path: Path | str, n_ctx: int) -> Split[ByteText]:
    """Any text: a folder of text files, or one text file, as bytes in whatever encoding they are.

    In a folder each file is a document, subfolders included; a tenth, chosen by the hash of its
    name within the folder, is held out. Names that begin with a dot are left out, and so are empty
    files. A single file is one document, of which no part can be held out by name: it is cut into
    blocks of 4096 bytes, and a block is held out by the hash of its number, so that text added at
    the end moves nothing. A held-out block then goes on where training text ended: it is unseen,
    but of the same document. The first block held out is the tenth (40 kB).

    Args:
        path: The folder, or the file.
        n_ctx: Bytes of a window.

    Returns:
        The two parts.

    Raises:
        FileNotFoundError: If there is no such path, or no file in the folder.
        OSError: If a file cannot be read.
        ValueError: If a file is not text, or a part is shorter than a window.

    Example:
        >>> text_files(torch.__file__, n_ctx=16).held_out.n_ctx
        16
    """
    root = Path(path)
    if root.is_file():
        return _split(_blocks(_read_text(root)), n_ctx)
    if not root.is_dir():
        raise FileNotFoundError(
            f"expected a text file or a folder of text files at {root}, got nothing there: check "
            "the path."
        )
    files = {file.relative_to(root).as_posix(): file for file in root.rglob("*") if file.is_file()}
    names = sorted(name for name in files if "/." not in f"/{name}")
    if not names:
        raise FileNotFoundError(f"expected text files in {root}, got none: pass another folder.")
    texts = ((name, _read_text(files[name])) for name in names)
    return _split(((name, text) for name, text in texts if text), n_ctx)


def _read_text(file: Path) -> bytes:
    content = file.read_bytes()
    if b"\0" in content:  # no encoding of text but UTF-16 and UTF-32 has one; it ends a document
        raise ValueError(
            f"expected text in {file}, got a zero byte, as binary files and UTF-16 have: take the "
            "file out of the folder, or convert it to UTF-8."
        )
    return content


def _blocks(text: bytes) -> Iterator[tuple[str, bytes]]:
    """Blocks under names by which they are held out or not; neighbours of one part stay joined."""
    numbers = range(-(-len(text) // _BLOCK))
    for _, run in groupby(numbers, key=lambda number: is_held_out(str(number))):
        first, *_, last = [*run] * 2
        yield str(first), text[first * _BLOCK : (last + 1) * _BLOCK]


def _split(documents: Iterable[tuple[str, bytes]], n_ctx: int) -> Split[ByteText]:
    parts: tuple[list[bytes], list[bytes]] = ([], [])
    for name, content in documents:
        parts[is_held_out(name)].append(content)
    sizes = [len(b"\0".join(part)) for part in parts]
    if min(sizes) <= check_size("n_ctx", n_ctx):
        raise ValueError(
            f"expected more than n_ctx={n_ctx} bytes in each part, got {sizes[0]} to train on and "
            f"{sizes[1]} held out: give more text or a smaller n_ctx. (A folder needs about "
            f"ten files, a single file ten blocks of {_BLOCK} bytes.)"
        )
    return Split(*(ByteText(part, n_ctx) for part in parts))
