"""lens_calls: each call, each thread and each copy of a bridge turns by its own positions."""

import copy
import threading

import pytest
import torch
from torch import nn

from rove_lab import RotaryEmbedding
from rove_lab.lens_calls import (
    begin_turning,
    positions_seen,
    rotation_seen,
    turning_values,
    watch_calls,
)


class Attention(nn.Module):
    """Does what it is told while it is called."""

    def forward(self, inside, **_):
        return inside(self)


@pytest.fixture
def attention():
    module = Attention()
    watch_calls(module)
    watch_calls(module)  # once is enough
    return module


@pytest.mark.parametrize("name", ["position_ids", "positions"])
def test_positions_are_seen_while_a_call_lasts(attention, name):
    positions = torch.tensor([[3, 4]])
    assert attention(positions_seen, **{name: positions}) is positions
    assert len(attention._forward_pre_hooks) == 1
    with pytest.raises(RuntimeError, match="expected the positions of the tokens, got none"):
        positions_seen(attention)
    with pytest.raises(RuntimeError, match="expected the positions of the tokens, got none"):
        attention(positions_seen)


def test_values_turn_once_and_only_while_a_call_lasts(attention):
    rotary = RotaryEmbedding(4)
    rotation = rotary([0, 1])

    def inside(module):
        assert turning_values(module) is None
        begin_turning(module, rotary, rotation)
        assert rotation_seen(module) is rotation
        with pytest.raises(ValueError, match="expected RoVE's hooks once, got them twice"):
            begin_turning(module, rotary, rotation)
        return turning_values(module)

    assert attention(inside) is rotary
    assert turning_values(attention) is None
    with pytest.raises(RuntimeError, match="two hooks of a layer go together"):
        rotation_seen(attention)


def test_an_exception_ends_a_call(attention):
    def stop(module):
        raise ArithmeticError("stopped")

    with pytest.raises(ArithmeticError, match="stopped"):
        attention(stop, position_ids=torch.tensor([[1]]))
    with pytest.raises(RuntimeError, match="got none"):
        positions_seen(attention)


def test_a_thread_and_a_copy_have_calls_of_their_own(attention):
    seen = []

    def elsewhere():
        seen.append(attention(positions_seen, position_ids=torch.tensor([[7]])))

    def inside(module):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        with pytest.raises(RuntimeError, match="got none"):
            positions_seen(copy.deepcopy(module))
        return positions_seen(module)

    assert attention(inside, position_ids=torch.tensor([[5]])).item() == 5
    assert [positions.item() for positions in seen] == [7]
