"""What is typed, and how it ends: a line and a status for what cannot be done."""

import errno
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from command_samples import QUICK, SIZES, status, write_texts
from token_documents import made_up, write

import rove_lab.checkpoints
import rove_lab.commands.learning
from rove_lab.arm import Arm
from rove_lab.command_line import parse, run
from rove_lab.commands.compare import Compare
from rove_lab.commands.generate import Generate
from rove_lab.model import GPTConfig
from rove_lab.run_folder import last_checkpoint, trained_models
from rove_lab.train_config import TrainConfig


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_texts(tmp_path_factory.mktemp("text") / "texts")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Runs are kept in runs/ by default: not in the checkout."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def refused(capsys):
    """A command that must end with status 2 and one line on stderr, which is returned."""

    def line(*arguments, **how):
        assert status(*arguments, **how) == 2
        said = capsys.readouterr()
        assert said.err.count("\n") == 1, said.err
        assert said.err.startswith("rove-lab: ")
        assert "Traceback" not in said.err + said.out
        return said.err

    return line


def test_defaults_follow_from_the_preset():
    for preset in ("tiny", "small", "gpt2-124m", "gpt2-354m"):
        recipe = parse(["train", "--preset", preset]).recipe
        assert recipe.model == GPTConfig.preset(preset)
        assert recipe.training == TrainConfig.preset(preset)
        assert recipe.folder == Path(f"runs/train-{preset}")


def test_every_size_and_setting_can_be_given():
    command = parse(
        "compare --preset small --n-layers 3 --value-planes 1 2 --bf16 --steps 7 --seeds 3".split()
    )
    model = GPTConfig.preset("small", n_layers=3, value_planes=(1, 2))
    assert isinstance(command, Compare)
    assert command.recipe.model == model
    assert command.recipe.training == TrainConfig.preset("small", bf16=True, steps=7)
    assert command.seeds == 3
    assert parse(["train", "--no-rotate-values"]).recipe.model.rotate_values is False


def test_the_vocabulary_is_the_corpus_s(tmp_path):
    write(made_up(60), tmp_path)
    recipe = parse(["train", "--shards", str(tmp_path)]).recipe
    assert recipe.model == GPTConfig.preset("tiny", d_vocab=100)
    recipe = parse(["train", "--preset", "gpt2-124m", "--text", "a"]).recipe
    assert recipe.model.d_vocab == 256


@pytest.mark.parametrize("command", ["train", "compare", "evaluate", "generate", "prepare-data"])
def test_help_teaches(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert run([command, "--help"]) == 0
    said = capsys.readouterr().out
    assert f"For example: python -m rove_lab {command} " in said
    assert "``" not in said
    assert max(map(len, said.splitlines())) <= 100
    if command in ("train", "compare"):  # a number of each kind, with its default and its unit
        assert "--learning-rate FLOAT" in said
        assert "(default: 0.002)" in said
        assert "nats per byte or token" in " ".join(said.split())


def test_help_shows_the_defaults_of_the_preset(capsys):
    assert run(["train", "--preset", "gpt2-354m", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Width of the residual stream. (default: 1024)" in said
    assert "Optimiser steps. (default: 19073)" in said


def test_an_unknown_preset_is_refused(refused):
    assert "invalid choice 'huge'" in refused("train", "--preset", "huge")


def test_what_is_no_option_is_refused(refused):
    assert "Unrecognized options: --stepz" in refused("train", "--stepz", 3)
    assert "rove-lab compare --help" in refused("compare", "--stepz", 3)


def test_sizes_that_make_no_model_are_refused(refused):
    assert "expected d_model divisible by n_heads, got 16 and 3" in refused("train", "--n-heads", 3)
    assert "expected a positive learning_rate" in refused("train", "--learning-rate", 0)


def test_an_empty_corpus_is_refused(refused, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "expected text files" in refused("train", text=tmp_path / "empty")
    assert "got nothing there" in refused("train", text=tmp_path / "none")
    assert "one corpus" in refused("train", "--shards", tmp_path, text=tmp_path)


def test_a_sequence_longer_than_the_data_is_refused(refused, tmp_path):
    short = write_texts(tmp_path / "short", documents=2)
    assert "expected more than n_ctx=5000 bytes" in refused("train", "--n-ctx", 5000, text=short)
    assert not Path("runs").exists()


def test_lengths_beyond_the_text_are_refused_before_training(refused, text, tmp_path):
    folder = tmp_path / "run"
    words = refused("compare", "--folder", folder, "--lengths", 16, 10**6, text=text)
    assert "expected held-out text of more than" in words
    for lengths in ((16, 24), (12, 24)):  # the trained length, 16, is always measured
        words = refused("compare", "--folder", folder, "--lengths", *lengths, text=text)
        assert "that divide the longest" in words
    assert not folder.exists()


def test_a_vocabulary_that_is_not_the_corpus_s_is_refused(refused, text):
    assert "leave --d-vocab out" in refused("train", "--d-vocab", 100, text=text)


def test_a_preset_for_tokens_wants_tokens(refused):
    assert "expected --shards FOLDER for preset gpt2-124m" in refused(
        "train", "--preset", "gpt2-124m", sizes=False
    )


def test_one_arm_is_no_comparison(refused, text):
    assert "expected both arms" in refused("compare", "--no-rotate-values", text=text)
    assert "expected seeds to be positive" in refused("compare", "--seeds", 0, text=text)


def test_another_run_s_folder_is_refused_and_left_as_it_is(refused, text, tmp_path):
    assert status("train", "--folder", tmp_path / "run", text=text) == 0
    before = {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    words = refused("train", "--folder", tmp_path / "run", "--seed", 3, text=text)
    assert "training seed was 0 and is 3" in words
    assert {file: file.read_bytes() for file in before} == before


def test_a_config_that_is_not_the_checkpoint_s_is_refused(refused, text, tmp_path):
    assert status("train", "--folder", tmp_path / "run", text=text) == 0
    model = last_checkpoint(tmp_path / "run") / "RoVE"
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"d_mlp": 8}))
    assert "got another SHA-256" in refused("generate", tmp_path / "run", sizes=False)
    assert "not that of the checkpoint" in refused("generate", model, sizes=False)


def test_a_damaged_shard_is_refused(refused, tmp_path):
    write(made_up(60), tmp_path / "shards")
    file = next((tmp_path / "shards").glob("train-*.bin"))
    content = bytearray(file.read_bytes())
    content[7] ^= 1
    file.write_bytes(content)
    words = refused("train", "--shards", tmp_path / "shards", "--folder", tmp_path / "run")
    assert "SHA-256" in words
    assert "the file is damaged" in words
    assert not (tmp_path / "run").exists()


def test_a_full_disk_keeps_the_checkpoint_before(refused, text, tmp_path, monkeypatch):
    plain, writes = rove_lab.checkpoints.write_weights, []

    def full(model, path):
        writes.append(path)
        if len(writes) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        plain(model, path)

    monkeypatch.setattr(rove_lab.checkpoints, "write_weights", full)
    asked = ("train", "--folder", tmp_path / "run", "--checkpoint-every", 2)
    assert "expected room to write" in refused(*asked, text=text)
    assert last_checkpoint(tmp_path / "run").name == "checkpoint-2"
    assert status(*asked, text=text) == 0
    assert last_checkpoint(tmp_path / "run").name == "checkpoint-4"


def test_a_loss_that_is_no_number_is_a_line(refused, text, tmp_path):
    words = refused(
        "train", "--folder", tmp_path, "--learning-rate", 1e30, "--clip", 1e30, text=text
    )
    assert "lower learning_rate" in words


def test_ctrl_c_ends_with_130_and_the_same_command_goes_on(text, tmp_path, capsys, monkeypatch):
    plain = rove_lab.commands.learning.write_json

    def stop(path, content):
        plain(path, content)
        signal.raise_signal(signal.SIGINT)

    assert status("train", "--folder", tmp_path / "whole", text=text) == 0
    with monkeypatch.context() as patch:
        patch.setattr(rove_lab.commands.learning, "write_json", stop)
        assert status("train", "--folder", tmp_path / "run", text=text) == 130
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "the same command goes on from" in said
    assert status("train", "--folder", tmp_path / "run", text=text) == 0
    assert "going on after step 2" in capsys.readouterr().out
    models = [trained_models(tmp_path / name)["RoVE"] for name in ("whole", "run")]
    for own, other in zip(*(model.parameters() for model in models), strict=True):
        assert torch.equal(own, other)


def test_ctrl_c_before_the_first_checkpoint_says_so(text, capsys, monkeypatch):
    def twice(self, step, inputs, targets, task):
        for _ in range(2):  # the second one does not wait for the step to end
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Arm, "advance", twice)
    assert status("train", text=text) == 130
    assert "before the first checkpoint" in capsys.readouterr().err


def test_ctrl_c_elsewhere_is_a_line_too(capsys, monkeypatch):
    def stop(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Generate, "run", stop)
    assert run(["generate", "a"]) == 130
    assert capsys.readouterr().err == "rove-lab: stopped\n"


@pytest.mark.parametrize("error", [TypeError("unsupported operand"), KeyError("x")])
def test_a_mistake_of_ours_keeps_its_traceback(error, capsys, monkeypatch):
    def fail(self):
        raise error

    monkeypatch.setattr(Generate, "run", fail)
    if isinstance(error, KeyError):
        with pytest.raises(KeyError):
            run(["generate", "a"])
    else:
        assert run(["generate", "a"]) == 1
        assert "Traceback" in capsys.readouterr().err


def test_nothing_but_the_progress_is_said(text, tmp_path):
    """In a process of its own: libraries warn once, and to streams that are set at import."""
    command = ["-m", "rove_lab", "train", "--text", text, "--folder", tmp_path / "run"]
    done = subprocess.run(
        [sys.executable, *map(str, command), *SIZES, *QUICK],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, progress, last = done.stdout.splitlines()
    assert first.startswith("RoVE: 0.01 million parameters, on ByteText(")
    assert progress.startswith("step 4 of 4: loss RoVE ")
    assert last.startswith("held-out text: ")
