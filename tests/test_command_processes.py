"""From a text to a sample, in two processes as a user starts them, at toy size."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from command_samples import QUICK, SIZES

from rove_lab.run_folder import last_checkpoint, trained_models

ROOT = Path(__file__).resolve().parent.parent
LAUNCHERS = {
    "accelerate": ["accelerate.commands.launch", "--cpu", "--num_processes", "2", "-m"],
    "torchrun": ["torch.distributed.run", "--nproc-per-node", "2", "-m"],
}


def typed(folder, *arguments, launcher=None):
    """A command as it is typed in a folder, alone or by a launcher of two processes."""
    environment = os.environ | {
        "ACCELERATE_USE_CPU": "true",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    start = ["-m"]
    if launcher is not None:
        flag = "--main_process_port" if launcher == "accelerate" else "--master_port"
        module, *options = LAUNCHERS[launcher]
        start = ["-m", module, f"{flag}={20_000 + os.getpid() % 20_000}", *options]
    command = [sys.executable, *start, "rove_lab", *map(str, arguments)]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240
    )


def succeeded(*arguments, **how):
    done = typed(*arguments, **how)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a parquet file as FineWeb-Edu's, of which shards were made."""
    place = tmp_path_factory.mktemp("place")
    rows = [
        {"text": f"Lesson {n}. " + "A plant turns light into sugar. " * (n % 9), "id": str(n)}
        for n in range(400)
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), place / "lessons.parquet")
    said = succeeded(place, "prepare-data", "--parquet", "lessons.parquet", "--held-out-one-in", 10)
    assert said.rstrip().endswith("tokens in shards: done")
    return place


def test_from_parquet_to_a_sample(place):
    asked = ("train", "--shards", "shards", *SIZES, *QUICK, "--folder", "run")
    said = succeeded(place, *asked, launcher="accelerate").splitlines()
    assert said[0].startswith("RoVE: 0.81 million parameters, on TokenShards(")
    assert sum("step 4 of 4" in line for line in said) == 1  # one process speaks for both
    assert said[-1].startswith("held-out text: ")
    assert last_checkpoint(place / "run").name == "checkpoint-4"
    assert trained_models(place / "run")["RoVE"].config.d_vocab == 50_257

    measured = "--n-tokens 256 --lengths 16 64 --shots 1 --out found.json".split()
    assert "perplexity at 64 (4 ×)" in succeeded(place, "evaluate", "run", *measured)
    values = json.loads((place / "found.json").read_text())["values"]["RoVE"]
    assert values["perplexity at 16 (1 ×)"] < 80_000
    written = succeeded(place, "generate", "run", "--prompt", "A plant", "--n-tokens", 5)
    assert written.startswith("--- RoVE\nA plant")

    again = succeeded(place, *asked)
    assert "finished already: nothing to train in run" in again
    assert again.splitlines()[-1] == said[-1]


@pytest.mark.slow
def test_two_processes_compare_as_one_does(place):
    asked = ("compare", "--shards", "shards", *SIZES, *QUICK, "--n-tokens", 256, "--seeds", 2)
    succeeded(place, *asked, "--folder", "both", launcher="torchrun")
    succeeded(place, *asked, "--folder", "alone")
    both, alone = (
        json.loads((place / name / "comparison.json").read_text())["values"]
        for name in ("both", "alone")
    )
    for name in ("RoPE", "RoVE"):
        assert both[name]["loss"] == pytest.approx(alone[name]["loss"], rel=1e-4)
        assert len(both[name]["loss"]) == 2


def test_bad_input_ends_both_processes(place):
    done = typed(place, "train", "--shards", "none", launcher="torchrun")
    assert done.returncode != 0
    assert "rove-lab: expected token shards in none" in done.stderr
