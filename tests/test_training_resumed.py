"""A run that is stopped, however it is stopped, goes on along the same curve."""

import json
import os
import resource
import signal
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from rove_lab.curriculum import Curriculum
from rove_lab.data import ByteText
from rove_lab.induction import Induction
from rove_lab.model import GPTConfig
from rove_lab.run_folder import last_checkpoint
from rove_lab.training import TrainConfig, train, train_matched

TEXT = ByteText([bytes(range(256)) * 8], 16)
ROVE = GPTConfig(n_ctx=16, d_model=16, n_heads=2, n_layers=1)
ROPE = replace(ROVE, rotate_values=False)
ARMS = {"RoPE": ROPE, "RoVE": ROVE}
HOW = TrainConfig(
    steps=20,
    batch_size=4,
    learning_rate=3e-3,
    final_rate=0.1,
    warmup_steps=3,
    weight_decay=0.1,
    log_every=4,
    checkpoint_every=6,  # not a multiple of log_every: half a report is kept, too
)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def unbroken():
    torch.set_num_threads(1)
    return train_matched(ARMS, HOW, TEXT, progress=False)


def assert_same(runs, expected):
    for name, run in runs.items():
        assert run.steps == expected[name].steps
        assert run.losses == expected[name].losses  # to the bit
        own, others = run.model.state_dict(), expected[name].model.state_dict()
        assert all(torch.equal(own[key], others[key]) for key in own)


def stop_at(step):
    def callback(report):
        if report.step == step:
            raise KeyboardInterrupt

    return callback


def run(folder, **more):
    return train_matched(ARMS, HOW, TEXT, folder=folder, progress=False, **more)


def test_a_folder_changes_nothing(tmp_path, unbroken):
    runs = run(tmp_path)
    assert_same(runs, unbroken)
    assert not any(one.interrupted for one in runs.values())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint-20", "run.json"]


@pytest.mark.parametrize("step", [4, 8, 12, 16])
def test_a_stopped_run_goes_on_along_the_same_curve(tmp_path, unbroken, step):
    stopped = run(tmp_path, callback=stop_at(step))
    assert all(one.interrupted for one in stopped.values())
    assert_same(run(tmp_path), unbroken)


def test_a_finished_run_is_returned_at_once(tmp_path, unbroken):
    run(tmp_path)
    reports = []
    runs = run(tmp_path, callback=reports.append)
    assert_same(runs, unbroken)
    assert reports == []


def test_ctrl_c_writes_a_checkpoint_of_the_step_it_came_in(tmp_path, unbroken):
    def press(report):
        if report.step == 8 and report.name == "RoPE":
            signal.raise_signal(signal.SIGINT)

    stopped = run(tmp_path, callback=press)
    assert [one.interrupted for one in stopped.values()] == [True, True]
    assert [one.steps for one in stopped.values()] == [[4, 8], [4, 8]]
    assert last_checkpoint(tmp_path).name == "checkpoint-8"
    assert_same(run(tmp_path), unbroken)


def test_one_model_alone_has_a_folder_too(tmp_path, unbroken):
    train(ROVE, HOW, TEXT, folder=tmp_path, callback=stop_at(8), progress=False)
    again = train(ROVE, HOW, TEXT, folder=tmp_path, progress=False)
    assert again.losses == unbroken["RoVE"].losses


SCRIPT = """
import sys, time
import torch
torch.set_num_threads(1)
sys.path.insert(0, {tests!r})
from test_training_resumed import ARMS, HOW, TEXT
from rove_lab.training import train_matched

def slowly(report):
    print(report.name, report.step, flush=True)
    time.sleep(0.2)

train_matched(ARMS, HOW, TEXT, folder={folder!r}, callback=slowly, progress=False)
"""


def test_kill_9_and_an_identical_curve(tmp_path, unbroken):
    script = SCRIPT.format(tests=os.path.dirname(__file__), folder=str(tmp_path / "run"))
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line.startswith("RoVE 12"):
            break
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    assert last_checkpoint(tmp_path / "run").name == "checkpoint-12" or (
        last_checkpoint(tmp_path / "run").name == "checkpoint-6"
    )
    assert_same(run(tmp_path / "run"), unbroken)


def test_sigterm_ends_it_cleanly(tmp_path, unbroken):
    script = SCRIPT.format(tests=os.path.dirname(__file__), folder=str(tmp_path / "run"))
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line.startswith("RoPE 8"):
            break
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 0
    assert last_checkpoint(tmp_path / "run").name == "checkpoint-8"
    assert_same(run(tmp_path / "run"), unbroken)


# Endings that lose nothing


def test_a_full_disk_keeps_the_last_checkpoint(tmp_path):
    """A real limit on the size of a file, in a process of its own: weights fit, moments do not."""
    big = replace(HOW, checkpoint_every=2)
    folder = tmp_path / "run"
    train_matched(
        ARMS, big, TEXT, folder=folder, callback=stop_at(4), progress=False
    )  # leaves checkpoint-2
    kept = last_checkpoint(folder)
    script = f"""
import resource, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
from dataclasses import replace
from test_training_resumed import ARMS, HOW, TEXT
from rove_lab.training import train_matched
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
how = replace(HOW, checkpoint_every=2)
train_matched(ARMS, how, TEXT, folder={str(folder)!r}, progress=False)
"""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1
    assert "OSError: expected room to write" in done.stderr
    assert last_checkpoint(folder) == kept
    runs = train_matched(ARMS, big, TEXT, folder=folder, progress=False)
    assert_same(runs, train_matched(ARMS, big, TEXT, progress=False))


class Poisoned(ByteText):
    """A text whose loss is not a number from some batch on."""

    def __init__(self, healthy):
        super().__init__([bytes(range(256)) * 8], 16)
        self.left = healthy

    def __repr__(self):
        return "ByteText, poisoned"

    def loss(self, output, targets):
        self.left -= 1
        return super().loss(output, targets) * (1.0 if self.left >= 0 else float("nan"))


@pytest.mark.parametrize("healthy", [13, 14, 17])
def test_a_loss_that_is_no_number_keeps_the_last_checkpoint(tmp_path, healthy):
    with pytest.raises(FloatingPointError, match=r"expected the (loss|weights) of model finite"):
        train(ROVE, HOW, Poisoned(healthy), folder=tmp_path, progress=False)
    kept = last_checkpoint(tmp_path)
    assert kept.name == "checkpoint-12"
    state = json.loads((kept / "state.json").read_text())
    assert all(loss == loss for loss in state["runs"]["model"]["losses"])


def test_a_gradient_that_overflows_is_not_kept(tmp_path):
    class Steep(ByteText):
        def loss(self, output, targets):
            # The root of 0 is 0, its slope infinite: a finite loss whose gradient is no number.
            return super().loss(output, targets) + (0 * output).sum().sqrt()

    steep = Steep([bytes(range(256)) * 8], 16)
    with pytest.raises(FloatingPointError, match="expected the weights of model finite, got nan"):
        train(ROVE, replace(HOW, log_every=20), steep, folder=tmp_path, progress=False)
    assert last_checkpoint(tmp_path) is None


# Refusals


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"how": replace(HOW, learning_rate=1e-3)}, "training learning_rate was 0.003 and is"),
        ({"how": replace(HOW, seed=1)}, "training seed was 0 and is 1"),
        ({"arms": {"RoPE": ROPE, "RoVE": replace(ROVE, d_mlp=8)}}, "models RoVE was 'GPTConfig"),
        ({"arms": {"RoVE": ROVE}}, "models RoPE was .* and is 'nothing'"),
        ({"text": ByteText([b"another text" * 342], 16)}, "first batch was"),
    ],
    ids=["rate", "seed", "config", "arms", "data"],
)
def test_another_run_is_refused_and_nothing_is_touched(tmp_path, change, words):
    run(tmp_path, callback=stop_at(8))
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    given = {"arms": ARMS, "how": HOW, "text": TEXT} | change
    if "RoVE" in change.get("arms", {}) and len(change["arms"]) == 2:
        given["arms"] = {"RoPE": replace(ROPE, d_mlp=8), "RoVE": replace(ROVE, d_mlp=8)}
    with pytest.raises(ValueError, match=words):
        train_matched(given["arms"], given["how"], given["text"], folder=tmp_path, progress=False)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_another_stage_after_the_same_first_batches_is_refused(tmp_path):
    config = replace(ROVE, d_vocab=Induction().d_in)
    how = replace(HOW, steps=2)
    for n, refused in ((9, False), (8, True)):
        stages = ((Induction(n_ctx=16, n_segment=4), n),)
        task = Curriculum(stages=stages, goal=Induction(n_ctx=16))
        with pytest.raises(ValueError, match="task was 'Curriculum") if refused else nullcontext():
            train(config, how, task, folder=tmp_path, progress=False)


def test_the_seconds_of_both_parts_are_added(tmp_path):
    run(tmp_path, callback=stop_at(8))
    before = json.loads((last_checkpoint(tmp_path) / "state.json").read_text())["runs"]["RoVE"]
    for name in ("wall_s", "cpu_s"):
        before[name] += 1000.0
    state = last_checkpoint(tmp_path) / "state.json"
    whole = json.loads(state.read_text())
    state.write_text(json.dumps(whole | {"runs": whole["runs"] | {"RoVE": before}}))
    again = run(tmp_path)["RoVE"]
    assert again.wall_s > before["wall_s"]
    assert again.cpu_s > before["cpu_s"]


def test_a_damaged_checkpoint_is_refused(tmp_path):
    run(tmp_path, callback=stop_at(8))
    file = last_checkpoint(tmp_path) / "RoVE" / "optimizer.safetensors"
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    with pytest.raises(ValueError, match=r"optimizer.safetensors as it was written, got another"):
        run(tmp_path)


@pytest.mark.parametrize("name", ["", "a/b", "..", "C:x"])
def test_a_name_that_cannot_name_a_folder_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="expected names of models that can name folders"):
        train_matched({name: ROVE}, HOW, TEXT, folder=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_time_goes_on_counting(tmp_path):
    first = run(tmp_path, callback=stop_at(16))
    again = run(tmp_path)
    assert again["RoVE"].wall_s > 0.5 * first["RoVE"].wall_s
