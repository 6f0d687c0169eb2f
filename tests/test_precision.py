"""Tables are exact to position 1,000,000, and nothing a caller does to a model changes them."""

import copy
import io
import pickle

import mpmath
import pytest
import torch
from references import reference_rotary, reference_rotate, rope_frequencies
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rove_lab import (
    LinearScaling,
    RotaryEmbedding,
    RotarySelfAttention,
    YarnScaling,
    rope_attention,
    rove_attention,
)

FAR = [0, 1, 2047, 65_537, 524_289, 999_983, 1_000_000, -1_000_000]


@pytest.fixture(autouse=True)
def _same_numbers():
    torch.manual_seed(0)


def exact_tables(positions, base, rotary_dim):
    """cos and sin to 40 digits, then rounded to float64."""
    with mpmath.workdps(40):
        angles = [
            [
                mpmath.mpf(t) * mpmath.power(mpmath.mpf(base), -mpmath.mpf(2 * m) / rotary_dim)
                for m in range(rotary_dim // 2)
            ]
            for t in positions
        ]
        cos = [[float(mpmath.cos(a)) for a in row] for row in angles]
        sin = [[float(mpmath.sin(a)) for a in row] for row in angles]
    return torch.tensor(cos).double(), torch.tensor(sin).double()


@pytest.mark.parametrize("base", [10000.0, 500000.0])
@pytest.mark.parametrize("rotary_dim", [64, 128])
def test_fault_06_cos_and_sin_are_exact_to_position_one_million(base, rotary_dim):
    cos, sin = exact_tables(FAR, base, rotary_dim)
    rotation = RotaryEmbedding(rotary_dim, base=base)(FAR)
    assert rotation.cos.dtype == rotation.sin.dtype == torch.float32
    assert (rotation.cos.double() - cos).abs().max() <= 1e-7
    assert (rotation.sin.double() - sin).abs().max() <= 1e-7


def test_angles_are_float64_and_rounded_once_to_float32():
    positions = torch.arange(999_000, 1_000_000)
    inv_freq = torch.tensor(rope_frequencies(64), dtype=torch.float64)
    angles = positions.double()[:, None] * inv_freq
    rotation = RotaryEmbedding(64)(positions)
    assert torch.equal(rotation.cos, angles.cos().float())
    assert torch.equal(rotation.sin, angles.sin().float())


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32, torch.float64])
def test_fault_06_positions_of_any_exact_dtype_give_the_same_tables(dtype):
    expected = RotaryEmbedding(64)(torch.tensor(FAR))
    assert torch.equal(RotaryEmbedding(64)(torch.tensor(FAR, dtype=dtype)).cos, expected.cos)


def test_float64_input_is_turned_in_float64():
    x = torch.randn(1, 1, len(FAR), 64, dtype=torch.float64)
    expected = reference_rotate(x, [FAR], reference_rotary(64))
    assert (RotaryEmbedding(64)(FAR).apply(x) - expected).abs().max() < 1e-9


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 5e-7), (torch.float16, 1e-3), (torch.bfloat16, 8e-3)]
)
def test_fault_08_the_output_is_as_right_at_one_million_as_at_zero(dtype, tolerance):
    """A phase error reaches RoVE's output linearly, so it is read off the output itself.

    With equal keys the last output is the mean of the three values, each turned by its offset.
    """
    v = torch.randn(1, 1, 3, 64).to(dtype)
    q = k = torch.zeros_like(v)
    positions = torch.tensor([1_000_000, 1_000_500, 1_001_000])
    z = rove_attention(q, k, v, RotaryEmbedding(64), positions=positions)[0, 0, -1]
    turn = reference_rotary(64).turn
    expected = sum(
        torch.tensor(turn(v[0, 0, j].double().tolist(), 500 * (j - 2))).double() / 3
        for j in range(3)
    )
    assert z.dtype == dtype
    assert (z.double() - expected).abs().max() <= tolerance * v.abs().max()


class Model(nn.Module):
    """A model that holds its rotary embedding as an attribute, as a user's would."""

    def __init__(self):
        super().__init__()
        scaling = YarnScaling(4.0, 4096)
        self.attention = RotarySelfAttention(16, 2, rotary=RotaryEmbedding(8, scaling=scaling))
        self.rotary = RotaryEmbedding(8, scaling=scaling)

    def forward(self, x):
        return self.attention(x)


def tables_of(model):
    rotations = [model.rotary(FAR), model.attention.rotary(FAR), model.attention.value_rotary(FAR)]
    return torch.stack([rotation.cos for rotation in rotations])


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.to(torch.bfloat16),
        lambda model: model.half(),
        lambda model: model.double(),
        lambda model: model.half().float(),
        copy.deepcopy,
        copy.copy,
        lambda model: pickle.loads(pickle.dumps(model)),
        lambda model: nn.Sequential(model).to(torch.float16)[0],
        lambda model: model.apply(lambda module: None),
        lambda model: model.eval().requires_grad_(False),
    ],
    ids=[
        "bfloat16", "half", "double", "half and back", "deepcopy", "copy", "pickle",
        "inside a half module", "apply", "eval",
    ],
)  # fmt: skip
def test_fault_07_tables_survive_what_is_done_to_the_module(change):
    model = Model()
    before = tables_of(model)
    changed = change(model)
    assert before.dtype == torch.float32
    assert torch.equal(tables_of(changed), before)
    assert changed.rotary.inv_freq.dtype == torch.float64
    dtype = changed.attention.W_Q.dtype
    assert changed(torch.randn(1, 3, 16).to(dtype)).dtype == dtype


def test_fault_07_meta_construction_then_loading():
    original = Model()
    with torch.device("meta"):
        model = Model()
    assert model.attention.W_Q.is_meta
    model = model.to_empty(device="cpu")
    model.load_state_dict(original.state_dict())
    assert torch.equal(tables_of(model), tables_of(original))
    x = torch.randn(1, 5, 16)
    assert torch.equal(model(x), original(x))


def test_fault_07_there_is_nothing_in_the_state_dict():
    assert sorted(Model().state_dict()) == [f"attention.W_{letter}" for letter in "KOQV"]
    assert list(Model().buffers()) == []
    assert not isinstance(RotaryEmbedding(8), nn.Module)


def test_a_saved_module_loads_whole():
    model, file = Model(), io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    assert torch.equal(tables_of(again), tables_of(model))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))])
def test_rotaries_and_rotations_can_be_copied_and_pickled(copied):
    rotary = RotaryEmbedding(8, base=500.0, scaling=LinearScaling(2.0)).planes([0, 2])
    x = torch.randn(2, 4, 8)
    assert torch.equal(copied(rotary)(range(4)).apply(x), rotary(range(4)).apply(x))
    assert torch.equal(copied(rotary(range(4))).apply(x), rotary(range(4)).apply(x))


def test_fault_06_autocast_does_not_touch_a_rotation():
    x = torch.randn(1, 2, len(FAR), 8)
    plain = RotaryEmbedding(8)(FAR)
    expected = plain.apply(x)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype):
            inside = RotaryEmbedding(8)(FAR)
            assert torch.equal(inside.cos, plain.cos)
            assert torch.equal(inside.apply(x), expected)
            assert torch.equal(RotaryEmbedding(8).matrix(3), RotaryEmbedding(8).matrix(3))


def test_a_rotary_made_in_inference_mode_serves_training():
    with torch.inference_mode():
        rotary = RotaryEmbedding(8, scaling=LinearScaling(2.0))
        kept = rotary.planes([0])
    q, k, v = torch.randn(3, 1, 2, 4, 8, requires_grad=True)
    for family in (rotary, kept):
        rove_attention(q, k, v, family).sum().backward()
    positions = torch.arange(4.0, requires_grad=True)
    rotary(positions).apply(torch.ones(1, 4, 8)).sum().backward()
    assert positions.grad.isfinite().all()


def test_a_rotation_made_in_inference_mode_serves_training():
    with torch.inference_mode():
        rotation = RotaryEmbedding(8)(torch.arange(4))
        assert rotation.apply(torch.randn(1, 4, 8)).shape == (1, 4, 8)
    x = torch.randn(1, 4, 8, requires_grad=True)
    rotation.apply(x).sum().backward()
    assert torch.allclose(x.grad, rotation.undo(torch.ones(1, 4, 8)))


def test_a_model_used_in_inference_mode_trains_afterwards():
    model, x = Model(), torch.randn(1, 4, 16)
    with torch.inference_mode():
        quiet = model(x)
    loud = model(x)
    assert torch.equal(quiet, loud)
    loud.sum().backward()
    assert model.attention.W_V.grad.isfinite().all()


@pytest.mark.parametrize("default", ["meta", "cpu"])
def test_the_default_device_does_not_matter(default):
    q, k, v = torch.randn(3, 1, 2, 4, 8)
    layer, x = RotarySelfAttention(16, 2), torch.randn(1, 4, 16)
    rotary = RotaryEmbedding(8)
    expected = rove_attention(q, k, v, rotary), layer(x)
    with torch.device(default):
        inside = RotaryEmbedding(8)
        assert torch.equal(rove_attention(q, k, v, inside), expected[0])
        assert torch.equal(rope_attention(q, k, v, rotary, key_positions=[0, 1, 2, 3]),
                           rope_attention(q, k, v, rotary))  # fmt: skip
        assert torch.equal(layer(x), expected[1])
        assert inside.matrix([1, 2]).device.type == "cpu"
        assert inside.planes([0]).inv_freq.device.type == "cpu"
        assert inside.plane_channels.device.type == "cpu"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_default_dtype_does_not_matter(dtype):
    expected = RotaryEmbedding(8)(FAR).cos
    torch.set_default_dtype(dtype)
    try:
        rotary = RotaryEmbedding(8)
        assert rotary.inv_freq.dtype == torch.float64
        assert torch.equal(rotary(FAR).cos, expected)
        assert torch.equal(rotary([1e6, 0.5]).cos[0], expected[FAR.index(1_000_000)])
    finally:
        torch.set_default_dtype(torch.float32)


def test_meta_tensors_give_shapes():
    rotary = RotaryEmbedding(8)
    q, k, v = (torch.empty(2, 4, 5, 8, device="meta") for _ in range(3))
    assert rove_attention(q, k, v, rotary).shape == q.shape
    for positions in (torch.arange(5, device="meta"), torch.arange(5.0, device="meta")):
        assert rotary(positions).cos.shape == (5, 4)
        assert rotary(positions).apply(q).shape == q.shape
        assert rotary.matrix(positions).shape == (5, 8, 8)


class RefuseDouble(TorchDispatchMode):
    """Refuses float64 on Apple's device, also in a copy that casts: it casts on the source."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tensors = [t for t in tree_leaves((args, kwargs, result)) if isinstance(t, torch.Tensor)]
        if any(t.device.type == "mps" for t in tensors):
            assert all(t.dtype != torch.float64 for t in tensors), f"float64 on MPS in {func}"
        return result


def test_devices_without_float64_never_see_it():
    rotary = RotaryEmbedding(8, scaling=YarnScaling(4.0, 64))
    with FakeTensorMode(allow_non_fake_inputs=True), RefuseDouble():
        x = torch.zeros(2, 3, 4, 8, device="mps:0")
        positions = torch.arange(4, device="mps:0")
        for rotation in (rotary(positions), rotary(range(4), device="mps:0")):
            assert rotation.cos.device.type == "mps"
            assert rotation.undo(rotation.apply(x)).shape == x.shape
            assert rotation.apply(x.half()).dtype == torch.float16
        assert rotary.matrix(positions, dtype=torch.float32).device.type == "mps"
        with pytest.raises(AssertionError, match="float64 on MPS"):
            positions.to(torch.float64)
