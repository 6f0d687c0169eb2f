"""The core on a device and in a dtype, beside the slow float64 reference on the processor.

A case takes a device and a dtype and gives what came out there and what should have: inputs are
rounded to the dtype first, so that the difference is arithmetic alone. `tests/test_on_device.py`
asks every case on the processor, and on a GPU where there is one; `benchmarks/gpu_checks.py`
records the same on a GPU.
"""

import copy
from functools import lru_cache, partial

import torch
from references import (
    linear_frequencies,
    llama3_frequencies,
    ntk_frequencies,
    reference_attention,
    reference_pattern,
    reference_rotary,
    reference_rotate,
    yarn_frequencies,
)
from references_gpt import by_definition
from samples import as_reference, normal
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import cross_entropy

from rove_lab import (
    LinearScaling,
    Llama3Scaling,
    NTKScaling,
    RotaryEmbedding,
    RotarySelfAttention,
    YarnScaling,
    attention_pattern,
    kernel_spectrum,
    offset_kernels,
    rope_attention,
    rope_mixer,
    rove_attention,
    rove_mixer,
)
from rove_lab.model import GPT, GPTConfig

D_HEAD = 16  # FlexAttention on a GPU takes no fewer channels
DTYPES = (torch.float32, torch.bfloat16)
# Relative, of a whole tensor. A dtype's own rounding is 6e-8 and 2e-3.
AT_MOST = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
FAR = [0, 1, 5, 1000, 65_537, 1_000_000]  # bfloat16 knows no 65,537


def drawn(device, dtype, *shape, seed=0):
    """Random numbers that the dtype holds: on the device, and the same in float64."""
    there = normal(*shape, seed=seed).to(dtype)
    return there.to(device), there.double()


def relative_error(found, exact):
    """How far off a tensor is, in the norm."""
    return float((found.detach().double().cpu() - exact).norm() / exact.norm())


# --- rotations ------------------------------------------------------------------------------


def rotation(device, dtype, reference=None, **how):
    """Turned, and turned back, at near and far positions."""
    rotary = RotaryEmbedding(D_HEAD, **how)
    x, exact = drawn(device, dtype, 1, 2, len(FAR), D_HEAD)
    at = rotary(torch.tensor(FAR), device=device)
    reference = reference or as_reference(rotary)
    turned = [reference_rotate(exact, [FAR], reference, sign) for sign in (1, -1)]
    return torch.cat((at.apply(x), at.undo(x))), torch.cat(turned)


def scaled(device, dtype, scaling, frequencies):
    """The same under a context extension, whose frequencies the reference has by itself."""
    reference = reference_rotary(D_HEAD, frequencies=frequencies)
    return rotation(device, dtype, reference, scaling=scaling)


# --- attention ------------------------------------------------------------------------------

ROTARY = RotaryEmbedding(D_HEAD)
N = 6


def grouped(device, dtype, n=N):
    """Queries of four heads, keys and values of two: on the device, and in float64."""
    shapes = (4, 2, 2)
    pairs = [drawn(device, dtype, 2, heads, n, D_HEAD, seed=s) for s, heads in enumerate(shapes)]
    return [there for there, _ in pairs], [exact for _, exact in pairs]


def attention(device, dtype, attend, turns):
    """Grouped heads, positions by default."""
    qkv, exact = grouped(device, dtype)
    at, reference = [[*range(N)]] * 2, as_reference(ROTARY)
    values = reference if turns else None
    return attend(*qkv, ROTARY), reference_attention(*exact, reference, at, at, value_rotary=values)


def attention_with_all(device, dtype, additive):
    """YaRN, other rotations for the values, real positions, a mask beside causality, a scale."""
    rotary = RotaryEmbedding(D_HEAD, scaling=YarnScaling(4.0, 64, beta_fast=4.0))
    values = RotaryEmbedding(D_HEAD, base=100.0, rotary_dim=8, interleaved=True, trailing=True)
    places = torch.tensor([[0, 0.5, 2, 3, 7, 11], [-3, 0, 1, 8, 9, 400.25]], dtype=torch.float64)
    mask = normal(2, 1, N, N, seed=9)
    mask = mask.masked_fill(mask > 1, -torch.inf) if additive else mask < 1
    mask = mask | torch.eye(N, dtype=torch.bool) if not additive else mask
    qkv, exact = grouped(device, dtype)
    how = {"attn_mask": mask, "scale": 0.3}
    found = rove_attention(
        *qkv,
        rotary,
        value_rotary=values,
        positions=places.to(device),
        attn_mask=mask.to(device, dtype if additive else None),
        scale=0.3,
    )
    if additive:
        how["attn_mask"] = mask.to(dtype).double()
    at = places.tolist()
    references = as_reference(rotary), as_reference(values)
    return found, reference_attention(*exact, references[0], at, at, value_rotary=references[1],
                                      **how)  # fmt: skip


def pattern(device, dtype):
    """The softmaxed scores."""
    (q, k, _), exact = grouped(device, dtype)
    at = [[*range(N)]] * 2
    return attention_pattern(q, k, ROTARY), reference_pattern(*exact[:2], as_reference(ROTARY),
                                                              at, at)  # fmt: skip


def gradients(device, dtype):
    """Of queries, keys and values; the lab's own in float64 are held elsewhere (gradcheck)."""
    found = []
    for leaves in grouped(device, dtype):
        leaves = [leaf.clone().requires_grad_() for leaf in leaves]
        rove_attention(*leaves, ROTARY).square().sum().backward()
        found.append(torch.cat([leaf.grad for leaf in leaves], 1))
    return found[0], found[1]


def compiled(device, dtype):
    """By torch's own compiler; on a processor the graph is made and nothing is compiled."""
    qkv, exact = grouped(device, dtype)
    backend = "inductor" if device == "cuda" else "aot_eager"
    attend = torch.compile(rove_attention, fullgraph=True, backend=backend)
    at, reference = [[*range(N)]] * 2, as_reference(ROTARY)
    found = attend(*qkv, ROTARY)
    torch.compiler.reset()
    return found, reference_attention(*exact, reference, at, at, value_rotary=reference)


# --- kernels and mixers ---------------------------------------------------------------------

D_IN = 5


def kernels_of_offsets(device, dtype):
    """W_V R_delta^T for offsets of either sign."""
    W_V, exact = drawn(device, dtype, 2, D_IN, D_HEAD)
    offsets, turn = [-1000, -3, 0, 2], as_reference(ROTARY)
    psi = torch.stack([exact @ turn.matrix(offset).T for offset in offsets])
    return offset_kernels(W_V, ROTARY, offsets), psi


def spectrum(device, dtype):
    """The share of the weights in each plane."""
    W_V, exact = drawn(device, dtype, 2, D_IN, D_HEAD)
    power = exact.square().sum(1)
    planes = [power[:, channels].sum(1) for channels in as_reference(ROTARY).channels]
    shares = torch.stack([*planes, torch.zeros(2)], 1) / power.sum(1, keepdim=True)
    return kernel_spectrum(W_V, ROTARY), shares


def mixer(device, dtype, build, turns):
    """Attention as a matrix: its product, and the matrix itself."""
    A, A_exact = drawn(device, dtype, N, N)
    W_V, W_exact = drawn(device, dtype, D_IN, D_HEAD)
    x, x_exact = drawn(device, dtype, N, D_IN, seed=3)
    turn = as_reference(ROTARY)
    blocks = torch.zeros(N, D_HEAD, N, D_IN, dtype=torch.float64)
    for i in range(N):
        for j in range(N):
            turned = turn.matrix(j - i if turns else 0) @ W_exact.T
            blocks[i, :, j] = A_exact[i, j] * turned
    dense = blocks.reshape(N * D_HEAD, N * D_IN)
    built = build(A, W_V)
    found = (built @ x).flatten(), built.to_dense().flatten()
    return torch.cat(found), torch.cat((dense @ x_exact.flatten(), dense.flatten()))


# --- layers and models ----------------------------------------------------------------------

SMALL = GPTConfig(d_vocab=31, d_model=24, n_layers=2, n_heads=4, n_kv_heads=2, d_head=D_HEAD)


def layer(device, dtype):
    """Self-attention with its weights."""
    torch.manual_seed(0)
    module = RotarySelfAttention(24, 4, 2, D_HEAD).to(dtype)
    x, exact = drawn(device, dtype, 2, N, 24)
    weights = {name: weight.double() for name, weight in module.state_dict().items()}
    q, k, v = (torch.einsum("bpm,hmd->bhpd", exact, weights[f"W_{name}"]) for name in "QKV")
    at, reference = [[*range(N)]] * 2, as_reference(ROTARY)
    z = reference_attention(q, k, v, reference, at, at, value_rotary=reference)
    with torch.no_grad():
        found = module.to(device)(x)
    return found, torch.einsum("bhpd,hdm->bpm", z, weights["W_O"])


def gpt(dtype):
    """A small model with weights that the dtype holds, and tokens."""
    torch.manual_seed(0)
    return GPT(SMALL).to(dtype), torch.randint(0, SMALL.d_vocab, (2, 7))


def logits(device, dtype):
    """Of a GPT, all tokens at once."""
    model, tokens = gpt(dtype)
    exact = by_definition(model, tokens)
    with torch.no_grad():
        return model.to(device)(tokens.to(device)), exact


def decoded(device, dtype):
    """Of a GPT that reads some tokens, then one by one, with its caches."""
    model, tokens = gpt(dtype)
    exact = by_definition(model, tokens)
    model, tokens = model.to(device), tokens.to(device)
    cache = model.new_cache()
    steps = [tokens[:, :3], *tokens[:, 3:].split(1, 1)]
    with torch.no_grad():
        return torch.cat([model(step, cache=cache) for step in steps], 1), exact


def autocasted(device, dtype):
    """Of a GPT whose weights are float32, under autocast."""
    model, tokens = gpt(torch.float32)
    exact = by_definition(model, tokens)
    with torch.no_grad(), torch.autocast(device, dtype):
        return model.to(device)(tokens.to(device)), exact


def trained(device, dtype):
    """The gradient of all weights of a GPT, as its training has it: half precision by autocast."""
    model, tokens = gpt(torch.float32)
    found = []
    for one, to in ((model, device), (copy.deepcopy(model).double(), "cpu")):
        one, given = one.to(to), tokens.to(to)
        half = to == device and dtype == torch.bfloat16 and one is model
        with torch.autocast(to, torch.bfloat16, enabled=half):
            out = one(given[:, :-1])
        cross_entropy(out.flatten(0, 1).to(torch.promote_types(out.dtype, torch.float32)),
                      given[:, 1:].flatten()).backward()  # fmt: skip
        found.append(torch.cat([weight.grad.flatten() for weight in one.parameters()]))
    return found[0], found[1]


# --- the attention kernels ------------------------------------------------------------------

LONG = 130  # more than one block of any kernel


@lru_cache
def long_attention(dtype):
    """What every kernel should give between the rotations."""
    exact = [drawn("cpu", dtype, 1, 1, LONG, D_HEAD, seed=seed)[1] for seed in range(3)]
    at, reference = [[*range(LONG)]], as_reference(ROTARY)
    return reference_attention(*exact, reference, at, at, value_rotary=reference)


def long_inputs(device, dtype):
    """Its queries, keys and values."""
    return [drawn(device, dtype, 1, 1, LONG, D_HEAD, seed=seed)[0] for seed in range(3)]


def forced(device, dtype, backend):
    """A back-end of SDPA and no other; a RuntimeError where it does not run."""
    with sdpa_kernel(backend):
        return rove_attention(*long_inputs(device, dtype), ROTARY), long_attention(dtype)


def flex(device, dtype):
    """FlexAttention, compiled on a GPU as it is meant to be."""
    q, k, v = long_inputs(device, dtype)
    at = ROTARY(torch.arange(LONG), device=device)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, LONG, LONG, device=device)
    kernel = torch.compile(flex_attention) if device == "cuda" else flex_attention
    found = at.undo(kernel(at.apply(q), at.apply(k), at.apply(v), block_mask=mask))
    torch.compiler.reset()
    return found, long_attention(dtype)


HALF = (torch.bfloat16,)
CASES = {
    "rotation, halves": rotation,
    "rotation, interleaved": partial(rotation, interleaved=True),
    "rotation of some channels": partial(rotation, rotary_dim=8, trailing=True),
    "linear scaling": partial(
        scaled, scaling=LinearScaling(4.0), frequencies=linear_frequencies(D_HEAD, 1e4, 4.0)
    ),
    "NTK scaling": partial(
        scaled, scaling=NTKScaling(4.0), frequencies=ntk_frequencies(D_HEAD, 1e4, 4.0)
    ),
    "YaRN": partial(
        scaled,
        scaling=YarnScaling(4.0, 64, beta_fast=4.0),
        frequencies=yarn_frequencies(D_HEAD, 1e4, 4.0, 64, beta_fast=4.0),
    ),
    "Llama 3 scaling": partial(
        scaled,
        scaling=Llama3Scaling(4.0, 1.0, 4.0, 64),
        frequencies=llama3_frequencies(D_HEAD, 1e4, 4.0, 1.0, 4.0, 64),
    ),
    "rope_attention": partial(attention, attend=rope_attention, turns=False),
    "rove_attention": partial(attention, attend=rove_attention, turns=True),
    "rove_attention, boolean mask": partial(attention_with_all, additive=False),
    "rove_attention, additive mask": partial(attention_with_all, additive=True),
    "attention_pattern": pattern,
    "gradients of rove_attention": gradients,
    "rove_attention, compiled": compiled,
    "offset_kernels": kernels_of_offsets,
    "kernel_spectrum": spectrum,
    "rope_mixer": partial(mixer, build=rope_mixer, turns=False),
    "rove_mixer": partial(mixer, build=lambda A, W_V: rove_mixer(A, W_V, ROTARY), turns=True),
    "RotarySelfAttention": layer,
    "GPT": logits,
    "GPT, decoding with caches": decoded,
    "GPT, autocast": autocasted,
    "gradients of a GPT": trained,
    "math kernel": partial(forced, backend=SDPBackend.MATH),
    "flash kernel": partial(forced, backend=SDPBackend.FLASH_ATTENTION),
    "efficient kernel": partial(forced, backend=SDPBackend.EFFICIENT_ATTENTION),
    "cuDNN kernel": partial(forced, backend=SDPBackend.CUDNN_ATTENTION),
    "FlexAttention": flex,
}
# Where not everywhere: torch's flash kernel for processors takes both dtypes, that for GPUs one.
ONLY = {
    "GPT, autocast": {"cpu": HALF, "cuda": HALF},
    "flash kernel": {"cpu": DTYPES, "cuda": HALF},
    "efficient kernel": {"cpu": (), "cuda": DTYPES},
    "cuDNN kernel": {"cpu": (), "cuda": HALF},
}


def asked_on(device):
    """The cases of a device, by name and dtype."""
    return [(name, dtype) for name in CASES for dtype in ONLY.get(name, {}).get(device, DTYPES)]
