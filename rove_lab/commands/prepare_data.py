r"""``rove-lab prepare-data``: text into shards of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rove_lab.fineweb import prepare_fineweb

__all__ = ["PrepareData"]


@dataclass(frozen=True)
class PrepareData:
    """Turn FineWeb-Edu, or your own parquet files, into shards of GPT-2 tokens to train on.

    Streams the sample of 10 billion tokens of FineWeb-Edu (Penedo et al., 2024, arXiv:2406.17557)
    from the Hugging Face hub. Stopped at any point, the same command goes on after the last shard.
    Shards take two bytes a token: 20 GB for all there are.

    For example: python -m rove_lab prepare-data --folder shards --n-tokens 100_000_000

    Args:
        folder: Where to write the shards; made where it is missing.
        parquet: A parquet file, or a folder of them, to read in place of the hub: rows with a
            ``text``, and an ``id`` if they have one.
        n_tokens: Stop after about so many tokens; all there are without it.
        shard_tokens: Tokens of a shard.
        held_out_one_in: Hold out about one document in so many, to score on; 2 to 256.

    Example:
        >>> PrepareData().folder.name
        'shards'
    """

    folder: Path = Path("shards")
    parquet: Path | None = None
    n_tokens: int | None = None
    shard_tokens: int = 100_000_000
    held_out_one_in: int = 100

    def run(self) -> None:
        """Write the shards, or go on with them."""
        prepare_fineweb(
            self.folder,
            parquet=self.parquet,
            n_tokens=self.n_tokens,
            shard_tokens=self.shard_tokens,
            held_out_one_in=self.held_out_one_in,
        )
