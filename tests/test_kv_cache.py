"""`KVCache`: decoding in chunks, padding, eviction, and failing without a trace."""

import copy
import random

import pytest
import torch
from samples import normal

from rove_lab import KVCache, RotaryEmbedding, RotarySelfAttention, YarnScaling

X = normal(2, 9, 12)


def layer(n_kv_heads=2, d_head=8, **how):
    torch.manual_seed(0)
    return RotarySelfAttention(12, 4, n_kv_heads, d_head, **how).double()


def decode(module, x, chunks, cache=None, positions=None, mask=None):
    """The outputs of chunk after chunk, each with its own positions and its rows of the mask."""
    cache, outputs, end = KVCache() if cache is None else cache, [], 0
    for n in chunks:
        start, end = end, end + n
        outputs.append(
            module(
                x[:, start:end],
                cache=cache,
                positions=None if positions is None else positions[..., start:end],
                attn_mask=None if mask is None else mask[..., :end],
            )
        )
    return torch.cat(outputs, 1)


def random_chunks(seed, n=9):
    cuts = sorted(random.Random(seed).choices(range(n + 1), k=3))  # chunks may be empty
    return [b - a for a, b in zip([0, *cuts], [*cuts, n], strict=True)]


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"rotate_values": False},
        {"bias": True, "rotary": RotaryEmbedding(8, scaling=YarnScaling(16.0, 64, beta_fast=4.0))},
        {"rotary": RotaryEmbedding(8, rotary_dim=4, scaling=YarnScaling(16.0, 64, beta_fast=4.0))},
        {"value_rotary": RotaryEmbedding(8, rotary_dim=4, base=50.0)},
    ],
    ids=str,
)
def test_decoding_in_any_chunks_equals_the_full_pass(how):
    module = layer(**how)
    whole = module(X)
    for chunks in ([9], [1] * 9, [0, 9], [4, 0, 5], *map(random_chunks, range(8))):
        assert torch.allclose(decode(module, X, chunks), whole, atol=1e-12), chunks


def test_decoding_from_given_positions_goes_on_from_there():
    module, positions = layer(), torch.arange(9) * 2 - 5
    whole = module(X, positions=positions)
    assert torch.allclose(decode(module, X, [3, 5, 1], positions=positions), whole, atol=1e-12)
    cache = KVCache()
    module(X[:, :4], positions=[7, 8, 9, 10], cache=cache)
    rest = module(X[:, 4:], cache=cache)  # 11, 12, ...
    whole = module(X, positions=torch.arange(7, 16))
    assert torch.allclose(rest, whole[:, 4:], atol=1e-12)
    assert cache.positions.tolist() == list(range(7, 16))


def test_fault_11_the_cache_holds_keys_and_values_rotated_once_and_true_positions():
    module, cache = layer(), KVCache()
    decode(module, X, [5, 4], cache)
    k = torch.einsum("bpm,hmd->bhpd", X, module.W_K)
    v = torch.einsum("bpm,hmd->bhpd", X, module.W_V)
    turn = module.rotary(torch.arange(9))
    assert torch.allclose(cache.k, turn.apply(k), atol=1e-12)
    assert torch.allclose(cache.v, turn.apply(v), atol=1e-12)
    assert cache.positions.tolist() == list(range(9))
    plain, cache = layer(rotate_values=False), KVCache()
    decode(plain, X, [9], cache)
    assert torch.allclose(cache.v, v, atol=1e-12)


def test_decoding_rotates_the_new_token_only(monkeypatch):
    module, cache, lengths = layer(), KVCache(), []
    decode(module, X, [8], cache)
    call = RotaryEmbedding.__call__

    def spy(self, positions, **how):
        lengths.append(positions.shape[-1])
        return call(self, positions, **how)

    monkeypatch.setattr(RotaryEmbedding, "__call__", spy)
    module(X[:, 8:], cache=cache)
    assert set(lengths) == {1}


def test_fault_11_after_eviction_positions_are_not_slots():
    """Dropping two tokens from the cache equals never letting the later ones see them."""
    module, cache = layer(), KVCache()
    module(X[:, :8], cache=cache)
    keep = [0, 1, 4, 5, 6, 7]
    cache.k, cache.v = cache.k[:, :, keep], cache.v[:, :, keep]
    cache.positions = cache.positions[keep]
    step = module(X[:, 8:], cache=cache)
    mask = torch.ones(9, 9).bool()
    mask[8, 2:4] = False
    assert torch.allclose(step, module(X, attn_mask=mask)[:, 8:], atol=1e-12)
    assert cache.positions.tolist() == [0, 1, 4, 5, 6, 7, 8]


def test_fault_09_decoding_a_left_padded_batch():
    module = layer()
    pads = torch.tensor([0, 3])
    positions = (torch.arange(9) - pads[:, None]).clamp(min=0)
    mask = (torch.arange(9) >= pads[:, None])[:, None, None, :]
    cache = KVCache()
    out = decode(module, X, [5, 1, 3], cache, positions, mask)
    assert torch.allclose(out[0], module(X[:1])[0], atol=1e-12)
    assert torch.allclose(out[1, 3:], module(X[1:, 3:])[0], atol=1e-12)
    assert cache.next_positions(2).tolist() == [[9, 10], [6, 7]]  # each row goes on from its own
    cache = KVCache()
    decode(module, X, [5], cache, positions, mask)
    rest = module(X[:, 5:], cache=cache, attn_mask=mask)
    assert torch.allclose(rest, out[:, 5:], atol=1e-12)


@pytest.mark.parametrize("first", ["[pos]", "[1, pos]", "[batch, pos]"])
@pytest.mark.parametrize("second", ["[pos]", "[1, pos]", "[batch, pos]"])
def test_positions_of_any_shape_join(first, second):
    shapes = {
        "[pos]": lambda p: p,
        "[1, pos]": lambda p: p[None],
        "[batch, pos]": lambda p: p.expand(2, -1),
    }
    module, cache = layer(), KVCache()
    a = module(X[:, :4], positions=shapes[first](torch.arange(4)), cache=cache)
    b = module(X[:, 4:8], positions=shapes[second](torch.arange(4, 8)), cache=cache)
    c = module(X[:, 8:], cache=cache)
    assert torch.allclose(torch.cat([a, b, c], 1), module(X), atol=1e-12)


@pytest.mark.parametrize("positions", [[0, 1, 2, 3], range(4), (0.0, 1.0, 2.0, 3.0)])
def test_positions_may_be_lists(positions):
    module, cache = layer(), KVCache()
    a = module(X[:, :4], positions=positions, cache=cache)
    b = module(X[:, 4:], cache=cache)
    assert torch.allclose(torch.cat([a, b], 1), module(X), atol=1e-12)


@pytest.mark.parametrize("n", [1, 2])
def test_an_empty_first_chunk_or_a_cache_emptied_starts_at_zero(n):
    module, cache = layer(), KVCache()
    module(X[:, :0], cache=cache)
    assert torch.allclose(module(X[:, :n], cache=cache), module(X[:, :n]), atol=1e-12)
    cache.k, cache.v, cache.positions = cache.k[:, :, :0], cache.v[:, :, :0], cache.positions[:0]
    assert torch.allclose(module(X[:, :n], cache=cache), module(X[:, :n]), atol=1e-12)


def test_next_positions():
    cache = KVCache()
    assert cache.next_positions(3).tolist() == [0, 1, 2]
    cache.positions = torch.tensor([[4, 9], [7, 8]])
    assert cache.next_positions(2).tolist() == [[10, 11], [9, 10]]
    cache.positions = torch.tensor([0.5, 1.5])
    assert cache.next_positions(1).tolist() == [2.5]


@pytest.mark.parametrize(
    "last",
    [
        torch.tensor([255], dtype=torch.uint8),
        torch.tensor([127], dtype=torch.int8),
        torch.tensor([2**24], dtype=torch.float32),
        torch.tensor([2**31 - 1], dtype=torch.int32),
    ],
    ids=["uint8", "int8", "float32", "int32"],
)
def test_next_positions_do_not_wrap(last):
    module, cache = layer(), KVCache()
    module(X[:, :1], positions=last, cache=cache)
    assert cache.next_positions(3).tolist() == [last.item() + n for n in (1, 2, 3)]


def test_joined_positions_lose_nothing():
    module, cache = layer(), KVCache()
    module(X[:, :1], positions=torch.tensor([2**24 + 1]), cache=cache)
    module(X[:, 1:2], positions=torch.tensor([0.5]), cache=cache)
    module(X[:, 2:3], positions=[2**24 + 0.1], cache=cache)
    assert cache.positions.tolist() == [2**24 + 1, 0.5, 2**24 + 0.1]


def test_gradients_flow_through_the_cache():
    module = layer()
    decode(module, X, [4, 5]).square().sum().backward()
    stepwise = module.W_V.grad.clone()
    module.zero_grad()
    module(X).square().sum().backward()
    assert torch.allclose(stepwise, module.W_V.grad, atol=1e-10)


def test_a_cache_can_be_copied_to_branch():
    module, cache = layer(), KVCache()
    with torch.no_grad():
        module(X[:, :8], cache=cache)
        branch = copy.deepcopy(cache)
        module(X[:, 8:], cache=branch)
    assert (cache.k.shape[2], branch.k.shape[2]) == (8, 9)


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"attn_mask": torch.ones(3, 3).bool()}, ValueError),
        ({"attn_mask": torch.ones(9, 9).int()}, TypeError),
        ({"positions": torch.arange(3)}, ValueError),
        ({"positions": torch.zeros(2, 4).half()}, TypeError),
        ({"positions": torch.zeros(5, 4)}, ValueError),
    ],
    ids=str,
)
def test_a_step_that_fails_leaves_the_cache_as_it_was(how, error):
    module, cache = layer(), KVCache()
    module(X[:, :5], cache=cache)
    with pytest.raises(error, match="got"):
        module(X[:, 5:], cache=cache, **how)
    retried = module(X[:, 5:], cache=cache)
    assert torch.allclose(retried, module(X)[:, 5:], atol=1e-12)


@pytest.mark.parametrize(
    ("other", "x"),
    [
        (layer(), X[:1]),
        (layer(n_kv_heads=4), X),
        (layer(d_head=4), X),
        (layer().float(), X.float()),
        (layer().to("meta"), X.to("meta")),
    ],
    ids=["batch", "n_kv_heads", "d_head", "dtype", "device"],
)
def test_a_cache_of_another_layer_or_batch_is_refused(other, x):
    cache = KVCache()
    layer()(X[:, :5], cache=cache)
    with pytest.raises(ValueError, match=r"cache.*got .*KVCache\(\)"):
        other(x[:, 5:], cache=cache)
    assert cache.k.shape[2] == 5


def test_rows_of_positions_do_not_hide_that_the_batch_is_another():
    cache, rows = KVCache(), torch.arange(5).expand(2, 5)
    layer()(X[:, :5], positions=rows, cache=cache)
    with pytest.raises(ValueError, match=r"expected k like the cache's, .* KVCache\(\) of its own"):
        layer()(X[:, 5:6].repeat(3, 1, 1), positions=[5], cache=cache)


@pytest.mark.parametrize("cache", [[], {}, (None, None), True, KVCache])
def test_cache_must_be_a_cache(cache):
    with pytest.raises(TypeError, match=r"cache to be a KVCache, got"):
        layer()(X, cache=cache)


def test_positions_changed_in_place_afterwards_leave_the_cache_alone():
    layer, cache, at = RotarySelfAttention(8, 2), KVCache(), torch.arange(3)
    layer(torch.zeros(1, 3, 8), positions=at, cache=cache)
    at += 100
    assert cache.positions.tolist() == [0, 1, 2]


@pytest.mark.parametrize("part", ["k", "v", "positions"])
def test_a_cache_sliced_in_part_is_refused(part):
    layer, cache = RotarySelfAttention(8, 2), KVCache()
    layer(torch.zeros(1, 5, 8), cache=cache)
    held = getattr(cache, part)
    setattr(cache, part, held[2:] if part == "positions" else held[..., 2:, :])
    with pytest.raises(ValueError, match=r"k, v and positions to agree, got .*slice all three"):
        layer(torch.zeros(1, 1, 8), cache=cache)
