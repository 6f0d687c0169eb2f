r"""Tokens on the disk, read where they lie: a corpus larger than the memory, window by window."""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from rove_lab.arguments import check_size
from rove_lab.data import Split
from rove_lab.next_token import NextToken
from rove_lab.shard_index import Shard, ShardIndex, read_index
from rove_lab.whole_files import sha256

try:
    import numpy as np
except ImportError as error:
    raise ImportError(
        'token shards are read with numpy, which is missing: pip install "rove-lab[training]"'
    ) from error

__all__ = ["TokenShards", "open_shards"]

_AT_ONCE = 2**24  # tokens counted at a time


class TokenShards(NextToken):
    """A text as tokens in memory-mapped files: predict each token from those before it.

    All shards of a part are read as one text, documents one after the other, the end-of-text token
    after each. It is cut into windows that share no target: window w asks for the ``n_ctx`` tokens
    after token w ``n_ctx``. An epoch is a random permutation of the windows; each is drawn once,
    then comes the next permutation. Nothing but the windows of a batch is in memory; each file is
    read once on opening, to compare its SHA-256 hash with the index.

    Args:
        folder: What :func:`rove_lab.shard_writer.write_shards` wrote.
        n_ctx: Tokens of a window.
        held_out: Whether to read the held-out documents, not those to learn from.

    Raises:
        FileNotFoundError: If there are no shards, or one is missing.
        ValueError: If the shards are not finished, one is damaged, or all are shorter than a
            window and the token after it.

    Example:
        >>> TokenShards("no/such/folder", n_ctx=1024)
        Traceback (most recent call last):
        FileNotFoundError: ...
    """

    def __init__(self, folder: Path | str, n_ctx: int, *, held_out: bool = False) -> None:
        self.folder, self.index = Path(folder), _finished_index(folder)
        shards = self.index.part(held_out)
        self.d_in = self.index.d_vocab
        self.n_documents = sum(shard.documents for shard in shards)
        self._starts = [0, *accumulate(shard.tokens for shard in shards)]
        self.n_ctx = self._check_length(n_ctx)
        _check_shards(self.folder, shards, self.index)
        kind = np.dtype(self.index.dtype).newbyteorder("<")
        # A plain view of the map: slicing numpy's memmap class itself is several times slower.
        self._shards = [
            np.asarray(np.memmap(self.folder / shard.name, kind, mode="r")) for shard in shards
        ]

    def _check_length(self, n_ctx: int) -> int:
        if self.n_tokens <= check_size("n_ctx", n_ctx):
            raise ValueError(
                f"expected more than n_ctx={n_ctx} tokens in this part of {self.folder}, got "
                f"{self.n_tokens}: prepare more text or choose a smaller n_ctx."
            )
        return n_ctx

    def __repr__(self) -> str:
        """Its size."""
        return (
            f"TokenShards({self.n_documents} documents, {self.n_tokens} tokens, n_ctx={self.n_ctx})"
        )

    @property
    def n_tokens(self) -> int:
        """Tokens of the part, end-of-text tokens included."""
        return self._starts[-1]

    @property
    def n_windows(self) -> int:
        """Windows of an epoch."""
        return (self.n_tokens - 1) // self.n_ctx

    @cached_property
    def counts(self) -> Tensor:
        """How often each token occurs, ``[d_vocab]``: reads the whole part, once."""
        total = np.zeros(self.d_in, np.int64)
        for shard in self._shards:
            for start in range(0, len(shard), _AT_ONCE):
                total += np.bincount(shard[start : start + _AT_ONCE], minlength=self.d_in)
        return torch.from_numpy(total)

    def at_length(self, n_ctx: int) -> Self:
        """The same files, not read again, in windows of ``n_ctx`` tokens."""
        other = copy.copy(self)
        other.n_ctx = self._check_length(n_ctx)
        return other

    def batches(self, batch_size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Windows in a random order, each once an epoch, without end, the same for the same seed.

        Where an epoch ends within a batch, the batch is filled from the next one. To pass over
        batches, as going on with a training does, costs what reading them costs: about 10 s for a
        billion tokens where the system holds the files in memory (one core, measured).

        Args:
            batch_size: Windows of a batch.
            seed: Of the permutations.

        Yields:
            Tokens ``[batch, n_ctx]`` and the token after each, ``[batch, n_ctx]``.
        """
        generator = torch.Generator().manual_seed(seed)
        order = torch.empty(0, dtype=torch.long)
        while True:
            while len(order) < batch_size:
                order = torch.cat([order, torch.randperm(self.n_windows, generator=generator)])
            chosen, order = order[:batch_size].tolist(), order[batch_size:]
            windows = torch.empty(batch_size, self.n_ctx + 1, dtype=torch.long)
            rows = windows.numpy()
            for row, window in zip(rows, chosen, strict=True):
                self._read(window * self.n_ctx, row)
            yield windows[:, :-1], windows[:, 1:]

    def _read(self, start: int, row: Any) -> None:
        """Fill a row with the tokens from there on, through as many shards as it takes."""
        filled = 0
        shard = bisect_right(self._starts, start) - 1
        while filled < len(row):
            at = start + filled - self._starts[shard]
            piece = self._shards[shard][at : at + len(row) - filled]
            row[filled : filled + len(piece)] = piece
            filled, shard = filled + len(piece), shard + 1


def open_shards(folder: Path | str, n_ctx: int) -> Split[TokenShards]:
    """Both parts of a folder of token shards, every file checked against its hash.

    Args:
        folder: What :func:`rove_lab.shard_writer.write_shards` wrote.
        n_ctx: Tokens of a window.

    Returns:
        The part to learn from and the part held out; no document is in both.

    Raises:
        FileNotFoundError: If there are no shards, or one is missing.
        ValueError: If the shards are not finished, one is damaged, or a part is shorter than a
            window and the token after it.

    Example:
        >>> open_shards("no/such/folder", n_ctx=1024)
        Traceback (most recent call last):
        FileNotFoundError: ...
    """
    index = _finished_index(folder)
    sizes = [sum(shard.tokens for shard in index.part(held_out)) for held_out in (False, True)]
    if min(sizes) <= check_size("n_ctx", n_ctx):
        raise ValueError(
            f"expected more than n_ctx={n_ctx} tokens in each part of {folder}, got {sizes[0]} to "
            f"train on and {sizes[1]} held out: prepare more text, hold out more of it "
            "(held_out_one_in), or choose a smaller n_ctx."
        )
    return Split(TokenShards(folder, n_ctx), TokenShards(folder, n_ctx, held_out=True))


def _finished_index(folder: Path | str) -> ShardIndex:
    index = read_index(folder)
    if not index.finished:
        raise ValueError(
            f"expected finished token shards in {folder}, got the first {index.documents} "
            f"documents of an unfinished preparation. Go on with: {index.go_on}"
        )
    return index


def _check_shards(folder: Path, shards: tuple[Shard, ...], index: ShardIndex) -> None:
    for shard in shards:
        path, wanted = folder / shard.name, shard.tokens * index.bytes_per_token
        if not path.is_file():
            raise FileNotFoundError(
                f"expected the shard {path}, got no such file. Write it anew with: {index.go_on}"
            )
        if (size := path.stat().st_size) != wanted:
            raise _damaged(path, f"{wanted} bytes", f"{size}", index)
    with ThreadPoolExecutor() as pool:  # hashing lets other threads run
        found = pool.map(sha256, [folder / shard.name for shard in shards])
        for shard, digest in zip(shards, found, strict=True):
            if digest != shard.sha256:
                raise _damaged(folder / shard.name, f"SHA-256 {shard.sha256}", digest, index)


def _damaged(path: Path, wanted: str, got: str, index: ShardIndex) -> ValueError:
    return ValueError(
        f"expected {wanted} in {path}, got {got}: the file is damaged. Delete it, then write it "
        f"anew with: {index.go_on}"
    )
