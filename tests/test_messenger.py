"""The messenger against its formula written out, and what its message can and cannot say."""

from dataclasses import replace

import pytest
import torch
from references import reference_attention, reference_rotary
from torch.nn.functional import gelu

from rove_lab.messenger import Messenger, MessengerConfig

SMALL = MessengerConfig(d_in=5, d_out=3, d_model=6, n_heads=2, d_head=4, bias_std=1.0)
CHANGES = {
    "plain": {},
    "RoPE": {"rotate_values": False},
    "MLP": {"d_mlp": 7},
    "two layers": {"n_layers": 2, "residual": True},
    "all": {"n_layers": 2, "residual": True, "d_mlp": 7, "rotate_values": False},
}


def built(config, seed=0):
    torch.manual_seed(seed)
    return config.build().double()


def by_hand(model, x):
    """The output for one sequence of real inputs, layer by layer, head by head."""
    c = model.config
    x = x @ model.W_E.weight.T + model.W_E.bias
    rotary = reference_rotary(c.d_head, base=c.base)
    for layer, mlp in zip(model.attention, model.mlp, strict=True):
        q, k, v = ((x @ W)[None] for W in (layer.W_Q, layer.W_K, layer.W_V))
        at = [list(range(len(x)))]
        turn = rotary if c.rotate_values else None
        z = reference_attention(q, k, v, rotary, at, at, value_rotary=turn)[0]
        sent = sum(z[h] @ layer.W_O[h] for h in range(c.n_heads))
        x = x + sent if c.residual else sent
        if c.d_mlp:
            hidden = gelu(x @ mlp.W_in.weight.T + mlp.W_in.bias)
            x = x + hidden @ mlp.W_out.weight.T + mlp.W_out.bias
    return x @ model.W_U.weight.T + model.W_U.bias


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_output_is_the_formula(change):
    model = built(replace(SMALL, **change))
    x = torch.randn(1, 4, 5, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(model(x)[0], by_hand(model, x[0]))


def test_a_token_is_its_one_hot_row():
    model = built(SMALL)
    tokens = torch.tensor([[4, 0, 2]])
    torch.testing.assert_close(model(tokens), model(torch.eye(5, dtype=torch.float64)[tokens]))


def message(model, distance, n=12):
    """What reaches the last token from the one symbol 1, that far back among zeros."""
    tokens = torch.zeros(1, n, dtype=torch.long)
    tokens[0, n - 1 - distance] = 1
    return model(tokens)[0, -1]


def looks_for_token_1(rotate_values):
    """One head that attends to the symbol 1 alone, in planes that do not turn."""
    config = MessengerConfig(2, 8, 4, 1, 4, base=1e30, rotate_values=rotate_values)
    model = built(config)
    with torch.no_grad():
        model.W_E.weight.copy_(torch.eye(4)[:, :2])
        model.W_E.bias.copy_(torch.tensor([0.0, 0.0, 1.0, 0.0]))  # a constant to ask with
        layer = model.attention[0]
        layer.W_Q.zero_(), layer.W_K.zero_()
        layer.W_Q[0, 2, 1], layer.W_K[0, 1, 1] = (
            100.0,
            100.0,
        )  # channel 1: plane 1, which stands still
    return model


def test_a_rope_message_is_the_same_at_every_distance_and_a_rove_message_is_not():
    """Claim C2, on the model of the chapter."""
    near, far = (message(looks_for_token_1(False), distance) for distance in (1, 9))
    assert near.norm() > 0.1
    torch.testing.assert_close(near, far)
    near, far = (message(looks_for_token_1(True), distance) for distance in (1, 9))
    assert (near - far).norm() > 0.1 * near.norm()


def test_the_same_seed_gives_both_arms_the_same_weights():
    rope, rove = (built(replace(SMALL, rotate_values=rotate)) for rotate in (False, True))
    for one, other in zip(rope.parameters(), rove.parameters(), strict=True):
        assert torch.equal(one, other)
    assert not torch.equal(rope.W_U.weight, built(SMALL, seed=1).W_U.weight)


def test_the_bias_starts_as_wide_as_it_is_told():
    assert not built(replace(SMALL, bias_std=0.0)).W_E.bias.any()
    wide = built(replace(SMALL, d_model=4096, bias_std=2.0)).W_E.bias
    assert wide.std().item() == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"d_in": 0}, ValueError, "expected d_in to be positive"),
        ({"n_heads": 1.5}, TypeError, "expected n_heads to be an integer"),
        ({"d_mlp": -1}, ValueError, "expected d_mlp to be positive"),
        ({"d_head": 5}, ValueError, "expected an even rotary_dim"),
        ({"base": -1.0}, ValueError, "expected a finite positive base"),
        ({"bias_std": -1.0}, ValueError, "expected bias_std of 0 or more, got -1.0"),
        ({"residual": 1}, TypeError, "expected residual to be True or False"),
        ({"rotate_values": None}, TypeError, "expected rotate_values to be True or False"),
    ],
)
def test_bad_sizes_are_refused(change, error, words):
    with pytest.raises(error, match=words):
        replace(SMALL, **change)


def test_bad_input_is_refused():
    model = built(SMALL)
    with pytest.raises(ValueError, match=r"inputs \[batch, pos, d_in=5\], got \[1, 4, 6\]"):
        model(torch.zeros(1, 4, 6, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"expected tokens \[batch, pos\].*got \[4, 5\]"):
        model(torch.zeros(4, 5, dtype=torch.float64))
    with pytest.raises(TypeError, match="expected a MessengerConfig, got dict"):
        Messenger({"d_in": 5})
