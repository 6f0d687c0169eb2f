"""Random calls of rotary attention, and each of them as the float64 reference wants it.

A case is plain numbers (tensors come from its seed), so that hypothesis shrinks it well and a
failure prints what to call. Nothing here looks at `rove_lab`'s own frequencies or channels.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from hypothesis import strategies as st
from references import (
    linear_frequencies,
    llama3_frequencies,
    ntk_frequencies,
    reference_rotary,
    rope_frequencies,
    yarn_attention_factor,
    yarn_frequencies,
)

from rove_lab import (
    LinearScaling,
    Llama3Scaling,
    NTKScaling,
    RotaryEmbedding,
    YarnScaling,
)

HALF = (torch.float16, torch.bfloat16)
DTYPES = (torch.float64, torch.float64, torch.float32, *HALF)


@dataclass(frozen=True)
class Family:
    """A rotation family by its numbers."""

    d_head: int
    base: float = 10000.0
    rotary_dim: int | None = None
    interleaved: bool = False
    trailing: bool = False
    scaling: tuple = ()  # name, then numbers
    planes: tuple[int, ...] | None = None

    def fast(self):
        kinds = {"linear": LinearScaling, "ntk": NTKScaling, "yarn": YarnScaling}
        kinds["llama3"] = Llama3Scaling
        scaling = kinds[self.scaling[0]](*self.scaling[1:]) if self.scaling else None
        how = {"interleaved": self.interleaved, "trailing": self.trailing, "scaling": scaling}
        rotary = RotaryEmbedding(self.d_head, base=self.base, rotary_dim=self.rotary_dim, **how)
        return rotary if self.planes is None else rotary.planes(self.planes)

    def slow(self):
        rotary_dim, temperature = self.rotary_dim or self.d_head, 1.0
        name, *numbers = self.scaling or (None,)
        if name is None:
            frequencies = rope_frequencies(rotary_dim, self.base)
        elif name == "yarn":
            factor, *ramp, attention_factor = numbers
            frequencies = yarn_frequencies(rotary_dim, self.base, factor, *ramp)
            temperature = (attention_factor or yarn_attention_factor(factor)) ** 2
        else:
            made = {"linear": linear_frequencies, "ntk": ntk_frequencies}
            made["llama3"] = llama3_frequencies
            frequencies = made[name](rotary_dim, self.base, *numbers)
        if self.planes is not None:
            frequencies = [w if m in self.planes else 0.0 for m, w in enumerate(frequencies)]
        return reference_rotary(
            self.d_head,
            rotary_dim=self.rotary_dim,
            interleaved=self.interleaved,
            trailing=self.trailing,
            frequencies=frequencies,
            temperature=temperature,
        )


factors = st.sampled_from([1.0, 1.5, 4.0, 16.0, 64.0])
windows = st.sampled_from([32, 64, 1000, 8192])
scalings = st.one_of(
    st.just(()),
    st.tuples(st.just("linear"), factors),
    st.tuples(st.just("ntk"), factors),
    st.tuples(
        st.just("yarn"),
        factors,
        windows,
        st.sampled_from([2.0, 8.0, 32.0]),
        st.sampled_from([0.5, 1.0, 2.0]),
        st.booleans(),
        st.sampled_from([None, 0.8, 1.0, 1.2]),
    ),
    st.tuples(
        st.just("llama3"),
        factors,
        st.sampled_from([0.5, 1.0]),
        st.sampled_from([2.0, 4.0]),
        windows,
    ),
)


@st.composite
def families(draw, d_head=None):
    d_head = draw(st.integers(1, 6)) * 2 if d_head is None else d_head
    rotary_dim = draw(st.sampled_from([None, *range(2, d_head + 1, 2)]))
    n = (rotary_dim or d_head) // 2
    scaling = draw(scalings)
    if scaling and scaling[0] == "ntk" and n == 1:
        scaling = ()  # refused: its exponent would be infinite
    planes = draw(st.one_of(st.none(), st.none(), st.sets(st.integers(0, n - 1)).map(sorted)))
    return Family(
        d_head,
        draw(st.sampled_from([2.0, 100.0, 10000.0, 5e5, 1e7])),
        rotary_dim,
        draw(st.booleans()),
        draw(st.booleans()),
        scaling,
        None if planes is None else tuple(planes),
    )


@dataclass(frozen=True)
class Case:
    """One call of attention."""

    family: Family
    value_family: Family | None = None
    batch: int = 1
    heads: int = 1
    kv_heads: int = 1
    q_len: int = 1
    k_len: int = 1
    positions: Any = None  # [pos] or [batch][pos]
    key_positions: Any = None
    mask_shape: tuple | None = None
    mask_kind: str = "boolean"
    is_causal: bool = True
    scale: float | None = None
    dtype: torch.dtype = torch.float64
    seed: int = 0
    axes: int = 0  # one before the batch (1), or the only batch without its axis (-1)
    strided: bool = False  # in memory, heads come after positions

    def tensors(self):
        generator = torch.Generator().manual_seed(self.seed)
        values = self.value_family or self.family
        shapes = (
            (self.heads, self.q_len, self.family.d_head),
            (self.kv_heads, self.k_len, self.family.d_head),
            (self.kv_heads, self.k_len, values.d_head),
        )
        return [
            torch.randn(self.batch, *shape, generator=generator, dtype=torch.float64).to(self.dtype)
            for shape in shapes
        ]

    def framed(self, x):
        """A tensor [batch, heads, pos, ...] with the axes and the memory of the case."""
        if x is None or (self.axes < 0 and x.dim() < 4):
            return x
        if self.strided and x.dim() == 4:
            x = x.transpose(1, 2).contiguous().transpose(1, 2)
        return x[0] if self.axes < 0 else x[None] if self.axes else x

    def mask(self):
        if self.mask_shape is None:
            return None
        generator = torch.Generator().manual_seed(self.seed + 1)
        sees = torch.rand(self.mask_shape, generator=generator) < 0.7
        if self.mask_kind == "boolean":
            return sees
        bonus = torch.randn(self.mask_shape, generator=generator).mul(4).round().div(2)
        return bonus.masked_fill(~sees, -torch.inf) if self.mask_kind == "infinite" else bonus

    def where(self):
        """Positions of queries and keys by the rules of the documentation, [batch][pos]."""
        queries, keys = self.positions, self.key_positions
        if keys is None:
            squares = queries is not None and self.q_len == self.k_len
            keys = queries if squares else [float(j) for j in range(self.k_len)]
        if queries is None:
            rows = keys if isinstance(keys[0:1] and keys[0], (list, tuple)) else [keys]
            queries = [row[self.k_len - self.q_len :] for row in rows]
        return tuple(self._rows(places) for places in (queries, keys))

    def _rows(self, places):
        rows = places if places and isinstance(places[0], (list, tuple)) else [places]
        return [list(row) for row in (rows * self.batch if len(rows) == 1 else rows)]

    def given(self):
        """The keyword arguments of the call."""
        return {
            "positions": as_given(self.positions),
            "key_positions": as_given(self.key_positions),
            "attn_mask": self.mask(),
            "is_causal": self.is_causal,
            "scale": self.scale,
        }

    def tolerance(self, q, k, v):
        """What rounding to the dtype can do: to logits, hence to weights, hence to their mean."""
        d_head = self.family.d_head
        scale = (d_head**-0.5 if self.scale is None else abs(self.scale)) * max(
            1.0, self.family.slow().temperature
        )
        norms = (x.double().norm(dim=-1).max().item() if x.numel() else 0.0 for x in (q, k))
        logits = scale * next(norms) * next(norms) + 10
        epsilon = max(torch.finfo(self.dtype).eps, 1e-11)
        return 4 * epsilon * logits * (1 + (v.double().abs().max().item() if v.numel() else 0.0))


def as_given(places):
    """A list as it is where it is one of integers, a tensor otherwise."""
    if places is None or (places and all(isinstance(place, int) for place in places)):
        return places
    return torch.tensor(places, dtype=None if _whole(places) else torch.float64)


def _whole(places):
    flat = [p for row in places for p in (row if isinstance(row, (list, tuple)) else [row])]
    return all(isinstance(p, int) for p in flat) and bool(flat)


integers = st.one_of(st.integers(-20, 60), st.integers(-1_000_000, 1_000_000))
reals = st.floats(-1000, 1000, allow_nan=False).map(lambda t: round(t, 3))


def places(n, batch):
    """No positions, one row of them or a row for each sequence; whole or not, of either sign."""
    row = st.sampled_from([integers, reals]).flatmap(lambda t: st.lists(t, min_size=n, max_size=n))
    return st.one_of(st.none(), row, st.lists(row, min_size=batch, max_size=batch))


@st.composite
def cases(draw, dtypes=DTYPES):
    family = draw(families())
    value_family = draw(st.one_of(st.none(), st.none(), families()))
    batch, kv_heads = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    heads = kv_heads * draw(st.integers(1, 3))
    q_len, k_len = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    positions = draw(places(q_len, batch))
    key_positions = draw(places(k_len, batch))
    if positions is None and q_len > k_len:
        q_len = k_len  # refused: nothing says where the queries stand
    full = (batch, heads, q_len, k_len)
    kept = draw(st.lists(st.booleans(), min_size=4, max_size=4))
    shape = tuple(size if keep else 1 for size, keep in zip(full, kept, strict=True))
    in_rows = any(given and isinstance(given[0], list) for given in (positions, key_positions))
    axes = draw(st.sampled_from([0, 0, 1] if in_rows or batch > 1 else [0, 1, -1, -1]))
    return Case(
        family,
        value_family,
        batch,
        heads,
        kv_heads,
        q_len,
        k_len,
        positions,
        key_positions,
        draw(st.sampled_from([None, shape, shape[1:], shape[2:], shape[3:]])),
        draw(st.sampled_from(["boolean", "additive", "infinite"])),
        draw(st.booleans()),
        draw(st.sampled_from([None, None, 0.5, -0.3, 0.0])),
        draw(st.sampled_from(dtypes)),
        draw(st.integers(0, 2**20)),
        axes,
        draw(st.booleans()),
    )


__all__ = ["DTYPES", "Case", "Family", "as_given", "cases", "families", "places", "replace"]
