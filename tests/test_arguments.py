"""Sizes, flags and numbers that public functions accept."""

import math

import numpy as np
import pytest
import torch

from rove_lab.arguments import check_flag, check_integers, check_number, check_size


@pytest.mark.parametrize("value", [1, 64, np.int64(64), torch.tensor(64)])
def test_sizes_are_positive_integers(value):
    size = check_size("d_head", value)
    assert size == int(value)
    assert type(size) is int


@pytest.mark.parametrize(
    "value",
    [True, 8.0, "8", None, [8], torch.tensor(8.0), torch.ones(2), torch.tensor(True), np.True_],
)
def test_sizes_of_another_kind_are_refused(value):
    with pytest.raises(TypeError, match=r"expected d_head to be an integer, got"):
        check_size("d_head", value)


@pytest.mark.parametrize("value", [0, -1])
def test_sizes_are_not_zero_or_negative(value):
    with pytest.raises(ValueError, match=rf"expected d_head to be positive, got {value}"):
        check_size("d_head", value)


def test_flags_are_true_or_false():
    assert check_flag("is_causal", True) is True
    assert check_flag("is_causal", False) is False


@pytest.mark.parametrize("value", ["no", 0, 1, None, [], torch.tensor(True)])
def test_what_merely_counts_as_a_flag_is_refused(value):
    with pytest.raises(TypeError, match=r"expected is_causal to be True or False, got"):
        check_flag("is_causal", value)


@pytest.mark.parametrize("value", [0, -2, 1e-3, np.float64(0.5)])
def test_numbers_are_finite_and_real(value):
    number = check_number("scale", value)
    assert number == value
    assert type(number) is float


@pytest.mark.parametrize("value", [True, "1", None, 1j, [1.0], torch.tensor(1.0)])
def test_numbers_of_another_kind_are_refused(value):
    with pytest.raises(TypeError, match=r"expected scale to be a number, got"):
        check_number("scale", value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400])
def test_numbers_that_are_not_finite_are_refused(value):
    with pytest.raises(ValueError, match=r"finite scale, got"):
        check_number("scale", value)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_tokens_are_integers_of_any_width(dtype):
    tokens = torch.tensor([[1, 2]], dtype=dtype)
    assert check_integers("tokens", tokens) is tokens


@pytest.mark.parametrize(
    ("value", "got"),
    [
        ([1, 2], "list"),
        ("ab", "str"),
        (torch.ones(2), r"torch\.float32"),
        (torch.ones(2, dtype=torch.bool), r"torch\.bool"),
    ],
)
def test_what_is_no_tensor_of_integers_is_refused(value, got):
    words = f"expected tokens to be a tensor of integers, got {got}: pass token ids"
    with pytest.raises(TypeError, match=words):
        check_integers("tokens", value)
    with pytest.raises(TypeError, match=f"got {got}: say it otherwise"):
        check_integers("tokens", value, "say it otherwise.")
