"""One thing wrong with a call of attention, or with a rotation: what it is, and its refusal.

A mutation of a call gets q, k, v and the keyword arguments; it gives the three, or changes the
arguments and gives nothing.
"""

import torch


def longer(x, axis):
    return torch.cat((x, x.narrow(axis, 0, 1)), axis)


# What is wrong, what it does to (q, k, v, arguments), and the words of the refusal.
MUTATIONS = {
    "q of another d_head": (lambda q, k, v, how: (longer(q, -1), k, v), ValueError, "d_head"),
    "k of another d_head": (lambda q, k, v, how: (q, longer(k, -1), v), ValueError, "same d_head"),
    "v of another d_head": (
        lambda q, k, v, how: (q, k, longer(v, -1)),
        ValueError,
        "expected v with d_head=",
    ),
    "v of other positions": (
        lambda q, k, v, how: (q, k, longer(v, -2)),
        ValueError,
        "expected v with the n_kv_heads and key positions",
    ),
    "v of other heads": (
        lambda q, k, v, how: (q, k, longer(v, -3)),
        ValueError,
        "expected v with the n_kv_heads",
    ),
    "heads that do not divide": (
        lambda q, k, v, how: (q, *(x.repeat_interleave(q.shape[-3] + 1, -3) for x in (k, v))),
        ValueError,
        "heads divisible by n_kv_heads",
    ),
    "no key heads": (
        lambda q, k, v, how: (q, k[:, :0], v[:, :0]),
        ValueError,
        "heads divisible by n_kv_heads",
    ),
    "another batch": (lambda q, k, v, how: (longer(q, 0), k, v), ValueError, "equal leading axes"),
    "no head axis": (lambda q, k, v, how: (q[0, 0], k[0, 0], v[0, 0]), ValueError, "three axes"),
    "another dtype": (
        lambda q, k, v, how: (
            q,
            k.to(torch.float32 if k.dtype != torch.float32 else torch.half),
            v,
        ),
        TypeError,
        "q, k and v of one dtype",
    ),
    "integers": (lambda q, k, v, how: (q.long(), k, v), TypeError, "floating-point"),
    "another device": (lambda q, k, v, how: (q, k.to("meta"), v), ValueError, "on one device"),
    "too many positions": (
        lambda q, k, v, how: how.update(positions=torch.arange(q.shape[-2] + 1)),
        ValueError,
        "expected positions .* queries",
    ),
    "too many key positions": (
        lambda q, k, v, how: how.update(key_positions=[0.5] * (k.shape[-2] + 1)),
        ValueError,
        "expected key_positions .* keys",
    ),
    "rows of another batch": (
        lambda q, k, v, how: how.update(positions=torch.zeros(len(q) + 1, q.shape[-2])),
        ValueError,
        "batch",
    ),
    "positions that are no numbers": (
        lambda q, k, v, how: how.update(positions=[float("nan")] * q.shape[-2]),
        ValueError,
        "finite positions",
    ),
    "positions in half precision": (
        lambda q, k, v, how: how.update(key_positions=torch.zeros(k.shape[-2]).bfloat16()),
        TypeError,
        "float64 positions, got torch.bfloat16",
    ),
    "positions as truths": (
        lambda q, k, v, how: how.update(positions=torch.ones(q.shape[-2]).bool()),
        TypeError,
        "positions, got torch.bool",
    ),
    "a mask of other keys": (
        lambda q, k, v, how: how.update(attn_mask=torch.ones(q.shape[-2], k.shape[-2] + 1).bool()),
        ValueError,
        "attn_mask to broadcast",
    ),
    "a mask of integers": (
        lambda q, k, v, how: how.update(attn_mask=torch.ones(q.shape[-2], k.shape[-2]).long()),
        TypeError,
        "boolean .* or additive",
    ),
    "a mask elsewhere": (
        lambda q, k, v, how: how.update(attn_mask=torch.ones(1, k.shape[-2], device="meta").bool()),
        ValueError,
        "attn_mask on cpu",
    ),
    "causality as a number": (
        lambda q, k, v, how: how.update(is_causal=1),
        TypeError,
        "is_causal",
    ),
    "an infinite scale": (
        lambda q, k, v, how: how.update(scale=float("inf")),
        ValueError,
        "scale",
    ),
    "a scale in words": (lambda q, k, v, how: how.update(scale="0.5"), TypeError, "scale"),
}

FAMILIES = {
    "odd rotary_dim": ({"rotary_dim": 3}, "even rotary_dim"),
    "odd d_head": ({"d_head": 7, "rotary_dim": None}, "even rotary_dim"),
    "too many channels": ({"rotary_dim": 14}, "rotary_dim <= d_head"),
    "no channels": ({"d_head": 0}, "d_head"),
    "a base of zero": ({"base": 0.0}, "base"),
    "an infinite base": ({"base": float("inf")}, "base"),
    "a plane that is not there": ({"planes": (99,)}, "planes among"),
    "a factor below one": ({"scaling": ("linear", 0.5)}, "factor"),
    "swapped betas": ({"scaling": ("yarn", 4.0, 64, 1.0, 8.0, True, None)}, "beta_fast"),
    "swapped ends": ({"scaling": ("llama3", 4.0, 4.0, 1.0, 64)}, "low_freq_factor"),
}

# Of a step of a layer: what it is given instead, from x and the cache.
STEPS = {
    "x of another width": (lambda x, cache: {"x": longer(x, -1)}, ValueError, "d_model=5"),
    "x without a batch": (lambda x, cache: {"x": x[0]}, ValueError, "expected x"),
    "x of another dtype": (lambda x, cache: {"x": x.float()}, TypeError, "the weights' dtype"),
    "x on another device": (lambda x, cache: {"x": x.to("meta")}, ValueError, "weights' device"),
    "x of another batch": (
        lambda x, cache: {"x": x.repeat(3, 1, 1), "positions": [0]},
        ValueError,
        "expected k like the cache's",
    ),
    "too many positions": (
        lambda x, cache: {"positions": [0, 1]},
        ValueError,
        "expected .*positions",
    ),
    "positions that are no numbers": (
        lambda x, cache: {"positions": [float("nan")]},
        ValueError,
        "finite positions",
    ),
    "a mask of the step's keys alone": (
        lambda x, cache: {"attn_mask": torch.ones(1, cache.k.shape[-2] + 2).bool()},
        ValueError,
        "attn_mask to broadcast",
    ),
    "a cache that is none": (lambda x, cache: {"cache": (cache,)}, TypeError, "KVCache"),
}
