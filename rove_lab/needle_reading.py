r"""Where a needle is lost: in binding it to its key, in finding it, or in what is made of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from rove_lab.arguments import check_size
from rove_lab.evaluation import HELD_OUT_SEED, Extension, device_of
from rove_lab.model import GPT
from rove_lab.needles import Needles
from rove_lab.open_attention import open_attention

# From a layer, its pattern and where the values stand [batch] to the pattern to use instead.
Aim = Callable[[int, Tensor, Tensor], Tensor]
Opening = Callable[..., AbstractContextManager[list[Tensor]]]

__all__ = ["NeedleHeads", "NeedleReading", "TokenHead", "needle_heads", "read_needles"]


@dataclass(frozen=True)
class TokenHead:
    """A head that looks at one token.

    Args:
        layer: Its layer.
        head: Its place in the layer.
        share: The share of its attention that the token gets, a mean over sequences.

    Example:
        >>> TokenHead(layer=1, head=0, share=0.9).layer
        1
    """

    layer: int
    head: int
    share: float

    def aimed(self, layer: int, pattern: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
        """Its layer's pattern with some queries ``[batch, n]`` looking at one key each, alone."""
        if layer != self.layer:
            return pattern
        patched, rows = pattern.clone(), torch.arange(len(queries))[:, None]
        patched[rows, self.head, queries] = 0
        patched[rows, self.head, queries, keys] = 1
        return patched

    def looks(self, patterns: Sequence[Tensor], queries: Tensor, keys: Tensor) -> Tensor:
        """How much each query ``[batch]`` looks at its key, ``[batch]``."""
        return patterns[self.layer][torch.arange(len(queries)), self.head, queries, keys].cpu()


@dataclass(frozen=True)
class NeedleHeads:
    """The two heads of an induction circuit, found on needles.

    Args:
        binding: From the needle's value to its key, the token before: it tells the value its key.
        reading: From the question to the value.

    Example:
        >>> NeedleHeads(TokenHead(0, 1, 0.9), TokenHead(1, 0, 0.8)).reading.layer
        1
    """

    binding: TokenHead
    reading: TokenHead

    def bind(self, layer: int, pattern: Tensor, value: Tensor) -> Tensor:
        """A pattern whose binding head looks from every token at the one before it alone."""
        later = torch.arange(1, pattern.shape[-1]).expand(len(value), -1)
        return self.binding.aimed(layer, pattern, later, later - 1)

    def point(self, layer: int, pattern: Tensor, value: Tensor) -> Tensor:
        """A pattern whose reading head looks from the question at the right value alone.

        What is wrong then is not that head's attention.
        """
        question = torch.full((len(value), 1), pattern.shape[-1] - 1)
        return self.reading.aimed(layer, pattern, question, value[:, None])


@dataclass(frozen=True)
class NeedleReading:
    """What became of the needles of one length; all are means over its sequences.

    Args:
        bound: The binding head's attention from the value to its key, from 0 to 1.
        share: The reading head's attention from the question to the value.
        found: Share of sequences where no other token gets more of it.
        found_and_right: Share where that is so and the answer is right.
        accuracy: Share of right answers.

    Example:
        >>> one = NeedleReading(bound=0.9, share=0.8, found=0.9, found_and_right=0.72, accuracy=0.8)
        >>> f"{one.found_and_right / one.found:.1f} right of those found"
        '0.8 right of those found'
    """

    bound: float
    share: float
    found: float
    found_and_right: float
    accuracy: float


def needle_heads(model: GPT, task: Needles, n_sequences: int = 128) -> NeedleHeads:
    """The heads that look most from value to key and from question to value.

    They are found in sequences of the task's own length that no training draws.

    Args:
        model: The trained model.
        task: Needles with one value a key and one question.
        n_sequences: Sequences to look at.

    Returns:
        The two heads; the binding one is in a layer before the reading one, if there is one.

    Raises:
        ValueError: If there are more values or questions.

    Example:
        >>> from rove_lab.model import GPTConfig
        >>> needle_heads(GPT(GPTConfig(d_vocab=50)), Needles(), n_sequences=4).reading
        TokenHead(layer=..., head=..., share=...)
    """
    tokens, _ = next(task.batches(check_size("n_sequences", n_sequences), HELD_OUT_SEED))
    value, question = _places(task, tokens)
    with torch.no_grad(), open_attention(model) as patterns:
        model(tokens.to(device_of(model)))
    heads = [
        TokenHead(layer, head, 0.0)
        for layer, pattern in enumerate(patterns)
        for head in range(pattern.shape[1])
    ]

    def best(among: list[TokenHead], queries: Tensor, keys: Tensor) -> TokenHead:
        shares = [head.looks(patterns, queries, keys).mean().item() for head in among]
        most = max(range(len(among)), key=shares.__getitem__)
        return TokenHead(among[most].layer, among[most].head, shares[most])

    reading = best(heads, question, value)
    below = [head for head in heads if head.layer < reading.layer]
    return NeedleHeads(best(below or heads, value, value - 1), reading)


@torch.no_grad()
def read_needles(
    model: GPT,
    task: Needles,
    lengths: Sequence[int],
    heads: NeedleHeads,
    *,
    aims: Sequence[Aim] = (),
    opening: Opening = open_attention,
    n_sequences: int = 256,
    batch_size: int = 32,
    extension: Extension | None = None,
) -> dict[int, NeedleReading]:
    r"""Whether the heads find the needle, and whether the answer is right.

    The sequences are those of :func:`~rove_lab.evaluation.accuracy_by_length`.

    Args:
        model: The trained model.
        task: Needles with one value a key and one question.
        lengths: Tokens of a sequence.
        heads: From :func:`needle_heads`.
        aims: What makes heads look where they should, one after the other: ``heads.bind``,
            ``heads.point``, or a function of a layer, its pattern and where the values stand
            ``[batch]`` to the pattern to use instead.
        opening: Lays the attention open, as :func:`~rove_lab.open_attention.open_attention` does;
            ``partial(open_attention, reach=64)`` limits the turns of its messages, too.
        n_sequences: Sequences at each length, a multiple of ``batch_size``.
        batch_size: Sequences read at once.
        extension: From a length to what extends the model to it, as for ``accuracy_by_length``.

    Returns:
        Length to what was read, in the order given.

    Raises:
        ValueError: If there are more values or questions, or the batches do not fill the sequences.

    Example:
        >>> from rove_lab.model import GPTConfig
        >>> model, task = GPT(GPTConfig(d_vocab=50)), Needles()
        >>> heads = needle_heads(model, task, n_sequences=4)
        >>> read_needles(model, task, [64], heads, n_sequences=32)[64]
        NeedleReading(bound=..., share=..., found=..., found_and_right=..., accuracy=...)
    """
    if check_size("n_sequences", n_sequences) % check_size("batch_size", batch_size):
        raise ValueError(
            f"expected n_sequences divisible by batch_size, got {n_sequences} and {batch_size}: "
            "batches of one size count alike in the mean."
        )
    found = {}
    for length in lengths:
        batches = task.at_length(length).batches(batch_size, HELD_OUT_SEED)
        parts = []
        for _ in range(n_sequences // batch_size):
            tokens, targets = next(batches)
            value, question = _places(task, tokens)
            patch = partial(_aimed, aims, value)
            with _extended(extension, length), opening(model, patch=patch) as patterns:
                answers = model(tokens.to(device_of(model)))[:, -1].argmax(-1).cpu()
            bound = heads.binding.looks(patterns, value, value - 1)
            share = heads.reading.looks(patterns, question, value)
            most = patterns[heads.reading.layer][:, heads.reading.head, -1].argmax(-1).cpu()
            right = answers == targets[:, -1]
            parts.append(torch.stack((bound, share, most == value, (most == value) & right, right)))
        found[length] = NeedleReading(*torch.cat(parts, 1).double().mean(1).tolist())
    return found


def _aimed(aims: Sequence[Aim], value: Tensor, layer: int, pattern: Tensor) -> Tensor:
    for aim in aims:
        pattern = aim(layer, pattern, value)
    return pattern


def _extended(extension: Extension | None, length: int) -> AbstractContextManager[object]:
    return nullcontext() if extension is None else extension(length)


def _places(task: Needles, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Where the value of the asked key stands, and where the question ends, ``[batch]`` each."""
    if (task.n_values, task.n_queries) != (1, 1):
        raise ValueError(
            f"expected needles with one value and one query, got {task.n_values} and "
            f"{task.n_queries}: there must be one right token to look at."
        )
    value = (tokens == tokens[:, -1:]).int().argmax(-1) + 1
    return value, torch.full_like(value, tokens.shape[1] - 1)
