r"""The weights of attention heads as arguments: their shapes, their grouping, their precision."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rove_lab.arguments import check_floating
from rove_lab.rotary import RotaryEmbedding, check_rotary
from rove_lab.rotation import as_positions

__all__ = [
    "as_offsets",
    "check_embedding",
    "check_output",
    "check_projection",
    "expand_heads",
    "wide",
]


def check_projection(name: str, W: Tensor, rotary: RotaryEmbedding) -> None:
    """Checks that ``W_Q``, ``W_K`` or ``W_V`` ``[heads, d_model, d_head]`` fits a rotation.

    Args:
        name: What the caller calls it.
        W: ``[heads, d_model, d_head]``, acting on row vectors.
        rotary: The rotations.

    Raises:
        TypeError: If one is of another type.
        ValueError: If the shape does not fit.

    Example:
        >>> check_projection("W_V", torch.zeros(1, 4, 2), RotaryEmbedding(2))
    """
    check_floating(name, W)
    check_rotary(rotary)
    if W.dim() != 3 or W.shape[-1] != rotary.d_head or W.shape[-2] == 0:
        raise ValueError(
            f"expected {name} [heads, d_model, d_head={rotary.d_head}], got {list(W.shape)}: a "
            f"torch Linear's weight is its transpose; a single head needs {name}[None]."
        )


def check_output(W_O: Tensor, rotary: RotaryEmbedding, d_model: int | None = None) -> None:
    """Checks that output weights ``[heads, d_head, d_model]`` fit a rotation.

    Args:
        W_O: ``[heads, d_head, d_model]``, acting on row vectors.
        rotary: The rotations.
        d_model: The width that the other weights have, if there are any.

    Raises:
        TypeError: If one is of another type.
        ValueError: If the shape does not fit.

    Example:
        >>> check_output(torch.zeros(1, 2, 4), RotaryEmbedding(2), d_model=4)
    """
    check_floating("W_O", W_O)
    check_rotary(rotary)
    width = "d_model" if d_model is None else f"d_model={d_model}"
    fits = W_O.dim() == 3 and W_O.shape[-2] == rotary.d_head and W_O.shape[-1] > 0
    if not fits or d_model not in (None, W_O.shape[-1]):
        raise ValueError(
            f"expected W_O [heads, d_head={rotary.d_head}, {width}], got {list(W_O.shape)}: a "
            "torch Linear's weight [d_model, heads * d_head] needs "
            ".T.unflatten(0, (heads, d_head))."
        )


def check_embedding(name: str, W: Tensor, d_model: int, axis: int) -> None:
    """Checks that ``W_E [d_vocab, d_model]`` or ``W_U [d_model, d_vocab]`` has this width.

    Args:
        name: What the caller calls it.
        W: A matrix.
        d_model: The width that the heads' weights have.
        axis: Where it stands, -1 for ``W_E`` and 0 for ``W_U``.

    Raises:
        TypeError: If it is not a floating-point tensor.
        ValueError: If the shape does not fit.

    Example:
        >>> check_embedding("W_E", torch.zeros(9, 4), d_model=4, axis=-1)
    """
    check_floating(name, W)
    if W.dim() != 2 or W.shape[axis] != d_model:
        axes = f"[d_vocab, d_model={d_model}]" if axis else f"[d_model={d_model}, d_vocab]"
        raise ValueError(
            f"expected {name} {axes}, got {list(W.shape)}: a torch Linear's or a tied weight may "
            f"need {name}.T."
        )


def expand_heads(name: str, W: Tensor, n_heads: int) -> Tensor:
    """One entry for each query head, where several of them share a KV head.

    Query head h reads KV head h // (n_heads / n_kv_heads), as in grouped-query attention
    (Ainslie et al. 2023, arXiv:2305.13245).

    Args:
        name: What the caller calls it.
        W: ``[n_kv_heads, ...]``.
        n_heads: The number of query heads.

    Returns:
        ``[n_heads, ...]``; ``W`` itself where the numbers agree.

    Raises:
        ValueError: If ``n_heads`` is not a multiple of ``n_kv_heads``.

    Example:
        >>> expand_heads("W_V", torch.tensor([5, 7]), 4)
        tensor([5, 5, 7, 7])
    """
    n_kv_heads = W.shape[0]
    if n_kv_heads == 0 or n_heads % n_kv_heads:
        raise ValueError(
            f"expected the query heads to be a multiple of the KV heads, got {n_heads} and "
            f"{n_kv_heads} in {name}: W_Q and W_O have n_heads, W_K and W_V n_kv_heads."
        )
    return W if n_kv_heads == n_heads else W.repeat_interleave(n_heads // n_kv_heads, 0)


def as_offsets(offsets: Tensor | Sequence[float]) -> Tensor:
    """Offsets as a tensor with one axis, checked.

    Args:
        offsets: ``[n_offsets]`` in tokens, key minus query: integers or reals of either sign.

    Returns:
        The tensor.

    Raises:
        TypeError: If they are boolean, complex or half precision.
        ValueError: If they have another number of axes, or are not finite.

    Example:
        >>> as_offsets(range(-2, 1))
        tensor([-2, -1,  0])
    """
    offsets = as_positions(offsets)
    if offsets.dim() != 1:
        raise ValueError(
            f"expected offsets [n_offsets], got {list(offsets.shape)}: flatten, or pass [delta]."
        )
    return offsets


def wide(x: Tensor) -> Tensor:
    """The tensor in float64, or in float32 on a device that has no float64.

    Args:
        x: A floating-point tensor.

    Returns:
        The same numbers.

    Example:
        >>> wide(torch.ones(1)).dtype
        torch.float64
    """
    return x.to(torch.float32 if x.device.type == "mps" else torch.float64)
