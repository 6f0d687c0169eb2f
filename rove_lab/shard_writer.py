r"""Documents of tokens into shards on the disk: stopped at any point, it goes on from there."""

from __future__ import annotations

import errno
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

from rove_lab.data import is_held_out
from rove_lab.progress import ProgressLine
from rove_lab.shard_index import PARTS, Shard, ShardIndex, read_index, write_index
from rove_lab.whole_files import whole_file

try:
    import numpy as np
except ImportError as error:
    raise ImportError(
        'token shards are written with numpy, which is missing: pip install "rove-lab[training]"'
    ) from error

__all__ = ["write_shards"]

Document = tuple[str, Sequence[int]]
_DISK_IS_FULL = {errno.ENOSPC, errno.EDQUOT}
_DOCUMENTS_BETWEEN_LINES = 200


def write_shards(
    documents: Callable[[int], Iterable[Document]],
    folder: Path | str,
    begun: ShardIndex,
    *,
    progress: bool = True,
) -> ShardIndex:
    """Write documents into shards, or go on where an earlier call with the same settings stopped.

    Two files grow at a time: the documents to learn from, and those held out by the hash of their
    names (:func:`rove_lab.data.is_held_out`). They end with the document that brings both together
    to ``shard_tokens``; then they appear under their names, and ``index.json`` lists them. So
    whatever stops the writing, a kill or a full disk, costs these two and no others, and going on
    gives the same bytes as never having stopped. A finished folder stays as it is, but for files
    that are missing: they are written anew.

    Args:
        documents: Called with a number n, gives the documents from the n-th on, the same ones at
            every call: a name and the tokens of each.
        folder: Where to; made where it is missing.
        begun: The settings: an index without shards.
        progress: Whether to print a line with documents, tokens and tokens per second now and then.

    Returns:
        The index of the finished folder.

    Raises:
        OSError: If the disk is full, or cannot be written to.
        TypeError: If a document is not a name and integers.
        ValueError: If the folder holds shards of other settings or of unknown ones, the documents
            are not the ones it was begun with, there are none, or a token is not in the vocabulary.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> begun = ShardIndex("letters", "the same call", d_vocab=27, end_of_text=0)
        >>> with TemporaryDirectory() as folder:
        ...     write_shards(lambda n: [("abc", [1, 2])][n:], folder, begun, progress=False).tokens
        3
    """
    folder = Path(folder)
    line = _Line(progress)
    try:
        index = _begin(folder, begun)
        line.go_on_from(index)
        source = _Source(documents)
        _mend(source, folder, index, line)
        while not index.finished:
            source.go_to(index.documents)
            wanted = _tokens_left(index, index.tokens)
            number = index.shards[-1].number + 1 if index.shards else 0
            shards = _write_files(source, folder, number, wanted, index, line)
            if not (index.shards or shards):
                raise ValueError(f"expected documents, got none from {index.source}.")
            index = replace(index, shards=(*index.shards, *shards))
            all_there_are = sum(shard.tokens for shard in shards) < wanted
            index = replace(index, finished=all_there_are or not _tokens_left(index, index.tokens))
            write_index(index, folder)
    except KeyboardInterrupt:
        line.end(f"interrupted: all finished shards are kept. Go on with: {begun.go_on}")
        raise
    except OSError as error:
        if error.errno not in _DISK_IS_FULL:
            raise
        raise OSError(
            error.errno,
            f"{error.strerror}: the disk of {folder} is full. All finished shards are kept: make "
            f"room, then go on with: {begun.go_on}",
        ) from error
    line.end(f"{index.documents} documents, {index.tokens} tokens in {folder}: done")
    return index


def _begin(folder: Path, begun: ShardIndex) -> ShardIndex:
    """The index to go on from."""
    listed = (folder / "index.json").exists()
    theirs = sorted(file.name for part in PARTS for file in folder.glob(f"{part}-*.bin"))
    if theirs and not listed:
        raise ValueError(
            f"expected an index.json beside the shards in {folder}, got {theirs[0]} alone: choose "
            "another folder, or move them away."
        )
    index = read_index(folder) if listed else begun
    if not index.shards:
        folder.mkdir(parents=True, exist_ok=True)
        write_index(begun, folder)
        return begun
    ours = vars(begun.begun_as())
    for name, value in vars(index.begun_as()).items():
        if ours[name] != value:
            raise ValueError(
                f"expected {name} {value!r}, with which the shards in {folder} were begun, got "
                f"{ours[name]!r}: go on with the former, or choose another folder."
            )
    return replace(index, go_on=begun.go_on)


class _Source:
    """Documents in turn, from wherever they are asked for."""

    def __init__(self, documents: Callable[[int], Iterable[Document]]) -> None:
        self.documents, self.at = documents, -1
        self.stream: Iterator[Document] = iter(())

    def go_to(self, number: int) -> None:
        if self.at != number:
            self.stream, self.at = iter(self.documents(number)), number

    def next(self) -> Document | None:
        self.at += 1
        return next(self.stream, None)


def _mend(source: _Source, folder: Path, index: ShardIndex, line: _Line) -> None:
    """Write anew what the index lists and the folder has no more."""
    documents = tokens = 0
    for number, group in groupby(index.shards, key=lambda shard: shard.number):
        listed = tuple(group)
        if any(_is_missing(shard, folder, index) for shard in listed):
            source.go_to(documents)
            wanted = _tokens_left(index, tokens)
            if _write_files(source, folder, number, wanted, index, line) != listed:
                raise ValueError(
                    f"expected the documents that shard {number} in {folder} was made of, got "
                    "others: the source has changed. Prepare it in another folder."
                )
        documents += sum(shard.documents for shard in listed)
        tokens += sum(shard.tokens for shard in listed)


def _is_missing(shard: Shard, folder: Path, index: ShardIndex) -> bool:
    path = folder / shard.name
    return not path.is_file() or path.stat().st_size != shard.tokens * index.bytes_per_token


def _tokens_left(index: ShardIndex, written: int) -> int:
    """How many more the next two files may hold."""
    left = index.shard_tokens if index.n_tokens is None else index.n_tokens - written
    return max(0, min(index.shard_tokens, left))


@dataclass
class _Growing:
    """A file to which documents are added."""

    file: BinaryIO
    sha256: Any
    documents: int = 0
    tokens: int = 0

    def add(self, tokens: Any) -> None:
        content = tokens.tobytes()
        self.file.write(content)
        self.sha256.update(content)
        self.documents += 1
        self.tokens += len(tokens)


def _write_files(
    source: _Source, folder: Path, number: int, wanted: int, index: ShardIndex, line: _Line
) -> tuple[Shard, ...]:
    """The files of one number, up to the document that brings them to so many tokens."""
    growing: dict[bool, _Growing] = {}
    n_tokens = 0
    with ExitStack() as files:  # on leaving it they are forced to the disk and get their names
        while n_tokens < wanted and (document := source.next()) is not None:
            tokens = _checked(*document, index)
            held_out = is_held_out(document[0], index.held_out_one_in)
            if held_out not in growing:
                path = folder / Shard(number, held_out, 0, 0, "").name
                growing[held_out] = _Growing(
                    files.enter_context(whole_file(path)), hashlib.sha256()
                )
            growing[held_out].add(tokens)
            n_tokens += len(tokens)
            line.count(len(tokens))
    return tuple(
        Shard(number, held_out, file.documents, file.tokens, file.sha256.hexdigest())
        for held_out, file in sorted(growing.items())
    )


def _checked(name: str, tokens: Sequence[int], index: ShardIndex) -> Any:
    """The tokens as they are stored, the end-of-text token last."""
    given = np.asarray(tokens) if len(tokens) else np.empty(0, np.int64)
    if not isinstance(name, str) or given.ndim != 1 or given.dtype.kind not in "iu":
        raise TypeError(
            f"expected documents as a name and a list of integers, got {type(name).__name__} and "
            f"{given.dtype} of shape {list(given.shape)}."
        )
    if len(given) and not 0 <= given.min() <= given.max() < index.d_vocab:
        raise ValueError(
            f"expected tokens from 0 to d_vocab - 1 = {index.d_vocab - 1}, got {given.min()} to "
            f"{given.max()} in the document {name[:60]!r}: d_vocab is of another tokenizer."
        )
    return np.append(given, index.end_of_text).astype(f"<u{index.bytes_per_token}")


class _Line:
    """How far the writing is."""

    def __init__(self, shown: bool) -> None:
        self.line, self.started = ProgressLine(shown), time.perf_counter()
        self.documents = self.tokens = 0  # written by this call

    def go_on_from(self, index: ShardIndex) -> None:
        self.before = index

    def count(self, tokens: int) -> None:
        self.documents += 1
        self.tokens += tokens
        if self.documents % _DOCUMENTS_BETWEEN_LINES:
            return
        speed = self.tokens / (time.perf_counter() - self.started)
        documents, done = self.before.documents + self.documents, self.before.tokens + self.tokens
        words = f"{documents} documents, {done / 1e6:.1f} M tokens, {speed:.0f} tokens/s"
        if (wanted := self.before.n_tokens) is not None:
            words += f", {max(0, wanted - done) / speed:.0f} s left"
        self.line.write(words)

    def end(self, words: str) -> None:
        self.line.end(words)
