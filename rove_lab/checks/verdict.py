"""What all checks share: the line they print, and how they read whatever a reader typed."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["NotSolved", "call", "compare", "draw", "read", "require", "verdict"]


class NotSolved(Exception):
    """The answer is not right yet.

    Args:
        hint: What the reader sees: what is wrong, and where to look.

    Example:
        >>> str(NotSolved("the sign is wrong."))
        'the sign is wrong.'
    """

    def __init__(self, hint: str) -> None:
        super().__init__(hint)


@contextmanager
def verdict(showed: str) -> Iterator[None]:
    """Print "Solved: ..." if the block ends, "Not solved yet: ..." if anything in it raises.

    What the reader's code does to torch's defaults, gradients or random numbers is undone.

    Args:
        showed: What a right answer showed, one sentence.

    Yields:
        Nothing.

    Example:
        >>> with verdict("one and one are two."):
        ...     compare(read(1 + 1, []), 2)
        Solved: one and one are two.
    """
    dtype, device = torch.get_default_dtype(), torch.get_default_device()
    try:
        with (
            torch.random.fork_rng(devices=[]),
            torch.set_grad_enabled(torch.is_grad_enabled()),
            torch.device("cpu"),  # where the inputs are drawn
        ):
            yield
        said = f"Solved: {showed}"
    except NotSolved as hint:
        said = f"Not solved yet: {hint}"
    except Exception as error:  # a reader may type anything, and must not see our traceback
        said = f"Not solved yet: the answer cannot be used ({_in_a_line(error)})."
    finally:
        torch.set_default_dtype(dtype)
        if torch.get_default_device() != device:
            torch.set_default_device(device)
    print(said.encode("utf-8", "backslashreplace").decode())


def call(function: object, *inputs: Any) -> Any:
    """What the reader's function returns for copies of the inputs (a model is passed as it is).

    Args:
        function: The reader's.
        inputs: What it is given.

    Returns:
        What it returned: anything but nothing.

    Raises:
        NotSolved: If it is no function, raises, or returns nothing.

    Example:
        >>> call(max, 1, 2)
        2
    """
    if function is None or function is ...:
        raise NotSolved("put your function in the place of `...`.")
    if not callable(function):
        raise NotSolved(f"expected a function, got {type(function).__name__}.")
    given = [one if isinstance(one, nn.Module) else copy.deepcopy(one) for one in inputs]
    try:
        answer = function(*given)
    except (Exception, SystemExit) as error:
        raise NotSolved(f"your function raised {_in_a_line(error)}.") from error
    if answer is None or answer is ...:
        raise NotSolved("your function returns nothing: write its body, and `return` the answer.")
    return answer


def read(answer: object, shape: Sequence[int]) -> Tensor:
    """The answer as a float64 tensor of its own on the CPU.

    Args:
        answer: A tensor, an array, a number or a list of numbers; of any dtype but complex.
        shape: The shape it must have, in which ``[]`` is a number.

    Returns:
        ``shape``, float64.

    Raises:
        NotSolved: If it is something else, or has another shape, or is not finite.

    Example:
        >>> read([1, 2], [2])
        tensor([1., 2.], dtype=torch.float64)
    """
    expected = f"expected a tensor of shape {list(shape)}" if shape else "expected one number"
    if answer is None or answer is ...:
        raise NotSolved("put your answer in the place of `...`.")
    try:
        wide = torch.float64 if isinstance(answer, float) else None  # not the reader's default
        tensor = torch.as_tensor(answer, dtype=wide).detach().cpu()
    except Exception as error:  # a string, a dict, a ragged list, a tensor without data, ...
        raise NotSolved(f"{expected}, got {type(answer).__name__}.") from error
    if tensor.is_complex():
        raise NotSolved(f"{expected}, real; yours is complex: take `.real`, or view_as_real.")
    if tensor.numel() == 1 and not shape:
        tensor = tensor.reshape(())
    if list(tensor.shape) != list(shape):
        raise NotSolved(f"{expected}, got shape {list(tensor.shape)}.")
    if not bool(tensor.isfinite().all()):
        raise NotSolved("the answer holds NaN or infinity.")
    return tensor.to(torch.float64, copy=True)


def compare(
    got: Tensor,
    expected: Tensor | float,
    mistakes: Mapping[str, Tensor | float] | None = None,
    *,
    tolerance: float = 1e-4,
) -> None:
    """Pass over an answer that is right; raise the hint of the mistake that a wrong one shows.

    Args:
        got: The answer, from :func:`read`.
        expected: What is right, of the same shape or a number.
        mistakes: Hint to what the answer would be if that mistake were made.
        tolerance: Largest error, relative to the largest number expected or to 1; the default takes
            float32 for right.

    Raises:
        NotSolved: If the answer is not right.

    Example:
        >>> compare(torch.tensor([0.5]), 0.5)
    """

    def off(value: Tensor | float) -> tuple[float, bool]:
        value = torch.as_tensor(value, dtype=torch.float64)
        error = (got - value).abs().max().item()
        return error, error <= tolerance * max(1.0, value.abs().max().item())

    error, right = off(expected)
    if right:
        return
    for hint, value in (mistakes or {}).items():
        if off(value)[1]:
            raise NotSolved(hint)
    if got.dim() == 0:
        raise NotSolved(f"on one of our inputs the answer is {expected:.7g}; yours is {got:.7g}.")
    raise NotSolved(f"on one of our inputs it is off by up to {error:.2g}.")


def require(condition: object, hint: str) -> None:
    """Pass over what is so; say what is wrong where it is not.

    Args:
        condition: What must be true.
        hint: What the reader sees if it is not.

    Raises:
        NotSolved: If the condition is not true.

    Example:
        >>> require(2 in range(3), "expected one of 3 planes.")
    """
    if not condition:
        raise NotSolved(hint)


def draw(seed: int) -> torch.Generator:
    """A source of random inputs that leaves torch's own alone.

    Args:
        seed: Another for every check.

    Returns:
        A generator for ``torch.randn(..., generator=...)``.

    Example:
        >>> draw(1).initial_seed()
        1
    """
    return torch.Generator().manual_seed(seed)


def _in_a_line(error: BaseException) -> str:
    try:
        words = " ".join(str(error).split())
    except Exception:  # an error whose own words raise
        words = ""
    words = words if len(words) <= 160 else f"{words[:157]}..."
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
