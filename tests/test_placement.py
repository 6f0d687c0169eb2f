"""Draws without repeats and places without overlap, counted."""

from collections import Counter
from itertools import combinations, permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rove_lab.placement import distinct, places, put
from rove_lab.tasks import TaskDraw


def assert_equally_likely(counts, outcomes):
    """Every outcome, and no other, about as often as each."""
    assert set(counts) == set(outcomes)
    share = counts.total() / len(outcomes)
    assert max(abs(count - share) for count in counts.values()) < 5 * share**0.5


def test_every_ordered_choice_is_equally_likely():
    drawn = distinct(TaskDraw(20_000, 0), 4, 3).tolist()
    assert_equally_likely(Counter(map(tuple, drawn)), list(permutations(range(4), 3)))


def test_every_way_to_lay_items_out_is_equally_likely():
    drawn = places(TaskDraw(20_000, 0), room=9, n=2, width=3).tolist()
    ways = [(a, b) for a, b in combinations(range(7), 2) if b - a >= 3]
    assert_equally_likely(Counter(map(tuple, drawn)), ways)


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 9), st.integers(0, 99))
def test_places_are_inside_in_order_and_apart(n, width, spare, seed):
    room = n * width + spare
    starts = places(TaskDraw(5, seed), room, n, width)
    assert starts.min() >= 0
    assert starts.max() + width <= room
    assert bool((starts.diff(dim=1) >= width).all())


def test_put_writes_each_item_at_its_start_and_nothing_else():
    tokens = torch.zeros(2, 7, dtype=torch.long)
    items = torch.tensor([[[1, 2], [3, 4]], [[5, 6], [7, 8]]])
    put(tokens, torch.tensor([[0, 5], [3, 1]]), items)
    assert tokens.tolist() == [[1, 2, 0, 0, 0, 3, 4], [0, 7, 8, 5, 6, 0, 0]]


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="expected at most 3 distinct numbers below 3, got n=4"):
        distinct(TaskDraw(1, 0), 3, 4)
    with pytest.raises(ValueError, match="expected at most 5 tokens in 2 items, got 2 x 3"):
        places(TaskDraw(1, 0), 5, 2, 3)
