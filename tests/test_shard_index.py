"""The index of token shards: what it holds and refuses, and that no half of it is ever seen."""

import json

import pytest
from token_documents import settings

from rove_lab.shard_index import Shard, read_index, write_index

SHARDS = (Shard(0, False, 3, 40, "a" * 64), Shard(0, True, 1, 10, "b" * 64))


def test_an_index_is_read_back_as_it_was_written(tmp_path):
    index = settings(n_tokens=50, shards=SHARDS, finished=True)
    assert read_index(write_index(index, tmp_path).parent) == index
    assert (index.documents, index.tokens) == (4, 50)
    assert index.part(held_out=True) == SHARDS[1:]
    assert [shard.name for shard in SHARDS] == ["train-00000.bin", "held_out-00000.bin"]


def test_other_programs_find_what_they_need(tmp_path):
    stored = json.loads(write_index(settings(shards=SHARDS), tmp_path).read_text())
    wanted = {"dtype": "uint16", "d_vocab": 100, "end_of_text": 0, "tokens": 50, "documents": 4}
    assert wanted.items() <= stored.items()
    first = {"name": "train-00000.bin", "tokens": 40, "documents": 3, "sha256": "a" * 64}
    assert first.items() <= stored["shards"][0].items()


@pytest.mark.parametrize(
    ("d_vocab", "dtype", "size"), [(2**16, "uint16", 2), (2**16 + 1, "uint32", 4)]
)
def test_a_token_takes_two_bytes_where_the_vocabulary_fits(d_vocab, dtype, size):
    assert settings(d_vocab=d_vocab).dtype == dtype
    assert settings(d_vocab=d_vocab).bytes_per_token == size


def test_settings_that_cannot_be_are_refused():
    for name in ("d_vocab", "shard_tokens", "held_out_one_in", "n_tokens"):
        with pytest.raises(ValueError, match=f"expected {name} to be positive, got 0"):
            settings(**{name: 0})
        with pytest.raises(TypeError, match=f"expected {name} to be an integer, got 1.5"):
            settings(**{name: 1.5})
    with pytest.raises(ValueError, match=r"end_of_text below d_vocab .* got 100 and 100"):
        settings(end_of_text=100)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("version 1", "version 9"),
        lambda text: text.replace('"end_of_text": 0', '"end_of_text": 1000'),
        lambda text: text.replace("sha256", "md5"),
        lambda text: "[]",
    ],
    ids=["half", "version", "values", "fields", "another kind"],
)
def test_a_damaged_index_is_refused(tmp_path, spoil):
    path = write_index(settings(shards=SHARDS), tmp_path)
    path.write_text(spoil(path.read_text()))
    with pytest.raises(ValueError, match=r"(?s)expected an index of .* in .*index.json, got anot"):
        read_index(tmp_path)


def test_a_folder_without_an_index_is_no_folder_of_shards(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"expected token shards in .*, got no index.json"):
        read_index(tmp_path)
