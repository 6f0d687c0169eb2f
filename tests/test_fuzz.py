"""Random calls against the float64 reference; calls that must fail, failing with the right words.

A few examples of each in every run; `make test-all` looks much longer (tests marked slow), and by
hand `pytest tests/test_fuzz.py --hypothesis-profile=fuzz` longer still.
"""

import operator

import pytest
import torch
from fuzz_cases import DTYPES, as_given, cases, families, places, replace
from fuzz_mutations import FAMILIES, MUTATIONS, STEPS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from references import reference_attention, reference_pattern, reference_rotate

from rove_lab import (
    KVCache,
    RotarySelfAttention,
    attention_pattern,
    rope_attention,
    rove_attention,
)

LONGER = 10  # times as many examples where there is patience


def fuzz(check, *strategies, examples):
    """The check of as many cases as the profile says, or as many as are asked for."""
    patient = settings(max_examples=examples, suppress_health_check=[HealthCheck.too_slow])
    patient(given(*strategies)(check))()


@pytest.fixture(params=[1, pytest.param(LONGER, marks=pytest.mark.slow)], ids=["few", "many"])
def examples(request):
    """Cases of a test; the profile's number (100) by default."""
    return settings.default.max_examples * request.param


def close(found, expected, tolerance):
    assert found.shape == expected.shape
    assert torch.isfinite(found).all()
    assert (found.double() - expected).abs().amax().item() <= tolerance if found.numel() else True


def test_attention_equals_the_reference(examples):
    def check(case):
        q, k, v = case.tensors()
        fast, slow = case.family.fast(), case.family.slow()
        where, given = case.where(), case.given() | {"attn_mask": case.framed(case.mask())}
        how = {"is_causal": case.is_causal, "scale": case.scale}
        if case.mask() is not None:
            how["attn_mask"] = case.mask().expand(case.batch, case.heads, case.q_len, case.k_len)
        framed = [case.framed(x) for x in (q, k, v)]
        before = [x.clone() for x in framed]

        def same(found, expected):
            assert found.dtype == case.dtype
            assert found.shape[:-1] == framed[0].shape[:-1]
            close(found.reshape(expected.shape), expected, case.tolerance(q, k, v))

        pattern = attention_pattern(*framed[:2], fast, **given)
        same(pattern, reference_pattern(q, k, slow, *where, **how))
        rope = rope_attention(*framed, fast, **given)
        same(rope, reference_attention(q, k, v, slow, *where, **how))

        values = case.value_family
        value_rotary = None if values is None else values.fast()
        rove = rove_attention(*framed, fast, value_rotary=value_rotary, **given)
        turning = (values or case.family).slow()
        same(rove, reference_attention(q, k, v, slow, *where, value_rotary=turning, **how))
        assert all(map(torch.equal, before, framed))

    fuzz(check, cases(), examples=examples)


@st.composite
def rotations(draw):
    family, batch, n = draw(families()), draw(st.integers(1, 2)), draw(st.integers(0, 4))
    where = draw(places(n, batch).filter(lambda t: t is not None))
    return family, batch, n, where, draw(st.sampled_from(DTYPES)), draw(st.integers(0, 2**20))


def test_rotations_equal_the_reference(examples):
    def check(drawn):
        family, batch, n, where, dtype, seed = drawn
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(batch, 3, n, family.d_head, generator=generator).to(dtype)
        rows = where if where and isinstance(where[0], list) else [where] * batch
        rotation = family.fast()(as_given(where))
        tolerance = 4 * max(torch.finfo(dtype).eps, 1e-10)
        for sign, turned in ((1, rotation.apply(x)), (-1, rotation.undo(x))):
            assert turned.dtype == dtype
            expected = reference_rotate(x, rows, family.slow(), sign)
            close(turned, expected, tolerance * (1 + (x.abs().max().item() if n else 0)))
        still = [c for c in range(family.d_head) if all(c not in p for p in family.slow().channels)]
        assert torch.equal(rotation.apply(x)[..., still], x[..., still])
        assert torch.equal(rotation.dual(x), rotation.apply(x))

    fuzz(check, rotations(), examples=examples)


@st.composite
def decodings(draw):
    """A layer, what it reads, and the places where its reading is cut."""
    d_head = draw(st.sampled_from([2, 4, 6]))
    family = draw(families(d_head))
    planes = draw(
        st.one_of(st.none(), st.sets(st.integers(0, (family.rotary_dim or d_head) // 2 - 1)))
    )
    batch, kv_heads, n = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 6))
    heads = kv_heads * draw(st.integers(1, 2))
    cuts = draw(st.lists(st.integers(0, n), max_size=4).map(sorted))
    where = draw(places(n, batch))
    masked = draw(st.sampled_from([None, "boolean", "additive"]))
    sizes, seed = (heads, kv_heads, d_head), draw(st.integers(0, 2**20))
    rotate_values, bias = draw(st.booleans()), draw(st.booleans())
    return family, planes, batch, n, sizes, cuts, where, masked, rotate_values, bias, seed


def layer_of(family, planes, sizes, rotate_values, bias):
    rotary = family.fast()
    values = rotary.planes(sorted(planes)) if rotate_values and planes is not None else None
    layer = RotarySelfAttention(5, *sizes, rotary, rotate_values, values, bias).double()
    for name, parameter in layer.named_parameters():
        if name.startswith("b_"):
            torch.nn.init.normal_(parameter)
    return layer


def layers_reference(layer, family, planes, x, where, mask):
    q, k, v = (torch.einsum("bpm,hmd->bhpd", x, W) for W in (layer.W_Q, layer.W_K, layer.W_V))
    if layer.b_Q is not None:
        q, k = q + layer.b_Q, k + layer.b_K
    turning = family
    if planes is not None:
        kept = planes if family.planes is None else planes & set(family.planes)
        turning = replace(family, planes=tuple(kept))
    values = turning.slow() if layer.rotate_values else None
    z = reference_attention(
        q, k, v, family.slow(), where, where, value_rotary=values, attn_mask=mask
    )
    out = torch.einsum("bhpd,hdm->bpm", z, layer.W_O)
    return out if layer.b_O is None else out + layer.b_O


def test_a_layer_decodes_what_the_reference_says_wherever_it_is_cut(examples):
    def check(drawn):
        family, planes, batch, n, sizes, cuts, where, masked, rotate_values, bias, seed = drawn
        torch.manual_seed(seed)
        layer = layer_of(family, planes, sizes, rotate_values, bias)
        x = torch.randn(batch, n, 5, dtype=torch.float64)
        mask = None
        if masked:
            mask = torch.rand(batch, 1, n, n) < 0.7
            if masked == "additive":
                mask = torch.randn(batch, 1, n, n).double().masked_fill(~mask, -torch.inf)
        rows = list(range(n)) if where is None else where
        rows = rows if isinstance(rows[0], list) else [rows] * batch
        given = None if where is None else torch.as_tensor(as_given(where))
        with torch.no_grad():
            expected = layers_reference(layer, family, planes, x, rows, mask)
            close(layer(x, positions=given, attn_mask=mask), expected, 1e-9)
            cache, pieces = KVCache(), []
            for a, b in zip([0, *cuts], [*cuts, n], strict=True):
                seen = None if mask is None else mask[:, :, a:b, :b]
                at = None if given is None else given[..., a:b]
                pieces.append(layer(x[:, a:b], positions=at, attn_mask=seen, cache=cache))
        close(torch.cat(pieces, 1), expected, 1e-9)
        assert cache.positions.expand(batch, n).tolist() == rows

    fuzz(check, decodings(), examples=examples)


def test_one_thing_wrong_is_refused_by_name(examples):
    """Whatever else the call is, the words are those of what is wrong with it."""

    def check(case, name, attention):
        q, k, v = case.tensors()
        how, (mutate, error, words) = case.given(), MUTATIONS[name]
        case.family.fast()
        if attention is rove_attention and case.value_family is not None:
            how["value_rotary"] = case.value_family.fast()
        if attention is rope_attention and name == "v of another d_head":
            return  # which RoPE does not mind
        q, k, v = mutate(q, k, v, how) or (q, k, v)
        with pytest.raises(error, match=words):
            attention(q, k, v, case.family.fast(), **how)

    functions = st.sampled_from([rope_attention, rove_attention])
    fuzz(check, cases(), st.sampled_from(sorted(MUTATIONS)), functions, examples=examples)


def test_one_thing_wrong_with_a_step_is_refused_and_leaves_the_cache(examples):
    """In the middle of decoding; the step is then taken as if nothing had been."""

    def check(drawn, name):
        family, planes, batch, n, sizes, _, where, _, rotate_values, bias, seed = drawn
        torch.manual_seed(seed)
        layer = layer_of(family, planes, sizes, rotate_values, bias)
        x = torch.randn(batch, n + 1, 5, dtype=torch.float64)
        at = None if where is None else torch.as_tensor(as_given(where))
        mutate, error, words = STEPS[name]
        with torch.no_grad():
            cache = KVCache()
            layer(x[:, :n], positions=at, cache=cache)
            held = cache.k, cache.v, cache.positions
            with pytest.raises(error, match=words):
                layer(**{"x": x[:, n:], "cache": cache} | mutate(x[:, n:], cache))
            assert all(map(operator.is_, (cache.k, cache.v, cache.positions), held))
            whole = torch.cat((held[2], cache.next_positions(1)), -1)
            expected = layer(x, positions=whole)[:, n:]
            close(layer(x[:, n:], cache=cache), expected, 1e-9)

    fuzz(check, decodings(), st.sampled_from(sorted(STEPS)), examples=examples)


def test_one_thing_wrong_with_a_family_is_refused_by_name(examples):
    def check(family, name):
        changes, words = FAMILIES[name]
        with pytest.raises(ValueError, match=words):
            replace(family, **changes).fast()

    fuzz(check, families(12), st.sampled_from(sorted(FAMILIES)), examples=examples)
