"""What a public function accepts: sizes, flags, numbers, tensors, each refused with a reason."""

from __future__ import annotations

import math
import numbers
import operator
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "check_flag",
    "check_floating",
    "check_index",
    "check_integers",
    "check_number",
    "check_size",
]

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def check_size(name: str, value: Any) -> int:
    """A positive integer.

    Args:
        name: What the caller calls it.
        value: What was given.

    Returns:
        The integer.

    Raises:
        TypeError: If it is not an integer.
        ValueError: If it is not positive.

    Example:
        >>> check_size("d_head", 64)
        64
    """
    if (size := check_index(name, value)) < 1:
        raise ValueError(f"expected {name} to be positive, got {size}: pass 1 or more.")
    return size


def check_index(name: str, value: Any) -> int:
    """An integer, of any kind that counts as one.

    Args:
        name: What the caller calls it.
        value: What was given.

    Returns:
        The integer.

    Raises:
        TypeError: If it is not an integer.

    Example:
        >>> check_index("layer", 3)
        3
    """
    try:
        index = operator.index(value)
    except TypeError:
        index = None
    truth = isinstance(value, bool) or getattr(value, "dtype", None) is torch.bool
    if index is None or truth:
        raise TypeError(f"expected {name} to be an integer, got {value!r}: pass a plain int.")
    return index


def check_flag(name: str, value: Any) -> bool:
    """True or False, and nothing that merely counts as one of them.

    Args:
        name: What the caller calls it.
        value: What was given.

    Returns:
        The flag.

    Raises:
        TypeError: If it is not a bool.

    Example:
        >>> check_flag("is_causal", True)
        True
    """
    if not isinstance(value, bool):
        raise TypeError(f"expected {name} to be True or False, got {value!r}.")
    return value


def check_number(name: str, value: Any) -> float:
    """A finite real number.

    Args:
        name: What the caller calls it.
        value: What was given.

    Returns:
        The number as a float.

    Raises:
        TypeError: If it is not a real number.
        ValueError: If it is NaN or infinite, or too large for a float.

    Example:
        >>> check_number("base", 10000)
        10000.0
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"expected {name} to be a number, got {value!r}: pass a float.")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"expected a finite {name}, got {number}: pass an ordinary number.")
    return number


def check_floating(name: str, value: Any) -> Tensor:
    """A real floating-point tensor.

    Args:
        name: What the caller calls it.
        value: What was given.

    Returns:
        The tensor.

    Raises:
        TypeError: If it is something else.

    Example:
        >>> import torch
        >>> check_floating("x", torch.zeros(2))
        tensor([0., 0.])
    """
    if not isinstance(value, Tensor) or not value.is_floating_point():
        got = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise TypeError(
            f"expected {name} to be a floating-point tensor, got {got}: convert with "
            "torch.as_tensor(...).float()."
        )
    return value


def check_integers(name: str, value: Any, fix: str = "pass token ids.") -> Tensor:
    """A tensor of integers, as token ids are; booleans are none.

    Args:
        name: What the caller calls it.
        value: What was given.
        fix: What to do instead, as the error says it.

    Returns:
        The tensor.

    Raises:
        TypeError: If it is something else.

    Example:
        >>> import torch
        >>> check_integers("tokens", torch.tensor([1, 2]))
        tensor([1, 2])
    """
    if not isinstance(value, Tensor) or value.dtype not in _INTEGERS:
        got = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise TypeError(f"expected {name} to be a tensor of integers, got {got}: {fix}")
    return value
