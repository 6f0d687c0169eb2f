"""`RotarySelfAttention` and the cache it decodes with."""

import copy

import pytest
import torch
from references import reference_attention
from samples import as_reference, normal

from rove_lab import (
    KVCache,
    RotaryEmbedding,
    RotarySelfAttention,
    YarnScaling,
    rope_attention,
    rove_attention,
)
from rove_lab.self_attention import SharedRotations


@pytest.fixture(autouse=True)
def _same_numbers():
    torch.manual_seed(0)


def layer(d_model=12, n_heads=4, n_kv_heads=2, d_head=8, **how):
    return RotarySelfAttention(d_model, n_heads, n_kv_heads, d_head, **how).double()


X = normal(2, 6, 12)


# --- what it computes -------------------------------------------------------------------------

YARN = RotaryEmbedding(8, scaling=YarnScaling(16.0, 64, beta_fast=4.0))


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"bias": True},
        {"rotate_values": False},
        {"rotary": YARN, "bias": True},
        {"rotary": RotaryEmbedding(8, rotary_dim=4, trailing=True, interleaved=True)},
        {"rotary": RotaryEmbedding(8, rotary_dim=4, trailing=True, scaling=YARN.scaling)},
        {"value_rotary": RotaryEmbedding(8).planes([3])},
        {"n_kv_heads": 1, "rotary": YARN, "value_rotary": RotaryEmbedding(8, base=30.0)},
    ],
    ids=str,
)
def test_the_layer_is_project_rotate_attend_undo_project(how):
    """Row vectors: q = x W_Q + b_Q, ..., and the output is sum_h z_h W_O + b_O."""
    module = layer(**how)
    for name, parameter in module.named_parameters():
        if name.startswith("b_"):
            parameter.data = torch.randn_like(parameter)
    positions = [[3, 4, 5, 6, 7, 8], [0, 2, 4, 8, 16, 32]]

    def heads(weight, bias):
        bias = 0 if bias is None else bias
        return torch.stack([X @ W for W in weight], 1) + bias

    q, k, v = (
        heads(module.W_Q, module.b_Q),
        heads(module.W_K, module.b_K),
        heads(module.W_V, None),
    )
    rotary = how.get("rotary", RotaryEmbedding(8))
    value_rotary = how.get("value_rotary", rotary)
    z = reference_attention(
        q,
        k,
        v,
        as_reference(rotary),
        positions,
        positions,
        value_rotary=as_reference(value_rotary) if how.get("rotate_values", True) else None,
    )
    expected = sum(z[:, h] @ module.W_O[h] for h in range(4))
    if module.b_O is not None:
        expected = expected + module.b_O
    out = module(X, positions=torch.tensor(positions))
    assert torch.allclose(out, expected, atol=1e-9)


def test_weights_are_transformer_lenss():
    module = RotarySelfAttention(12, 4, n_kv_heads=2, d_head=8)
    shapes = {name: tuple(p.shape) for name, p in module.named_parameters()}
    assert shapes == {
        "W_Q": (4, 12, 8), "W_K": (2, 12, 8), "W_V": (2, 12, 8), "W_O": (4, 8, 12),
    }  # fmt: skip
    with_bias = RotarySelfAttention(12, 4, n_kv_heads=2, d_head=8, bias=True)
    names = {name for name, _ in with_bias.named_parameters()} - set(shapes)
    assert names == {"b_Q", "b_K", "b_O"}  # a value bias is no constant under RoVE: there is none


def test_defaults():
    module = RotarySelfAttention(32, 4)
    assert module.W_K.shape == module.W_Q.shape == (4, 32, 8)
    assert module.rotary.d_head == 8
    assert module.rotate_values
    assert module.b_O is None


def test_fault_03_one_rotary_serves_queries_keys_values_and_outputs():
    rotary = RotaryEmbedding(8, base=777.0)
    module = RotarySelfAttention(12, 4, d_head=8, rotary=rotary)
    assert module.rotary is module.value_rotary is rotary


@pytest.mark.parametrize("rotate_values", [True, False])
def test_fault_01_shifting_every_position_leaves_the_output(rotate_values):
    module = layer(rotate_values=rotate_values)
    for shift in (17, -5, 1_000_000):
        out = module(X, positions=torch.arange(6) + shift)
        assert torch.allclose(out, module(X), atol=1e-8)


def test_rotating_the_values_changes_the_output():
    module = layer()
    plain = copy.deepcopy(module)
    plain.rotate_values = False
    assert not torch.allclose(module(X), plain(X), atol=1e-3)
    assert torch.allclose(module(X)[:, 0], plain(X)[:, 0])  # offset zero turns nothing


def test_positions_matter_and_default_to_zero_one_two():
    module = layer()
    assert torch.equal(module(X), module(X, positions=torch.arange(6)))
    assert torch.equal(module(X), module(X, positions=[0, 1, 2, 3, 4, 5]))
    assert not torch.allclose(module(X), module(X, positions=2 * torch.arange(6)), atol=1e-3)


def test_fault_09_left_padding_equals_no_padding():
    module = layer()
    padded = torch.cat([normal(1, 2, 12, seed=9), X[1:, :4]], 1)
    batch = torch.cat([X[:1], padded])
    positions = torch.tensor([[0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 2, 3]])
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1]]).bool()[:, None, None, :]
    out = module(batch, positions=positions, attn_mask=mask)
    assert torch.allclose(out[0], module(X[:1])[0], atol=1e-12)
    assert torch.allclose(out[1, 2:], module(X[1:, :4])[0], atol=1e-12)


def test_gradients_reach_every_parameter():
    module = layer(bias=True)
    module(X).square().sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert (parameter.grad != 0).any(), name
    assert torch.autograd.gradcheck(module, X[:1, :3].clone().requires_grad_())


def test_autocast_runs_in_the_lower_precision():
    module = RotarySelfAttention(12, 4, 2, 8)
    x = X.float()
    expected = module(x)
    with torch.autocast("cpu", torch.bfloat16):
        out = module(x)
        cache = KVCache()
        steps = [module(x[:, t : t + 1], cache=cache) for t in range(6)]
    assert out.dtype == torch.bfloat16
    assert (out.float() - expected).abs().max() < 0.05
    assert (torch.cat(steps, 1).float() - expected).abs().max() < 0.05


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_the_output_has_the_inputs_dtype(dtype):
    module = layer().to(dtype)
    assert module(X.to(dtype)).dtype == dtype


def test_empty_batches_and_sequences():
    module = layer()
    assert module(X[:0]).shape == (0, 6, 12)
    assert module(X[:, :0]).shape == (2, 0, 12)
    assert module(X[:, :1]).shape == (2, 1, 12)


# --- what it refuses --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({"d_model": 12, "n_heads": 4, "n_kv_heads": 3}, r"n_kv_heads, got .*4.* 3"),
        ({"d_model": 12, "n_heads": 5}, r"d_model divisible by n_heads, got 12 and 5: pass d_head"),
        ({"d_model": 12, "n_heads": 4}, r"even rotary_dim .*got 3"),
        ({"d_model": 0, "n_heads": 4}, r"d_model.*positive.*got.*0"),
        ({"d_model": 12, "n_heads": 0}, r"n_heads.*positive.*got.*0"),
        ({"d_model": 12, "n_heads": 2, "n_kv_heads": -1}, r"n_kv_heads.*positive.*got.*-1"),
        ({"d_model": 12, "n_heads": 2, "d_head": 0}, r"d_head.*positive.*got.*0"),
    ],
    ids=str,
)
def test_sizes_that_do_not_fit_are_refused(sizes, expected):
    with pytest.raises(ValueError, match=expected):
        RotarySelfAttention(**sizes)


@pytest.mark.parametrize("name", ["d_model", "n_heads", "n_kv_heads", "d_head"])
@pytest.mark.parametrize("value", [2.0, "2", True, [2]])
def test_sizes_must_be_integers(name, value):
    with pytest.raises(TypeError, match=rf"{name} .*integer, got"):
        RotarySelfAttention(**{"d_model": 12, "n_heads": 2, name: value})


@pytest.mark.parametrize("name", ["rotary", "value_rotary"])
def test_rotaries_must_fit_the_head(name):
    with pytest.raises(ValueError, match=rf"expected {name} with d_head=6, got 8"):
        RotarySelfAttention(12, 2, **{name: RotaryEmbedding(8)})
    for wrong in (1e4, RotaryEmbedding, RotaryEmbedding(6)(range(3))):
        with pytest.raises(TypeError, match=rf"{name}.*RotaryEmbedding, got"):
            RotarySelfAttention(12, 2, **{name: wrong})


def test_value_rotary_without_rotated_values_is_refused():
    with pytest.raises(ValueError, match=r"rotate_values=False.*drop it"):
        RotarySelfAttention(12, 2, rotate_values=False, value_rotary=RotaryEmbedding(6))


@pytest.mark.parametrize("name", ["rotate_values", "bias"])
@pytest.mark.parametrize("value", ["no", 1, None])
def test_switches_must_be_bools(name, value):
    with pytest.raises(TypeError, match=rf"{name} .*got"):
        RotarySelfAttention(12, 2, **{name: value})


@pytest.mark.parametrize("x", [X[0], X[None], X[..., :11], X.transpose(1, 2), X.numpy(), None])
def test_x_must_be_batch_pos_d_model(x):
    with pytest.raises((ValueError, TypeError), match=r"x \[batch, pos, d_model=12\], got"):
        layer()(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_x_must_have_the_weights_dtype(dtype):
    with pytest.raises(TypeError, match=r"dtype torch\.float64, got torch\.\w+.*cast"):
        layer()(X.to(dtype))


def test_x_must_be_on_the_weights_device():
    with pytest.raises(ValueError, match=r"device cpu, got meta"):
        layer()(X.to("meta"))
    assert layer().to("meta")(X.to("meta")).shape == X.shape


@pytest.mark.parametrize("positions", [torch.arange(5), torch.arange(7), torch.zeros(2, 5), 6])
def test_fault_13_positions_must_be_as_many_as_tokens(positions):
    with pytest.raises(ValueError, match=r"positions .*got"):
        layer()(X, positions=positions)


def test_rows_of_positions_must_fit_the_batch():
    with pytest.raises(ValueError, match=r"batch=3 .*got"):
        layer()(X, positions=torch.zeros(3, 6))


def test_the_layers_temperature_is_the_functions():
    module = layer(rotary=YARN)
    module.W_O.data = torch.eye(32).reshape(4, 8, 32).double()
    q, k, v = (torch.einsum("bpm,hmd->bhpd", X, W) for W in (module.W_Q, module.W_K, module.W_V))
    z = module(X).unflatten(-1, (4, 8)).transpose(1, 2)
    assert torch.allclose(z, rove_attention(q, k, v, YARN), atol=1e-10)
    module.rotate_values = False
    z = module(X).unflatten(-1, (4, 8)).transpose(1, 2)
    assert torch.allclose(z, rope_attention(q, k, v, YARN), atol=1e-10)
    assert YARN.attention_factor > 1.1


def test_layers_may_share_their_rotations():
    rotary = RotaryEmbedding(8)
    layers = [layer(rotary=rotary) for _ in range(2)]
    positions = torch.arange(6) * 3
    rotations = SharedRotations(6, positions)
    for one in layers:
        assert torch.equal(one(X, rotations=rotations), one(X, positions=positions))
    assert rotations.of(rotary, "cpu") is rotations.of(rotary, torch.device("cpu"))
    assert rotations.of(RotaryEmbedding(8), "cpu") is not rotations.of(rotary, "cpu")
    assert rotations.of(rotary, "meta").cos.is_meta
    with pytest.raises(ValueError, match="positions or rotations, got both"):
        layers[0](X, positions=positions, rotations=rotations)
    with pytest.raises(ValueError, match="pos=2"):
        layers[0](X, rotations=SharedRotations(2))
