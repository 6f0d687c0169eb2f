r"""Prompts of a given length in a tokenizer's tokens: facts hidden among other sentences."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

import torch
from torch import Tensor

from rove_lab.arguments import check_size

__all__ = ["Prompt", "hide_facts", "longest_prompt"]

_FILLER = (
    "The wind came from the west all morning.",
    "A cup of tea stood on the table by the window.",
    "Nobody knew when the rain would stop.",
    "The road runs along the river for a while.",
    "She put the letters back into the drawer.",
    "Leaves were lying on the stairs.",
    "It was warmer than the day before.",
    "The dog slept in the shade of the wall.",
    "They walked slowly and talked about the weather.",
    "A train passed behind the trees.",
    "The bread was still warm.",
    "He had left his coat on the chair.",
    "Two boats lay upside down on the sand.",
    "The lamp in the corner gave little light.",
    "In the evening the street was quiet.",
    "The children were building a hut of branches.",
    "Some of the chairs needed new paint.",
    "A bicycle leaned against the fence.",
    "The soup tasted of onions and pepper.",
    "Snow had fallen on the hills during the night.",
    "The old clock was a little slow.",
    "Someone was singing in the next room.",
    "The path ends at a small pond.",
    "Birds sat in a row on the roof.",
)


class Prompt(NamedTuple):
    """A prompt and the one right answer to it.

    Args:
        text: What the model reads; the answer goes on where it ends.
        answer: What it should say.
        tokens: The text's tokens, ``[pos]``.
        answer_tokens: The answer's tokens when it follows the text, ``[k]``.

    Example:
        >>> encode = lambda text: list(text.encode())
        >>> prompt = hide_facts(encode, 99, Random(0), ["A is 7."], "What is A? A is", " 7")
        >>> prompt.text[-30:], prompt.answer, len(prompt.tokens), prompt.answer_tokens.tolist()
        (' sand. A is 7. What is A? A is', '7', 62, [32, 55])
    """

    text: str
    answer: str
    tokens: Tensor
    answer_tokens: Tensor


def hide_facts(
    encode: Callable[[str], Sequence[int]],
    n_tokens: int,
    random: Random,
    facts: list[str],
    question: str,
    answer: str,
) -> Prompt:
    """Facts in their order, each at a depth drawn uniformly, among as many sentences as fit.

    Args:
        encode: Text to tokens, without special ones.
        n_tokens: Tokens of prompt and answer together, at most.
        random: Of the depths and the other sentences.
        facts: Sentences to hide.
        question: What comes last.
        answer: What goes on, with the space before it.

    Returns:
        The prompt.

    Raises:
        TypeError: If encode does not give integers.
        ValueError: As from :func:`longest_prompt`.

    Example:
        >>> encode = lambda text: list(text.encode())
        >>> hide_facts(encode, 60, Random(0), ["A is 7."], "What is A? A is", " 7").text
        'A is 7. What is A? A is'
    """
    depths = sorted(random.random() for _ in facts)
    start = random.getrandbits(64)

    def build(n_filler: int) -> tuple[str, str]:
        sentences = Random(start).choices(_FILLER, k=n_filler)
        # From the last to the first, so that no insertion moves the place of the next.
        for fact, depth in zip(reversed(facts), reversed(depths), strict=True):
            sentences.insert(int(depth * (n_filler + 1)), fact)
        return f"{' '.join(sentences)} {question}", answer

    return longest_prompt(encode, n_tokens, build, f"{len(facts)} sentences and the question")


def longest_prompt(
    encode: Callable[[str], Sequence[int]],
    n_tokens: int,
    build: Callable[[int], tuple[str, str]],
    what: str,
) -> Prompt:
    """The longest prompt that can be built of at most ``n_tokens``.

    Args:
        encode: Text to tokens, without special ones.
        n_tokens: Tokens of prompt and answer together, at most.
        build: Text and answer with so much filling, 0 or more; more of it takes more tokens.
        what: What there is without filling, for the error.

    Returns:
        The prompt.

    Raises:
        TypeError: If encode does not give integers.
        ValueError: If it does not fit without filling, or the tokenizer joins the answer with the
            text before it.

    Example:
        >>> encode = lambda text: list(text.encode())
        >>> longest_prompt(encode, 9, lambda n: ("a" * n, " b"), "an answer").text
        'aaaaaaa'
    """
    check_size("n_tokens", n_tokens)

    def too_long(n: int) -> bool:
        return len(_encoded(encode, "".join(build(n)))) > n_tokens

    if too_long(0):
        least = len(_encoded(encode, "".join(build(0))))
        raise ValueError(f"expected n_tokens of {least} or more for {what}, got {n_tokens}.")
    high = 1
    while high <= n_tokens and not too_long(high):
        high *= 2
    text, answer = build(bisect_left(range(high), True, key=too_long) - 1)
    tokens, whole = _encoded(encode, text), _encoded(encode, text + answer)
    if whole[: len(tokens)] != tokens:
        raise ValueError(
            "expected a tokenizer that starts a new token at the space before the answer, got one "
            f"that joins {text[-8:] + answer[:8]!r}: its answer cannot be told from its prompt."
        )
    return Prompt(text, answer.strip(), torch.tensor(tokens), torch.tensor(whole[len(tokens) :]))


def _encoded(encode: Callable[[str], Sequence[int]], text: str) -> list[int]:
    tokens = encode(text)
    if not isinstance(tokens, Sequence) or not all(isinstance(token, int) for token in tokens):
        raise TypeError(
            f"expected encode to give a list of integers, got {type(tokens).__name__}: pass "
            "lambda text: tokenizer.encode(text, add_special_tokens=False)."
        )
    return list(tokens)
