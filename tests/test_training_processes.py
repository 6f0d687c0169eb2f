"""Two processes, started as a user starts them, make the run that one process makes."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rove_lab.data import ByteText
from rove_lab.model import GPTConfig
from rove_lab.run_folder import last_checkpoint, trained_models
from rove_lab.training import TrainConfig, train_matched

TEXT = ByteText([bytes(range(256)) * 8], 16)
ROVE = GPTConfig(n_ctx=16, d_model=16, n_heads=2, n_layers=1)
ARMS = {"RoPE": replace(ROVE, rotate_values=False), "RoVE": ROVE}
# A batch of 8 over two processes is what each of them would call a batch of 4.
# A checkpoint falls between two reports: it must hold the loss of both processes.
HOW = TrainConfig(
    steps=8, batch_size=8, learning_rate=3e-3, log_every=3, checkpoint_every=4, accumulate=2
)

SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
from test_training_processes import ARMS, HOW, TEXT
from rove_lab.training import train_matched
train_matched(ARMS, HOW, TEXT, folder=sys.argv[1])
"""
LAUNCHERS = {
    "torchrun": ["torch.distributed.run", "--nproc_per_node=2"],
    "accelerate": ["accelerate.commands.launch", "--cpu", "--num_processes=2"],
}


def launch(launcher, script, *arguments):
    environment = os.environ | {
        "ACCELERATE_USE_CPU": "true",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
    }
    port = 20_000 + os.getpid() % 20_000
    flag = "--main_process_port" if launcher == "accelerate" else "--master_port"
    command = [sys.executable, "-m", *LAUNCHERS[launcher], f"{flag}={port}", script, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def one_process():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield train_matched(ARMS, HOW, TEXT, progress=False)
    torch.set_num_threads(before)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_two_processes_are_one_with_twice_the_batch(tmp_path, one_process, launcher):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parent)))
    out = launch(launcher, str(script), str(tmp_path / "run"))
    assert out.count("step 8 of 8") == 1  # one process speaks for both
    checkpoint = last_checkpoint(tmp_path / "run")
    assert checkpoint.name == "checkpoint-8"
    runs = json.loads((checkpoint / "state.json").read_text())["runs"]
    models = trained_models(tmp_path / "run")
    for name, run in one_process.items():
        assert runs[name]["losses"] == pytest.approx(run.losses, rel=1e-5)
        for own, other in zip(models[name].parameters(), run.model.parameters(), strict=True):
            torch.testing.assert_close(own, other, atol=1e-5, rtol=1e-4)


def test_one_process_goes_on_with_what_two_began(tmp_path, one_process):
    script = tmp_path / "script.py"
    short = SCRIPT.format(tests=str(Path(__file__).parent)).replace(
        "train_matched(ARMS, HOW, TEXT, folder=sys.argv[1])",
        """
def stop(report):
    if report.step == 6:
        raise KeyboardInterrupt
train_matched(ARMS, HOW, TEXT, folder=sys.argv[1], callback=stop)
""",
    )
    script.write_text(short)
    launch("torchrun", str(script), str(tmp_path / "run"))
    assert last_checkpoint(tmp_path / "run").name == "checkpoint-4"
    runs = train_matched(ARMS, HOW, TEXT, folder=tmp_path / "run", progress=False)
    for name, run in one_process.items():
        assert runs[name].losses == pytest.approx(run.losses, rel=1e-5)
