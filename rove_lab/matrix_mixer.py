r"""What every mixer is: a matrix over tokens and channels that is applied without being built."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from rove_lab.arguments import check_floating, check_index, check_number

__all__ = ["Mixer", "kronecker_rank"]


class Mixer(ABC):
    r"""A matrix that mixes ``key_pos`` tokens of ``d_in`` channels into ``query_pos`` of ``d_out``.

    ``mixer @ x`` never builds the matrix; :meth:`to_dense` does. Hwang et al. (2024),
    arXiv:2407.09941, section 2.

    Args:
        pattern_shape: ``(query_pos, key_pos)``.
        block_shape: ``(d_in, d_out)``.
        like: A tensor of the mixer's dtype and device.
    """

    def __init__(
        self, pattern_shape: tuple[int, int], block_shape: tuple[int, int], like: Tensor
    ) -> None:
        (self.q_len, self.k_len), (self.d_in, self.d_out) = pattern_shape, block_shape
        self.dtype, self.device = like.dtype, like.device

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the dense matrix, ``(query_pos * d_out, key_pos * d_in)``."""
        return self.q_len * self.d_out, self.k_len * self.d_in

    @abstractmethod
    def double(self) -> Mixer:
        """The same mixer with its factors in float64."""

    @abstractmethod
    def _columns(self) -> Tensor:
        """What blocks are made from, ``[d_out, ..., d_in]``: a view of the factors if possible."""

    @abstractmethod
    def _blocks(self, columns: Tensor, i: int, keys: slice, out: Tensor | None = None) -> Tensor:
        """The blocks of query i side by side, ``[d_out, keys, d_in]``, into ``out`` if given."""

    @abstractmethod
    def _product(self, x: Tensor) -> Tensor:
        """The product with ``x [..., key_pos, d_in]``, without the matrix."""

    def block(self, i: int, j: int) -> Tensor:
        r"""What token j sends to token i, :math:`A_{ij}\psi_{j-i}^\top`.

        Args:
            i: Index of the query.
            j: Index of the key.

        Returns:
            ``[d_out, d_in]``, acting on columns.

        Raises:
            TypeError: If an index is not an integer.
            ValueError: If an index is out of range.

        Example:
            >>> from rove_lab import rope_mixer
            >>> rope_mixer(torch.eye(2), torch.ones(1, 1)).block(0, 0)
            tensor([[1.]])
        """
        for name, index, size in (("i", i, self.q_len), ("j", j, self.k_len)):
            if not 0 <= check_index(name, index) < size:
                raise ValueError(f"expected 0 <= {name} < {size}, got {index}: count from 0.")
        return self._blocks(self._columns(), i, slice(j, j + 1))[:, 0]

    def to_dense(self, max_bytes: int = 2**30) -> Tensor:
        r"""The whole matrix, filled row by row into one tensor.

        Args:
            max_bytes: The largest matrix to build; the default is one gibibyte.

        Returns:
            ``[query_pos * d_out, key_pos * d_in]``, acting on ``x`` flattened token by token.

        Raises:
            TypeError: If ``max_bytes`` is not a number.
            ValueError: If the matrix would be larger than ``max_bytes``.

        Example:
            >>> from rove_lab import rope_mixer
            >>> rope_mixer(torch.eye(2), torch.tensor([[3.0]])).to_dense()
            tensor([[3., 0.],
                    [0., 3.]])
        """
        max_bytes = int(check_number("max_bytes", max_bytes))
        size = self.shape[0] * self.shape[1] * self.dtype.itemsize
        if size > max_bytes:
            raise ValueError(
                f"expected a matrix of at most max_bytes={max_bytes} bytes, got {self.shape} = "
                f"{size} bytes: use `mixer @ x`, which never builds it, or raise max_bytes."
            )
        dense = torch.empty(
            self.q_len, self.d_out, self.k_len, self.d_in, dtype=self.dtype, device=self.device
        )
        # Chunks of keys keep what is held besides the result to a few percent of it.
        columns = self._columns()
        if 16 * columns.numel() <= dense.numel():  # worth a copy where that is small
            columns = columns.contiguous()
        recorded = self._blocks(columns, 0, slice(0, 1)).requires_grad  # autograd allows no `out`
        step = max(1, min(self.k_len, self.q_len * self.k_len // 128))
        for i in range(self.q_len):
            for start in range(0, self.k_len, step):
                keys = slice(start, min(start + step, self.k_len))
                if recorded:
                    dense[i, :, keys] = self._blocks(columns, i, keys)
                else:
                    self._blocks(columns, i, keys, out=dense[i, :, keys])
        return dense.reshape(self.shape)

    def __matmul__(self, x: Tensor) -> Tensor:
        given: object = x
        if isinstance(given, Mixer):
            raise TypeError(
                "expected a tensor, got a mixer: apply one after the other, M @ (N @ x), or "
                "multiply M.to_dense() @ N.to_dense()."
            )
        if check_floating("x", x).dtype != self.dtype:
            raise TypeError(
                f"expected x of the mixer's dtype {self.dtype}, got {x.dtype}: cast with x.to(...)."
            )
        if x.dim() < 2 or x.shape[-2:] != (self.k_len, self.d_in):
            raise ValueError(
                f"expected x [..., key_pos={self.k_len}, d_in={self.d_in}], got {list(x.shape)}: "
                "a flattened sequence needs x.unflatten(-1, (key_pos, d_in))."
            )
        if x.device != self.device:
            raise ValueError(f"expected x on {self.device}, got {x.device}: move it there first.")
        return self._product(x)


def kronecker_rank(mixer: Mixer, tol: float = 1e-10) -> int:
    r"""How many Kronecker products the mixer is a sum of, numerically.

    The rank of the matrix whose rows are the flattened blocks (Van Loan and Pitsianis, 1993), in
    float64: 1 for RoPE, at most d_head for RoVE, and fewer where slow planes hardly turn.

    Args:
        mixer: The mixer, small enough for :meth:`Mixer.to_dense` in float64.
        tol: Singular values above ``tol`` times the largest count.

    Returns:
        The numerical rank; 0 for a mixer that is zero.

    Raises:
        TypeError: If ``mixer`` is not a mixer.
        ValueError: If it is not finite, its float64 matrix would exceed a gibibyte, or ``tol`` is
            not in (0, 1).

    Example:
        >>> from rove_lab import BlockToeplitzMixer
        >>> kronecker_rank(BlockToeplitzMixer(torch.eye(3)[:, None]))
        3
    """
    if not isinstance(mixer, Mixer):
        raise TypeError(f"expected a mixer, got {type(mixer).__name__}: see rove_mixer.")
    if not 0 < check_number("tol", tol) < 1:
        raise ValueError(f"expected tol between 0 and 1, got {tol}: 1e-10 suits float64.")
    dense = mixer.double().to_dense()
    if not dense.isfinite().all():
        raise ValueError("expected a finite mixer, got NaN or infinite entries: check its factors.")
    blocks = dense.reshape(mixer.q_len, mixer.d_out, mixer.k_len, mixer.d_in).transpose(1, 2)
    singular = torch.linalg.svdvals(blocks.reshape(mixer.q_len * mixer.k_len, -1))
    return int((singular > tol * singular[0]).sum())


def pair(tensor: Tensor) -> tuple[int, int]:
    """The last two sizes of a tensor."""
    return tensor.shape[-2], tensor.shape[-1]


def check_factors(**factors: tuple[Tensor, int]) -> None:
    """Checks that named factors share dtype and device and have the axes they should."""
    first_name, (first, _) = next(iter(factors.items()))
    for name, (tensor, dims) in factors.items():
        if check_floating(name, tensor).dtype != first.dtype:
            raise TypeError(
                f"expected one dtype, got {first_name} {first.dtype} and {name} {tensor.dtype}: "
                "cast with .to(dtype)."
            )
        if tensor.dim() != dims or 0 in tensor.shape:
            raise ValueError(
                f"expected {name} with {dims} non-empty axes, got {list(tensor.shape)}: a mixer is "
                "one head of one sequence, so index the batch and the head away."
            )
        if tensor.device != first.device:
            raise ValueError(
                f"expected one device, got {first_name} on {first.device} and {name} on "
                f"{tensor.device}: move one."
            )
