r"""What a model is measured on: held-out text in windows, the same ones for every model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from rove_lab.data import ByteText
from rove_lab.evaluation import HELD_OUT_SEED

__all__ = ["Encode", "lengths_within", "windows"]

_TIMES = (1, 2, 4, 8, 16)
_LOGITS = 2**30  # numbers, 4 GiB in float32: a pass of the longest window must fit the memory

Encode = Callable[[str], list[int]]


def lengths_within(
    asked: Sequence[int], n_ctx: int, part: Any, d_vocab: int, encode: Encode | None = None
) -> list[int]:
    """At which lengths to read: those asked for, or 1, 2, 4, 8 and 16 times the window.

    Args:
        asked: Tokens of a window each; none for the default, of which lengths are left out that
            the text is too short for, or whose logits take more than 4 GiB.
        n_ctx: Tokens of the trained window.
        part: The text.
        d_vocab: Tokens of the vocabulary.
        encode: As for :func:`windows`.

    Returns:
        The lengths, from the shortest.

    Raises:
        ValueError: If lengths do not divide the longest, or the text is too short for one that was
            asked for, or for the window.

    Example:
        >>> lengths_within([], 4, ByteText([b"twenty bytes of text"], 4), 256)
        [4, 8, 16]
    """
    if odd := [n for n in asked if n < 2 or max(asked) % n]:
        raise ValueError(
            f"expected --lengths of 2 or more that divide the longest, {max(asked)}, got {odd}: "
            "all are scored on the same tokens."
        )
    lengths = sorted(asked) or [times * n_ctx for times in _TIMES]
    found: list[int] = []
    for length in lengths:
        try:
            windows(part, length, length, encode)
        except ValueError as error:
            if asked or not found:
                raise ValueError(
                    f"expected held-out text of more than {length} tokens, got {part}: give "
                    "shorter --lengths, or more text."
                ) from error
            break
        if not asked and found and length * d_vocab > _LOGITS:
            break
        found.append(length)
    return found


def windows(part: Any, length: int, n_tokens: int, encode: Encode | None = None) -> Tensor:
    """Windows of a text, the same ones at every call.

    Args:
        part: A part of a corpus.
        length: Tokens of a window.
        n_tokens: About how many tokens in all; one window at least, and no more than there are.
        encode: From text to tokens, for a model with a tokenizer of its own; the part is bytes
            then. None takes the part's own tokens.

    Returns:
        ``[n_windows, length]``.

    Raises:
        ValueError: If the text is shorter than a window.

    Example:
        >>> windows(ByteText([b"twenty bytes of text"], 4), 8, 16).shape
        torch.Size([2, 8])
    """
    count = max(1, n_tokens // length)
    if encode is None:
        part = part.at_length(length)
        count = min(count, max(1, part.n_tokens // length))
        tokens: Tensor = next(part.batches(count, HELD_OUT_SEED))[0]
        return tokens
    if not isinstance(part, ByteText):
        raise ValueError(
            f"expected text for a model with a tokenizer of its own, got {part}: give --text."
        )
    wanted, n_bytes = count * length, 4 * count * length
    ids = encode(_text(part, n_bytes))
    while len(ids) < wanted and n_bytes < len(part.bytes):
        n_bytes *= 2
        ids = encode(_text(part, n_bytes))
    count = min(count, len(ids) // length)
    if count == 0:
        raise ValueError(f"expected {length} tokens of text or more, got {len(ids)} in {part}.")
    return torch.tensor(ids[: count * length]).view(count, length)


def _text(part: ByteText, n_bytes: int) -> str:
    return part.bytes[:n_bytes].numpy().tobytes().decode(errors="replace")
