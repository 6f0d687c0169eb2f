"""The runner of experiments: jobs, seeds, processes, the record, the command line."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Barrier, Event

import pytest
from experiment_scripts import ROOT

from rove_lab.experiment import Experiment, described
from rove_lab.model import GPTConfig
from rove_lab.records import read_record
from rove_lab.train_config import TrainConfig

SCRIPT = """
from dataclasses import dataclass
from rove_lab.experiment import Experiment

@dataclass(frozen=True)
class Budget:
    steps: int = 2

def run(budget, arm, row, seed):
    import torch
    threads = torch.get_num_threads()
    return {"sum": {"all": budget.steps + seed + len(arm) + len(row), "threads": threads}}

def jobs(budget):
    return [(arm, row) for arm in ("RoPE", "RoVE, fast") for row in ("1", "22")]

experiment = Experiment(slug="sums", question="What is the sum?", budget=Budget(),
    gpu_budget=Budget(200), jobs=jobs, run=run, headline=lambda found: str(found["sum"]["all"]))
if __name__ == "__main__":
    experiment.command_line()
"""


@dataclass(frozen=True)
class Budget:
    model: GPTConfig = field(default_factory=lambda: GPTConfig(n_layers=1))
    training: TrainConfig = field(default_factory=lambda: TrainConfig(3, 2, 1e-3, seed=9))
    lengths: tuple[int, ...] = (1, 2)
    rows: dict = field(default_factory=lambda: {1: None, "two": True})


def test_a_budget_is_described_without_seeds_and_survives_json():
    config = described(Budget())
    assert config["model"]["kind"] == "GPTConfig"
    assert config["model"]["n_layers"] == 1
    assert config["training"]["steps"] == 3
    assert "seed" not in config["training"]
    assert config["lengths"] == [1, 2]
    assert config["rows"] == {"1": None, "two": True}


def test_what_json_cannot_hold_is_refused():
    with pytest.raises(TypeError, match="a record could not say what was set"):
        described({"steps": {1, 2}})


@pytest.fixture
def script(tmp_path):
    """A checkout with one experiment in it."""
    (tmp_path / "experiments").mkdir()
    path = tmp_path / "experiments" / "sums.py"
    path.write_text(SCRIPT, encoding="utf-8")
    git = ("git", "-c", "user.name=A", "-c", "user.email=a@b.c")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "One")):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    return path


def run(script, *words):
    return subprocess.run(
        [sys.executable, str(script), *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.parametrize("workers", ["1", "2"])
def test_every_job_is_done_for_every_seed_and_recorded(script, workers):
    done = run(script, "--workers", workers, "--seeds", "4")
    assert done.returncode == 0, done.stderr
    record = read_record(script.parents[1] / "results" / "sums")
    sums = {arm: {row: cell["sum"]["all"] for row, cell in rows.items()}
            for arm, rows in record.values.items()}  # fmt: skip
    assert sums == {
        "RoPE": {"1": [7, 8, 9, 10], "22": [8, 9, 10, 11]},
        "RoVE, fast": {"1": [13, 14, 15, 16], "22": [14, 15, 16, 17]},
    }
    assert list(record.values) == ["RoPE", "RoVE, fast"]
    assert record.config == {"steps": 2}
    assert record.seeds == [0, 1, 2, 3]
    assert "[16/16] " in done.stdout
    assert "seed 3: 17; " in done.stdout
    assert done.stdout.splitlines()[-2].endswith("; 0 s left")  # whichever job was last
    if workers == "2":
        assert record.values["RoPE"]["1"]["sum"]["threads"] == [1] * 4


def test_it_says_what_it_asks_and_refuses_a_gpu_that_is_not_there(script):
    assert "What is the sum?" in run(script, "--help").stdout
    env = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, str(script), "--gpu"], capture_output=True, text=True, env=env
    )
    assert done.returncode != 0
    assert "expected a GPU, got none" in done.stderr


def experiment(run, **more):
    return Experiment(slug="a", question="?", budget=Budget(), gpu_budget=Budget(), run=run, **more)


def test_seeds_that_give_other_numbers_are_refused():
    uneven = experiment(lambda budget, seed: {"a": 1.0} if seed else {"b": 1.0})
    with pytest.raises(ValueError, match="the same numbers for every seed"):
        uneven.record(Budget(), [0, 1, 2])


@pytest.mark.parametrize(("seeds", "words"), [([0, 1], "3 seeds or more"), ([0, 1, 1], "differ")])
def test_seeds_that_no_record_could_have_are_refused_before_any_job(seeds, words):
    done = []
    with pytest.raises(ValueError, match=words):
        experiment(lambda budget, seed: done.append(seed) or {"a": 1.0}).record(Budget(), seeds)
    assert not done


def test_too_few_seeds_and_no_workers_end_the_command_with_a_line(script):
    done = run(script, "--seeds", "0")
    assert done.returncode != 0
    assert done.stderr.startswith("expected 3 seeds or more")
    assert "expected workers" in run(script, "--workers", "0").stderr


def test_a_job_that_fails_says_which_it_was():
    def diverged(budget, arm, row, seed):
        raise FloatingPointError("expected a finite loss")

    with pytest.raises(FloatingPointError) as caught:
        experiment(diverged, jobs=lambda budget: [("RoVE", "2 layers")]).record(Budget(), [0, 1, 2])
    assert caught.value.__notes__ == ["in the job RoVE, 2 layers, seed 0"]


@pytest.fixture
def threads(monkeypatch):
    """Workers that are threads of this process: what is asked is the order of things."""
    monkeypatch.setattr(
        "rove_lab.experiment.ProcessPoolExecutor",
        lambda workers, mp_context: ThreadPoolExecutor(workers),
    )
    monkeypatch.setattr("torch.set_num_threads", lambda number: None)


def kept(printed):
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return sorted((one["job"], one["seed"], one["numbers"]) for one in lines)


def test_a_job_that_fails_loses_no_other(threads, capsys):
    """The one beside it is waited for; none is begun after it."""
    third, done = Event(), []

    def sometimes(budget, name, seed):
        if name == "b":
            third.wait(60)
            raise FloatingPointError("expected a finite loss")
        if name == "c":
            third.set()
            time.sleep(0.2)
        done.append(name)
        return {"a": 1.5}

    four = experiment(sometimes, jobs=lambda budget: [(name,) for name in "abcd"])
    with pytest.raises(FloatingPointError) as caught:
        four.record(Budget(), [0, 1, 2], workers=2)
    assert caught.value.__notes__ == ["in the job b, seed 0"]
    assert done == ["a", "c"]
    assert kept(capsys.readouterr().out) == [(["a"], 0, {"a": 1.5}), (["c"], 0, {"a": 1.5})]


def test_a_job_that_fails_after_others_in_this_process_loses_none(capsys):
    def once(budget, seed):
        return {"a": 1 / (1 - seed)}

    with pytest.raises(ZeroDivisionError):
        experiment(once).record(Budget(), [0, 1, 2])
    assert kept(capsys.readouterr().out) == [([], 0, {"a": 1.0})]


def test_a_process_that_is_killed_is_told_with_the_jobs_it_may_have_had(script):
    died = "    import os, signal\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    script.write_text(SCRIPT.replace("    import torch\n", died), encoding="utf-8")
    done = run(script, "--workers", "2")
    assert done.returncode != 0
    assert "perhaps in the job RoPE, 1, seed 0: out of memory?" in done.stderr


def test_two_jobs_that_fail_are_both_named(threads):
    both = Barrier(2)

    def never(budget, name, seed):
        both.wait(60)
        raise FloatingPointError(name)

    with pytest.raises(FloatingPointError) as caught:
        experiment(never, jobs=lambda budget: [("a",), ("b",)]).record(
            Budget(), [0, 1, 2], workers=2
        )
    notes = " ".join(caught.value.__notes__)
    assert "in the job a, seed 0" in notes
    assert "in the job b, seed 0" in notes


def test_a_change_of_seeds_that_would_do_nothing_is_refused(monkeypatch):
    words = ["a.py", "--change", "lengths=[3]", "--change", "training.seed=5"]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(SystemExit, match=r"expected --seeds, got --change .*seed=5: every job"):
        experiment(lambda budget, seed: {"a": 1.0}).command_line()


def command(monkeypatch, tmp_path, *words):
    """Run the command line on a small budget, and read the record it wrote."""
    monkeypatch.setattr(sys, "argv", ["a.py", "--workers", "1", *words])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    experiment(lambda budget, seed: {"a": 1.0}).command_line()
    return read_record(tmp_path)


def test_every_change_counts_however_many_there_are(monkeypatch, tmp_path):
    words = ["--folder", str(tmp_path), "--change", "lengths=[3]", "--change", "training.steps=7"]
    config = command(monkeypatch, tmp_path, *words).config
    assert config["lengths"] == [3]
    assert config["training"]["steps"] == 7


def test_a_changed_budget_does_not_overwrite_the_record_of_the_whole(monkeypatch, tmp_path):
    with pytest.raises(SystemExit, match=r"expected --folder beside --change: .*results"):
        command(monkeypatch, tmp_path, "--change", "lengths=[3]")


def test_a_folder_that_is_none_is_refused_before_any_job(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"expected a folder to write record\.json to, got .*file"):
        command(monkeypatch, tmp_path, "--folder", str(tmp_path / "file" / "below"))
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


def test_numbers_that_no_record_can_hold_end_the_job_that_gave_them():
    asked = []

    def diverge(budget, seed):
        asked.append(seed)
        return {"loss": float("nan") if seed == 1 else 1.0}

    with pytest.raises(ValueError, match="JSON") as caught:
        experiment(diverge).record(Budget(), [0, 1, 2])
    assert asked == [0, 1]
    assert "in the job seed 1" in " ".join(caught.value.__notes__)


def test_a_budget_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="expected a budget of finite numbers, got inf"):
        described({"rate": float("inf")})


def test_numbers_keep_six_digits_however_small():
    record = experiment(lambda budget, seed: {"a": 1.23456789e-7, "steps": 1234567}).record(
        Budget(), [0, 1, 2]
    )
    assert record.values == {"a": [1.23457e-07] * 3, "steps": [1234567] * 3}


SLOW = SCRIPT.replace(
    "    import torch\n",
    "    import time, torch\n    open(f'begun_{arm[:5]}_{row}_{seed}', 'w').close()\n"
    "    time.sleep(3)\n",
)


def test_ctrl_c_begins_no_other_job(script, tmp_path):
    script.write_text(SLOW, encoding="utf-8")
    command = [sys.executable, str(script), "--workers", "2", "--seeds", "4"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a terminal's Ctrl-C reaches the workers, too
    )
    deadline = time.monotonic() + 60
    while not [*tmp_path.glob("begun_*")] and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    begun = len([*tmp_path.glob("begun_*")])
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "interrupted: no record was written" in errors
    assert len([*tmp_path.glob("begun_*")]) <= begun + 1  # the other worker may be just starting


def test_one_seed_will_do_for_models_that_are_kept_and_their_config_is_asked_last():
    written = []
    kept = experiment(
        lambda budget, seed: written.append(seed) or {"a": 1.0},
        kind="checkpoint",
        config=lambda budget: {"files": [*written]},
    )
    record = kept.record(Budget(), [5])
    assert record.kind == "checkpoint"
    assert record.config == {"files": [5]}


def test_a_job_that_was_stopped_leaves_no_record(tmp_path, monkeypatch):
    def stopped(budget, seed):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["a.py", "--workers", "1", "--folder", str(tmp_path / "a")])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(SystemExit, match="interrupted: no record was written"):
        experiment(stopped).command_line()
    assert not (tmp_path / "a").exists()
