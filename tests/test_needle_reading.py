"""Where a needle is lost: the heads that bind and read it, and what is made of it."""

from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest
import torch

from rove_lab.evaluation import accuracy_by_length
from rove_lab.model import GPT, GPTConfig
from rove_lab.needle_reading import NeedleHeads, TokenHead, needle_heads, read_needles
from rove_lab.needles import Needles
from rove_lab.open_attention import open_attention

TASK = Needles(n_ctx=24, n_keys=4)
CONFIG = GPTConfig(d_vocab=TASK.d_in, n_ctx=24, d_model=16, n_layers=2, n_heads=2)
HEADS = NeedleHeads(TokenHead(0, 1, 0.0), TokenHead(1, 0, 0.0))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return GPT(CONFIG).eval()


def place_of_the_answer(tokens):
    """Where the asked key stands first, and one on."""
    return tokens.index(tokens[-1]) + 1


def test_the_heads_are_those_that_look_at_key_and_value(model):
    tokens, targets = next(TASK.batches(16, 2**32 - 1))
    right = [place_of_the_answer(row) for row in tokens.tolist()]
    for row, at, target in zip(tokens, right, targets[:, -1], strict=True):
        assert row[at] == target
    with torch.no_grad(), open_attention(model) as patterns:
        model(tokens)
    reading, binding = (
        {
            (layer, head): sum(pattern[row, head, *look(at)].item() for row, at in enumerate(right))
            / 16
            for layer, pattern in enumerate(patterns)
            for head in range(2)
        }
        for look in (lambda at: (-1, at), lambda at: (at, at - 1))
    )
    found = needle_heads(model, TASK, n_sequences=16)
    assert (found.reading.layer, found.reading.head) == max(reading, key=reading.get)
    assert found.reading.share == pytest.approx(max(reading.values()))
    below = {k: v for k, v in binding.items() if k[0] < found.reading.layer} or binding
    assert (found.binding.layer, found.binding.head) == max(below, key=below.get)
    assert found.binding.share == pytest.approx(max(below.values()))


def test_its_accuracy_is_accuracy_by_length(model):
    lengths, sizes = [24, 40], {"n_sequences": 64, "batch_size": 16}
    read = read_needles(model, TASK, lengths, HEADS, **sizes)
    plain = accuracy_by_length(model, TASK, lengths, **sizes)
    assert {length: one.accuracy for length, one in read.items()} == pytest.approx(plain)
    for one in read.values():
        assert 0 <= one.found_and_right <= min(one.found, one.accuracy)
        assert 0 < one.share < 1
        assert 0 < one.bound < 1


def test_a_head_that_is_set_right_looks_where_it_should(model):
    pointed = read_needles(model, TASK, [24], HEADS, aims=[HEADS.point], n_sequences=32)[24]
    assert (pointed.share, pointed.found) == (1, 1)
    assert pointed.found_and_right == pointed.accuracy
    assert pointed.bound < 1
    bound = read_needles(model, TASK, [24], HEADS, aims=[HEADS.bind], n_sequences=32)[24]
    assert bound.bound == 1
    assert bound.share < 1
    aims = [HEADS.bind, HEADS.point]
    both = read_needles(model, TASK, [24], HEADS, aims=aims, n_sequences=32)[24]
    assert (both.bound, both.share) == (1, 1)


def test_aiming_leaves_all_else(model):
    tokens, _ = next(TASK.batches(4, 0))
    with torch.no_grad(), open_attention(model) as patterns:
        model(tokens)
    before, head = patterns[1], TokenHead(1, 0, 0.0)
    queries, keys = torch.tensor([[23], [23], [23], [9]]), torch.tensor([[3], [1], [0], [5]])
    after = head.aimed(1, before, queries, keys)
    assert head.aimed(0, before, queries, keys) is before
    assert torch.equal(after[:, 1], before[:, 1])
    assert torch.equal(after[:3, 0, :-1], before[:3, 0, :-1])
    assert after[range(4), 0, queries[:, 0], keys[:, 0]].tolist() == [1] * 4
    assert after.sum(-1).allclose(before.sum(-1))


def test_a_reach_and_an_extension_are_used(model):
    entered = []

    @contextmanager
    def extension(length):
        entered.append(length)
        yield

    sizes = {"n_sequences": 32}
    plain = read_needles(model, TASK, [40], HEADS, extension=extension, **sizes)[40]
    limited = partial(open_attention, reach=2)
    near = read_needles(model, TASK, [40], HEADS, opening=limited, **sizes)[40]
    limited = partial(limited, planes=[0])
    fast = read_needles(model, TASK, [40], HEADS, opening=limited, **sizes)[40]
    assert entered == [40]
    assert len({plain.share, near.share, fast.share}) == 3


def test_what_it_refuses(model):
    for odd in (replace(TASK, n_values=2), replace(TASK, n_queries=2)):
        with pytest.raises(ValueError, match="expected needles with one value and one query"):
            needle_heads(model, odd)
    with pytest.raises(ValueError, match="expected n_sequences divisible by batch_size"):
        read_needles(model, TASK, [24], HEADS, n_sequences=33)
