r"""FineWeb-Edu as token shards: streamed from the hub, or from parquet files on this machine."""

from __future__ import annotations

import importlib
import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rove_lab.gpt2_tokenizer import load_gpt2_tokenizer
from rove_lab.shard_index import ShardIndex
from rove_lab.shard_writer import write_shards

if TYPE_CHECKING:
    from tiktoken import Encoding

__all__ = ["prepare_fineweb"]

DATASET = "HuggingFaceFW/fineweb-edu"
SAMPLE = "sample-10BT"
# Pinned, so that everyone's shards are the same: 9 672 101 documents in 14 files of 28.5 GB.
REVISION = "87f09149ef4734204d70ed1d046ddc9ca3f2b8f9"
_AT_ONCE = 512  # documents handed to the tokenizer, which shares them among its threads


def prepare_fineweb(
    folder: Path,
    *,
    parquet: Path | None = None,
    n_tokens: int | None = None,
    shard_tokens: int = 100_000_000,
    held_out_one_in: int = 100,
    progress: bool = True,
) -> ShardIndex:
    """Turn FineWeb-Edu, or your own parquet files, into shards of GPT-2 tokens to train on.

    Streams the sample of 10 billion tokens of FineWeb-Edu (Penedo et al., 2024, arXiv:2406.17557)
    from the Hugging Face hub, tokenizes it and writes it into the folder. Stopped at any point, the
    same call goes on after the last finished shard and gives the same bytes; what it passes over it
    has to read again, so for a long preparation on an unsteady network download the parquet files
    first and give their folder. The shards hold two bytes a token. Documents are held out by the
    hash of their id, of their text where there is none.

    Args:
        folder: Where to write the shards; made where it is missing.
        parquet: A parquet file, or a folder of them, to read in place of the hub: with a column
            "text", and an "id" if there is one.
        n_tokens: Stop with the document that brings all shards to so many tokens; None for all
            there are, some 10 billion (20 GB) on the hub.
        shard_tokens: A shard ends with the document that brings it to so many tokens.
        held_out_one_in: Hold out about one document in so many, to score on; 2 to 256.
        progress: Print a line with documents, tokens, tokens per second and time left now and then.

    Returns:
        The index of the finished folder; :func:`rove_lab.token_shards.open_shards` opens it.

    Raises:
        FileNotFoundError: If the hub, the parquet files or GPT-2's vocabulary are out of reach.
        ImportError: If datasets or tiktoken is not installed.
        OSError: If the disk is full.
        ValueError: If a file is not parquet or has no ``text``, or the folder holds shards of other
            settings.

    Example:
        >>> prepare_fineweb(Path("shards"), parquet=Path("no/such/file.parquet"))
        Traceback (most recent call last):
        FileNotFoundError: ...
    """
    files = None if parquet is None else _parquet_files(Path(parquet))
    settings: dict[str, Any] = {
        "n_tokens": n_tokens,
        "shard_tokens": shard_tokens,
        "held_out_one_in": held_out_one_in,
    }
    tokenizer = load_gpt2_tokenizer()
    begun = ShardIndex(
        source=_source(files),
        go_on=_call(folder, {"parquet": parquet} | settings),
        d_vocab=tokenizer.n_vocab,
        end_of_text=tokenizer.eot_token,
        **settings,
    )
    return write_shards(
        lambda start: _documents(files, start, tokenizer), folder, begun, progress=progress
    )


def _parquet_files(path: Path) -> list[str]:
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files or not path.exists():
        raise FileNotFoundError(
            f"expected a parquet file or a folder of them at {path}, got none: check the path, or "
            "leave it out to stream FineWeb-Edu from the hub."
        )
    parquet = _import("pyarrow.parquet")
    for file in files:
        try:
            columns = {field.name: str(field.type) for field in parquet.read_schema(file)}
        except ValueError as error:  # pyarrow's own is one
            raise ValueError(f"expected a parquet file, got {file}: {error}") from error
        if columns.get("text") not in {"string", "large_string"}:
            listed = ", ".join(f"{name} ({kind})" for name, kind in columns.items())
            raise ValueError(
                f"expected a column 'text' of strings in {file}, got the columns {listed}: rename "
                "the one that holds the text."
            )
    return [str(file) for file in files]


def _source(files: list[str] | None) -> str:
    """In words, and the same wherever the files lie."""
    names = [Path(file).name for file in files or []]
    text = f"{DATASET}, {SAMPLE}, revision {REVISION}"
    if names:
        text = f"{len(names)} parquet file(s), {names[0]} to {names[-1]}"
    return f"{text}; tokens of GPT-2"


def _call(folder: Path, arguments: dict[str, Any]) -> str:
    """A command that makes the same call again."""
    named = "".join(f", {name}={_literal(value)}" for name, value in arguments.items())
    code = f"from rove_lab.fineweb import prepare_fineweb as p; p({_literal(folder)}{named})"
    return shlex.join(["python", "-c", code])


def _literal(value: Any) -> str:
    """As it stands in Python, in the quotes that a shell's quotes leave alone."""
    return json.dumps(str(value)) if isinstance(value, (str, Path)) else repr(value)


def _documents(
    files: list[str] | None, start: int, tokenizer: Encoding
) -> Iterator[tuple[str, list[int]]]:
    """Names and tokens of the documents from the given one on."""
    for batch in _rows(files).skip(start).iter(batch_size=_AT_ONCE):
        texts = batch["text"]
        if None in texts:
            number = start + texts.index(None)
            raise ValueError(
                f"expected a text in every row, got none in row {number} (the first is 0): leave "
                "out the rows without a text."
            )
        names = batch.get("id", [None] * len(texts))
        tokens = tokenizer.encode_ordinary_batch(texts, num_threads=os.cpu_count() or 1)
        for name, text, of_text in zip(names, texts, tokens, strict=True):
            yield text if name is None else str(name), of_text
        start += len(texts)


def _rows(files: list[str] | None) -> Any:
    """A data set whose rows are read as they are asked for."""
    datasets = _import("datasets")
    how: dict[str, Any] = {"split": "train", "streaming": True}
    if files is not None:
        return datasets.load_dataset("parquet", data_files=files, **how)
    try:
        return datasets.load_dataset(DATASET, name=SAMPLE, revision=REVISION, **how)
    except Exception as error:  # of many kinds; all mean that the hub did not give it
        told = (str(error).splitlines() or [""])[0]
        raise FileNotFoundError(
            f"expected {DATASET} from the Hugging Face hub, got {type(error).__name__}: {told}. "
            "Check the network, unset HF_HUB_OFFLINE if it is set, or give parquet files that were "
            "downloaded before (parquet)."
        ) from error


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f'{name} is needed to read documents and is missing: pip install "rove-lab[training]"'
        ) from error
