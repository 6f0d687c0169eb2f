"""Default positions, causality by index, and which kernel arguments they become."""

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from references import may_attend
from samples import normal

from rove_lab import RotaryEmbedding, Rotation, attention_pattern, rope_attention, rove_attention
from rove_lab.masking import attend, attention_mask, check_heads, positions_of

ROTARY = RotaryEmbedding(8)
ATTENTIONS = [rope_attention, rove_attention]


@pytest.fixture
def sdpa_arguments(monkeypatch):
    """The keyword arguments of every call of SDPA."""
    calls, sdpa = [], F.scaled_dot_product_attention

    def spy(q, k, v, **arguments):
        calls.append(arguments)
        return sdpa(q, k, v, **arguments)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    return calls


# --- positions --------------------------------------------------------------------------------


def test_keys_default_to_the_queries_positions_where_the_lengths_agree():
    here, there = positions_of(3, 3, torch.tensor([5, 9, 11]), None)
    assert here.tolist() == there.tolist() == [5, 9, 11]


def test_keys_default_to_zero_to_k_elsewhere():
    here, there = positions_of(2, 4, torch.tensor([50, 60]), None)
    assert here.tolist() == [50, 60]
    assert there.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("q_len", range(5))
def test_queries_default_to_the_last_of_the_keys(q_len):
    for keys in ([7, 8, 9, 20], [[7, 8, 9, 20], [0, 1, 2, 3]]):
        here, there = positions_of(q_len, 4, None, torch.tensor(keys))
        assert here.tolist() == torch.tensor(keys)[..., 4 - q_len :].tolist()
        assert there.tolist() == keys
    assert positions_of(q_len, 4, None, None)[0].tolist() == list(range(4 - q_len, 4))


def test_given_positions_are_all_used():
    here, there = positions_of(2, 2, [3, 4], [10, 20])
    assert (here.tolist(), there.tolist()) == ([3, 4], [10, 20])


def test_lists_of_key_positions_lose_nothing():
    here, there = positions_of(2, 3, None, [1e6 + 0.1, 1e6 + 1.1, 1e6 + 2.1])
    assert here.double().tolist() == [1e6 + 1.1, 1e6 + 2.1]
    assert there.double().tolist() == [1e6 + 0.1, 1e6 + 1.1, 1e6 + 2.1]


def test_one_set_of_tables_serves_queries_and_keys(monkeypatch):
    made, call = [], RotaryEmbedding.__call__
    monkeypatch.setattr(
        RotaryEmbedding, "__call__", lambda self, *a, **k: made.append(1) or call(self, *a, **k)
    )
    q = normal(1, 2, 4, 8)
    rove_attention(q, q, q, ROTARY)
    rove_attention(q, q, q, ROTARY, positions=torch.arange(4))
    assert len(made) == 2


@pytest.mark.parametrize("lengths", [(5, 4), (1, 0), (8, 2)])
def test_more_queries_than_keys_need_positions(lengths):
    q, k = normal(2, 4, lengths[0], 8), normal(2, 4, lengths[1], 8)
    for attention in ATTENTIONS:
        with pytest.raises(ValueError, match=r"as many queries as keys, got \d queries.*positions"):
            attention(q, k, k, ROTARY)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"positions": range(7)}, r"positions .*for 3 queries, got"),
        ({"positions": range(2)}, r"positions .*for 3 queries, got"),
        ({"positions": torch.zeros(2, 5)}, r"positions .*for 3 queries, got"),
        ({"key_positions": range(4)}, r"key_positions .*for 5 keys, got"),
        ({"key_positions": range(7)}, r"key_positions .*for 5 keys, got"),
        ({"key_positions": torch.zeros(2, 3)}, r"key_positions .*for 5 keys, got"),
        ({"positions": range(3), "key_positions": range(3)}, r"key_positions .*for 5 keys, got"),
        ({"positions": 3}, r"positions .*got"),
        ({"positions": torch.zeros(1, 1, 3)}, r"positions .*got"),
    ],
    ids=str,
)
def test_fault_13_lengths_of_positions_are_checked(arguments, expected):
    q, k = normal(2, 4, 3, 8), normal(2, 4, 5, 8)
    for attention in ATTENTIONS:
        with pytest.raises(ValueError, match=expected):
            attention(q, k, k, ROTARY, **arguments)


@pytest.mark.parametrize("name", ["positions", "key_positions"])
@pytest.mark.parametrize(
    "bad", ["abcde", [True] * 5, torch.zeros(5).half(), np.zeros(5, np.float16)]
)
def test_positions_of_another_kind_are_refused(name, bad):
    q = normal(2, 4, 5, 8)
    for attention in ATTENTIONS:
        with pytest.raises(TypeError, match=r"expected .*positions.*got"):
            attention(q, q, q, ROTARY, **{name: bad})


@pytest.mark.parametrize("name", ["positions", "key_positions"])
def test_nan_positions_are_refused(name):
    q = normal(2, 4, 5, 8)
    with pytest.raises(ValueError, match=r"finite positions"):
        rove_attention(q, q, q, ROTARY, **{name: torch.tensor([0.0, 1, 2, 3, math.nan])})


def test_rows_of_positions_must_fit_the_batch():
    q = normal(2, 4, 5, 8)
    for name in ("positions", "key_positions"):
        with pytest.raises(ValueError, match=r"batch=3.*got"):
            rove_attention(q, q, q, ROTARY, **{name: torch.zeros(3, 5)})


# --- causality --------------------------------------------------------------------------------


@pytest.mark.parametrize(("q_len", "k_len"), list(itertools.product(range(5), range(5))))
def test_fault_10_causality_is_by_index_aligned_bottom_right(q_len, k_len):
    q, k = normal(1, 2, q_len, 8), normal(1, 2, k_len, 8)
    positions = torch.arange(q_len) * 10  # never by position value
    pattern = attention_pattern(q, k, ROTARY, positions=positions, key_positions=range(k_len))
    assert pattern.shape == (1, 2, q_len, k_len)
    for i, j in itertools.product(range(q_len), range(k_len)):
        seen = bool((pattern[..., i, j] > 0).all())
        assert seen == may_attend(i, j, q_len, k_len, True), (i, j)


def test_a_causal_model_uses_offsets_that_are_not_positive():
    q, k = normal(1, 2, 3, 8), normal(1, 2, 5, 8)
    pattern = attention_pattern(q, k, ROTARY)
    here, there = positions_of(3, 5, None, None)
    offset = there[None, :] - here[:, None]
    assert torch.equal(pattern > 0, (offset <= 0).expand(1, 2, 3, 5))


def test_causality_ignores_position_values():
    q = normal(1, 2, 4, 8)
    pattern = attention_pattern(q, q, ROTARY, positions=[40, 30, 20, 10])
    assert torch.equal(pattern > 0, torch.ones(4, 4).tril().bool().expand(1, 2, 4, 4))


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_fault_10_one_query_with_a_cache_sees_every_key(attention):
    q, k, v = normal(1, 2, 1, 8), normal(1, 2, 6, 8, seed=1), normal(1, 2, 6, 8, seed=2)
    z = attention(q, k, v, ROTARY)
    assert not torch.allclose(z, v[:, :, :1], atol=1e-3)  # what a top-left mask would give
    whole = attention(F.pad(q, (0, 0, 5, 0)), k, v, ROTARY)
    assert torch.allclose(z, whole[:, :, -1:], atol=1e-6)


def test_the_causal_flag_is_used_wherever_it_says_the_same(sdpa_arguments):
    q, k = normal(2, 4, 6, 8), normal(2, 2, 6, 8)
    for attention in ATTENTIONS:
        sdpa_arguments.clear()
        attention(q, k, k, ROTARY)
        attention(q, k, k, ROTARY, positions=torch.arange(12).reshape(2, 6) - 3)
        assert [call.get("is_causal") for call in sdpa_arguments] == [True, True]
        assert [call.get("attn_mask") for call in sdpa_arguments] == [None, None]


def test_no_mask_is_made_where_nothing_is_masked(sdpa_arguments):
    q, k = normal(2, 4, 6, 8), normal(2, 4, 6, 8)
    rove_attention(q[:, :, -1:], k, k, ROTARY)  # one query, with a cache
    rove_attention(q, k, k, ROTARY, is_causal=False)
    for call in sdpa_arguments:
        assert call.get("attn_mask") is None
        assert not call.get("is_causal", False)


def test_grouped_values_are_rotated_on_their_own_heads(monkeypatch):
    shapes, turn = [], Rotation._turn

    def spy(self, x, sign):
        shapes.append((x.shape[-3], sign))
        return turn(self, x, sign)

    monkeypatch.setattr(Rotation, "_turn", spy)
    q, k = normal(2, 4, 6, 8), normal(2, 2, 6, 8)
    rove_attention(q, k, k, ROTARY)
    assert sorted(shapes) == [(2, 1), (2, 1), (4, -1), (4, 1)]  # k and v on 2 heads, q and z on 4


def test_grouped_heads_reach_the_kernel_unexpanded(sdpa_arguments):
    q, k = normal(2, 4, 6, 8), normal(2, 2, 6, 8)
    rove_attention(q, k, k, ROTARY)
    rove_attention(q, q, q, ROTARY)
    assert [call["enable_gqa"] for call in sdpa_arguments] == [True, False]


def test_a_mask_goes_with_causality_and_not_with_the_flag(sdpa_arguments):
    q = normal(2, 4, 3, 8)
    rove_attention(q, q, q, ROTARY, attn_mask=torch.ones(3, 3, dtype=torch.bool))
    rove_attention(q[:, :, 1:], q, q, ROTARY)
    for call in sdpa_arguments:
        assert not call.get("is_causal", False)
    assert sdpa_arguments[0]["attn_mask"].tolist() == torch.ones(3, 3).tril().bool().tolist()
    assert sdpa_arguments[1]["attn_mask"].tolist() == [[True, True, False], [True, True, True]]


@pytest.mark.parametrize("is_causal", ["no", 1, None, 0, torch.tensor(True)])
def test_is_causal_must_be_a_bool(is_causal):
    q = normal(2, 4, 5, 8)
    for attention in (lambda **how: rove_attention(q, q, q, ROTARY, **how),
                      lambda **how: rope_attention(q, q, q, ROTARY, **how),
                      lambda **how: attention_pattern(q, q, ROTARY, **how)):  # fmt: skip
        with pytest.raises(TypeError, match=r"is_causal .*got"):
            attention(is_causal=is_causal)


# --- the pieces by themselves -----------------------------------------------------------------


def test_attention_mask_is_none_where_nothing_is_masked():
    q, k = normal(2, 3, 8), normal(2, 5, 8)
    assert attention_mask(None, False, q, k, q.dtype) is None
    assert attention_mask(None, True, q[:, :1], k, q.dtype) is None


def test_attend_needs_no_rotation():
    q, k, v = normal(2, 4, 3, 8), normal(2, 2, 3, 8), normal(2, 2, 3, 6)
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3, enable_gqa=True)
    assert torch.equal(attend(q, k, v, None, True, 0.3), expected)


def test_check_heads_accepts_what_fits():
    check_heads(normal(4, 3, 8), normal(2, 5, 8), normal(2, 5, 6))
    check_heads(normal(2, 4, 3, 8), normal(2, 1, 5, 8))


def test_without_a_batch_causality_counts_from_the_end_whatever_the_channels():
    q, k, v = normal(1, 2, 4), normal(1, 4, 4), normal(1, 4, 4)  # as many channels as keys
    seen = torch.tensor([[True, True, True, False], [True, True, True, True]])
    expected = (0.5 * q @ k.mT).masked_fill(~seen, -torch.inf).softmax(-1) @ v
    assert torch.allclose(attend(q, k, v, None, True, 0.5), expected, atol=1e-6)


def test_a_negative_scale_turns_preference_round():
    q, k, v = normal(1, 3, 4), normal(1, 3, 4), normal(1, 3, 4)
    expected = (-0.4 * q @ k.mT).softmax(-1) @ v
    assert torch.allclose(attend(q, k, v, None, False, -0.4), expected, atol=1e-6)
