"""Bytes to read: what a window is, what is held out, what is refused."""

import hashlib
import math

import pytest
import torch

from rove_lab.data import ByteText, is_held_out, standard_library, text_files
from rove_lab.evaluation import held_out_scores
from rove_lab.model import GPTConfig
from rove_lab.training import TrainConfig, train


def test_a_window_is_a_piece_of_the_text_and_its_targets_are_one_byte_on():
    joined = b"one document\0and another"
    text = ByteText([b"one document", b"and another"], n_ctx=5)
    for inputs, targets in (next(text.batches(50, seed)) for seed in (0, 1)):
        assert inputs.dtype == targets.dtype == torch.int64
        for window, following in zip(inputs.tolist(), targets.tolist(), strict=True):
            assert bytes([*window, following[-1]]) in joined
            assert window[1:] == following[:-1]


def test_windows_start_at_every_place_there_is_and_at_no_other():
    text = ByteText([bytes(range(8))], n_ctx=5)
    starts = next(text.batches(400, seed=0))[0][:, 0]
    assert starts.unique().tolist() == [0, 1, 2]


def test_batches_are_the_same_for_the_same_seed_and_others_for_another():
    text = standard_library(32).train
    first, again, other = (next(text.batches(4, seed))[0] for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_loss_and_scores_are_those_of_the_definition():
    text = ByteText([b"abcabc"], n_ctx=4)
    logits = torch.randn(2, 4, 256, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([[97, 98, 99, 97], [98, 99, 97, 98]])
    by_hand, right = 0.0, 0
    for row, wanted in zip(logits.double().flatten(0, 1), targets.flatten(), strict=True):
        by_hand -= math.log(row[wanted].exp() / row.exp().sum()) / 8
        right += int(row.argmax() == wanted)
    scores = text.scores(logits, targets)
    assert list(scores) == ["accuracy", "nats per byte"]
    assert scores["accuracy"] == right / 8
    assert scores["nats per byte"] == pytest.approx(by_hand, rel=1e-6)
    assert text.loss(logits, targets).item() == scores["nats per byte"]


def test_a_blind_reader_pays_the_entropy_of_single_bytes():
    text = ByteText([b"aab" + b"c"], n_ctx=2)
    assert text.blind == text.blind_loss == pytest.approx(1.5 * math.log(2))


def test_training_on_it_beats_the_blind_reader_on_text_that_was_held_out():
    text = standard_library(64)
    sizes = GPTConfig(n_ctx=64, d_model=32, n_layers=1, n_heads=2)
    run = train(sizes, TrainConfig(60, 32, 1e-2), text.train, progress=False)
    scores = held_out_scores(run.model, text.held_out, batch_size=64)
    assert scores["nats per byte"] < text.held_out.blind_loss - 0.2


def test_no_file_is_in_both_parts_and_tests_and_installed_packages_are_in_none(tmp_path):
    for name in ("test/a", "site-packages/b", "pkg/tests/c", "__pycache__/d"):
        file = tmp_path / f"{name}.py"
        file.parent.mkdir(parents=True)
        file.write_bytes(b"left out" * 9)
    written = [f"# file number {number:03}\n".encode() for number in range(200)]
    for number, source in enumerate(written):
        (tmp_path / f"module_{number}.py").write_bytes(source)
    parts = standard_library(8, tmp_path)
    found = [part.bytes.numpy().tobytes().split(b"\0") for part in parts]
    assert sorted(found[0] + found[1]) == written
    assert 5 < len(found[1]) < 40
    assert [part.n_documents for part in parts] == [len(documents) for documents in found]


def test_the_split_does_not_change_when_a_file_is_added(tmp_path):
    for number in range(60):
        (tmp_path / f"module_{number}.py").write_bytes(b"x = %d\n" % number)
    before = {*standard_library(4, tmp_path).held_out.bytes.numpy().tobytes().split(b"\0")}
    (tmp_path / "another.py").write_bytes(b"y = 0\n")
    after = {*standard_library(4, tmp_path).held_out.bytes.numpy().tobytes().split(b"\0")}
    assert after - {b"y = 0\n"} == before


def test_what_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(TypeError, match="expected documents as bytes, got str"):
        ByteText(["text"], n_ctx=2)
    with pytest.raises(ValueError, match="expected more than n_ctx=8 bytes of text, got 5 in 1"):
        ByteText([b"short"], n_ctx=8)
    with pytest.raises(FileNotFoundError, match=r"expected .py files in .*, got none"):
        standard_library(8, tmp_path)


def test_the_same_text_at_another_length_is_the_same_text():
    text = standard_library(16).train
    longer = text.at_length(64)
    assert (text.n_ctx, longer.n_ctx) == (16, 64)
    assert longer.bytes is text.bytes
    assert next(longer.batches(3, seed=0))[0].shape == (3, 64)
    with pytest.raises(ValueError, match="expected more than n_ctx=3 bytes of text, got 3 in 1"):
        ByteText([b"abc"], n_ctx=2).at_length(3)
    with pytest.raises(TypeError, match="expected n_ctx to be an integer"):
        text.at_length(2.5)


# Held out


def test_a_name_alone_decides_what_is_held_out():
    """Fixed for good: another rule would mix what recorded runs learned from and were scored on."""
    names = [f"pkg/module_{number}.py" for number in range(5000)]
    by_hand = [name for name in names if hashlib.sha256(name.encode()).digest()[0] < 26]
    assert [name for name in names if is_held_out(name)] == by_hand
    assert sum(is_held_out(name, one_in=100) for name in names) == pytest.approx(50, abs=15)
    assert is_held_out("name\udce9", 2) in (True, False)  # a name that is no UTF-8, as os gives it
    for one_in in (1, 257):
        with pytest.raises(ValueError, match=f"expected one_in from 2 to 256, got {one_in}"):
            is_held_out("a name", one_in)


# Text files


def documents(part):
    return part.bytes.numpy().tobytes().split(b"\0")


def folder_of_texts(folder, number=60):
    for index in range(number):
        file = folder / f"part_{index % 3}" / f"text_{index}.txt"
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_bytes(
            f"text number {index:04}, café".encode("latin-1" if index % 2 else "utf-8")
        )
    return folder


def test_a_folder_is_read_file_by_file_and_split_by_names_within_it(tmp_path):
    folder = folder_of_texts(tmp_path / "a")
    (folder / "part_0" / ".hidden").write_bytes(b"hidden")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_bytes(b"hidden too")
    (folder / "empty.txt").write_bytes(b"")
    names = list(folder.rglob("text_*"))
    split = text_files(str(folder), n_ctx=16)
    held_out = [p.read_bytes() for p in names if is_held_out(p.relative_to(folder).as_posix())]
    others = [p.read_bytes() for p in names if not is_held_out(p.relative_to(folder).as_posix())]
    assert sorted(documents(split.held_out)) == sorted(held_out)
    assert sorted(documents(split.train)) == sorted(others)
    elsewhere = text_files(folder_of_texts(tmp_path / "elsewhere" / "b"), n_ctx=16)
    assert documents(elsewhere.held_out) == documents(split.held_out)


def test_a_single_file_is_cut_into_blocks_and_none_is_lost_or_shared(tmp_path):
    content = "".join(f"line {number} of a long text\n" for number in range(12000)).encode()
    (tmp_path / "one.txt").write_bytes(content)
    split = text_files(tmp_path / "one.txt", n_ctx=64)
    blocks = [content[start : start + 4096] for start in range(0, len(content), 4096)]
    held_out = {number for number in range(len(blocks)) if is_held_out(str(number))}
    assert b"".join(documents(split.held_out)) == b"".join(blocks[n] for n in sorted(held_out))
    assert b"".join(documents(split.train)) == b"".join(
        block for number, block in enumerate(blocks) if number not in held_out
    )
    # neighbours of one part are not torn apart: a piece ends where the other part begins
    assert split.held_out.n_documents == sum(number - 1 not in held_out for number in held_out)


def test_text_added_at_the_end_of_a_file_moves_nothing(tmp_path):
    file = tmp_path / "log.txt"
    file.write_bytes(bytes(range(1, 251)) * 1000)
    before = text_files(file, n_ctx=64).held_out
    file.write_bytes(file.read_bytes() + b"more" * 50000)
    after = text_files(file, n_ctx=64).held_out
    assert len(after.bytes) > len(before.bytes)
    assert documents(after)[: before.n_documents] == documents(before)


@pytest.mark.parametrize(
    ("content", "n_ctx", "words"),
    [
        (b"", 8, "expected more than n_ctx=8 bytes in each part, got 0 to train on and 0 held out"),
        (
            b"x" * 9000,
            8,
            "got 9000 to train on and 0 held out: give more text or .*ten blocks of 4096",
        ),
        (b"x" * 50000, 5000, "n_ctx=5000 bytes in each part, got 45905 to train on and 4096 held"),
        ("no text".encode("utf-16"), 8, r"(?s)expected text in .*corpus.txt, got a zero byte"),
    ],
    ids=["empty", "too short to hold any out", "shorter than a sequence", "binary"],
)
def test_a_corpus_that_will_not_do_is_refused(tmp_path, content, n_ctx, words):
    (tmp_path / "corpus.txt").write_bytes(content)
    with pytest.raises(ValueError, match=words):
        text_files(tmp_path / "corpus.txt", n_ctx)


def test_a_folder_that_will_not_do_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"expected text files in .*, got none"):
        text_files(tmp_path, n_ctx=8)
    with pytest.raises(FileNotFoundError, match=r"expected a text file or a folder .* got nothing"):
        text_files(tmp_path / "missing", n_ctx=8)
    (tmp_path / "empty.txt").write_bytes(b"")
    with pytest.raises(ValueError, match="got 0 to train on and 0 held out"):
        text_files(tmp_path, n_ctx=8)
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\0")
    with pytest.raises(ValueError, match=r"expected text in .*picture.png.*: take the file out"):
        text_files(tmp_path, n_ctx=8)


def test_its_name_says_how_much_text_it_is():
    text = ByteText([b"abc", b"de"], n_ctx=3)
    assert repr(text) == "ByteText(2 documents, 6 bytes, n_ctx=3)"
