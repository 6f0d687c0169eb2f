r"""Attention as one matrix over tokens and channels: Kronecker, block-Toeplitz, or gated.

A mixer acts on a sequence flattened token by token (row i * d_out + c). Its block (i, j) is what
token j sends to token i: :math:`A_{ij}\psi_{j-i}^\top` in the row-vector convention of the weights.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from rove_lab.convolution import attentive_convolution
from rove_lab.head_weights import check_projection
from rove_lab.kernels import channel_frequencies, quarter_turn
from rove_lab.masking import Positions, positions_of
from rove_lab.matrix_mixer import Mixer, check_factors, kronecker_rank, pair
from rove_lab.rotary import RotaryEmbedding
from rove_lab.rotation import autocasting

__all__ = [
    "BlockToeplitzMixer",
    "GatedBlockToeplitzMixer",
    "KroneckerMixer",
    "RotaryMixer",
    "kronecker_rank",
    "rope_mixer",
    "rove_mixer",
]


@final
class KroneckerMixer(Mixer):
    r"""Attention that sends one message whatever the offset, :math:`A\otimes W^\top`.

    Plain and RoPE attention are of this kind. Hwang et al. (2024), arXiv:2407.09941.

    Args:
        pattern: One head's :math:`A`, ``[query_pos, key_pos]``.
        channel_map: :math:`W`, ``[d_in, d_out]``, acting on row vectors.

    Raises:
        TypeError: If dtypes differ.
        ValueError: If shapes or devices do not fit.

    Example:
        >>> A, W = torch.rand(3, 3), torch.rand(2, 2)
        >>> torch.equal(KroneckerMixer(A, W).to_dense(), torch.kron(A, W.T.contiguous()))
        True
    """

    def __init__(self, pattern: Tensor, channel_map: Tensor) -> None:
        check_factors(pattern=(pattern, 2), channel_map=(channel_map, 2))
        super().__init__(pair(pattern), pair(channel_map), pattern)
        self.pattern, self.channel_map = pattern, channel_map

    def double(self) -> KroneckerMixer:
        """The same mixer with its factors in float64."""
        return KroneckerMixer(self.pattern.double(), self.channel_map.double())

    def _columns(self) -> Tensor:
        return self.channel_map.mT[:, None]

    def _blocks(self, columns: Tensor, i: int, keys: slice, out: Tensor | None = None) -> Tensor:
        return torch.mul(self.pattern[i, keys][:, None], columns, out=out)

    def _product(self, x: Tensor) -> Tensor:
        return self.pattern @ (x @ self.channel_map)


@final
class GatedBlockToeplitzMixer(Mixer):
    r"""An attentive convolution, :math:`\sum_\delta (A\odot S_\delta)\otimes\psi_\delta^\top`.

    :math:`S_\delta` is the shift by :math:`\delta`: the kernels repeat along diagonals, the pattern
    gates them. The product costs O(n² d_in d_out). García-Castellanos et al. (2026),
    arXiv:2606.11275.

    Args:
        pattern: One head's :math:`A`, ``[query_pos, key_pos]``.
        kernels: ``[query_pos + key_pos - 1, d_in, d_out]``; ``kernels[delta + query_pos - 1]`` is
            :math:`\psi_\delta`, by index.

    Raises:
        TypeError: If dtypes differ.
        ValueError: If shapes or devices do not fit.

    Example:
        >>> kernels = torch.tensor([1.0, 5.0, 3.0]).reshape(3, 1, 1)
        >>> GatedBlockToeplitzMixer(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), kernels).to_dense()
        tensor([[5.0000, 0.0000],
                [0.5000, 2.5000]])
    """

    def __init__(self, pattern: Tensor, kernels: Tensor) -> None:
        check_factors(pattern=(pattern, 2), kernels=(kernels, 3))
        if len(kernels) != sum(pattern.shape) - 1:
            raise ValueError(
                f"expected query_pos + key_pos - 1 = {sum(pattern.shape) - 1} kernels, one for "
                f"each offset, got {len(kernels)}: offsets torch.arange(-(query_pos - 1), key_pos)."
            )
        super().__init__(pair(pattern), pair(kernels), pattern)
        self.pattern, self.kernels = pattern, kernels

    def double(self) -> GatedBlockToeplitzMixer:
        """The same mixer with its factors in float64."""
        return GatedBlockToeplitzMixer(self.pattern.double(), self.kernels.double())

    def _columns(self) -> Tensor:
        return self.kernels.permute(2, 0, 1)

    def _blocks(self, columns: Tensor, i: int, keys: slice, out: Tensor | None = None) -> Tensor:
        columns = _taps(columns, self.q_len, i, keys)
        return torch.mul(self.pattern[i, keys][:, None], columns, out=out)

    def _product(self, x: Tensor) -> Tensor:
        return attentive_convolution(self.pattern[None], x, self.kernels[:, None])[..., 0, :, :]


@final
class BlockToeplitzMixer(Mixer):
    r"""An ordinary convolution over tokens, :math:`\sum_\delta S_\delta\otimes\psi_\delta^\top`.

    What RoVE becomes when the pattern depends on the offset alone (its weights folded into the
    kernels). The product goes through the FFT, O(n log n) in the tokens.

    Args:
        kernels: ``[2n - 1, d_in, d_out]``; ``kernels[delta + n - 1]`` is :math:`\psi_\delta`.

    Raises:
        TypeError: If the kernels are not floating point.
        ValueError: If their number is even.

    Example:
        >>> BlockToeplitzMixer(torch.tensor([1.0, 2.0, 3.0]).reshape(3, 1, 1)).to_dense()
        tensor([[2., 3.],
                [1., 2.]])
    """

    def __init__(self, kernels: Tensor) -> None:
        check_factors(kernels=(kernels, 3))
        if len(kernels) % 2 == 0:
            raise ValueError(
                f"expected an odd number of kernels, 2n - 1 for n tokens, got {len(kernels)}."
            )
        n = (len(kernels) + 1) // 2
        super().__init__((n, n), pair(kernels), kernels)
        self.kernels = kernels

    def double(self) -> BlockToeplitzMixer:
        """The same mixer with its kernels in float64."""
        return BlockToeplitzMixer(self.kernels.double())

    def _columns(self) -> Tensor:
        return self.kernels.permute(2, 0, 1)

    def _blocks(self, columns: Tensor, i: int, keys: slice, out: Tensor | None = None) -> Tensor:
        columns = _taps(columns, self.q_len, i, keys)
        return columns.clone() if out is None else out.copy_(columns)

    def _product(self, x: Tensor) -> Tensor:
        n = self.q_len
        if x.numel() == 0:  # an empty batch, which an FFT may refuse
            return x.new_zeros(*x.shape[:-1], self.d_out)
        size = 1 << (2 * n - 2).bit_length()  # a power of two that holds every offset
        dtype = torch.promote_types(self.dtype, torch.float32)
        # y_i = sum_j psi_{j-i} x_j is a convolution with the kernels in reverse.
        taps = torch.fft.rfft(self.kernels.flip(0).to(dtype), size, dim=0)
        waves = torch.fft.rfft(x.to(dtype), size, dim=-2)
        y: Tensor = torch.fft.irfft(torch.einsum("...fi,fio->...fo", waves, taps), size, dim=-2)
        return y[..., n - 1 : 2 * n - 1, :].to(self.dtype)


@final
class RotaryMixer(Mixer):
    r"""RoVE attention as a matrix, :math:`\sum_\delta (A\odot S_\delta)\otimes(R_\delta W_V)`.

    The product goes through the frames, :math:`R_i^{-1}\sum_j A_{ij} R_j (x_j W_V)`, in O(n² d).
    Made by :func:`rove_mixer`.

    Args:
        pattern: One head's :math:`A`, ``[query_pos, key_pos]``.
        W_V: ``[d_in, d_head]``, acting on row vectors.
        rotary: The rotations.
        positions: Of the queries, ``[query_pos]`` in tokens.
        key_positions: Of the keys, ``[key_pos]`` in tokens.

    Raises:
        TypeError: If dtypes differ.
        ValueError: If shapes, lengths or devices do not fit.

    Example:
        >>> mixer = rove_mixer(torch.rand(3, 3), torch.rand(4, 2), RotaryEmbedding(2))
        >>> x = torch.rand(3, 4)
        >>> torch.allclose((mixer @ x).flatten(), mixer.to_dense() @ x.flatten(), atol=1e-6)
        True
    """

    def __init__(
        self,
        pattern: Tensor,
        W_V: Tensor,
        rotary: RotaryEmbedding,
        positions: Positions = None,
        key_positions: Positions = None,
    ) -> None:
        check_factors(pattern=(pattern, 2), W_V=(W_V, 2))
        check_projection("W_V", W_V[None], rotary)
        super().__init__(pair(pattern), pair(W_V), pattern)
        self.pattern, self.W_V, self.rotary = pattern, W_V, rotary
        here, there = positions_of(self.q_len, self.k_len, positions, key_positions)
        if here.dim() == 2 or there.dim() == 2:
            raise ValueError(
                f"expected positions [pos] of one sequence, got {list(here.shape)} and "
                f"{list(there.shape)}: index the batch away."
            )
        if here.is_meta or there.is_meta:
            raise ValueError("expected positions with values, got them on the meta device.")
        # float64 on the CPU, as the rotation itself keeps its angles
        self.positions = here.cpu().to(torch.float64, copy=True)
        self.key_positions = there.cpu().to(torch.float64, copy=True)
        frequencies, first = channel_frequencies(rotary)[:, None], self.positions[:1]
        self._phases, self._key_phases = (  # from the first query on, to keep the angles small
            torch.exp(1j * (frequencies * (at - first)))
            for at in (self.positions, self.key_positions)
        )

    def double(self) -> RotaryMixer:
        """The same mixer with its factors in float64."""
        pattern, W_V = self.pattern.double(), self.W_V.double()
        return RotaryMixer(pattern, W_V, self.rotary, self.positions, self.key_positions)

    def _columns(self) -> Tensor:
        W = self.W_V.to(torch.promote_types(self.dtype, torch.float32))
        return torch.stack((W.mT, quarter_turn(W, self.rotary).mT), 1)  # [d_head, 2, d_in]

    def _blocks(self, columns: Tensor, i: int, keys: slice, out: Tensor | None = None) -> Tensor:
        if autocasting(columns):  # it would round the factors
            with torch.autocast(self.device.type, enabled=False):
                return self._blocks(columns, i, keys, out)
        # psi^T = cos(delta w) W_V^T + sin(delta w) (J W_V)^T (w = 0: nothing turns): for each row
        # one product [keys, 2] @ [2, d_in], which writes each number once
        phases = self._key_phases[:, keys] * self._phases[:, i : i + 1].conj()
        waves = torch.view_as_real(phases).to(columns.dtype).to(self.device)  # cos and sin of j - i
        gated = waves * self.pattern[i, keys, None].to(columns.dtype)
        if out is not None and out.dtype == columns.dtype:
            return torch.bmm(gated, columns, out=out)
        blocks = torch.bmm(gated, columns).to(self.dtype)
        return blocks if out is None else out.copy_(blocks)

    def _product(self, x: Tensor) -> Tensor:
        here = self.rotary(self.positions, device=self.device)
        there = self.rotary(self.key_positions, device=self.device)
        return here.undo(self.pattern @ there.apply(x @ self.W_V))


def rope_mixer(pattern: Tensor, W_V: Tensor) -> KroneckerMixer:
    r"""One head of RoPE attention as a matrix, :math:`A\otimes W_V^\top`.

    Args:
        pattern: ``[query_pos, key_pos]``, from :func:`rove_lab.attention_pattern`.
        W_V: ``[d_model, d_head]``, acting on row vectors.

    Returns:
        A :class:`KroneckerMixer`.

    Raises:
        TypeError: If dtypes differ.
        ValueError: If shapes or devices do not fit.

    Example:
        >>> kronecker_rank(rope_mixer(torch.rand(3, 3), torch.rand(4, 2)))
        1
    """
    return KroneckerMixer(pattern, W_V)


def rove_mixer(
    pattern: Tensor,
    W_V: Tensor,
    rotary: RotaryEmbedding,
    *,
    positions: Positions = None,
    key_positions: Positions = None,
) -> RotaryMixer:
    r"""One head of RoVE attention as a matrix, blocks :math:`A_{ij} R_{j-i} W_V^\top`.

    García-Castellanos et al. (2026), arXiv:2606.11275.

    Args:
        pattern: ``[query_pos, key_pos]``, from :func:`rove_lab.attention_pattern`.
        W_V: ``[d_model, d_head]``, acting on row vectors.
        rotary: The rotations.
        positions: Of the queries in tokens, ``[pos]``; defaults as in :func:`rove_attention`.
        key_positions: Of the keys.

    Returns:
        A :class:`RotaryMixer`.

    Raises:
        TypeError: If dtypes differ.
        ValueError: If shapes, lengths or devices do not fit.

    Example:
        >>> mixer = rove_mixer(torch.rand(9, 9), torch.rand(4, 2), RotaryEmbedding(2))
        >>> kronecker_rank(mixer)
        2
    """
    return RotaryMixer(pattern, W_V, rotary, positions, key_positions)


def _taps(columns: Tensor, q_len: int, i: int, keys: slice) -> Tensor:
    first = q_len - 1 - i  # where offset 0 - i stands
    return columns[:, first + keys.start : first + keys.stop]
