"""Shards on the disk: what is in them, and that neither kill nor full disk costs or changes any."""

import errno
import io
import signal
import subprocess
import sys
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from token_documents import files, made_up, settings, text_of, write

from rove_lab.shard_index import read_index
from rove_lab.shard_writer import write_shards

DOCUMENTS = made_up(300)


@pytest.fixture(scope="module", autouse=True)
def quick_disk():
    """Forcing each file to the disk would be most of the time, and a kill does not ask for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda number: None)
        yield


def stored(folder, index, held_out):
    kind = f"<u{index.bytes_per_token}"
    parts = [np.fromfile(folder / shard.name, kind) for shard in index.part(held_out)]
    return [token for part in parts for token in part.tolist()]


# What they hold


@pytest.mark.parametrize("d_vocab", [100, 2**16 + 100])
@pytest.mark.parametrize("held_out", [False, True])
def test_the_shards_of_a_part_are_its_documents_end_to_end(tmp_path, held_out, d_vocab):
    documents = made_up(300, d_vocab=d_vocab)
    index = write(documents, tmp_path, d_vocab=d_vocab)
    assert stored(tmp_path, index, held_out) == text_of(documents, held_out)
    assert read_index(tmp_path) == index
    assert index.finished


def test_a_shard_ends_with_the_document_that_fills_it(tmp_path):
    index = write(DOCUMENTS, tmp_path)
    rest = [len(tokens) + 1 for _, tokens in DOCUMENTS]
    for number in range(max(shard.number for shard in index.shards)):
        pair = [shard for shard in index.shards if shard.number == number]
        sizes = [rest.pop(0) for _ in range(sum(shard.documents for shard in pair))]
        assert sum(shard.tokens for shard in pair) == sum(sizes) >= 500
        assert sum(sizes[:-1]) < 500
    assert sum(rest) < 500


def test_the_writing_ends_with_the_document_that_brings_all_to_n_tokens(tmp_path):
    index = write(DOCUMENTS, tmp_path, n_tokens=1200)
    sizes = [len(tokens) + 1 for _, tokens in DOCUMENTS[: index.documents]]
    assert sum(sizes) == index.tokens >= 1200
    assert sum(sizes[:-1]) < 1200
    assert {shard.number for shard in index.shards} == {0, 1, 2}


def test_text_that_fills_the_last_shard_to_the_brim_leaves_no_empty_one(tmp_path):
    documents = [(f"document {number}", [1] * 9) for number in range(100)]
    index = write(documents, tmp_path, shard_tokens=500)
    assert index.finished
    assert {shard.number for shard in index.shards} == {0, 1}
    assert len(files(tmp_path)) == len(index.shards) + 1


def test_an_empty_document_is_an_end_of_text(tmp_path):
    index = write([("a", [1, 2]), ("b", []), ("c", np.array([3]))], tmp_path, held_out_one_in=256)
    assert stored(tmp_path, index, held_out=False) == [1, 2, 0, 0, 3, 0]


# Going on


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    write(DOCUMENTS, folder)
    return files(folder)


@hypothesis.settings(max_examples=25)
@given(stops=st.lists(st.integers(0, 299), max_size=3))
def test_stopped_anywhere_it_goes_on_to_the_same_bytes(stops, tmp_path_factory, uninterrupted):
    folder, asked = tmp_path_factory.mktemp("stopped"), []

    def documents(start, stop=None):
        asked.append(start)
        for number, document in enumerate(DOCUMENTS[start:], start):
            if number == stop:
                raise ConnectionError("the network is gone")
            yield document

    for stop in sorted(stops):
        with pytest.raises(ConnectionError, match="the network is gone"):
            write_shards(
                lambda n, stop=stop: documents(n, stop), folder, settings(), progress=False
            )
        kept = read_index(folder)
        assert stop - 60 < kept.documents <= stop, "no more than the shard at work is lost"
        assert not kept.finished
        assert set(files(folder)) == {"index.json", *(shard.name for shard in kept.shards)}
    index = write_shards(documents, folder, settings(), progress=False)
    assert files(folder) == uninterrupted
    assert asked == sorted(asked), "what is written is not asked for again"
    assert write_shards(documents, folder, settings(), progress=False) == index
    assert len(asked) == len(stops) + 1, "a finished folder asks for nothing"


KILLED = """
import os, signal, sys
from token_documents import made_up, settings
from rove_lab.shard_writer import write_shards

def documents(start):
    for number, document in enumerate(made_up(300)[start:], start):
        if number == 110:
            os.kill(os.getpid(), signal.SIGKILL)
        yield document

write_shards(documents, sys.argv[1], settings(), progress=False)
"""


def test_killed_in_the_middle_of_a_shard_it_goes_on_to_the_same_bytes(tmp_path, uninterrupted):
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    writer = subprocess.run(command, cwd=Path(__file__).parent, check=False)
    assert writer.returncode == -signal.SIGKILL
    assert list(tmp_path.glob("*.partial")), "it was killed in the middle of one"
    assert 50 < read_index(tmp_path).documents < 110
    write(DOCUMENTS, tmp_path)
    assert files(tmp_path) == uninterrupted


def test_a_file_that_is_missing_or_cut_is_written_anew_and_no_other(tmp_path, uninterrupted):
    index = write(DOCUMENTS, tmp_path)
    (tmp_path / index.shards[2].name).unlink()
    cut = tmp_path / index.shards[-1].name
    cut.write_bytes(cut.read_bytes()[:-2])
    untouched = (tmp_path / index.shards[0].name).stat().st_mtime_ns
    write(DOCUMENTS, tmp_path)
    assert files(tmp_path) == uninterrupted
    assert (tmp_path / index.shards[0].name).stat().st_mtime_ns == untouched


def test_a_source_that_has_changed_is_refused(tmp_path):
    index = write(DOCUMENTS, tmp_path)
    (tmp_path / index.shards[2].name).unlink()
    with pytest.raises(ValueError, match=r"expected the documents that shard 1 .* source has chan"):
        write(made_up(300, seed=1), tmp_path)


def test_other_settings_are_refused_and_other_words_are_not(tmp_path):
    before = write(DOCUMENTS, tmp_path)
    for name, value in {"shard_tokens": 499, "n_tokens": 10, "held_out_one_in": 5}.items():
        words = rf"expected {name} .*, with which the shards in .* were begun, got {value}"
        with pytest.raises(ValueError, match=words):
            write(DOCUMENTS, tmp_path, **{name: value})
    assert read_index(tmp_path) == before


# What ends it


def test_a_full_disk_is_said_and_costs_no_finished_shard(tmp_path, monkeypatch, uninterrupted):
    room, opened = [3000], Path.open

    class Full(io.FileIO):
        def write(self, content):
            room[0] -= len(content)
            if room[0] < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(content)

    def on_a_small_disk(path, mode="r", **how):
        return Full(path, mode) if mode == "wb" else opened(path, mode, **how)

    monkeypatch.setattr(Path, "open", on_a_small_disk)
    with pytest.raises(
        OSError, match=r"No space left .* is full\. All .* kept.*the same call"
    ) as e:
        write(DOCUMENTS, tmp_path)
    assert e.value.errno == errno.ENOSPC
    kept = read_index(tmp_path)
    assert kept.shards
    assert not list(tmp_path.glob("*.partial")), "room for others"
    monkeypatch.undo()
    write(DOCUMENTS, tmp_path)
    assert files(tmp_path) == uninterrupted


def test_other_troubles_of_the_disk_speak_for_themselves(tmp_path):
    (tmp_path / "a file").write_bytes(b"")
    with pytest.raises(FileExistsError):
        write(DOCUMENTS, tmp_path / "a file")


def test_an_interruption_says_how_to_go_on(tmp_path, capsys):
    def documents(start):
        yield from DOCUMENTS[start:100]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shards(documents, tmp_path, settings())
    assert "all finished shards are kept. Go on with: the same call" in capsys.readouterr().out
    assert 40 < read_index(tmp_path).documents <= 100


@pytest.mark.parametrize(
    ("document", "error", "words"),
    [
        (
            ("a", [1, 100]),
            ValueError,
            "expected tokens from 0 to d_vocab - 1 = 99, got 1 to 100 in",
        ),
        (("a", [-1]), ValueError, "got -1 to -1 in the document 'a'"),
        (
            ("a", [0.5]),
            TypeError,
            "expected documents as a name and a list of integers, got str and",
        ),
        (("a", "text"), TypeError, "got str and <U4 of shape"),
        ((7, [1]), TypeError, "got int and int64"),
    ],
)
def test_what_is_no_document_of_tokens_is_refused(tmp_path, document, error, words):
    with pytest.raises(error, match=words):
        write([document], tmp_path)


def test_no_documents_are_refused(tmp_path):
    with pytest.raises(ValueError, match="expected documents, got none from made-up documents"):
        write([], tmp_path)


def test_it_says_how_far_it_is(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("rove_lab.progress._SECONDS_BETWEEN_LINES", 0.0)
    wanted = sum(len(tokens) + 1 for _, tokens in DOCUMENTS) - 5
    write_shards(lambda n: DOCUMENTS[n:], tmp_path, settings(n_tokens=wanted))
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("200 documents, 0.0 M tokens, ")
    assert " tokens/s, " in first
    assert first.endswith(" s left")
    assert last.startswith("300 documents, ")
    assert last.endswith("done")
