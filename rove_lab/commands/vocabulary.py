r"""What the tokens of a model of this lab spell: bytes, or GPT-2's pieces of words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rove_lab.data import ByteText
from rove_lab.gpt2_tokenizer import load_gpt2_tokenizer
from rove_lab.model import GPT

if TYPE_CHECKING:
    from tiktoken import Encoding

__all__ = ["spell", "tokenizer_of", "tokens_of"]

_BYTES, _GPT2 = ByteText.d_in, 50_257


def tokenizer_of(model: GPT) -> Encoding | None:
    """The tokenizer of a model, by the size of its vocabulary.

    Args:
        model: The model.

    Returns:
        GPT-2's tokenizer, or None for a model that reads bytes.

    Raises:
        ValueError: If its vocabulary is neither.

    Example:
        >>> from rove_lab.model import GPTConfig
        >>> tokenizer_of(GPT(GPTConfig())) is None
        True
    """
    d_vocab = model.config.d_vocab
    if d_vocab not in (_BYTES, _GPT2):
        raise ValueError(
            f"expected a model of {_BYTES} bytes or GPT-2's {_GPT2} tokens, got a vocabulary of "
            f"{d_vocab}: nothing says what its tokens spell."
        )
    return None if d_vocab == _BYTES else load_gpt2_tokenizer()


def tokens_of(text: str, tokenizer: Encoding | None) -> list[int]:
    """A text as tokens.

    Args:
        text: The text; what looks like a special token in it is text.
        tokenizer: From :func:`tokenizer_of`.

    Returns:
        Token ids.

    Example:
        >>> tokens_of("def", None)
        [100, 101, 102]
    """
    return list(text.encode()) if tokenizer is None else tokenizer.encode_ordinary(text)


def spell(tokens: Sequence[int], tokenizer: Encoding | None) -> str:
    r"""Tokens as a text that any terminal can show.

    Args:
        tokens: Token ids.
        tokenizer: From :func:`tokenizer_of`.

    Returns:
        The text; what is no character, or would control the terminal, is shown as �.

    Example:
        >>> spell([100, 101, 102, 27, 10], None)
        'def�\n'
    """
    if tokenizer is None:
        text = bytes(tokens).decode(errors="replace")
    else:
        text = tokenizer.decode(list(tokens))
    return "".join(sign if sign.isprintable() or sign in "\n\t" else "\ufffd" for sign in text)
