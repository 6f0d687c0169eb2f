"""Bytes to read: what a window is, what is held out, what is refused."""

import math

import pytest
import torch

from rove_lab.data import ByteText, standard_library
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
    assert text.blind == 0.5
    assert text.blind_loss == pytest.approx(1.5 * math.log(2))


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


def test_its_name_says_how_much_text_it_is():
    text = ByteText([b"abc", b"de"], n_ctx=3)
    assert repr(text) == "ByteText(2 documents, 6 bytes, n_ctx=3)"
