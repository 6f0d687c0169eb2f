"""Token shards read back: windows, epochs, laziness, and every damage refused by name."""

import itertools
import math
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from token_documents import files, made_up, settings, text_of, write

from rove_lab.model import GPTConfig
from rove_lab.shard_index import read_index, write_index
from rove_lab.token_shards import TokenShards, open_shards
from rove_lab.training import TrainConfig, train

DOCUMENTS = made_up(300)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda number: None)  # most of the time otherwise
    write(DOCUMENTS, tmp_path)
    return tmp_path


def an_epoch(part, batch_size, seed=0):
    """Batches that hold each window once; the windows must be a multiple of the batch."""
    return [*itertools.islice(part.batches(batch_size, seed), part.n_windows // batch_size)]


# Windows


@pytest.mark.parametrize("held_out", [False, True])
def test_an_epoch_is_every_window_once_across_the_borders_of_shards(folder, held_out):
    text = text_of(DOCUMENTS, held_out)
    part = TokenShards(folder, n_ctx=32, held_out=held_out)
    assert part.n_tokens == len(text)
    starts = range(0, len(text) - 32, 32)
    by_hand = Counter(tuple(text[start : start + 33]) for start in starts)
    assert part.n_windows == len(starts) == by_hand.total()
    drawn = Counter()
    for inputs, targets in an_epoch(part, 1):
        assert inputs.dtype == targets.dtype == torch.int64
        drawn[(*inputs[0].tolist(), targets[0, -1].item())] += 1
        assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert drawn == by_hand


def test_every_token_but_the_first_is_asked_for_once_an_epoch(folder):
    text = text_of(DOCUMENTS, held_out=False)
    part = TokenShards(folder, n_ctx=8)
    asked = Counter(t for _, targets in an_epoch(part, 1) for t in targets.flatten().tolist())
    assert asked == Counter(text[1 : part.n_windows * 8 + 1])


def test_after_an_epoch_comes_another_order_of_the_same_windows(folder):
    part = TokenShards(folder, n_ctx=32)
    batches = part.batches(part.n_windows, seed=0)
    first, second = next(batches)[0], next(batches)[0]
    assert sorted(first.tolist()) == sorted(second.tolist())
    assert not torch.equal(first, second)


@pytest.mark.parametrize("batch_size", [5, 7, 1000])
def test_the_order_does_not_depend_on_the_size_of_the_batches(folder, batch_size):
    """A batch that an epoch ends in goes on with the next, and none is left out."""
    part = TokenShards(folder, n_ctx=32)
    plain = torch.cat([b for b, _ in itertools.islice(part.batches(1, seed=3), 1000)])
    drawn = itertools.islice(part.batches(batch_size, seed=3), math.ceil(1000 / batch_size))
    assert torch.equal(torch.cat([inputs for inputs, _ in drawn])[:1000], plain)


def test_batches_are_the_same_for_the_same_seed_and_for_any_size_of_shards(folder, tmp_path):
    write(DOCUMENTS, tmp_path / "other", shard_tokens=77)
    same, other = TokenShards(tmp_path / "other", n_ctx=32), TokenShards(folder, n_ctx=32)
    assert len(same.index.shards) > 3 * len(other.index.shards)
    draws = [[*itertools.islice(part.batches(4, seed=1), 30)] for part in (same, other)]
    for (inputs, targets), (their_inputs, their_targets) in zip(*draws, strict=True):
        assert torch.equal(inputs, their_inputs)
        assert torch.equal(targets, their_targets)
    assert not torch.equal(next(other.batches(4, seed=2))[0], draws[0][0][0])


def test_tokens_that_need_four_bytes_come_back(tmp_path):
    documents = made_up(100, d_vocab=200_000)
    write(documents, tmp_path, d_vocab=200_000)
    part = TokenShards(tmp_path, n_ctx=16)
    assert part.d_in == part.d_out == 200_000
    seen = {token for inputs, _ in an_epoch(part, 1) for token in inputs.flatten().tolist()}
    assert max(seen) > 2**16
    assert seen <= set(text_of(documents, held_out=False))


# A task


def test_a_blind_reader_pays_the_entropy_of_single_tokens(folder, monkeypatch):
    monkeypatch.setattr("rove_lab.token_shards._AT_ONCE", 100)
    text = text_of(DOCUMENTS, held_out=False)
    shares = [count / len(text) for count in Counter(text).values()]
    part = TokenShards(folder, n_ctx=8)
    by_hand = -sum(share * math.log(share) for share in shares)
    assert part.blind == part.blind_loss == pytest.approx(by_hand)


def test_another_length_reads_the_same_files_without_hashing_them_again(folder, monkeypatch):
    part = TokenShards(folder, n_ctx=8)
    monkeypatch.setattr("rove_lab.token_shards._check_shards", lambda *_: pytest.fail("again"))
    longer = part.at_length(100)
    text = text_of(DOCUMENTS, held_out=False)
    windows = {tuple(text[start : start + 100]) for start in range(0, len(text), 100)}
    assert {tuple(w) for w in next(longer.batches(20, seed=0))[0].tolist()} <= windows
    assert (part.n_ctx, longer.n_ctx) == (8, 100)
    with pytest.raises(ValueError, match="expected more than n_ctx=100000 tokens in this part of"):
        part.at_length(100_000)
    with pytest.raises(TypeError, match=r"expected n_ctx to be an integer, got 8\.5"):
        part.at_length(8.5)


def test_a_model_trains_on_them(tmp_path):
    documents = [(name, list(range(1, 30)) * 3) for name, _ in DOCUMENTS]
    write(documents, tmp_path)
    part = open_shards(tmp_path, n_ctx=32).train
    sizes = GPTConfig(d_vocab=part.d_in, n_ctx=32, d_model=32, n_layers=1, n_heads=2)
    run = train(sizes, TrainConfig(30, 16, 1e-2), part, progress=False)
    assert run.losses[-1] < 0.7 * part.blind_loss


def test_no_document_is_in_both_parts(folder):
    split = open_shards(folder, n_ctx=16)
    assert split.train.n_documents + split.held_out.n_documents == 300
    assert 40 < split.held_out.n_documents < 110
    assert split.train.n_tokens + split.held_out.n_tokens == split.train.index.tokens
    assert repr(split.held_out) == (
        f"TokenShards({split.held_out.n_documents} documents, {split.held_out.n_tokens} tokens, "
        "n_ctx=16)"
    )


LAZY = """
import re, sys
from pathlib import Path
from rove_lab.token_shards import TokenShards

def own_memory():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

next(TokenShards(sys.argv[1], 128).batches(64, 0))
before = own_memory()
part = TokenShards(sys.argv[2], 128)
next(part.batches(64, 0))
print(before, own_memory())
"""


def test_a_large_part_is_not_loaded(tmp_path):
    """100 MB of tokens cost the process no more memory of its own than the windows of a batch."""
    document = ("a", np.tile(np.arange(1, 100), 10_000))
    for name, times in (("small", 1), ("large", 50)):
        write([document] * times, tmp_path / name, shard_tokens=10**8)
    command = [sys.executable, "-c", LAZY, tmp_path / "small", tmp_path / "large"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    before, after = map(int, printed.split())
    size = sum(path.stat().st_size for path in (tmp_path / "large").iterdir())
    assert size > 90_000_000
    assert after - before < 20_000, "kB"


# What is refused


def test_a_flipped_byte_is_found(folder):
    shard = folder / "train-00002.bin"
    content = bytearray(shard.read_bytes())
    content[17] ^= 1
    shard.write_bytes(content)
    words = (
        r"expected SHA-256 .* in .*train-00002.bin, got .*: the file is damaged. Delete it, .*: the"
    )
    with pytest.raises(ValueError, match=words):
        open_shards(folder, n_ctx=8)
    shard.unlink()
    with pytest.raises(
        FileNotFoundError, match=r"expected the shard .*train-00002.bin, got no such"
    ):
        open_shards(folder, n_ctx=8)
    write(DOCUMENTS, folder)  # as the words say
    open_shards(folder, n_ctx=8)


def test_a_shard_cut_short_is_found(folder):
    shard = folder / "held_out-00001.bin"
    size = shard.stat().st_size
    shard.write_bytes(shard.read_bytes()[:-2])
    with pytest.raises(
        ValueError, match=rf"expected {size} bytes in .*held_out-00001.bin, got {size - 2}"
    ):
        open_shards(folder, n_ctx=8)


def test_an_unfinished_folder_says_how_to_go_on(folder):
    index = settings(shards=read_index(folder).shards[:2])
    write_index(index, folder)
    words = (
        rf"got the first {index.documents} documents of an unfinished .* Go on with: the same call"
    )
    with pytest.raises(ValueError, match=words):
        open_shards(folder, n_ctx=8)
    with pytest.raises(ValueError, match=words):
        TokenShards(folder, n_ctx=8)


def test_sequences_longer_than_the_text_are_refused(folder):
    sizes = [len(text_of(DOCUMENTS, held_out)) for held_out in (False, True)]
    words = f"n_ctx=3000 tokens in each part of .*, got {sizes[0]} to train on and {sizes[1]} held"
    with pytest.raises(ValueError, match=words):
        open_shards(folder, n_ctx=3000)
    with pytest.raises(ValueError, match=f"n_ctx=3000 tokens in this part of .*, got {sizes[1]}:"):
        TokenShards(folder, n_ctx=3000, held_out=True)
    with pytest.raises(ValueError, match="expected n_ctx to be positive, got 0"):
        open_shards(folder, n_ctx=0)


def test_a_folder_of_other_things_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=re.escape(f"expected token shards in {tmp_path}")):
        open_shards(tmp_path, n_ctx=8)


def test_reading_changes_nothing(folder):
    before = files(folder)
    for part in open_shards(folder, n_ctx=8):
        windows = next(part.batches(4, seed=0))[0]
        windows += 1
    assert files(folder) == before
    assert Path(folder, "train-00000.bin").exists()
