"""Slow, obviously right float64 references for circuits and the scores read from them.

Dense matrices of d_model x d_model or d_vocab x d_vocab and plain loops; the rotations are those of
`references_mixers.Layout`, and nothing is imported from rove_lab. Weights act on row vectors.
"""

import itertools
import math

import torch
from references_mixers import Layout
from torch import Tensor


def kv(W: Tensor, h: int, n_heads: int) -> Tensor:
    """The KV head that query head h reads, float64."""
    return W[h // (n_heads // len(W))].double()


def qk(W_Q: Tensor, W_K: Tensor, layout: Layout, delta: float) -> Tensor:
    """W_Q R_delta W_K^T, [heads, d_model, d_model]."""
    n = len(W_Q)
    R = layout.matrix(delta)
    return torch.stack([W_Q[h].double() @ R @ kv(W_K, h, n).T for h in range(n)])


def ov(W_V: Tensor, W_O: Tensor, layout: Layout, delta: float) -> Tensor:
    """W_V R_delta^T W_O, [heads, d_model, d_model]."""
    n = len(W_O)
    R = layout.matrix(delta)
    return torch.stack([kv(W_V, h, n) @ R.T @ W_O[h].double() for h in range(n)])


def copying(full: Tensor) -> float:
    """sum Re lambda / sum |lambda| over all eigenvalues of one d_vocab x d_vocab matrix."""
    values = torch.linalg.eigvals(full)
    return float(values.real.sum() / values.abs().sum())


def composition(A: Tensor, B: Tensor) -> float:
    """||A B|| / (||A|| ||B||), Frobenius norms entry by entry."""

    def norm(M: Tensor) -> float:
        return math.sqrt(math.fsum(x * x for x in M.flatten().tolist()))

    return norm(A @ B) / (norm(A) * norm(B))


def drift(W_V: Tensor, W_O: Tensor, layout: Layout, delta: float) -> Tensor:
    """<part of OV_delta, OV_0> / ||OV_0||^2 of one head: each plane's part, then the unrotated."""
    whole = W_V @ W_O
    parts = []
    for m, omega in enumerate(layout.frequencies):
        cos, sin = math.cos(delta * omega), math.sin(delta * omega)
        parts.append(cos * layout.plane(m) + sin * layout.quarter_turn(m))
    parts.append(layout.rest())
    shares = [((W_V @ part.T @ W_O) * whole).sum() / (whole * whole).sum() for part in parts]
    return torch.stack(shares)


def overlap(M: Tensor, M_0: Tensor, k: int) -> tuple[float, float]:
    """tr(P P_0) / k for the projectors on the k leading left, then right, singular vectors."""

    def projector(gram: Tensor) -> Tensor:
        vectors = torch.linalg.eigh(gram).eigenvectors[:, -k:]
        return vectors @ vectors.T

    left = (projector(M @ M.T) @ projector(M_0 @ M_0.T)).trace() / k
    right = (projector(M.T @ M) @ projector(M_0.T @ M_0)).trace() / k
    return float(left), float(right)


def mean_score(q: Tensor, k: Tensor, layout: Layout, delta: float, share: list, scale: float):
    """The mean of scale * q_a . R_delta k_b over independent tokens a and b of one head."""
    R = layout.matrix(delta)
    total = 0.0
    for a, b in itertools.product(range(len(q)), range(len(k))):
        total += share[a] * share[b] * scale * float(q[a] @ R @ k[b])
    return total


def qk_energies(W_Q: Tensor, W_K: Tensor, layout: Layout) -> Tensor:
    """Per plane the mean over a whole turn of ||W_Q P_m R W_K^T||^2, then ||W_Q P_0 W_K^T||^2."""
    energies = []
    angles = [2 * math.pi * n / 8 for n in range(8)]  # exact for a quadratic in cosine and sine
    for m in range(layout.width // 2):
        turns = [
            math.cos(a) * layout.plane(m) + math.sin(a) * layout.quarter_turn(m) for a in angles
        ]
        energies.append(sum((W_Q @ turn @ W_K.T).square().sum() for turn in turns) / 8)
    energies.append((W_Q @ layout.rest() @ W_K.T).square().sum())
    return torch.stack(energies)


def previous_token(pattern: list) -> float:
    """The mean of A[i][i - 1] for a square pattern."""
    return math.fsum(pattern[i][i - 1] for i in range(1, len(pattern))) / (len(pattern) - 1)


def induction(pattern: list, tokens: list, first_query: int = 0) -> float:
    """Mean attention from each repeated token to the one after its previous occurrence."""
    seen = []
    for i in range(first_query, len(tokens)):
        for j in reversed(range(i)):
            if tokens[j] == tokens[i]:
                seen.append(pattern[i - first_query][j + 1])
                break
    return math.fsum(seen) / len(seen)


def messages(pattern, values, layout, at_query, at_key) -> Tensor:
    """A_ij v_j R_{t_j - t_i}^T, [heads, q, k, d_head]: every message on its own."""
    heads, n_q, n_k = pattern.shape
    sent = torch.zeros(heads, n_q, n_k, values.shape[-1], dtype=torch.float64)
    for h, i, j in itertools.product(range(heads), range(n_q), range(n_k)):
        R = layout.matrix(at_key[j] - at_query[i])
        sent[h, i, j] = pattern[h, i, j].double() * (kv(values, h, heads)[j] @ R.T)
    return sent
