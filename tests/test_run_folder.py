"""The folder of a run: one run to a folder, and a checkpoint that is whole or not there."""

import json

import pytest
import torch

from rove_lab.checkpoints import save_weights
from rove_lab.model import GPT, GPTConfig
from rove_lab.run_folder import RunFolder, last_checkpoint, read_state, trained_models

ASKED = {"models": {"RoVE": "GPTConfig()"}, "training": {"seed": 0, "steps": 8}}


def state(text):
    def write(place):
        (place / "RoVE").mkdir()
        (place / "RoVE" / "weights").write_text(text)
        return {"runs": {"RoVE": {"losses": [0.1]}}}

    return write


def test_the_last_checkpoint_alone_is_kept(tmp_path):
    folder = RunFolder(tmp_path / "deep" / "run", ASKED)
    assert folder.checkpoint() is None
    for step in (9, 10, 110):
        folder.save(step, state(str(step)))
        assert folder.checkpoint() == folder.path / f"checkpoint-{step}"
    assert sorted(p.name for p in folder.path.iterdir()) == ["checkpoint-110", "run.json"]
    assert (folder.checkpoint() / "RoVE" / "weights").read_text() == "110"
    assert read_state(folder.checkpoint()) == {"runs": {"RoVE": {"losses": [0.1]}}}


def test_the_same_run_opens_its_folder_again(tmp_path):
    RunFolder(tmp_path / "run", ASKED).save(3, state("x"))
    assert RunFolder(tmp_path / "run", ASKED).checkpoint().name == "checkpoint-3"
    assert json.loads((tmp_path / "run" / "run.json").read_text()) == ASKED


def test_neighbours_of_a_run_are_left_alone(tmp_path):
    for name in ("run.old", "run.partial"):  # a backup, say
        (tmp_path / name).mkdir()
        (tmp_path / name / "results").write_text("mine")
    RunFolder(tmp_path / "run", ASKED).save(3, state("x"))
    for name in ("run.old", "run.partial"):
        assert (tmp_path / name / "results").read_text() == "mine"


def test_a_link_and_the_folder_one_is_in_are_folders_too(tmp_path, monkeypatch):
    (tmp_path / "large disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "large disk")
    RunFolder(tmp_path / "run", ASKED).save(3, state("x"))
    assert (tmp_path / "run").is_symlink()
    assert last_checkpoint(tmp_path / "large disk").name == "checkpoint-3"
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    RunFolder(".", ASKED).save(4, state("x"))
    assert last_checkpoint(tmp_path / "here").name == "checkpoint-4"


def test_a_kill_in_the_first_line_does_not_stand_in_the_way(tmp_path):
    (tmp_path / "run.json.partial").write_text('{"mod')
    RunFolder(tmp_path, ASKED)
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


def test_a_half_written_checkpoint_is_not_taken(tmp_path):
    folder = RunFolder(tmp_path / "run", ASKED)
    folder.save(3, state("x"))

    def killed(place):
        state("half")(place)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        folder.save(6, killed)
    assert last_checkpoint(folder.path).name == "checkpoint-3"
    folder.save(6, state("y"))
    assert sorted(p.name for p in folder.path.iterdir()) == ["checkpoint-6", "run.json"]


def test_what_kills_left_is_removed_with_the_next_checkpoint(tmp_path):
    folder = RunFolder(tmp_path / "run", ASKED)
    folder.save(3, state("x"))
    for left in ("checkpoint-2", ".checkpoint-5.partial"):  # half removed; half written
        (folder.path / left).mkdir()
    (folder.path / "checkpoint-3 of May").mkdir()  # somebody's copy
    assert folder.checkpoint().name == "checkpoint-3"
    folder.save(6, state("y"))
    assert sorted(p.name for p in folder.path.iterdir()) == [
        "checkpoint-3 of May",
        "checkpoint-6",
        "run.json",
    ]


def test_a_step_written_again_replaces_itself_and_none_that_is_further(tmp_path):
    folder = RunFolder(tmp_path / "run", ASKED)
    for step, text in ((3, "x"), (3, "y"), (2, "z")):
        folder.save(step, state(text))
    assert (folder.checkpoint() / "RoVE" / "weights").read_text() == "y"


def test_no_room_keeps_the_checkpoint_before(tmp_path):
    folder = RunFolder(tmp_path / "run", ASKED)
    folder.save(3, state("x"))

    def full(place):
        state("half")(place)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match=r"expected room to write .*checkpoint-6, got: .*No space"):
        folder.save(6, full)
    assert sorted(p.name for p in folder.path.iterdir()) == ["checkpoint-3", "run.json"]


# Refusals


def test_another_run_is_refused_with_what_differs(tmp_path):
    RunFolder(tmp_path / "run", ASKED)
    other = {"models": ASKED["models"], "training": {"seed": 1, "steps": 8}}
    with pytest.raises(ValueError, match=r"got another: training seed was 0 and is 1. Give the"):
        RunFolder(tmp_path / "run", other)
    with pytest.raises(ValueError, match="training steps was 8 and is 'nothing'"):
        RunFolder(tmp_path / "run", ASKED | {"training": {"seed": 0}})


def test_somebody_elses_folder_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match="expected an empty folder or a run's, got"):
        RunFolder(tmp_path, ASKED)
    with pytest.raises(ValueError, match="expected a folder for the run, got the file"):
        RunFolder(tmp_path / "thesis.tex", ASKED)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(OSError, match=r"expected to write into .*tex/run, got: .*Not a directory"):
        RunFolder(tmp_path / "thesis.tex" / "run", ASKED)
    (tmp_path / "empty").mkdir()
    assert RunFolder(tmp_path / "empty", ASKED).checkpoint() is None


def test_a_damaged_checkpoint_is_named(tmp_path):
    folder = RunFolder(tmp_path / "run", ASKED)
    folder.save(3, state("right"))
    file = folder.checkpoint() / "RoVE" / "weights"
    file.write_text("wrong")
    with pytest.raises(ValueError, match=r"expected .*weights as it was written, got another SHA"):
        read_state(folder.checkpoint())
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"expected RoVE/weights in .*checkpoint-3"):
        read_state(folder.checkpoint())
    (folder.checkpoint() / "state.json").write_text("{}")
    with pytest.raises(ValueError, match=r"expected the state of a run in .*state.json, got anoth"):
        read_state(folder.checkpoint())
    (folder.checkpoint() / "state.json").write_text('{"step": ')
    with pytest.raises(ValueError, match=r"expected JSON in .*state.json"):
        read_state(folder.checkpoint())


def test_models_come_out_by_name(tmp_path):
    config = GPTConfig(d_vocab=5, d_model=8, n_heads=2, n_layers=1)
    models = {name: GPT(config).eval() for name in ("RoPE", "RoVE")}

    def write(place):
        for name, model in models.items():
            (place / name).mkdir()
            save_weights(model, place / name)
        return {"runs": {key: {} for key in models}}

    with pytest.raises(FileNotFoundError, match="expected a run with a checkpoint in"):
        trained_models(tmp_path)
    RunFolder(tmp_path / "run", ASKED).save(1, write)
    found = trained_models(tmp_path / "run")
    tokens = torch.tensor([[1, 2, 3]])
    assert list(found) == ["RoPE", "RoVE"]
    for name, model in models.items():
        assert torch.equal(found[name](tokens), model(tokens))
