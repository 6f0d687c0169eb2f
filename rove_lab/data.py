r"""Text as bytes, cut into windows: Python's own standard library is a corpus in every reach."""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from rove_lab.arguments import check_size

__all__ = ["ByteText", "Split", "standard_library"]

_HELD_OUT_TENTHS = 1  # of the documents
# Not prose of programmers: tests are lists of cases, and some systems leave them out.
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}


class ByteText:
    r"""A task: predict each byte of a text from those before it.

    The loss is the mean cross entropy :math:`-\log p(x_{t+1} \mid x_{\le t})` in nats per byte. A
    reader blind to what came before pays the entropy of single bytes.

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

    def __init__(self, documents: Sequence[bytes], n_ctx: int) -> None:
        for document in documents:
            if not isinstance(document, bytes):
                raise TypeError(
                    f"expected documents as bytes, got {type(document).__name__}: .encode() it."
                )
        self.n_ctx = check_size("n_ctx", n_ctx)
        self.n_documents = len(documents)
        joined = b"\0".join(documents)
        if len(joined) <= n_ctx:
            raise ValueError(
                f"expected more than n_ctx={n_ctx} bytes of text, got {len(joined)} in "
                f"{len(documents)} documents: give more text or a smaller n_ctx."
            )
        self.bytes = torch.frombuffer(bytearray(joined), dtype=torch.uint8)
        self.d_in = self.d_out = 256

    def __repr__(self) -> str:
        """Its size; the text itself would be megabytes."""
        return (
            f"ByteText({self.n_documents} documents, {len(self.bytes)} bytes, n_ctx={self.n_ctx})"
        )

    @property
    def _shares(self) -> Tensor:
        return self.bytes.bincount(minlength=256).double() / len(self.bytes)

    @property
    def blind(self) -> float:
        """Share of the most frequent byte: what always saying it would get right."""
        return self._shares.max().item()

    @property
    def blind_loss(self) -> float:
        """Entropy of single bytes in nats."""
        entropy: float = torch.special.entr(self._shares).sum().item()
        return entropy

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

    def loss(self, output: Tensor, targets: Tensor) -> Tensor:
        """Mean cross entropy in nats per byte.

        Args:
            output: Logits ``[batch, pos, 256]``.
            targets: Bytes ``[batch, pos]``.

        Returns:
            A scalar.
        """
        return cross_entropy(output.flatten(0, 1).float(), targets.flatten())

    def scores(self, output: Tensor, targets: Tensor) -> dict[str, float]:
        """The share of bytes guessed right, and the loss.

        Args:
            output: Logits ``[batch, pos, 256]``.
            targets: Bytes ``[batch, pos]``.

        Returns:
            ``{"accuracy": share, "nats per byte": loss}``.
        """
        right = (output.argmax(-1) == targets).double().mean().item()
        return {"accuracy": right, "nats per byte": self.loss(output, targets).item()}


class Split(NamedTuple):
    """A corpus in two parts that share no document.

    Args:
        train: To learn from.
        held_out: To be scored on.

    Example:
        >>> Split(*(ByteText([word], n_ctx=2) for word in (b"learn", b"score"))).held_out
        ByteText(1 documents, 5 bytes, n_ctx=2)
    """

    train: ByteText
    held_out: ByteText


def standard_library(n_ctx: int, folder: Path | str | None = None) -> Split:
    """The sources of Python's standard library, about 10 MB, in every Python and offline.

    Each document is a file; a tenth, chosen by the hash of its name, is held out, so that the
    split is the same on every machine with the same Python. Tests are left out.

    Args:
        n_ctx: Bytes of a window.
        folder: Another folder whose ``.py`` files to read.

    Returns:
        The two parts.

    Raises:
        FileNotFoundError: If there is no such folder, or no ``.py`` file in it.
        ValueError: If a part is shorter than a window.

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
    parts: tuple[list[bytes], list[bytes]] = ([], [])
    for file in files:
        name = file.relative_to(root).as_posix()
        tenth = hashlib.sha256(name.encode()).digest()[0] * 10 // 256
        parts[tenth < _HELD_OUT_TENTHS].append(file.read_bytes())
    return Split(*(ByteText(part, n_ctx) for part in parts))
