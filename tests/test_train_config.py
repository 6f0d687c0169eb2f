"""The learning rate at every step, and what a training is told."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rove_lab.model import GPTConfig
from rove_lab.train_config import TrainConfig

SHORT = TrainConfig(steps=6, batch_size=8)


def test_the_rate_warms_up_and_stays():
    how = TrainConfig(steps=10, learning_rate=2.0, warmup_steps=4)
    assert [how.rate(t) for t in range(1, 11)] == [0.5, 1.0, 1.5, *[2.0] * 7]


@given(st.integers(1, 60), st.integers(0, 20), st.floats(0, 1))
def test_the_cosine_is_that_of_torch(after, warmup, final):
    """torch's own schedule, from the end of the warm-up on."""
    how = TrainConfig(
        steps=warmup + after, learning_rate=3.0, warmup_steps=warmup, final_rate=final
    )
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=3.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, after, eta_min=3.0 * final)
    optimizer.step()  # torch warns where a schedule moves before its optimiser
    for step in range(max(1, warmup), how.steps + 1):
        while schedule.last_epoch < step - warmup:
            schedule.step()
        assert how.rate(step) == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-9)


def test_the_rate_ends_at_its_share_and_never_jumps():
    how = TrainConfig(steps=200, learning_rate=1.0, warmup_steps=20, final_rate=0.1)
    rates = [how.rate(t) for t in range(1, 201)]
    assert rates[19] == 1.0
    assert rates[-1] == pytest.approx(0.1)
    assert max(abs(a - b) for a, b in itertools.pairwise(rates)) <= 1 / 20 + 1e-12
    assert rates[20:] == sorted(rates[20:], reverse=True)
    half = how.rate(110)
    assert half == pytest.approx(0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * 0.5)))


def test_a_warm_up_longer_than_the_training_is_a_ramp():
    how = TrainConfig(steps=5, learning_rate=1.0, warmup_steps=10)
    assert [how.rate(t) for t in range(1, 6)] == [0.1, 0.2, 0.3, 0.4, 0.5]


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"steps": 0}, ValueError, "expected steps to be positive"),
        ({"batch_size": 2.5}, TypeError, "expected batch_size to be an integer"),
        ({"learning_rate": 0.0}, ValueError, "expected a positive learning_rate, got 0.0"),
        ({"learning_rate": "1e-2"}, TypeError, "expected learning_rate to be a number"),
        ({"final_rate": 1.5}, ValueError, "expected final_rate from 0 to 1"),
        ({"final_rate": float("nan")}, ValueError, "final_rate"),
        ({"beta2": 1.0}, ValueError, "expected beta2 from 0 to below 1"),
        ({"clip": -1.0}, ValueError, "expected a positive clip"),
        ({"warmup_steps": -1}, ValueError, "expected warmup_steps of 0 or more, got -1"),
        ({"weight_decay": -0.1}, ValueError, "expected weight_decay of 0 or more"),
        ({"accumulate": 3}, ValueError, "batch_size divisible by accumulate, got 8 and 3"),
        ({"accumulate": 0}, ValueError, "expected accumulate to be positive"),
        ({"bf16": 1}, TypeError, "bf16"),
        ({"compile": "yes"}, TypeError, "compile"),
        ({"seed": 1.0}, TypeError, "expected seed to be an integer, got 1.0"),
        ({"seed": 2**30}, ValueError, "expected a seed from 0 to"),
        ({"log_every": 0}, ValueError, "expected log_every to be positive"),
        ({"checkpoint_every": 0}, ValueError, "expected checkpoint_every to be positive"),
    ],
)
def test_a_bad_train_config_is_refused(change, error, words):
    given = {"steps": 6, "batch_size": 8} | change
    with pytest.raises(error, match=words):
        TrainConfig(**given)


def test_presets_train_language_models():
    tiny = TrainConfig.preset("tiny", seed=3)
    assert (tiny.steps, tiny.batch_size, tiny.learning_rate, tiny.seed) == (400, 16, 2e-3, 3)
    assert tiny.warmup_steps == 0.05 * tiny.steps
    for name, rate in {"gpt2-124m": 6e-4, "gpt2-354m": 3e-4}.items():
        how = TrainConfig.preset(name)
        tokens = how.batch_size * GPTConfig.preset(name).n_ctx
        assert how.steps * tokens == pytest.approx(10e9, rel=1e-3)  # one epoch of FineWeb-Edu
        assert how.warmup_steps * tokens == pytest.approx(375e6, rel=2e-3)
        assert (how.learning_rate, how.beta2, how.weight_decay, how.bf16) == (rate, 0.95, 0.1, True)
        assert how.rate(how.steps) == pytest.approx(0.1 * rate)


def test_every_preset_of_a_model_has_one_for_its_training():
    with pytest.raises(ValueError, match="expected a preset among") as of_models:
        GPTConfig.preset("huge")
    with pytest.raises(ValueError, match="expected a preset among") as of_training:
        TrainConfig.preset("huge")
    assert str(of_training.value) == str(of_models.value)
