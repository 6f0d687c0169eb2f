"""Slow, obviously right float64 references for kernels, mixers and layouts.

Written from the mathematics of the book alone: plain loops over tokens, explicit 2 x 2 rotations
in Python floats, and nothing imported from rove_lab. Column-vector rotations, row-vector weights:
the stored kernel is psi_delta = W_V R_delta^T.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Which channels make a plane, and how fast each plane turns."""

    d_head: int
    base: float = 10000.0
    rotary_dim: int | None = None
    interleaved: bool = False
    trailing: bool = False
    keep: tuple[int, ...] | None = None  # planes that turn; None = all of them

    def build(self, embedding: Callable[..., Any]) -> Any:
        """The same family made by the constructor under test."""
        made = embedding(
            self.d_head,
            base=self.base,
            rotary_dim=self.rotary_dim,
            interleaved=self.interleaved,
            trailing=self.trailing,
        )
        return made if self.keep is None else made.planes(list(self.keep))

    @property
    def width(self) -> int:
        return self.d_head if self.rotary_dim is None else self.rotary_dim

    @property
    def first(self) -> int:
        return self.d_head - self.width if self.trailing else 0

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The two channels of each plane."""
        half = self.width // 2
        if self.interleaved:
            return [(self.first + 2 * m, self.first + 2 * m + 1) for m in range(half)]
        return [(self.first + m, self.first + m + half) for m in range(half)]

    @property
    def frequencies(self) -> list[float]:
        """omega_m = base^(-2m / rotary_dim), 0 for a plane that is not kept."""
        kept = range(self.width // 2) if self.keep is None else self.keep
        return [
            self.base ** (-2 * m / self.width) if m in kept else 0.0 for m in range(self.width // 2)
        ]

    @property
    def unrotated(self) -> list[int]:
        """The channels in no plane."""
        return [c for c in range(self.d_head) if not self.first <= c < self.first + self.width]

    def matrix(self, delta: float) -> Tensor:
        """R_delta, acting on columns: every plane turned counter-clockwise by delta * omega_m."""
        R = torch.zeros(self.d_head, self.d_head, dtype=torch.float64)
        for c in self.unrotated:
            R[c, c] = 1.0
        for (a, b), omega in zip(self.pairs, self.frequencies, strict=True):
            cos, sin = math.cos(delta * omega), math.sin(delta * omega)
            R[a, a], R[a, b] = cos, -sin
            R[b, a], R[b, b] = sin, cos
        return R

    def plane(self, m: int) -> Tensor:
        """P_m: the projection on plane m."""
        P = torch.zeros(self.d_head, self.d_head, dtype=torch.float64)
        for c in self.pairs[m]:
            P[c, c] = 1.0
        return P

    def quarter_turn(self, m: int) -> Tensor:
        """J_m: a quarter turn counter-clockwise in plane m, zero elsewhere."""
        J = torch.zeros(self.d_head, self.d_head, dtype=torch.float64)
        a, b = self.pairs[m]
        J[b, a], J[a, b] = 1.0, -1.0
        return J

    def rest(self) -> Tensor:
        """P_0: the projection on the channels in no plane."""
        P = torch.zeros(self.d_head, self.d_head, dtype=torch.float64)
        for c in self.unrotated:
            P[c, c] = 1.0
        return P


LAYOUTS = [
    Layout(6),
    Layout(6, interleaved=True),
    Layout(7, rotary_dim=4, base=100.0),
    Layout(7, rotary_dim=4, base=100.0, interleaved=True),
    Layout(7, rotary_dim=4, trailing=True),
    Layout(7, rotary_dim=4, trailing=True, interleaved=True),
    Layout(6, keep=(0, 2)),
]


def kernel(W_V: Tensor, layout: Layout, delta: float) -> Tensor:
    """psi_delta = W_V R_delta^T for one W_V [..., d_model, d_head]."""
    return W_V.double() @ layout.matrix(delta).T


def spectrum(W_V: Tensor, layout: Layout) -> Tensor:
    """The share of ||W_V||^2 of one head in each plane, then in the unrotated channels."""
    column = [float((W_V.double()[:, c] ** 2).sum()) for c in range(layout.d_head)]
    shares = [column[a] + column[b] for a, b in layout.pairs]
    shares.append(sum(column[c] for c in layout.unrotated))
    total = sum(column)
    return torch.tensor([share / total for share in shares], dtype=torch.float64)


def softmax_pattern(
    q: Tensor,
    k: Tensor,
    layout: Layout,
    query_positions: Sequence[float],
    key_positions: Sequence[float],
    causal: bool,
) -> Tensor:
    """A_ij = softmax_j q_i^T R_{j-i} k_j / sqrt(d) of one head; causal by index, bottom-right."""
    n_q, n_k = len(query_positions), len(key_positions)
    logits = torch.full((n_q, n_k), -math.inf, dtype=torch.float64)
    for i in range(n_q):
        for j in range(n_k):
            if causal and j > i + n_k - n_q:
                continue
            R = layout.matrix(key_positions[j] - query_positions[i])
            logits[i, j] = q[i].double() @ R @ k[j].double() / math.sqrt(layout.d_head)
    return logits.softmax(-1)


def convolution(pattern: Tensor, x: Tensor, kernels: Tensor) -> Tensor:
    """y_i = sum_j A_ij x_j psi_{j-i} of one head; kernels[delta + q - 1] is psi_delta."""
    n_q, n_k = pattern.shape
    y = torch.zeros(n_q, kernels.shape[-1], dtype=torch.float64)
    for i in range(n_q):
        for j in range(n_k):
            y[i] += pattern[i, j].double() * (x[j].double() @ kernels[j - i + n_q - 1].double())
    return y


def dense(blocks: Sequence[Sequence[Tensor]]) -> Tensor:
    """The matrix of [d_out, d_in] blocks: entry [i*d_out + c, j*d_in + e] = blocks[i][j][c, e]."""
    n_q, n_k = len(blocks), len(blocks[0])
    d_out, d_in = blocks[0][0].shape
    M = torch.zeros(n_q * d_out, n_k * d_in, dtype=torch.float64)
    for i in range(n_q):
        for j in range(n_k):
            M[i * d_out : (i + 1) * d_out, j * d_in : (j + 1) * d_in] = blocks[i][j].double()
    return M


def dense_from_kernels(pattern: Tensor, kernels: Tensor) -> Tensor:
    """Block (i, j) = A_ij psi_{j-i}^T with kernels[delta + q - 1] = psi_delta, of one head."""
    n_q, n_k = pattern.shape
    return dense(
        [
            [pattern[i, j].double() * kernels[j - i + n_q - 1].double().T for j in range(n_k)]
            for i in range(n_q)
        ]
    )


def dense_from_positions(
    pattern: Tensor,
    W_V: Tensor,
    layout: Layout,
    query_positions: Sequence[float],
    key_positions: Sequence[float],
) -> Tensor:
    """Block (i, j) = A_ij psi_{t_j - s_i}^T for keys at t_j and queries at s_i, of one head."""
    return dense(
        [
            [
                pattern[i, j].double() * kernel(W_V, layout, t - s).T
                for j, t in enumerate(key_positions)
            ]
            for i, s in enumerate(query_positions)
        ]
    )


def kronecker_rank(blocks: Tensor, tol: float = 1e-10) -> int:
    """The fewest A (x) B that sum to the matrix of blocks [q, k, d_out, d_in].

    It is the rank of the matrix with one row a block (Van Loan and Pitsianis, 1993), counted above
    tol times the largest singular value.
    """
    rows = blocks.double().reshape(blocks.shape[0] * blocks.shape[1], -1)
    values = torch.linalg.svdvals(rows)
    return int((values > tol * values[0]).sum()) if float(values[0]) > 0 else 0
