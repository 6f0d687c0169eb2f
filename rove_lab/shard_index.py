r"""The index of a folder of token shards: what is in it, how it was made, whether it is whole."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from rove_lab.arguments import check_index, check_size
from rove_lab.whole_files import whole_file

__all__ = ["PARTS", "Shard", "ShardIndex", "read_index", "whole_file", "write_index"]

_FORMAT = "rove_lab token shards, version 1"
PARTS = ("train", "held_out")


@dataclass(frozen=True)
class Shard:
    """One file of tokens: whole documents, the end-of-text token after each, and nothing else.

    Args:
        number: Of the shard. Documents go to two files of the same number: one to learn from, one
            held out.
        held_out: Whether this is the file of those held out.
        documents: In the file.
        tokens: In the file, end-of-text tokens included.
        sha256: Of the file, in hex digits.

    Example:
        >>> Shard(0, False, documents=3, tokens=12, sha256="").name
        'train-00000.bin'
    """

    number: int
    held_out: bool
    documents: int
    tokens: int
    sha256: str

    @property
    def name(self) -> str:
        """Of the file."""
        return f"{PARTS[self.held_out]}-{self.number:05}.bin"


@dataclass(frozen=True)
class ShardIndex:
    """What a folder of token shards holds, and what it was made with.

    Args:
        source: Where the text is from and how it became tokens, in words.
        go_on: What to run to go on where the writing stopped.
        d_vocab: Tokens of the vocabulary.
        end_of_text: The token after each document.
        shard_tokens: A shard ends with the document that brings it to so many tokens.
        n_tokens: The last shard ends with the document that brings all to so many tokens; None for
            all the text there is.
        held_out_one_in: About one document in so many is held out.
        finished: Whether all shards are written.
        shards: The files, in the order of the text.

    Raises:
        TypeError: If a size is not an integer.
        ValueError: If a size is not positive, or the end-of-text token is not in the vocabulary.

    Example:
        >>> ShardIndex("a text", "the same call", d_vocab=50257, end_of_text=50256).dtype
        'uint16'
    """

    source: str
    go_on: str
    d_vocab: int
    end_of_text: int
    shard_tokens: int = 100_000_000
    n_tokens: int | None = None
    held_out_one_in: int = 100
    finished: bool = False
    shards: tuple[Shard, ...] = field(default=(), repr=False)  # there may be hundreds

    def __post_init__(self) -> None:
        for name in ("d_vocab", "shard_tokens", "held_out_one_in"):
            check_size(name, getattr(self, name))
        if self.n_tokens is not None:
            check_size("n_tokens", self.n_tokens)
        if not 0 <= check_index("end_of_text", self.end_of_text) < self.d_vocab <= 2**32:
            raise ValueError(
                f"expected end_of_text below d_vocab and d_vocab up to 2**32, got "
                f"{self.end_of_text} and {self.d_vocab}: both come from the tokenizer."
            )

    @property
    def dtype(self) -> str:
        """Of a token in a file, little-endian: two bytes where the vocabulary fits in them."""
        return "uint16" if self.d_vocab <= 2**16 else "uint32"

    @property
    def bytes_per_token(self) -> int:
        """Of the files."""
        return {"uint16": 2, "uint32": 4}[self.dtype]

    @property
    def documents(self) -> int:
        """In all shards."""
        return sum(shard.documents for shard in self.shards)

    @property
    def tokens(self) -> int:
        """In all shards."""
        return sum(shard.tokens for shard in self.shards)

    def part(self, held_out: bool) -> tuple[Shard, ...]:
        """The shards to learn from, or those held out."""
        return tuple(shard for shard in self.shards if shard.held_out == held_out)

    def begun_as(self) -> ShardIndex:
        """The same before a shard was written; two that go on from one another agree in it."""
        return replace(self, go_on="", finished=False, shards=())


def read_index(folder: Path | str) -> ShardIndex:
    """Read a folder's ``index.json``, and check it.

    Args:
        folder: Of the shards.

    Returns:
        The index.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is not an index of token shards.

    Example:
        >>> read_index("no/such/folder")
        Traceback (most recent call last):
        FileNotFoundError: ...
    """
    path = Path(folder) / "index.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"expected token shards in {folder}, got no index.json there: check the path, or "
            "prepare the data first (rove_lab.fineweb.prepare_fineweb)."
        )
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if stored["format"] != _FORMAT:
            raise ValueError(f"the format {stored['format']!r}")
        ours = {field.name: stored[field.name] for field in fields(ShardIndex)}
        shards = tuple(
            Shard(**{field.name: shard[field.name] for field in fields(Shard)})
            for shard in ours["shards"]
        )
        return ShardIndex(**ours | {"shards": shards})
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"expected an index of {_FORMAT} in {path}, got another text ({error!r}): the file is "
            "damaged, or of another program. Move the folder away and prepare the data anew."
        ) from error


def write_index(index: ShardIndex, folder: Path | str) -> Path:
    """Write ``index.json`` in one step: a reader sees the old one or the new one, never a half.

    Args:
        index: The index.
        folder: Of the shards; it exists.

    Returns:
        The path of the file.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write_index(ShardIndex("a text", "again", 256, 0), folder).name
        'index.json'
    """
    path = Path(folder) / "index.json"
    # Beside the fields, what another program than this one would want to know.
    counts = {"dtype": index.dtype, "documents": index.documents, "tokens": index.tokens}
    stored = {"format": _FORMAT} | counts | asdict(index)
    stored["shards"] = [{"name": shard.name} | asdict(shard) for shard in index.shards]
    with whole_file(path) as file:
        file.write((json.dumps(stored, indent=1, ensure_ascii=False) + "\n").encode())
    return path
