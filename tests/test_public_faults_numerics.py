"""Faults of rotary attention that were reported in public: precision, scaling, compilers.

As in `test_public_faults.py`, each test is named after a fault and asks the four surfaces.
"""

import pytest
import torch
import torch._dynamo.testing  # not imported by `import torch`
from references import yarn_attention_factor, yarn_frequencies
from rotary_surfaces import BASE, D_HEAD, GAPS, SURFACES, Gpt, HuggingFace, N, each_surface
from rove_models import ARCHITECTURES, rope, small_model
from rove_reference import YARN
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM

from rove_lab import RotaryEmbedding, RotarySelfAttention, YarnScaling, rove_attention
from rove_lab.retrofit import enable_rove

modules = pytest.mark.parametrize("name", ["layer", "GPT", "Hugging Face"])
FAR = torch.tensor([999_900, 999_950, 999_983, 999_990, 999_999, 1_000_000])
# of the largest output; a table in half precision is wrong by as much as the output itself
ROUNDING = {torch.float32: 1e-5, torch.float16: 0.01, torch.bfloat16: 0.08}


def largest(x):
    return x.detach().abs().max().item()


@each_surface
@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
def test_fault_06_tables_or_positions_in_half_precision(surface, dtype):
    """Equal keys, so that all that positions do to the output they do by turning values."""
    made = surface(dtype=dtype).equal_keys()
    x = made.draw(N)
    with torch.no_grad():
        for positions in (GAPS, FAR):
            found, expected = made.run(x, positions), made.reference(x, positions)
            assert found.dtype == dtype
            assert largest(found.double() - expected) < ROUNDING[dtype] * largest(expected)
    by_position = largest(made.reference(x, FAR) - made.reference(x))
    assert by_position > 3 * ROUNDING[dtype] * largest(expected)


@modules
def test_fault_07_a_table_that_is_saved_loaded_or_left_empty(name):
    """Made on meta, given memory, then weights: the rotation has nothing to lose on the way."""
    made, plain = SURFACES[name](), SURFACES[name](rotate_values=False)
    x = made.draw(N)
    state = made.model.state_dict()
    assert list(state) == list(plain.model.state_dict())
    with torch.no_grad():
        expected = made.run(x, GAPS)
    with torch.device("meta"):
        if name == "layer":
            empty = RotarySelfAttention(24, 4, 2, D_HEAD, rotary=RotaryEmbedding(D_HEAD, base=BASE))
        elif name == "GPT":
            empty = made.model.config.build()
        else:
            empty = AutoModelForCausalLM.from_config(plain.model.config).eval()
            enable_rove(empty)
    empty = empty.double().to_empty(device="cpu")
    empty.load_state_dict(state)
    if name == "Hugging Face":  # whose own tables are buffers, and are empty now
        for theirs, ours in zip(empty.buffers(), made.model.buffers(), strict=True):
            theirs.copy_(ours)
    else:
        assert list(made.model.buffers()) == []
    made.model = empty
    with torch.no_grad():
        assert torch.equal(made.run(x, GAPS), expected)


def test_fault_07_an_empty_table_of_transformers_is_seen():
    model = ARCHITECTURES["llama"]()
    model.model.rotary_emb.inv_freq.zero_()
    with pytest.raises(ValueError, match=r"rotary_emb\.inv_freq to hold the frequencies"):
        enable_rove(model)


@each_surface
def test_fault_08_a_phase_error_reaches_the_output_linearly(surface):
    """So the output must be as right at a million as at zero; no softmax damps what is wrong."""
    made = surface(dtype=torch.float32).equal_keys()
    x = made.draw(N)
    with torch.no_grad():
        near, far = made.run(x), made.run(x, torch.arange(N) + 1_000_000)
    assert largest(far - near) < 1e-5 * largest(near)


def test_fault_08_the_error_is_the_phase_times_the_frequency():
    rotary, v = RotaryEmbedding(2), torch.tensor([[[[1.0, 0.0]]]], dtype=torch.float64)
    q = k = torch.zeros_like(v)
    for phase in (1e-6, 1e-4, 1e-2):
        where = {"positions": [0], "key_positions": [phase]}
        error = rove_attention(q, k, v, rotary, **where)[0, 0, 0, 1].item()
        assert error == pytest.approx(phase, rel=1e-4)


def families(made):
    """Every rotation that turns something in it."""
    if isinstance(made, HuggingFace):
        return [hooks.rotary for hooks in made.model.rove._hooks.values()]
    layers = [b.attn for b in made.model.blocks] if isinstance(made, Gpt) else [made.model]
    both = [(layer.rotary, layer.value_rotary) for layer in layers]
    return [family for pair in both for family in pair if family is not None]


@each_surface
def test_fault_15_yarns_ramp_is_the_papers(surface):
    for family in families(surface(yarn=True)):
        how = (YARN["factor"], 64, YARN["beta_fast"])
        papers = yarn_frequencies(family.d_head, BASE, *how)
        assert family.inv_freq.tolist() == pytest.approx(papers, rel=1e-12)
        assert family.attention_factor == pytest.approx(yarn_attention_factor(YARN["factor"]))


@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize("betas", [(32.0, 1.0), (4.0, 1.0), (8.0, 0.5), (2.0, 2.0)], ids=str)
@pytest.mark.parametrize("attention_factor", [None, 1.0, 1.3])
def test_fault_15_a_models_yarn_is_read_whole(truncate, betas, attention_factor):
    """The paper's, and the table that the model's own queries and keys turn by."""
    beta_fast, beta_slow = betas
    how = {"beta_fast": beta_fast, "beta_slow": beta_slow, "truncate": truncate}
    told = YARN | how | {"attention_factor": attention_factor}
    model = small_model("llama", yarn=told, **rope(10_000.0))
    (family, *others) = families_of(model)
    papers = yarn_frequencies(24, 10_000.0, YARN["factor"], 64, *how.values())
    assert family.inv_freq.tolist() == pytest.approx(papers, rel=1e-12)
    theirs = model.model.rotary_emb
    torch.testing.assert_close(family.inv_freq, theirs.inv_freq.double(), rtol=1e-5, atol=0)
    factor = attention_factor or yarn_attention_factor(YARN["factor"])
    assert family.attention_factor == pytest.approx(factor)
    assert theirs.attention_scaling == pytest.approx(factor)
    assert [repr(other) for other in others] == [repr(family)] * 2


def families_of(model):
    with enable_rove(model) as rove:
        return [hooks.rotary for hooks in rove._hooks.values()]


@pytest.mark.parametrize("name", ["functions", "layer"])
def test_fault_15_an_explicit_factor_of_one_is_kept(name):
    made = SURFACES[name](yarn=True)
    x = made.draw(N)
    explicit = YarnScaling(YARN["factor"], 64, beta_fast=YARN["beta_fast"], attention_factor=1.0)
    made.model.rotary = RotaryEmbedding(D_HEAD, base=BASE, scaling=explicit)
    made.scores.temperature = 1.0
    assert largest(made.run(x) - made.reference(x)) < made.tolerance


@each_surface
def test_fault_18_gradients_corrupted_by_a_rotation_in_place(surface):
    """Along one direction of all weights: what autograd says and what a difference says."""
    made = surface(yarn=True)
    x = made.draw(N)
    before = x.clone(), [p.detach().clone() for p in made.model.parameters()]
    generator = torch.Generator().manual_seed(4)
    way = [
        0.1 * torch.randn(p.shape, generator=generator).double() for p in made.model.parameters()
    ]
    weight = torch.randn(made.run(x).shape, generator=generator).double()
    (weight * made.run(x, GAPS)).sum().backward()
    assert torch.equal(x, before[0])
    assert all(map(torch.equal, made.model.parameters(), before[1]))
    slope = sum(
        (p.grad * d).sum().item() for p, d in zip(made.model.parameters(), way, strict=True)
    )

    def moved(step):
        with torch.no_grad():
            for p, start, d in zip(made.model.parameters(), before[1], way, strict=True):
                p.copy_(start + step * d)
            return (weight * made.run(x, GAPS)).sum().item()

    step = 1e-3
    assert (moved(step) - moved(-step)) / (2 * step) == pytest.approx(slope, rel=2e-3)


@pytest.mark.parametrize("name", ["layer", "GPT"])
def test_fault_18_compiled_gradients_are_the_eager_ones(name):
    """Of the functions in `test_compile.py`, of Hugging Face in `test_retrofit_compile.py`."""
    made = SURFACES[name](yarn=True)
    x = made.draw(N)
    gradients = []
    for model in (made.model, torch.compile(made.model, backend="aot_eager", fullgraph=True)):
        made.model.zero_grad()
        out = model(x, positions=torch.tensor(GAPS))
        (out * torch.arange(out.shape[-1])).sum().backward()
        gradients.append([p.grad.clone() for p in made.model.parameters()])
    for eager, compiled in zip(*gradients, strict=True):
        torch.testing.assert_close(compiled, eager, rtol=0, atol=1e-10 * largest(eager))


def test_fault_19_a_growing_gpt_is_compiled_twice_at_most():
    """Functions and layer in `test_compile.py`, Hugging Face in `test_retrofit_compile.py`."""
    made = Gpt()
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(made.model, backend=counter, fullgraph=True)
    with torch.no_grad():
        for n in (3, 5, 9, 17, 40):
            x = made.draw(n)
            assert largest(compiled(x) - made.model(x)) < made.tolerance
    assert counter.frame_count <= 2
    torch._dynamo.reset()


class Dtypes(TorchDispatchMode):
    """Keeps the dtype of every tensor that an operation makes."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        self.seen |= {leaf.dtype for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)}
        return out


@each_surface
def test_fault_20_complex_operations_that_a_compiler_cannot_take(surface):
    """None at all, forward or backward, with a cache or without."""
    made = surface(yarn=True)
    x = made.draw(N)
    with Dtypes() as dtypes:
        made.run(x, GAPS).sum().backward()
        made.run(x, cache=made.new_cache())
    assert torch.float64 in dtypes.seen
    assert not any(dtype.is_complex for dtype in dtypes.seen)
    with Dtypes() as control:
        torch.polar(torch.ones(1), torch.zeros(1))
    assert torch.complex64 in control.seen
