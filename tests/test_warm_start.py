"""Training on from weights that are there."""

from dataclasses import replace

import pytest
import torch

from rove_lab.data import ByteText
from rove_lab.model import GPT, GPTConfig
from rove_lab.training import TrainConfig, train_matched
from rove_lab.warm_start import WarmStart

SIZES = GPTConfig(n_ctx=8, d_model=16, n_layers=2, n_heads=2, rotate_values=False)
TOKENS = torch.arange(12)[None]


@pytest.mark.parametrize("tied", [True, False])
def test_a_warm_start_with_rope_is_the_trained_model_and_with_rove_another_of_its_weights(tied):
    torch.manual_seed(0)
    trained = GPT(replace(SIZES, tied=tied))
    same = WarmStart(trained.config, trained).build()
    turned = WarmStart(replace(trained.config, rotate_values=True), trained).build()
    assert torch.equal(same(TOKENS), trained(TOKENS))
    assert not torch.allclose(turned(TOKENS), trained(TOKENS))
    for name, weight in trained.named_parameters():
        assert torch.equal(dict(turned.named_parameters())[name], weight)
    still = replace(trained.config, rotate_values=True, value_planes=())
    assert torch.allclose(WarmStart(still, trained).build()(TOKENS), trained(TOKENS), atol=1e-6)


def test_training_on_leaves_the_trained_model_as_it_was_and_arms_start_alike():
    torch.manual_seed(0)
    trained = GPT(SIZES)
    before = [weight.clone() for weight in trained.parameters()]
    arms = {
        name: WarmStart(replace(SIZES, rotate_values=rotate), trained)
        for name, rotate in {"RoPE": False, "RoVE": True}.items()
    }
    text = ByteText([b"the same words again and again " * 9], n_ctx=8)
    runs = train_matched(arms, TrainConfig(3, 4), text, progress=False)  # refuses unlike starts
    assert all(map(torch.equal, trained.parameters(), before))
    assert not torch.equal(runs["RoPE"].model.embed.weight, trained.embed.weight)


def test_another_model_or_another_size_is_refused():
    with pytest.raises(TypeError, match="expected trained to be a GPT, got Linear"):
        WarmStart(SIZES, torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="got another d_model, base: use"):
        WarmStart(replace(SIZES, d_model=32, base=100.0), GPT(SIZES))


def test_it_has_the_trained_model_s_dtype():
    trained = GPT(SIZES).double()
    assert WarmStart(SIZES, trained).build().embed.weight.dtype == torch.float64
