"""Estimates: parameters and FLOPs as torch counts them, memory near what autograd keeps."""

from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from rove_lab.estimates import (
    parameter_count,
    tokens_per_second,
    training_flops,
    training_hours,
    training_memory,
    utilisation,
)
from rove_lab.model import GPTConfig

SMALL = GPTConfig(d_vocab=31, n_ctx=16, d_model=24, n_layers=3, n_heads=4, d_head=8)
CONFIGS = {
    "RoVE": SMALL,
    "RoPE": replace(SMALL, rotate_values=False),
    "grouped": replace(SMALL, n_kv_heads=2),
    "untied, LayerNorm": replace(SMALL, tied=False, rms_norm=False, d_mlp=40),
    "d_head from d_model": replace(SMALL, d_head=None, d_model=40),
    "tiny": GPTConfig.preset("tiny"),
}
each_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def loss_of(config, batch_size):
    model = config.build()
    tokens = torch.randint(0, config.d_vocab, (batch_size, config.n_ctx + 1))
    return model, cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


@each_config
def test_parameters_are_those_of_the_model(config):
    assert parameter_count(config) == sum(p.numel() for p in config.build().parameters())


def test_the_presets_have_the_papers_sizes():
    sizes = {name: parameter_count(GPTConfig.preset(name)) for name in ("gpt2-124m", "gpt2-354m")}
    assert {name: round(size / 1e6) for name, size in sizes.items()} == {
        "gpt2-124m": 124,
        "gpt2-354m": 354,
    }


@each_config
def test_flops_are_those_that_torch_counts(config):
    # The plain kernel multiplies twice forward and four times backward, as the formula says.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        loss_of(config, 2)[1].backward()
    assert training_flops(config, 2 * config.n_ctx).matmul == counter.get_total_flops()


def test_rotations_are_counted_channel_by_channel():
    rope, rove = (training_flops(replace(SMALL, n_kv_heads=2, rotate_values=on), 1)
                  for on in (False, True))  # fmt: skip
    # 4 query heads and 2 key heads of 8 channels, 3 each, forward and backward, in 3 layers
    assert rope.rotations == (4 + 2) * 8 * 3 * 2 * 3
    assert rove.rotations == 2 * rope.rotations
    assert rove.matmul == rope.matmul
    whole = training_flops(GPTConfig.preset("gpt2-124m"), 1)
    assert whole.rotations / whole.matmul < 0.001


def test_flops_are_six_times_the_parameters_where_the_context_is_short():
    config = GPTConfig.preset("gpt2-124m", n_ctx=1)
    assert training_flops(config, 10).matmul == pytest.approx(
        60 * parameter_count(config), rel=1e-3
    )


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("rotate_values", [False, True])
@pytest.mark.parametrize("n_kv_heads", [None, 2])
def test_activations_are_near_what_autograd_keeps(rotate_values, n_kv_heads, bf16):
    config = GPTConfig(
        d_vocab=64, n_layers=3, rms_norm=False, rotate_values=rotate_values, n_kv_heads=n_kv_heads
    )
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = (tensor, tensor.untyped_storage().nbytes())
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=bf16),
    ):
        model, _ = loss_of(config, 8)
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    found = sum(size for place, (_, size) in kept.items() if place not in weights)
    copies = 2 * parameter_count(config) if bf16 else 0  # of the weights, kept too
    estimate = training_memory(config, 8, bf16=bf16).activations
    assert estimate == pytest.approx(found - copies, rel=0.12)


def test_memory_grows_with_the_batch_in_its_activations_alone():
    one, two = (training_memory(SMALL, batch) for batch in (1, 2))
    count = parameter_count(SMALL)
    assert (one.weights, one.gradients, one.moments) == (4 * count, 4 * count, 8 * count)
    assert two.activations == 2 * one.activations
    assert two.total - one.total == one.activations
    narrow = training_memory(SMALL, 1, bf16=True)
    assert narrow.weights == 6 * count
    assert 0.5 < narrow.activations / one.activations < 1


def test_speed_and_utilisation_are_two_views_of_one_thing():
    config = GPTConfig.preset("gpt2-354m")
    speed = tokens_per_second(config, 1e15, 0.4)
    assert utilisation(config, speed, 1e15) == pytest.approx(0.4)
    assert training_hours(10**10, speed) == pytest.approx(
        training_flops(config, 10**10).matmul / 0.4e15 / 3600
    )


@pytest.mark.parametrize(
    ("estimate", "error", "message"),
    [
        (lambda: training_flops(SMALL, 0), ValueError, "n_tokens to be positive, got 0"),
        (lambda: training_flops(SMALL, 1e10), TypeError, "n_tokens to be an integer"),
        (lambda: training_hours(10, 0.0), ValueError, "positive tokens_per_s, got 0.0"),
        (lambda: training_hours(10, "1"), TypeError, "tokens_per_s to be a number"),
        (lambda: tokens_per_second(SMALL, 0, 0.4), ValueError, "positive flops_per_s, got 0"),
        (lambda: tokens_per_second(SMALL, 1e12, 40), ValueError, "share from 0 to 1, got 40"),
        (lambda: utilisation(SMALL, 1.0, -1.0), ValueError, "positive flops_per_s, got -1"),
        (lambda: training_memory(SMALL, 0), ValueError, "batch_size to be positive"),
        (lambda: training_memory(SMALL, 1, bf16=1), TypeError, "bf16 to be True or False"),
    ],
)
def test_what_means_nothing_is_refused(estimate, error, message):
    with pytest.raises(error, match=message):
        estimate()
