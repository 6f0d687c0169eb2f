"""The filter tasks against a sum written out, and the floor under a blind head's error."""

import pytest
import torch

from rove_lab import RotaryEmbedding, offset_kernels
from rove_lab.filters import Filter

FILTERS = [Filter.edge(n_ctx=6), Filter.orthogonal(3, 2, n_ctx=5), Filter.orthogonal()]


@pytest.mark.parametrize("task", FILTERS, ids=repr)
def test_the_target_is_the_sum_over_the_taps(task):
    x, y = next(task.batches(3, seed=0))
    assert x.shape == y.shape == (3, task.n_ctx, task.d_in)
    for row in range(3):
        for t in range(task.n_ctx):
            if t < len(task.taps) - 1:
                assert y[row, t].isnan().all()
                continue
            total = sum(H @ x[row, t - k].double() for k, H in enumerate(task.taps))
            torch.testing.assert_close(y[row, t].double(), total, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("task", FILTERS, ids=repr)
def test_inputs_are_white_and_about_as_long_as_a_symbol(task):
    x, _ = next(task.batches(4096, seed=0))
    flat = x.double().flatten(1)
    covariance = flat.T @ flat / len(flat) * task.d_in
    torch.testing.assert_close(covariance, torch.eye(len(covariance)).double(), rtol=0, atol=0.1)


@pytest.mark.parametrize("task", FILTERS, ids=repr)
def test_the_score_is_the_error_over_the_variance(task):
    x, y = next(task.batches(4096, seed=0))
    assert task.scores(y, y) == {"relative error": 0.0}
    nothing = task.scores(torch.zeros_like(x), y)["relative error"]
    assert nothing == pytest.approx(1.0, abs=0.03)
    halved = task.scores(y / 2, y)["relative error"]
    assert halved == pytest.approx(nothing / 4)
    assert task.loss(y / 2, y).item() == pytest.approx(halved, rel=1e-4)


def test_the_same_filter_at_another_length():
    task = FILTERS[1].at_length(9)
    assert task.n_ctx == 9
    assert task.taps is FILTERS[1].taps
    assert next(task.batches(2, seed=0))[1].shape == (2, 9, 2)
    with pytest.raises(ValueError, match="expected at most n_ctx=2 taps, got 3"):
        task.at_length(2)


def test_batches_follow_from_the_seed():
    task = Filter.edge()
    one, same, other = (next(task.batches(2, seed))[0] for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_orthogonal_taps_are_orthogonal_and_of_one_size():
    flat = Filter.orthogonal(4, 8).taps.flatten(1)
    torch.testing.assert_close(flat @ flat.T, torch.eye(4).double() * 8 / 4)
    assert not torch.equal(flat, Filter.orthogonal(4, 8, seed=1).taps.flatten(1))


def best_blind_taps(taps, n_heads, steps=400, restarts=4):
    """The least error of Σ_h a^h_k M^h with patterns a^h ≥ 0, by gradient descent: slow, honest."""
    least = 1.0
    for seed in range(restarts):
        random = torch.Generator().manual_seed(seed)
        logits = torch.randn(n_heads, len(taps), generator=random, dtype=torch.float64)
        M = 0.1 * torch.randn(n_heads, *taps.shape[1:], generator=random, dtype=torch.float64)
        parameters = [logits.requires_grad_(), M.requires_grad_()]
        optimizer = torch.optim.Adam(parameters, lr=0.1)
        for _ in range(steps):
            optimizer.zero_grad()
            made = torch.einsum("hk,hde->kde", logits.softmax(-1), M)
            error = (made - taps).square().sum() / taps.square().sum()
            error.backward()
            optimizer.step()
        least = min(least, error.item())
    return least


@pytest.mark.parametrize("n_heads", [1, 2, 3, 4])
def test_orthogonal_taps_need_a_head_each(n_heads):
    task = Filter.orthogonal(4, 4)
    assert task.blind_error(n_heads) == pytest.approx(1 - n_heads / 4, abs=1e-9)
    assert best_blind_taps(task.taps, n_heads) == pytest.approx(task.blind_error(n_heads), abs=2e-3)


def test_one_head_cannot_subtract_and_two_can():
    task = Filter.edge()
    assert task.blind_error(1) == pytest.approx(0.5)
    assert best_blind_taps(task.taps, 1) == pytest.approx(0.5, abs=5e-3)
    assert task.blind_error(2) == 0.0
    assert best_blind_taps(task.taps, 2) < 5e-3


@pytest.mark.parametrize("seed", range(4))
def test_the_floor_of_one_head_is_exact_for_any_taps(seed):
    random = torch.Generator().manual_seed(seed)
    task = Filter(torch.randn(3, 2, 2, generator=random, dtype=torch.float64))
    reached = best_blind_taps(task.taps, 1)
    assert task.blind_error(1) - 1e-9 <= reached == pytest.approx(task.blind_error(1), abs=5e-3)
    energy = torch.linalg.svdvals(task.taps.flatten(1)).square()
    assert task.blind_error(1) >= (energy[1:].sum() / energy.sum()).item() - 1e-12


def test_rope_has_taps_of_rank_one_and_rove_of_more():
    """H_k = a_k W_O R_{-k} W_V, with R = I under RoPE: flattened, a matrix [K, d * d]."""
    random = torch.Generator().manual_seed(0)
    W_V = torch.randn(1, 3, 8, generator=random, dtype=torch.float64)
    W_O = torch.randn(8, 3, generator=random, dtype=torch.float64)
    a = torch.rand(6, generator=random, dtype=torch.float64).softmax(0)
    rotary, back = RotaryEmbedding(8, base=10.0), -torch.arange(6)
    ranks = []
    for family in (rotary.planes([]), rotary):
        psi = offset_kernels(W_V, family, back)[:, 0]  # [K, d, d_head], row vectors
        taps = a[:, None, None] * (psi @ W_O).mT
        ranks.append(torch.linalg.matrix_rank(taps.flatten(1)).item())
    assert ranks == [1, 6]


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (
            lambda: Filter(torch.ones(2, 1, 1).int()),
            TypeError,
            "taps to be a floating-point tensor",
        ),
        (lambda: Filter(torch.ones(2, 1)), ValueError, r"expected taps \[K, d, d\], not all zero"),
        (lambda: Filter(torch.ones(2, 1, 2)), ValueError, r"got shape \[2, 1, 2\]"),
        (lambda: Filter(torch.zeros(2, 1, 1)), ValueError, "not all zero"),
        (lambda: Filter.edge(n_ctx=1), ValueError, "expected at most n_ctx=1 taps, got 2"),
        (lambda: Filter.edge().blind_error(0), ValueError, "expected n_heads to be positive"),
    ],
)
def test_bad_taps_are_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()
