"""Every numbered equation of the book holds in the package; each has a test of its name.

Here are those of Part I; test_equations_circuits.py has those of Part II.
"""

import json
import re
from pathlib import Path

import pytest
import torch
from references_mixers import LAYOUTS, dense_from_positions, kernel, softmax_pattern, spectrum
from samples import normal

from rove_lab import (
    BlockToeplitzMixer,
    KroneckerMixer,
    RotaryEmbedding,
    attention_pattern,
    attentive_convolution,
    kernel_spectrum,
    offset_kernels,
    rope_attention,
    rope_mixer,
    rove_attention,
    rove_mixer,
)
from rove_lab.filters import Filter
from rove_lab.kernels import quarter_turn

BOOK = Path(__file__).parents[1] / "book"
N, D_MODEL = 5, 4

each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=str)


def head(layout):
    """Inputs x, their queries, keys and values of one head, and W_V, all float64."""
    x = normal(N, D_MODEL)
    W_Q, W_K, W_V = (normal(1, D_MODEL, layout.d_head, seed=s) for s in (1, 2, 3))
    return x, x @ W_Q, x @ W_K, x @ W_V, W_V


def pattern_of(layout, q, k):
    return softmax_pattern(q[0], k[0], layout, range(N), range(N), causal=True)


def labels():
    """The labels of the book's equations and propositions."""
    found = set()
    for page in [*BOOK.glob("*.md"), *BOOK.glob("*.ipynb")]:
        text = page.read_text(encoding="utf-8")
        if page.suffix == ".ipynb":
            cells = json.loads(text)["cells"]
            text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
        found.update(re.findall(r":label: ((?:eq|prop|thm)-[\w-]+)", text))
    return found


def test_every_labelled_equation_has_a_test():
    files = Path(__file__).parent.glob("test_equations*.py")
    tests = {
        name for file in files for name in re.findall(r"^def test_(\w+)", file.read_text(), re.M)
    }
    tested = {name.replace("_", "-") for name in tests}
    assert labels(), "no labelled equation found in the book: has its markup changed?"
    assert labels() <= tested


@each_layout
def test_eq_rope(layout):
    _, q, k, v, _ = head(layout)
    y = pattern_of(layout, q, k) @ v[0]  # sum_j A_ij W_V x_j
    torch.testing.assert_close(rope_attention(q, k, v, layout.build(RotaryEmbedding))[0], y)


@each_layout
def test_eq_rove(layout):
    _, q, k, v, _ = head(layout)
    R = [layout.matrix(t) for t in range(N)]
    A = pattern_of(layout, q, k)
    y = [torch.linalg.inv(R[i]) @ sum(A[i, j] * R[j] @ v[0, j] for j in range(N)) for i in range(N)]
    rotary = layout.build(RotaryEmbedding)
    torch.testing.assert_close(rove_attention(q, k, v, rotary)[0], torch.stack(y))


@each_layout
def test_eq_intro(layout):
    _, q, k, v, _ = head(layout)
    A = pattern_of(layout, q, k)
    y = [sum(A[i, j] * layout.matrix(j - i) @ v[0, j] for j in range(N)) for i in range(N)]
    rotary = layout.build(RotaryEmbedding)
    torch.testing.assert_close(rove_attention(q, k, v, rotary)[0], torch.stack(y))


@each_layout
def test_eq_compose(layout):
    R = layout.build(RotaryEmbedding).matrix
    for i in range(N):
        for j in range(N):
            torch.testing.assert_close(torch.linalg.inv(R(i)) @ R(j), R(j - i))


@each_layout
def test_eq_kernel(layout):
    x, q, k, v, W_V = head(layout)
    rotary = layout.build(RotaryEmbedding)
    psi = torch.stack([kernel(W_V[0], layout, delta) for delta in range(1 - N, N)])
    A = attention_pattern(q, k, rotary)
    y = attentive_convolution(A, x, psi[:, None])
    torch.testing.assert_close(rove_attention(q, k, v, rotary), y)


@each_layout
def test_eq_psi(layout):
    W_V = normal(2, D_MODEL, layout.d_head)
    psi = offset_kernels(W_V, layout.build(RotaryEmbedding), torch.arange(-3, 4))
    for o, delta in enumerate(range(-3, 4)):
        column_form = torch.stack([layout.matrix(delta) @ W.T for W in W_V])  # R_delta W_V
        torch.testing.assert_close(psi[o].mT, column_form)


@each_layout
def test_eq_planes(layout):
    W_V = normal(1, D_MODEL, layout.d_head)
    rotary = layout.build(RotaryEmbedding)
    J_W_V = quarter_turn(W_V, rotary)
    for delta in (-7, 0, 2.5):
        psi = torch.zeros_like(W_V)
        psi[..., layout.unrotated] = W_V[..., layout.unrotated]  # P_0
        for (a, b), omega in zip(layout.pairs, layout.frequencies, strict=True):
            P = torch.zeros(layout.d_head, dtype=torch.float64)
            P[[a, b]] = 1.0
            angle = torch.tensor(delta * omega, dtype=torch.float64)
            psi = psi + angle.cos() * P * W_V + angle.sin() * P * J_W_V
        torch.testing.assert_close(offset_kernels(W_V, rotary, [delta])[0], psi)


@each_layout
def test_eq_forget(layout):
    W_V = normal(1, D_MODEL, layout.d_head)
    rotary = layout.build(RotaryEmbedding)
    shares = kernel_spectrum(W_V, rotary)[0]
    torch.testing.assert_close(shares, spectrum(W_V[0], layout))
    for delta in (-100, -1, 0, 3):
        psi = kernel(W_V[0], layout, delta)
        similarity = (psi * W_V[0]).sum() / W_V.square().sum()
        waves = torch.cos(delta * rotary.inv_freq)
        torch.testing.assert_close(shares[-1] + (shares[:-1] * waves).sum(), similarity)


@each_layout
def test_prop_lenses(layout):
    x, q, k, v, W_V = head(layout)
    rotary = layout.build(RotaryEmbedding)
    A = attention_pattern(q, k, rotary)
    frames = rove_attention(q, k, v, rotary)[0]
    psi = offset_kernels(W_V, rotary, torch.arange(1 - N, N))
    torch.testing.assert_close(attentive_convolution(A, x, psi)[0], frames)
    M = dense_from_positions(A[0], W_V[0], layout, range(N), range(N))
    torch.testing.assert_close((M @ x.flatten()).unflatten(0, frames.shape), frames)
    torch.testing.assert_close(rove_mixer(A[0], W_V[0], rotary).to_dense(), M)


def plane_projections(layout):
    """P_0, and for each plane its projection P_m and quarter turn J_m, on columns."""
    zero = torch.zeros(layout.d_head, layout.d_head, dtype=torch.float64)
    P_0 = zero.clone()
    for c in layout.unrotated:
        P_0[c, c] = 1.0
    planes = []
    for a, b in layout.pairs:
        P, J = zero.clone(), zero.clone()
        P[a, a] = P[b, b] = 1.0
        J[b, a], J[a, b] = 1.0, -1.0
        planes.append((P, J))
    return P_0, planes


@each_layout
def test_eq_difference(layout):
    R = layout.build(RotaryEmbedding).matrix
    torch.testing.assert_close(R(3) @ R(8), R(11))
    torch.testing.assert_close(torch.linalg.inv(R(8)) @ R(3), R(-5))


def test_eq_plane():
    R = RotaryEmbedding(2).matrix(0.3)
    c, s = torch.tensor(0.3).double().cos(), torch.tensor(0.3).double().sin()
    torch.testing.assert_close(R, torch.stack((torch.stack((c, -s)), torch.stack((s, c)))))


@pytest.mark.parametrize(("d", "base"), [(8, 100.0), (64, 10_000.0), (2, 3.0)])
def test_eq_frequencies(d, base):
    omega = torch.tensor([base ** (-2 * m / d) for m in range(d // 2)], dtype=torch.float64)
    torch.testing.assert_close(RotaryEmbedding(d, base=base).inv_freq, omega)


@each_layout
def test_eq_score(layout):
    q, k = normal(layout.d_head, seed=1), normal(layout.d_head, seed=2)
    rotary = layout.build(RotaryEmbedding)
    for i, j in ((0, 0), (7, 3), (-2, 40)):
        score = rotary([i]).apply(q[None])[0] @ rotary([j]).apply(k[None])[0]
        torch.testing.assert_close(score, q @ layout.matrix(j - i) @ k)


@each_layout
def test_eq_waves(layout):
    q, k = normal(layout.d_head, seed=1), normal(layout.d_head, seed=2)
    R = layout.build(RotaryEmbedding).matrix
    for delta in (-9, -1, 0, 4):
        waves = (q[layout.unrotated] * k[layout.unrotated]).sum()
        for (a, b), omega in zip(layout.pairs, layout.frequencies, strict=True):
            phase = torch.atan2(k[b], k[a]) - torch.atan2(q[b], q[a])
            length = q[[a, b]].norm() * k[[a, b]].norm()
            waves = waves + length * torch.cos(phase + delta * omega)
        torch.testing.assert_close(q @ R(delta) @ k, waves)


@each_layout
def test_eq_kronecker(layout):
    _, q, k, _, W_V = head(layout)
    A = pattern_of(layout, q, k)
    M = torch.kron(A, W_V[0].T.contiguous())
    torch.testing.assert_close(rope_mixer(A, W_V[0]).to_dense(), M)
    torch.testing.assert_close(KroneckerMixer(A, W_V[0]).block(4, 2), A[4, 2] * W_V[0].T)


@each_layout
def test_eq_toeplitz(layout):
    _, q, k, _, W_V = head(layout)
    A = pattern_of(layout, q, k)
    M = 0
    for delta in range(1 - N, N):
        S = torch.diag(torch.ones(N - abs(delta), dtype=torch.float64), delta)
        M = M + torch.kron(A * S, (layout.matrix(delta) @ W_V[0].T).contiguous())
    torch.testing.assert_close(rove_mixer(A, W_V[0], layout.build(RotaryEmbedding)).to_dense(), M)


@each_layout
def test_eq_expansion(layout):
    _, q, k, _, W_V = head(layout)
    A, W = pattern_of(layout, q, k), W_V[0].T  # on columns
    offset = torch.arange(N) - torch.arange(N)[:, None]
    P_0, planes = plane_projections(layout)
    M = torch.kron(A, P_0 @ W)
    for (P, J), omega in zip(planes, layout.frequencies, strict=True):
        M = M + torch.kron(A * torch.cos(offset * omega), P @ W)
        M = M + torch.kron(A * torch.sin(offset * omega), J @ W)
    torch.testing.assert_close(rove_mixer(A, W_V[0], layout.build(RotaryEmbedding)).to_dense(), M)


@each_layout
def test_eq_convolution(layout):
    x, _, _, _, W_V = head(layout)
    weight = torch.rand(2 * N - 1, dtype=torch.float64)  # a_delta, delta = -(N - 1) .. N - 1
    rotary = layout.build(RotaryEmbedding)
    psi = offset_kernels(W_V, rotary, torch.arange(1 - N, N))[:, 0]
    A = torch.stack([weight[N - 1 - i : 2 * N - 1 - i] for i in range(N)])
    y = torch.zeros(N, layout.d_head, dtype=torch.float64)
    for i in range(N):
        for j in range(N):
            y[i] += weight[j - i + N - 1] * (layout.matrix(j - i) @ W_V[0].T @ x[j])
    torch.testing.assert_close(BlockToeplitzMixer(weight[:, None, None] * psi) @ x, y)
    torch.testing.assert_close(rove_mixer(A, W_V[0], rotary) @ x, y)


@each_layout
def test_eq_message(layout):
    _, q, k, v, _ = head(layout)
    rotary = layout.build(RotaryEmbedding)
    for i in range(N):
        for j in range(i + 1):
            only = torch.zeros(N, N, dtype=torch.bool)  # every query attends to one key
            only[:, 0], only[i] = True, torch.arange(N) == j
            rope = rope_attention(q, k, v, rotary, attn_mask=only)[0, i]
            rove = rove_attention(q, k, v, rotary, attn_mask=only)[0, i]
            torch.testing.assert_close(rope, v[0, j])
            torch.testing.assert_close(rove, layout.matrix(j - i) @ v[0, j])


@each_layout
def test_eq_taps(layout):
    """A head with a position-only pattern, applied to one impulse a channel."""
    K, W_V, W_O = 3, normal(D_MODEL, layout.d_head), normal(layout.d_head, D_MODEL, seed=1)
    a = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    A = sum(a[k] * torch.ones(N - k, dtype=torch.float64).diag(-k) for k in range(K))
    at = layout.build(RotaryEmbedding)(torch.arange(N))
    for c, impulse in enumerate(torch.eye(D_MODEL, dtype=torch.float64)):
        x = torch.zeros(N, D_MODEL, dtype=torch.float64)
        x[1] = impulse
        v = (x @ W_V)[None]
        rope, rove = (A @ v)[0] @ W_O, at.undo(A @ at.apply(v))[0] @ W_O
        for k in range(K):
            torch.testing.assert_close(rope[1 + k], (a[k] * W_O.mT @ W_V.mT)[:, c])
            H = a[k] * W_O.mT @ layout.matrix(-k) @ W_V.mT
            torch.testing.assert_close(rove[1 + k], H[:, c])


def test_prop_head_per_tap():
    """No sum of h rank-one tap matrices comes nearer than the bound; orthogonal taps reach it."""
    task = Filter.orthogonal(4, 3)
    total = task.taps.square().sum()
    for h in range(1, 5):
        for seed in range(20):
            a, M = normal(4, h, seed=seed).abs(), normal(h, 9, seed=100 + seed)
            M = torch.linalg.lstsq(a, task.taps.flatten(1)).solution if seed % 2 else M
            error = (task.taps.flatten(1) - a @ M).square().sum() / total
            assert error >= 1 - h / 4 - 1e-12
        own = torch.eye(4, dtype=torch.float64)[:, :h]  # each head takes a tap
        error = (task.taps.flatten(1) - own @ task.taps.flatten(1)[:h]).square().sum() / total
        assert task.blind_error(h) == pytest.approx(1 - h / 4, abs=1e-9)
        assert error.item() == pytest.approx(1 - h / 4)
