r"""A head's circuits at many offsets, kept as thin factors around a small rotation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from rove_lab.arguments import check_floating, check_number
from rove_lab.head_weights import wide

__all__ = ["FactoredCircuit", "each_core", "one_thread"]


@final
@dataclass(frozen=True, eq=False, repr=False)
class FactoredCircuit:
    r"""The matrices :math:`L\,C_\delta\,R` of every head and offset, never multiplied out.

    Its rank is at most ``d_head``, so norms, eigenvalues and singular values come from matrices of
    ``d_head`` × ``d_head``. They are computed in float64 (float32 on a device without it). The same
    idea as TransformerLens's ``FactoredMatrix``, with the rotation in the middle.

    Args:
        left: ``[heads, rows, d_head]``, as ``W_Q`` or ``W_E W_V``.
        core: ``[n_offsets, d_head, d_head]``, as :math:`R_\delta`; the same for all heads.
        right: ``[heads, d_head, columns]``, as ``W_K^T`` or ``W_O W_U``.

    Raises:
        TypeError: If one is not a floating-point tensor.
        ValueError: If the shapes or devices do not fit.

    Example:
        >>> circuit = FactoredCircuit(torch.ones(1, 5, 2), torch.eye(2)[None], torch.ones(1, 2, 5))
        >>> circuit.norm()  # of a 5 by 5 matrix of twos
        tensor([[10.]], dtype=torch.float64)
    """

    left: Tensor
    core: Tensor
    right: Tensor

    def __post_init__(self) -> None:
        left, core, right = (list(check_floating(name, x).shape) for name, x in vars(self).items())
        fits = len(left) == len(core) == len(right) == 3
        if not fits or left[0] != right[0] or not left[2] == core[1] == core[2] == right[1]:
            raise ValueError(
                "expected left [heads, rows, d_head], core [n_offsets, d_head, d_head] and right "
                f"[heads, d_head, columns], got {left}, {core} and {right}: factored_ov and "
                "factored_qk make them from a head's weights."
            )
        if not self.left.device == self.core.device == self.right.device:
            raise ValueError(
                f"expected all weights on one device, got {self.left.device} and "
                f"{self.right.device}: move one there."
            )

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """``(n_offsets, heads, rows, columns)``."""
        return (len(self.core), *self.left.shape[:2], self.right.shape[-1])

    @property
    def mT(self) -> FactoredCircuit:
        """The transposed matrices."""
        return FactoredCircuit(self.right.mT, self.core.mT, self.left.mT)

    def __repr__(self) -> str:
        return f"FactoredCircuit(shape={self.shape}, d_head={self.core.shape[-1]})"

    def select(
        self,
        rows: Sequence[int] | Tensor | None = None,
        columns: Sequence[int] | Tensor | None = None,
    ) -> FactoredCircuit:
        """The same circuits between some of the tokens.

        Args:
            rows: Indices to keep, all by default: source tokens of an OV, query tokens of a QK.
            columns: Indices to keep, all by default: the tokens written, or the key tokens.

        Returns:
            A smaller circuit.
        """
        left = self.left if rows is None else self.left[:, rows]
        right = self.right if columns is None else self.right[..., columns]
        return FactoredCircuit(left, self.core, right)

    def to_dense(self, max_bytes: int = 2**30) -> Tensor:
        """The matrices themselves, for looking at.

        Args:
            max_bytes: The largest result to build; the default is one gibibyte.

        Returns:
            ``[n_offsets, heads, rows, columns]`` in the dtype of ``left``.

        Raises:
            TypeError: If ``max_bytes`` is not a number.
            ValueError: If the result would be larger than ``max_bytes``.
        """
        max_bytes = int(check_number("max_bytes", max_bytes))
        dtype = torch.promote_types(self.left.dtype, torch.float32)
        size = torch.Size(self.shape).numel() * dtype.itemsize
        if size > max_bytes:
            raise ValueError(
                f"expected matrices of at most max_bytes={max_bytes} bytes, got {self.shape} = "
                f"{size} bytes: look at fewer offsets, heads or tokens (select), use the scores, "
                "which never build them, or raise max_bytes."
            )
        turned = self.left.to(dtype) @ self.core.to(dtype)[:, None]
        return (turned @ self.right.to(dtype)).to(self.left.dtype)

    def inner(self, other: FactoredCircuit) -> Tensor:
        r"""The Frobenius products :math:`\operatorname{tr}(A_\delta^\top B_\delta)`.

        Args:
            other: The same heads, rows and columns; as many offsets, or one.

        Returns:
            ``[n_offsets, heads]``.

        Raises:
            ValueError: If the shapes differ.
        """
        offsets = {self.shape[0], other.shape[0]} - {1}
        if self.shape[1:] != other.shape[1:] or len(offsets) > 1:
            raise ValueError(
                f"expected circuits of one shape (or of one offset), got {self.shape} and "
                f"{other.shape}: take both from the same heads."
            )
        across = wide(self.left).mT @ wide(other.left)  # [heads, d_head, d_head]
        beyond = wide(other.right) @ wide(self.right).mT
        pairs = torch.broadcast_tensors(wide(self.core), wide(other.core))
        both = torch.stack(pairs, 1)  # [n_offsets, 2, d_head, d_head]
        return each_core(
            lambda pair: ((pair[0].mT @ across @ pair[1]).mT * beyond).sum((-2, -1)), both
        )

    def norm(self) -> Tensor:
        """The Frobenius norms, ``[n_offsets, heads]``."""
        return self.inner(self).clamp(min=0).sqrt()

    def eigenvalues(self) -> Tensor:
        r"""The eigenvalues, from :math:`C_\delta R L`; those left out are zero.

        Returns:
            ``[n_offsets, heads, d_head]``, complex, in no order.

        Raises:
            ValueError: If the matrices are not square.
        """
        if self.left.shape[1] != self.right.shape[-1]:
            raise ValueError(
                f"expected square matrices, got {self.left.shape[1]} rows and "
                f"{self.right.shape[-1]} columns: others have singular values only."
            )
        inside = wide(self.right) @ wide(self.left)  # A B and B A share what is not zero
        with one_thread():
            return each_core(lambda C: torch.linalg.eigvals(C @ inside), wide(self.core))

    def reduced(self) -> Tensor:
        r"""The matrices in orthonormal bases of their rows and columns: small, and as long.

        With :math:`L = Q_L T_L` and :math:`R^\top = Q_R T_R` these are
        :math:`T_L C_\delta T_R^\top`; :math:`Q_L` and :math:`Q_R` are the same at every offset.

        Returns:
            ``[n_offsets, heads, min(rows, d_head), min(columns, d_head)]``.
        """
        with one_thread():
            T_L: Tensor = torch.linalg.qr(wide(self.left)).R
            T_R: Tensor = torch.linalg.qr(wide(self.right).mT).R
        return each_core(lambda C: T_L @ C @ T_R.mT, wide(self.core))

    def singular_values(self) -> Tensor:
        """The singular values, largest first, ``[n_offsets, heads, d_head]`` (or fewer)."""
        with one_thread():
            return each_core(torch.linalg.svdvals, self.reduced())


def each_core(compute: Callable[[Tensor], Tensor], core: Tensor) -> Tensor:
    r"""A function of every :math:`C_\delta`, one offset at a time.

    All heads at all offsets are more than a processor's cache holds.

    Args:
        compute: From ``[d_head, d_head]`` to ``[...]``.
        core: ``[n_offsets, d_head, d_head]``.

    Returns:
        ``[n_offsets, ...]``.

    Example:
        >>> each_core(torch.trace, torch.eye(2).expand(3, 2, 2))
        tensor([2., 2., 2.])
    """
    # for no offsets: the shape that one would have
    found = [compute(C) for C in core] or [compute(torch.zeros_like(core.sum(0)))]
    return torch.stack(found)[: len(core)]


@contextmanager
def one_thread() -> Iterator[None]:
    """On the CPU, one thread for many small decompositions: more only wait for one another.

    On a busy machine of two cores, the singular vectors of a 64 × 64 matrix took 1.2 ms of CPU time
    with one thread and 33 ms with two.

    Yields:
        Nothing; torch's number of threads is as before when the block ends.

    Example:
        >>> with one_thread():
        ...     torch.get_num_threads()
        1
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
