"""One model being trained: what a checkpoint holds of it brings it back."""

import json

import pytest
import torch
from accelerate import Accelerator

from rove_lab.arm import Arm, share
from rove_lab.data import ByteText
from rove_lab.model import GPTConfig
from rove_lab.train_config import TrainConfig

TEXT = ByteText([bytes(range(256)) * 8], 16)
CONFIG = GPTConfig(n_ctx=16, d_model=16, n_heads=2, n_layers=1)
HOW = TrainConfig(steps=6, batch_size=4, learning_rate=3e-3, weight_decay=0.1)


@pytest.fixture
def arm():
    return Arm(CONFIG, HOW, Accelerator(cpu=True))


def advance(arm, first, last):
    batches = list(zip(range(1, 7), TEXT.batches(4, 1), strict=False))
    for step, batch in batches[first - 1 : last]:
        arm.advance(step, *batch, TEXT)


def test_a_restored_arm_takes_the_same_steps(arm, tmp_path):
    advance(arm, 1, 4)
    assert arm.report("a", 4) > 0
    advance(arm, 5, 5)
    state = json.loads(json.dumps(arm.save("a", 5, tmp_path / "a")))
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == [
        "config.json",
        "model.safetensors",
        "optimizer.safetensors",
    ]
    again = Arm(CONFIG, HOW, Accelerator(cpu=True))
    again.restore(tmp_path / "a", state)
    for one in (arm, again):
        advance(one, 6, 6)
        one.report("a", 6)
    assert again.run.losses == arm.run.losses
    assert again.run.steps == [4, 6]
    for own, other in zip(arm.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(own, other)


def test_norms_do_not_decay_and_matrices_do(arm):
    decay = {
        id(p): group["weight_decay"]
        for group in arm.optimizer.param_groups
        for p in group["params"]
    }
    for name, parameter in arm.model.named_parameters():
        assert decay[id(parameter)] == (0.0 if "ln" in name else 0.1), name


def test_the_rate_follows_the_schedule():
    how = TrainConfig(steps=6, batch_size=4, learning_rate=1.0, warmup_steps=2, final_rate=0.5)
    arm = Arm(CONFIG, how, Accelerator(cpu=True))
    for step in (1, 6):
        advance(arm, step, step)
        assert {g["lr"] for g in arm.optimizer.param_groups} == {how.rate(step)}


def test_weights_that_are_no_numbers_are_not_saved(arm, tmp_path):
    with torch.no_grad():
        arm.run.model.ln_final.weight[0] = float("inf")
    with pytest.raises(FloatingPointError, match="expected the weights of a finite, got nan"):
        arm.save("a", 5, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_a_batch_is_shared_out_once():
    batch = torch.arange(6)
    parts = [share(batch, index, 3) for index in range(3)]
    assert torch.equal(torch.cat(parts).sort().values, batch)
    words = r"batch_size divisible by 4, which is processes times accumulate, got 6"
    with pytest.raises(ValueError, match=words):
        share(batch, 0, 4)
