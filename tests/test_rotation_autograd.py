"""`Rotation` under autograd, torch.func and torch.compile: the opposite turn, and tables only."""

import gc
import itertools
import weakref

import pytest
import torch
import torch._dynamo
from references import reference_rotary, reference_rotate

from rove_lab import RotaryEmbedding
from rove_lab.rotation import _cos_and_sin

LAYOUTS = [
    dict(zip(("rotary_dim", "interleaved", "trailing"), values, strict=True))
    for values in itertools.product((None, 6), (False, True), (False, True))
]
every_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=str)
# torch's forward mode itself calls torch.jit.script, which warns that it is deprecated
forward_mode = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")


@pytest.fixture(autouse=True)
def _same_numbers():
    torch.manual_seed(0)


@every_layout
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autograd_keeps_the_tables_and_no_copy_of_what_turns(layout, dtype):
    rotation = RotaryEmbedding(10, **layout)(range(5))
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        y = rotation.apply(torch.randn(2, 3, 5, 10, dtype=dtype, requires_grad=True))
        rotation.undo(y)
    tables = {rotation._cos_by_channel.data_ptr(), rotation.sin.data_ptr()}
    assert {t.data_ptr() for t in kept} == tables


def test_nothing_keeps_the_input_alive():
    x = torch.randn(2, 3, 5, 10, requires_grad=True) * 1.0
    y, gone = RotaryEmbedding(10)(range(5)).apply(x), weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None
    assert y.requires_grad


@every_layout
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_backward_of_a_turn_is_the_opposite_turn(layout, dtype):
    rotation = RotaryEmbedding(10, **layout)(torch.tensor([[0, 5, -2], [1, 2, 999_999]]))
    x, grad = torch.randn(2, 2, 3, 3, 10, dtype=dtype)
    for move, back in ((rotation.apply, rotation.undo), (rotation.undo, rotation.apply)):
        leaf = x.clone().requires_grad_()
        move(leaf).backward(grad)
        assert torch.equal(leaf.grad, back(grad))


@forward_mode
@every_layout
def test_every_way_to_differentiate_agrees_with_differences(layout):
    x = torch.randn(2, 3, 10, dtype=torch.float64, requires_grad=True)
    rotation = RotaryEmbedding(10, **layout)(torch.tensor([0, 5, -2]))
    for move in (rotation.apply, rotation.undo):
        assert torch.autograd.gradcheck(move, x, check_forward_ad=True)
        assert torch.autograd.gradgradcheck(move, x, check_fwd_over_rev=True)


@forward_mode
@every_layout
def test_positions_may_be_learned(layout):
    rotary = RotaryEmbedding(10, base=3.0, **layout)
    x = torch.randn(2, 3, 10, dtype=torch.float64, requires_grad=True)
    positions = torch.tensor([0.5, 2.0, -1.0], dtype=torch.float64, requires_grad=True)

    def turned(positions, x):
        return rotary(positions).apply(x)

    assert torch.autograd.gradcheck(turned, (positions, x), check_forward_ad=True)
    still = x.detach()
    assert torch.autograd.gradcheck(lambda p: turned(p, still), positions, check_forward_ad=True)


@forward_mode
def test_forward_mode_moves_positions_and_vectors_at_once():
    rotary = RotaryEmbedding(4, base=3.0)
    x, dx = torch.randn(2, 1, 3, 4, dtype=torch.float64)
    positions, step = torch.randn(2, 3, dtype=torch.float64)

    def turned(positions, x):
        return rotary(positions).apply(x)

    _, found = torch.func.jvp(turned, (positions, x), (step, dx))
    h = 1e-6
    ahead, behind = (turned(positions + s * step, x + s * dx) for s in (h, -h))
    assert torch.allclose(found, (ahead - behind) / (2 * h), atol=1e-8)


@forward_mode
@pytest.mark.parametrize("layout", LAYOUTS[:4], ids=str)
def test_jacobians_are_the_matrices(layout):
    rotary = RotaryEmbedding(10, **layout)
    rotation, x = rotary([7]), torch.randn(1, 1, 10, dtype=torch.float64)
    for jacobian in (torch.func.jacrev, torch.func.jacfwd):
        found = jacobian(rotation.apply)(x).reshape(10, 10)
        assert torch.allclose(found, rotary.matrix(7), atol=1e-12)


@forward_mode
@every_layout
def test_forward_over_forward_sees_what_comes_before_and_after(layout):
    rotary = RotaryEmbedding(10, base=3.0, **layout)
    x, dx = torch.randn(2, 1, 3, 10, dtype=torch.float64)
    positions, step = torch.randn(2, 3, dtype=torch.float64)

    def along(s):
        return rotary(positions + s**2 * step).apply((x + s * dx).sin()).pow(2)

    def pushed(function):
        return lambda s: torch.func.jvp(function, (s,), (torch.ones_like(s),))[1]

    s = torch.tensor(0.7, dtype=torch.float64)
    h = 1e-5
    expected = (pushed(along)(s + h) - pushed(along)(s - h)) / (2 * h)
    assert torch.allclose(pushed(pushed(along))(s), expected, atol=1e-6)


@forward_mode
@every_layout
@pytest.mark.parametrize("outer", ["reverse-mode", "forward-mode"])
def test_vectorized_jacobians_and_hessians(layout, outer):
    rotation, x = RotaryEmbedding(10, **layout)([7]), torch.randn(1, 1, 10, dtype=torch.float64)

    def twice_turned(x):
        return rotation.undo(rotation.apply(x).sin()).pow(2).sum()

    autograd = torch.autograd.functional
    found = autograd.jacobian(rotation.apply, x, vectorize=True, strategy=outer)
    assert torch.allclose(found, autograd.jacobian(rotation.apply, x), atol=1e-12)
    found = autograd.hessian(twice_turned, x, vectorize=True, outer_jacobian_strategy=outer)
    assert torch.allclose(found, autograd.hessian(twice_turned, x), atol=1e-12)


@pytest.mark.parametrize("place", [0, 1, 2, 3, -1])
def test_vmap_over_any_axis(place):
    rotation, x = RotaryEmbedding(8)(range(5)), torch.randn(4, 3, 5, 8)
    mapped = torch.func.vmap(rotation.apply, in_dims=place)(x.movedim(0, place))
    assert torch.allclose(mapped, rotation.apply(x), atol=1e-6)
    twice = torch.func.vmap(torch.func.vmap(rotation.undo))(torch.stack((x, -x)))
    assert torch.allclose(twice, rotation.undo(torch.stack((x, -x))), atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
def test_vmap_over_the_batch_of_rows_of_positions(dtype):
    rows = torch.tensor([[0, 1, 2], [7, -3, 1000]], dtype=dtype)
    rotary, x = RotaryEmbedding(8), torch.randn(2, 4, 3, 8)

    def one(row, x):
        return rotary(row).apply(x)

    expected = reference_rotate(x.double(), rows.tolist(), reference_rotary(8)).float()
    assert torch.allclose(torch.func.vmap(one)(rows, x), expected, atol=1e-6)
    same = torch.func.vmap(one, in_dims=(0, None))(rows, x[0])
    for turned, row in zip(same, rows, strict=True):
        assert torch.allclose(turned, one(row, x[0]), atol=1e-6)


def test_vmap_of_gradients():
    rotation, x = RotaryEmbedding(8)(range(5)), torch.randn(4, 3, 5, 8)
    weight = torch.randn(3, 5, 8)

    def loss(x):
        return (rotation.apply(x) * weight).sum()

    grads = torch.func.vmap(torch.func.grad(loss))(x)
    assert torch.allclose(grads, rotation.undo(weight).expand_as(x), atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("cast_to", [torch.bfloat16, torch.float16])
def test_autocast_changes_no_bit(dtype, cast_to):
    rotation, x = RotaryEmbedding(8)(range(5)), torch.randn(3, 5, 8).to(dtype)
    with torch.autocast("cpu", cast_to):
        turned = rotation.apply(x)
    assert turned.dtype == dtype
    assert torch.equal(turned, rotation.apply(x))


@every_layout
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_what_nobody_differentiates_is_turned_to_the_same_bits(layout, dtype):
    rotation = RotaryEmbedding(10, **layout)(range(5))
    x = torch.randn(2, 3, 5, 10, dtype=dtype, requires_grad=True)
    for move in (rotation.apply, rotation.undo):
        recorded = move(x)
        with torch.no_grad():
            unrecorded = [move(x), move(x.detach())]
        assert recorded.requires_grad
        for turned in [*unrecorded, move(x.detach())]:
            assert torch.equal(turned, recorded)
            assert not turned.requires_grad


def test_inference_mode_and_meta_tensors():
    rotation, x = RotaryEmbedding(8)(range(5)), torch.randn(3, 5, 8)
    with torch.inference_mode():
        assert torch.equal(rotation.apply(x), rotation.apply(x.clone()))
    far = RotaryEmbedding(8)(range(5), device="meta")
    leaf = torch.zeros(3, 5, 8, device="meta", dtype=torch.bfloat16, requires_grad=True)
    far.apply(leaf).sum().backward()
    assert (leaf.grad.shape, leaf.grad.dtype) == (leaf.shape, leaf.dtype)


def test_the_tables_are_an_operator_that_compilers_leave_alone():
    angles = torch.randn(5, 4, dtype=torch.float64)
    torch.library.opcheck(_cos_and_sin, (angles,))
    cos, sin = _cos_and_sin(angles)
    assert torch.equal(cos, angles.cos().float())
    assert torch.equal(sin, angles.sin().float())


def test_a_compiled_pass_takes_each_cosine_once_and_not_once_a_head():
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    rotary = RotaryEmbedding(8)

    def both(x, y):
        rotation = rotary(torch.arange(5))
        return rotation.apply(x), rotation.undo(y)

    x, y = torch.randn(2, 3, 5, 8)
    torch._dynamo.reset()
    found = torch.compile(both, backend=backend, fullgraph=True)(x, y)
    torch._dynamo.reset()
    for turned, expected in zip(found, both(x, y), strict=True):
        assert torch.allclose(turned, expected, atol=1e-6)
    called = [str(node.target) for graph in graphs for node in graph.graph.nodes]
    assert sum("cos_and_sin" in name for name in called) == 1
    assert "cos" not in called


def test_a_compiled_pass_differentiates_learned_positions():
    rotary = RotaryEmbedding(8)

    def loss(positions, x):
        return rotary(positions).apply(x).square().sum(-1).pow(2).sum() + positions.sum()

    positions = torch.tensor([0.5, 2.0], requires_grad=True)
    x = torch.randn(3, 2, 8, requires_grad=True)
    torch._dynamo.reset()
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    found = torch.autograd.grad(compiled(positions, x), (positions, x))
    torch._dynamo.reset()
    for one, other in zip(
        found, torch.autograd.grad(loss(positions, x), (positions, x)), strict=True
    ):
        assert torch.allclose(one, other, atol=1e-4)
