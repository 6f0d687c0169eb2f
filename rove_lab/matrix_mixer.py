r"""What every mixer is: a matrix over tokens and channels that is applied without being built."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

__all__ = ["Mixer"]


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
    def _messages(self, i: int, keys: slice) -> Tensor:
        """The maps from keys to query i, :math:`A_{ij} psi_{j-i}`, ``[keys, d_in, d_out]``."""

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
            ValueError: If an index is out of range.

        Example:
            >>> from rove_lab import rope_mixer
            >>> rope_mixer(torch.eye(2), torch.ones(1, 1)).block(0, 0)
            tensor([[1.]])
        """
        if not (0 <= i < self.q_len and 0 <= j < self.k_len):
            raise ValueError(
                f"expected 0 <= i < {self.q_len} and 0 <= j < {self.k_len}, got i={i}, j={j}."
            )
        return self._messages(i, slice(j, j + 1))[0].mT

    def to_dense(self, max_bytes: int = 2**30) -> Tensor:
        r"""The whole matrix, filled row by row into one tensor.

        Args:
            max_bytes: The largest matrix to build; the default is one gibibyte.

        Returns:
            ``[query_pos * d_out, key_pos * d_in]``, acting on ``x`` flattened token by token.

        Raises:
            ValueError: If the matrix would be larger than ``max_bytes``.

        Example:
            >>> from rove_lab import rope_mixer
            >>> rope_mixer(torch.eye(2), torch.tensor([[3.0]])).to_dense()
            tensor([[3., 0.],
                    [0., 3.]])
        """
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
        step = max(1, min(self.k_len, self.q_len * self.k_len // 128))
        for i in range(self.q_len):
            for start in range(0, self.k_len, step):
                keys = slice(start, min(start + step, self.k_len))
                dense[i, :, keys] = self._messages(i, keys).permute(2, 0, 1)
        return dense.reshape(self.shape)

    def __matmul__(self, x: Tensor) -> Tensor:
        if not isinstance(x, Tensor) or x.dtype != self.dtype:
            got = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(f"expected a tensor of the mixer's dtype {self.dtype}, got {got}.")
        if x.dim() < 2 or x.shape[-2:] != (self.k_len, self.d_in):
            raise ValueError(
                f"expected x [..., key_pos={self.k_len}, d_in={self.d_in}], got {list(x.shape)}: "
                "a flattened sequence needs x.unflatten(-1, (key_pos, d_in))."
            )
        if x.device != self.device:
            raise ValueError(f"expected x on {self.device}, got {x.device}: move it there first.")
        return self._product(x)


def pair(tensor: Tensor) -> tuple[int, int]:
    """The last two sizes of a tensor."""
    return tensor.shape[-2], tensor.shape[-1]


def check_factors(**factors: tuple[Tensor, int]) -> None:
    """Checks that named factors share dtype and device and have the axes they should."""
    first_name, (first, _) = next(iter(factors.items()))
    for name, (tensor, dims) in factors.items():
        if not tensor.is_floating_point() or tensor.dtype != first.dtype:
            raise TypeError(
                f"expected one floating dtype, got {first_name} {first.dtype} and {name} "
                f"{tensor.dtype}: cast with .to(dtype)."
            )
        if tensor.dim() != dims or 0 in tensor.shape:
            raise ValueError(
                f"expected {name} with {dims} non-empty axes (one head), got {list(tensor.shape)}."
            )
        if tensor.device != first.device:
            raise ValueError(
                f"expected one device, got {first_name} on {first.device} and {name} on "
                f"{tensor.device}."
            )
