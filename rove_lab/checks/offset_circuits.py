"""Chapter 8: what a head prefers unread, how far its OV turned, what it copies from where."""

from __future__ import annotations

import torch
from torch import Tensor

from rove_lab.checks.verdict import call, compare, draw, read, require, verdict
from rove_lab.rotary import RotaryEmbedding

__all__ = ["check_copying_at", "check_cosine", "check_curve", "check_fooled"]


def check_curve(curve: object) -> None:
    r"""Check ``curve(q, k, rotary, delta)``: the mean score at an offset of any query and any key.

    Args:
        curve: From one head's queries ``[pos, d_head]`` and keys ``[pos, d_head]``, before their
            rotation, and an offset in tokens to the mean of :math:`q_a^\top R_\delta k_b /
            \sqrt{d}` over all a and b.

    Example:
        >>> check_curve(lambda q, k, rotary, delta: 0.0)
        Not solved yet: on one of our inputs the answer is ...
    """
    with verdict("what a head prefers before it reads is one query and one key, the mean ones."):
        random = draw(801)
        for n, d, delta in ((6, 4, -3), (5, 8, -1), (9, 6, -20)):
            rotary = RotaryEmbedding(d, base=50.0)
            q, k = (torch.randn(n, d, generator=random, dtype=torch.float64) + 0.7 for _ in "qk")
            R, back, root = rotary.matrix(delta), rotary.matrix(-delta), d**0.5
            scores = q @ R @ k.T / root  # [query, key]
            mistakes: dict[str, Tensor | float] = {
                "the sign of the offset: R_delta turns the key, q^T R_delta k.": (
                    q @ back @ k.T / root
                ).mean(),
                "scores are divided by the square root of d_head.": scores.mean() * root,
                "the square root of d_head, not d_head itself.": scores.mean() / root,
                "query and key are drawn independently: all pairs, not each with itself.": (
                    scores.diagonal().mean()
                ),
                "the offset is missing.": (q @ k.T / root).mean(),
                "that is a sum over pairs: take the mean.": scores.sum(),
                "a sum over the queries, or over the keys: take the mean over both.": (
                    scores.sum() / n
                ),
                "the mean of the scores, with their signs.": scores.abs().mean(),
            }
            compare(read(call(curve, q, k, rotary, delta), []), scores.mean(), mistakes)


def check_cosine(cosine: object) -> None:
    r"""Check ``cosine(W_V, W_O, rotary, delta)``: of a head's OV circuit at an offset and at 0.

    Args:
        cosine: From one head's ``[d_model, d_head]`` and ``[d_head, d_model]``, stored for rows,
            to the cosine of :math:`OV_\delta` and :math:`OV_0` in the Frobenius product.

    Example:
        >>> check_cosine(lambda W_V, W_O, rotary, delta: 1.0)
        Not solved yet: that is RoPE's: under RoVE the circuit turns with the offset.
    """
    with verdict("W_O decides, too: a turn between the two weights is what drift is."):
        random = draw(802)
        for d_model, d, delta in ((10, 4, -2), (7, 6, -5), (12, 8, -1)):
            rotary = RotaryEmbedding(d, base=20.0)
            tilt = torch.linspace(0.4, 1.6, d, dtype=torch.float64)
            W_V = torch.randn(d_model, d, generator=random, dtype=torch.float64) * tilt
            W_O = torch.randn(d, d_model, generator=random, dtype=torch.float64)
            R = rotary.matrix(delta)
            here, there, back = W_V @ W_O, W_V @ R.T @ W_O, W_V @ R @ W_O
            kernel = W_V @ R.T
            right = _cosine(there, here)
            mistakes: dict[str, Tensor | float] = {
                "that is RoPE's: under RoVE the circuit turns with the offset.": 1.0,
                "that is the circuit at -delta: weights for rows take R_delta transposed.": (
                    _cosine(back, here)
                ),
                "that is the kernel's similarity (chapter 5): W_O is missing.": (
                    _cosine(kernel, W_V)
                ),
                "a cosine divides by both norms, and that of OV_delta is not that of OV_0.": (
                    (there * here).sum() / here.square().sum()
                ),
                "a cosine divides by both norms.": (there * here).sum(),
                "a product of entries, not of matrices: the Frobenius product.": (
                    torch.trace(there @ here) / (there.norm() * here.norm())
                ),
                "that is the sine of the angle, or its distance: the cosine is asked.": 1 - right,
            }
            compare(read(call(cosine, W_V, W_O, rotary, delta), []), right, mistakes)


def check_fooled(fooled: object) -> None:
    r"""Check ``fooled()``: a full OV circuit of four tokens that has the best copying score.

    Args:
        fooled: To a matrix ``[4, 4]``, source tokens by logits, with a copying score of 1 in which
            each token raises some other token's logit more than its own.

    Example:
        >>> check_fooled(lambda: torch.eye(4))
        Not solved yet: token 0 raises its own logit most: it copies.
    """
    with verdict("a copying score of 1, and no token is copied: eigenvalues see no row by itself."):
        M = read(call(fooled), [4, 4])
        found = torch.linalg.eigvals(M.double())
        size = found.abs().sum()
        require(size > 1e-6, "all its eigenvalues are zero, and then the score says nothing.")
        score = (found.real.sum() / size).item()
        require(score > 0.999, f"its copying score is {score:.2f}, not 1.")
        others = M.masked_fill(torch.eye(4, dtype=torch.bool), -torch.inf).amax(-1)
        for token in range(4):
            own, most = M[token, token].item(), others[token].item()
            require(own <= most + 1e-9, f"token {token} raises its own logit most: it copies.")
            require(own < most - 1e-9, f"token {token} raises another as much as itself, not more.")


def check_copying_at(copying_at: object) -> None:
    r"""Check ``copying_at(W_E, W_V, W_O, W_U, rotary, delta)``: a copying score under RoVE.

    Args:
        copying_at: From ``[d_vocab, d_model]``, one head's ``[d_model, d_head]`` and ``[d_head,
            d_model]``, ``[d_model, d_vocab]``, stored for rows, and an offset in tokens to
            :math:`\sum_k \operatorname{Re}\lambda_k / \sum_k |\lambda_k|` of the full OV circuit
            at that offset.

    Example:
        >>> check_copying_at(lambda W_E, W_V, W_O, W_U, rotary, delta: 0.5)
        Not solved yet: on one of our inputs the answer is ...
    """
    with verdict("a RoVE head has a copying score for every distance."):
        random = draw(803)
        for d_vocab, d_model, d, delta in ((9, 6, 4, -2), (12, 8, 6, -5), (7, 7, 4, -1)):
            rotary = RotaryEmbedding(d, base=20.0)
            W_E, W_V, W_O, W_U = (
                torch.randn(shape, generator=random, dtype=torch.float64)
                for shape in ((d_vocab, d_model), (d_model, d), (d, d_model), (d_model, d_vocab))
            )
            W_O, W_U = W_O + 0.8 * W_V.T, W_U + W_E.T  # a head that copies, more or less
            R, before, after = rotary.matrix(delta), W_E @ W_V, W_O @ W_U
            found = torch.linalg.eigvals(before @ R.T @ after)
            right = found.real.sum() / found.abs().sum()
            mistakes: dict[str, Tensor | float] = {
                "that is RoPE's, the same at every offset: under RoVE the value turns.": (
                    _copying(before @ after)
                ),
                "that is the score at -delta: weights for rows take R_delta transposed.": (
                    _copying(before @ R @ after)
                ),
                "that turns it twice: only their difference is left of two rotations.": (
                    _copying(before @ R.T @ R.T @ after)
                ),
                "that is the sum of the eigenvalues: divide it by the sum of their sizes.": (
                    found.real.sum()
                ),
                "the size of a complex eigenvalue is its absolute value, not its real part's.": (
                    found.real.sum() / found.real.abs().sum()
                ),
                "the circuit goes from token to logit: W_E and W_U belong to it.": (
                    _copying(W_V @ R.T @ W_O)
                ),
            }
            answer = read(call(copying_at, W_E, W_V, W_O, W_U, rotary, delta), [])
            compare(answer, right, mistakes)


def _copying(circuit: Tensor) -> Tensor:
    found = torch.linalg.eigvals(circuit)
    score: Tensor = found.real.sum() / found.abs().sum()
    return score


def _cosine(A: Tensor, B: Tensor) -> Tensor:
    cosine: Tensor = (A * B).sum() / (A.norm() * B.norm())
    return cosine
