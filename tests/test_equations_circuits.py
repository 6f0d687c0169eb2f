"""The numbered equations of Part II, each in a test of its name; on columns, as in the book."""

import math

import pytest
import torch
from references_mixers import LAYOUTS
from samples import D_MODEL, HEADS, attention_weights, normal

from rove_lab import RotaryEmbedding, attention_pattern, rope_attention, rove_attention
from rove_lab.circuits import (
    copying_score,
    factored_ov,
    factored_qk,
    k_composition,
    offset_attribution,
    ov_circuit,
    ov_cosine,
    positional_scores,
    qk_circuit,
)

N = 5
GROUP = 2  # query heads on a KV head
HEAD_OF_EACH_GROUP = 1

each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=str)


def columns(layout, h=HEAD_OF_EACH_GROUP):
    """The weights of one head as the book writes them: W_Q x, W_K x, W_V x, W_O z."""
    W_Q, W_K, W_V, W_O = attention_weights(layout)
    return W_Q[h].T, W_K[h // GROUP].T, W_V[h // GROUP].T, W_O[h].T


@each_layout
def test_eq_two_circuits(layout):
    """Softmax of the scores by QK, then messages by OV, is what RoPE attention writes."""
    x, h = normal(N, D_MODEL), HEAD_OF_EACH_GROUP
    W_Q, W_K, W_V, W_O = columns(layout)
    OV = W_O @ W_V
    s = torch.full((N, N), -torch.inf, dtype=torch.float64)
    for i in range(N):
        for j in range(i + 1):
            QK = W_Q.T @ layout.matrix(j - i) @ W_K
            s[i, j] = x[i] @ QK @ x[j] / math.sqrt(layout.d_head)
    A = s.softmax(-1)
    y = torch.stack([sum(A[i, j] * OV @ x[j] for j in range(N)) for i in range(N)])
    rotary = layout.build(RotaryEmbedding)
    stored = attention_weights(layout)
    q, k, v = (x @ W for W in stored[:3])
    torch.testing.assert_close(attention_pattern(q, k, rotary)[h], A)
    torch.testing.assert_close(rope_attention(q, k, v, rotary)[h] @ stored[3][h], y)


@each_layout
def test_eq_circuit_families(layout):
    W_Q, W_K, W_V, W_O = columns(layout)
    rotary, h = layout.build(RotaryEmbedding), HEAD_OF_EACH_GROUP
    stored = attention_weights(layout)
    for delta in (-7, -1, 0, 2.5):
        QK = W_Q.T @ layout.matrix(delta) @ W_K
        OV = W_O @ layout.matrix(delta) @ W_V
        torch.testing.assert_close(qk_circuit(*stored[:2], rotary, [delta])[0, h], QK)
        torch.testing.assert_close(ov_circuit(*stored[2:], rotary, [delta])[0, h].T, OV)


@each_layout
def test_eq_copying(layout):
    """From all the eigenvalues of the matrix of the whole vocabulary."""
    d_vocab = 11
    W_E, W_U = normal(D_MODEL, d_vocab), normal(d_vocab, D_MODEL, seed=1)  # on columns
    _, _, W_V, W_O = columns(layout)
    found = torch.linalg.eigvals(W_U @ W_O @ W_V @ W_E)
    c = found.real.sum() / found.abs().sum()
    stored_V, stored_O = attention_weights(layout)[2:]
    rotary = layout.build(RotaryEmbedding)
    score = copying_score(W_E.T, stored_V, stored_O, W_U.T, rotary, [0])
    torch.testing.assert_close(score[0, HEAD_OF_EACH_GROUP], c)


@each_layout
def test_eq_k_composition(layout):
    W_Q, W_K, W_V, W_O = columns(layout)
    rotary, h = layout.build(RotaryEmbedding), HEAD_OF_EACH_GROUP
    stored = attention_weights(layout)
    ov = factored_ov(*stored[2:], rotary, [0, -1])
    found = k_composition(ov, factored_qk(*stored[:2], rotary, [-3]))
    for n, delta in enumerate((0, -1)):
        OV, QK = W_O @ layout.matrix(delta) @ W_V, W_Q.T @ layout.matrix(-3) @ W_K
        ratio = (QK @ OV).norm() / (QK.norm() * OV.norm())
        torch.testing.assert_close(found[n, 0, h, h], ratio)


@each_layout
def test_eq_attribution(layout):
    x, u, h = normal(N, D_MODEL), normal(D_MODEL, seed=1), HEAD_OF_EACH_GROUP
    _, _, W_V, W_O = columns(layout)
    A = torch.rand(HEADS, N, N, dtype=torch.float64).tril()
    stored_V, stored_O = attention_weights(layout)[2:]
    offsets = range(1 - N, 1)
    rotary = layout.build(RotaryEmbedding)
    added = offset_attribution(A, x @ stored_V, stored_O, u, rotary, offsets, rotate_values=False)
    for i in range(N):
        for n, delta in enumerate(offsets):
            keys = [j for j in range(N) if j - i == delta]
            c = sum(A[h, i, j] * u @ W_O @ W_V @ x[j] for j in keys)
            torch.testing.assert_close(added[h, i, n], torch.as_tensor(c, dtype=torch.float64))


@each_layout
def test_eq_curve(layout):
    """The mean query and the mean key give the mean over all pairs."""
    q, k = normal(1, 4, layout.d_head, seed=1), normal(1, 6, layout.d_head, seed=2)
    rotary = layout.build(RotaryEmbedding)
    for delta in (-9, -1, 0):
        R, root = layout.matrix(delta), math.sqrt(layout.d_head)
        pairs = torch.stack([a @ R @ b / root for a in q[0] for b in k[0]])
        s = q[0].mean(0) @ R @ k[0].mean(0) / root
        torch.testing.assert_close(s, pairs.mean())
        torch.testing.assert_close(positional_scores(q, k, rotary, [delta])[0, 0], s)


@each_layout
def test_eq_drift(layout):
    _, _, W_V, W_O = columns(layout)
    stored_V, stored_O = attention_weights(layout)[2:]
    rotary = layout.build(RotaryEmbedding)
    for delta in (-40, -1, 0):
        turned, still = W_O @ layout.matrix(delta) @ W_V, W_O @ W_V
        cosine = (turned * still).sum() / (turned.norm() * still.norm())
        found = ov_cosine(stored_V, stored_O, rotary, [delta])[0, HEAD_OF_EACH_GROUP]
        torch.testing.assert_close(found, cosine)


@each_layout
def test_eq_retrofit(layout):
    """What switching RoVE on changes; and by how much in a plane."""
    x, (W_Q, W_K, W_V, _) = normal(N, D_MODEL), attention_weights(layout)
    rotary, group = layout.build(RotaryEmbedding), HEADS // W_V.shape[0]
    q, k, v = (x @ W for W in (W_Q, W_K, W_V))
    A = attention_pattern(q, k, rotary)
    changed = rove_attention(q, k, v, rotary) - rope_attention(q, k, v, rotary)
    eye = torch.eye(layout.d_head, dtype=torch.float64)
    for h in range(HEADS):
        for i in range(N):
            terms = [A[h, i, j] * (layout.matrix(j - i) - eye) @ v[h // group, j] for j in range(N)]
            torch.testing.assert_close(changed[h, i], sum(terms))
    for delta in (-1, -7):
        moved = (layout.matrix(delta) - eye) @ v[0, 0]
        for omega, pair in zip(rotary.inv_freq, rotary.plane_channels, strict=True):
            length = 2 * torch.sin(delta * omega / 2).abs() * v[0, 0, pair].norm()
            torch.testing.assert_close(moved[pair].norm(), length)
