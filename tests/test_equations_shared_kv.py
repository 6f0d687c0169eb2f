"""The numbered equations of chapter 15, each in a test of its name; on columns, as in the book."""

import itertools
import math

import pytest
import torch
from references_mixers import LAYOUTS, softmax_pattern
from samples import normal

from rove_lab import RotaryEmbedding
from rove_lab.frames import shared_kv_attention

N = 5

each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=str)


def inputs(layout):
    """One query and one latent for each token, and the causal pattern, all float64."""
    q, c = normal(N, layout.d_head, seed=1), normal(N, layout.d_head, seed=2)
    return q, c, softmax_pattern(q, c, layout, range(N), range(N), causal=True)


def computed(layout, q, c, **how):
    return shared_kv_attention(q[None], c[None], layout.build(RotaryEmbedding), **how)[0]


@each_layout
def test_eq_leak(layout):
    q, c, A = inputs(layout)
    z = [sum(A[i, j] * layout.matrix(j) @ c[j] for j in range(N)) for i in range(N)]
    torch.testing.assert_close(computed(layout, q, c, undo=False), torch.stack(z))


@each_layout
def test_eq_shared(layout):
    q, c, A = inputs(layout)
    z = computed(layout, q, c)
    for i in range(N):
        leaked = sum(A[i, j] * layout.matrix(j) @ c[j] for j in range(N))
        torch.testing.assert_close(z[i], torch.linalg.inv(layout.matrix(i)) @ leaked)
        by_offset = sum(A[i, j] * layout.matrix(j - i) @ c[j] for j in range(N))
        torch.testing.assert_close(z[i], by_offset)


@each_layout
def test_eq_sink(layout):
    q, c, _ = inputs(layout)
    b = 0.7
    z = computed(layout, q, c, sinks=torch.tensor([b], dtype=torch.float64))
    for i in range(N):
        R = [layout.matrix(j - i) for j in range(i + 1)]
        weights = [math.exp(q[i] @ R[j] @ c[j] / layout.d_head**0.5) for j in range(i + 1)]
        sent = sum(weights[j] * R[j] @ c[j] for j in range(i + 1))
        torch.testing.assert_close(z[i], sent / (math.exp(b) + sum(weights)))


@each_layout
def test_prop_only_undo(layout):
    """U_{i+s} R_{j+s} = U_i R_j leaves as many numbers free as U_0 has, and the undo solves it."""
    d, n = layout.d_head, 4
    R = [layout.matrix(t) for t in range(n)]
    eye = torch.eye(d, dtype=torch.float64)
    rows = []
    for i, j, s in itertools.product(range(n), range(n), range(1, n)):
        if max(i, j) + s < n:
            row = torch.zeros(n, d * d, d * d, dtype=torch.float64)  # vec(U R) = (I x R^T) vec(U)
            row[i + s] = torch.kron(eye, R[j + s].T.contiguous())
            row[i] -= torch.kron(eye, R[j].T.contiguous())
            rows.append(row.transpose(0, 1).flatten(1))
    system = torch.cat(rows)  # [equations, all numbers of U_0 .. U_{n-1}]
    assert n * d * d - torch.linalg.matrix_rank(system) == d * d
    U_0 = normal(d, d, seed=3)
    undo = torch.stack([U_0 @ torch.linalg.inv(R_i) for R_i in R])
    assert (system @ undo.flatten()).abs().max() < 1e-12
