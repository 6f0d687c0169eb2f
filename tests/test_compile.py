"""Under `torch.compile`: one whole graph, few compilations, the same numbers and gradients."""

import os
import shutil

import pytest
import torch
import torch._dynamo.testing  # not imported by `import torch`
from samples import normal

from rove_lab import (
    KVCache,
    RotaryEmbedding,
    RotarySelfAttention,
    YarnScaling,
    attention_pattern,
    rope_attention,
    rove_attention,
)
from rove_lab.model import GPT, GPTConfig

ROTARY = RotaryEmbedding(8, scaling=YarnScaling(4.0, 64, beta_fast=4.0))
PART = RotaryEmbedding(8, rotary_dim=4, trailing=True, scaling=ROTARY.scaling)
LENGTHS = (5, 9, 17, 64)
# Inductor writes C++. Where nothing can compile it, the same graph is lowered and run by torch.
CXX = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
INDUCTOR = "inductor" if CXX else "aot_eager_decomp_partition"


@pytest.fixture(autouse=True)
def _forget_compiled_graphs():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def inputs(n, q_len=None):
    shapes = ((4, n if q_len is None else q_len), (2, n), (2, n))
    return [
        normal(2, heads, length, 8, dtype=torch.float32, seed=seed).requires_grad_()
        for seed, (heads, length) in enumerate(shapes)
    ]


CALLS = {
    "default positions": lambda attention, n, *qkv: attention(*qkv, ROTARY),
    "positions": lambda attention, n, *qkv: attention(*qkv, ROTARY, positions=torch.arange(n) + 7),
    "rows of reals": lambda attention, n, *qkv: attention(
        *qkv, ROTARY, positions=torch.arange(2 * n).reshape(2, n) * 0.5
    ),
    "a part turns": lambda attention, n, *qkv: attention(*qkv, PART),
    "all keys": lambda attention, n, *qkv: attention(*qkv, ROTARY, is_causal=False),
    "boolean mask": lambda attention, n, *qkv: attention(
        *qkv, ROTARY, attn_mask=torch.ones(n, n, dtype=torch.bool).tril(3)
    ),
    "additive mask": lambda attention, n, *qkv: attention(
        *qkv, ROTARY, attn_mask=torch.zeros(2, 1, 1, n)
    ),
}


@pytest.mark.parametrize(
    ("call", "attention"),
    [("default positions", rope_attention), *((call, rove_attention) for call in CALLS)],
)
def test_fault_19_at_most_two_compilations_while_the_length_grows(call, attention):
    counter = torch._dynamo.testing.CompileCounter()

    def forward(q, k, v):
        return CALLS[call](attention, q.shape[-2], q, k, v)

    compiled = torch.compile(forward, backend=counter, fullgraph=True)
    for n in LENGTHS:
        q, k, v = inputs(n)
        assert torch.allclose(compiled(q, k, v), forward(q, k, v), atol=1e-6)
    assert counter.frame_count <= 2


def test_fault_19_at_most_two_compilations_while_the_cache_grows():
    """One query at a time over keys that are rotated already, as a decoder calls it."""
    counter = torch._dynamo.testing.CompileCounter()

    @torch.compile(backend=counter, fullgraph=True)
    def step(q, k, v):
        return rove_attention(q, k, v, ROTARY)

    for n in LENGTHS:
        q, k, v = inputs(n, 1)
        assert torch.allclose(step(q, k, v), rove_attention(q, k, v, ROTARY), atol=1e-6)
    assert counter.frame_count <= 2


def test_fault_19_the_pattern_and_the_rotation_compile_whole():
    counter = torch._dynamo.testing.CompileCounter()

    @torch.compile(backend=counter, fullgraph=True)
    def forward(q, k, positions):
        rotation = ROTARY(positions)
        return attention_pattern(q, k, ROTARY), rotation.undo(rotation.apply(k))

    for n in LENGTHS:
        q, k, _ = inputs(n)
        pattern, again = forward(q, k, torch.arange(n))
        assert torch.allclose(pattern, attention_pattern(q, k, ROTARY), atol=1e-6)
        assert torch.allclose(again, k, atol=1e-5)
    assert counter.frame_count <= 2


def test_fault_19_a_rotation_made_outside_can_be_used_inside():
    counter = torch._dynamo.testing.CompileCounter()

    @torch.compile(backend=counter, fullgraph=True)
    def forward(rotation, x):
        return rotation.undo(rotation.apply(x) * 2)

    for n in LENGTHS:
        x = inputs(n)[0]
        assert torch.allclose(forward(ROTARY(range(n)), x), 2 * x, atol=1e-5)
    assert counter.frame_count <= 2


@pytest.mark.parametrize("rotate_values", [True, False])
def test_fault_19_the_layer_compiles_whole(rotate_values):
    torch.manual_seed(0)
    layer = RotarySelfAttention(16, 4, 2, rotate_values=rotate_values, d_head=8)
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(layer, backend=counter, fullgraph=True)
    for n in LENGTHS:
        x = normal(2, n, 16, dtype=torch.float32)
        assert torch.allclose(compiled(x), layer(x), atol=1e-5)
    assert counter.frame_count <= 2


def test_fault_19_layers_that_share_their_rotations_compile_whole():
    model = GPT(GPTConfig(d_vocab=31, d_model=24, n_layers=2, n_heads=2, value_planes=(0, 2)))
    tokens = torch.arange(14).reshape(2, 7)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert torch.allclose(compiled(tokens), model(tokens), atol=1e-6)


def test_a_compiled_layer_decodes_with_a_cache():
    torch.manual_seed(0)
    layer = RotarySelfAttention(16, 4, 2, d_head=8)
    x = normal(2, 12, 16, dtype=torch.float32)
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(layer, backend=counter, fullgraph=True)
    cache = KVCache()
    with torch.no_grad():
        steps = [compiled(x[:, t : t + 1], cache=cache) for t in range(12)]
        assert torch.allclose(torch.cat(steps, 1), layer(x), atol=1e-5)
    assert counter.frame_count <= 3  # an empty cache, a first length, then any length


@pytest.mark.parametrize("attention", [rope_attention, rove_attention])
def test_fault_18_compiled_gradients_are_eager_gradients(attention):
    compiled = torch.compile(
        lambda *qkv: attention(*qkv, ROTARY, positions=torch.arange(6) * 3),
        backend="aot_eager",
        fullgraph=True,
    )
    eager, graph = inputs(6), inputs(6)
    weight = normal(2, 4, 6, 8, dtype=torch.float32, seed=5)
    (attention(*eager, ROTARY, positions=torch.arange(6) * 3) * weight).sum().backward()
    (compiled(*graph) * weight).sum().backward()
    for a, b in zip(eager, graph, strict=True):
        assert torch.allclose(a.grad, b.grad, atol=1e-5)


# inductor itself calls torch.jit, which warns that it is deprecated; 2.6 warns of its own cache
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Skipping serialization:UserWarning")
def test_fault_20_inductor_compiles_both_layouts():
    """The default backend, forward and backward; complex numbers would break it."""
    halves = RotaryEmbedding(8, rotary_dim=6)
    interleaved = RotaryEmbedding(8, rotary_dim=6, interleaved=True, trailing=True)

    def loss(q, k, v):
        far = torch.arange(6) + 999_990
        z = rove_attention(q, k, v, halves, value_rotary=interleaved, positions=far)
        return (z * torch.arange(8)).sum(), z

    compiled = torch.compile(loss, backend=INDUCTOR, fullgraph=True)
    eager, graph = inputs(6), inputs(6)
    (expected, z), (total, z_graph) = loss(*eager), compiled(*graph)
    assert torch.allclose(z_graph, z, atol=1e-5)
    expected.backward()
    total.backward()
    for a, b in zip(eager, graph, strict=True):
        assert torch.allclose(a.grad, b.grad, atol=1e-4)


def test_half_precision_compiles():
    q, k, v = (x.detach().bfloat16() for x in inputs(6))
    far = torch.arange(6) + 1_000_000
    compiled = torch.compile(rove_attention, backend="aot_eager", fullgraph=True)
    z = compiled(q, k, v, ROTARY, positions=far)
    assert z.dtype == torch.bfloat16
    exact = rove_attention(q.double(), k.double(), v.double(), ROTARY, positions=far)
    assert (z.double() - exact).abs().max() < 0.05


def test_compiled_inside_inference_mode_then_training():
    compiled = torch.compile(
        lambda *qkv: rove_attention(*qkv, ROTARY), backend="aot_eager", fullgraph=True
    )
    q, k, v = inputs(6)
    with torch.inference_mode():
        quiet = compiled(q, k, v)
    loud = compiled(q, k, v)
    assert torch.allclose(quiet, loud, atol=1e-6)
    loud.sum().backward()
    assert v.grad.isfinite().all()
