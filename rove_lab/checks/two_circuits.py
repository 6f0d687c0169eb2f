"""Chapter 7: does a head copy, does it look at the same word, whom does it read, what was added?"""

from __future__ import annotations

import torch
from torch import Tensor

from rove_lab.checks.verdict import call, compare, draw, read, verdict

__all__ = ["check_composition", "check_contributions", "check_copying", "check_duplicate"]


def check_copying(copying: object) -> None:
    r"""Check ``copying(W_E, W_V, W_O, W_U)``: the copying score of one head.

    Args:
        copying: From ``[d_vocab, d_model]``, ``[d_model, d_head]``, ``[d_head, d_model]`` and
            ``[d_model, d_vocab]`` to :math:`\sum_k \operatorname{Re}\lambda_k / \sum_k
            |\lambda_k|` of their product.

    Example:
        >>> check_copying(lambda W_E, W_V, W_O, W_U: torch.trace(W_E @ W_V @ W_O @ W_U))
        Not solved yet: that is the sum of the eigenvalues: divide it by the sum of their sizes.
    """
    with verdict("64 eigenvalues say whether a head copies; no vocabulary-sized matrix is needed."):
        random = draw(701)
        for d_vocab, d_model, d_head in ((30, 8, 4), (17, 12, 6), (40, 10, 2)):
            W_E, W_V, W_O, W_U = (
                torch.randn(shape, generator=random, dtype=torch.float64)
                for shape in (
                    (d_vocab, d_model),
                    (d_model, d_head),
                    (d_head, d_model),
                    (d_model, d_vocab),
                )
            )
            W_O = W_O + 0.8 * W_V.T  # a head that copies, more or less
            W_U = W_U + W_E.T
            full = W_E @ W_V @ W_O @ W_U
            found = torch.linalg.eigvals(full)
            small = torch.linalg.eigvals(W_V @ W_O)
            size = found.abs().sum()
            mistakes: dict[str, Tensor | float] = {
                "that is the sum of the eigenvalues: divide it by the sum of their sizes.": (
                    found.real.sum()
                ),
                "that divides by singular values; eigenvalues have sizes of their own.": (
                    found.real.sum() / torch.linalg.svdvals(full).sum()
                ),
                "the size of a complex eigenvalue is its absolute value, not its real part's.": (
                    found.real.sum() / found.real.abs().sum()
                ),
                "the circuit goes from token to logit: W_E and W_U belong to it.": (
                    small.real.sum() / small.abs().sum()
                ),
                "that is the mean eigenvalue: divide by the sum of their sizes instead.": (
                    found.real.sum() / d_head
                ),
                "real parts count with their signs.": found.real.abs().sum() / size,
                "an eigenvalue counts by its size, not one a vote.": (
                    torch.linalg.eigvals(W_O @ W_U @ W_E @ W_V).real.sign().mean()
                ),
            }
            right = found.real.sum() / size
            compare(read(call(copying, W_E, W_V, W_O, W_U), []), right, mistakes)


def check_duplicate(duplicate_score: object) -> None:
    r"""Check ``duplicate_score(pattern, tokens)``: attention to the same token, last time.

    Args:
        duplicate_score: From ``[heads, pos, pos]`` and token ids ``[pos]`` to the mean, over the
            queries whose token occurs before them, of the attention to its latest occurrence,
            ``[heads]``.

    Example:
        >>> check_duplicate(lambda pattern, tokens: torch.zeros(len(pattern)))
        Not solved yet: on one of our inputs it is off by up to ...
    """
    with verdict("one sentence about tokens is enough to look for a kind of head."):
        random = draw(702)
        for heads, ids in (
            (3, [5, 6, 7, 5, 6, 7, 5]),
            (2, [1, 1, 2, 3, 1, 9, 2, 4]),
            (4, [0, 8, 8, 3, 5, 0, 3, 3, 1]),
        ):
            tokens = torch.tensor(ids)
            n = len(tokens)
            scores = torch.randn(heads, n, n, generator=random, dtype=torch.float64)
            future = torch.ones(n, n, dtype=torch.bool).triu(1)
            pattern = scores.masked_fill(future, -torch.inf).softmax(-1)
            right, mistakes = _duplicates(pattern, ids)
            compare(read(call(duplicate_score, pattern, tokens), [heads]), right, mistakes)


def check_contributions(contributions: object) -> None:
    r"""Check ``contributions(pattern, v, W_O, u)``: what each message adds along a direction.

    Args:
        contributions: From ``[heads, pos, pos]``, ``[heads, pos, d_head]``,
            ``[heads, d_head, d_model]`` and ``[d_model]`` to :math:`A_{ij}\,v_j W_O u`,
            ``[heads, pos, pos]``, queries by keys.

    Example:
        >>> check_contributions(lambda pattern, v, W_O, u: pattern)
        Not solved yet: that is who attends to whom: what is sent, v W_O u, is missing.
    """
    with verdict("a logit is a sum over messages, so each message can be asked for its part."):
        random = draw(703)
        for heads, n, d_head, d_model in ((2, 5, 3, 6), (3, 4, 2, 5), (1, 6, 4, 4)):
            scores = torch.randn(heads, n, n, generator=random, dtype=torch.float64)
            future = torch.ones(n, n, dtype=torch.bool).triu(1)
            pattern = scores.masked_fill(future, -torch.inf).softmax(-1)
            v = torch.randn(heads, n, d_head, generator=random, dtype=torch.float64)
            W_O = torch.randn(heads, d_head, d_model, generator=random, dtype=torch.float64)
            u = torch.randn(d_model, generator=random, dtype=torch.float64)
            sent = v @ W_O @ u  # [heads, key]
            right = pattern * sent[:, None]
            z = pattern @ v @ W_O @ u  # [heads, query]
            mistakes: dict[str, Tensor | float] = {
                "that is who attends to whom: what is sent, v W_O u, is missing.": pattern,
                "a message counts as far as it is attended to: the pattern is missing.": (
                    sent[:, None].expand_as(pattern)
                ),
                "the message is the key's, not the query's: broadcast over the queries.": (
                    pattern * sent[..., None]
                ),
                "expected [heads, query, key]; these are keys by queries.": right.mT,
                "what arrived at a query is a sum: keep its terms apart.": (pattern * z[..., None]),
                "a part of a logit has a sign, and the parts need not sum to one.": (
                    right / right.sum(-1, keepdim=True)
                ),
                "a message can speak against a token: keep the sign.": right.abs(),
            }
            answer = call(contributions, pattern, v, W_O, u)
            compare(read(answer, [heads, n, n]), right, mistakes)


def check_composition(composition: object) -> None:
    r"""Check ``composition(W_V, W_O, W_Q, W_K)``: how much of one head's writing another looks for.

    Args:
        composition: From an earlier head's ``[d_model, d_head]`` and ``[d_head, d_model]`` and a
            later one's two ``[d_model, d_head]``, stored for rows, to :math:`\lVert QK\,OV\rVert
            / (\lVert QK\rVert\,\lVert OV\rVert)` in the Frobenius norm.

    Example:
        >>> check_composition(lambda W_V, W_O, W_Q, W_K: (W_O @ W_K).norm())
        Not solved yet: on one of our inputs the answer is ...
    """
    with verdict("who reads whom stands in the weights; no text has been read."):
        random = draw(704)
        for d_model, d_head in ((7, 3), (10, 4), (6, 2)):
            W_V, W_Q, W_K = (
                torch.randn(d_model, d_head, generator=random, dtype=torch.float64) for _ in "vqk"
            )
            W_O = torch.randn(d_head, d_model, generator=random, dtype=torch.float64)
            W_K = W_K + 0.7 * W_O[: W_K.shape[1]].T  # it looks for what is written
            OV, QK = W_V @ W_O, W_Q @ W_K.T
            both = OV @ QK.T
            sizes = OV.norm() * QK.norm()
            spectral = torch.linalg.matrix_norm(both, 2) / (
                torch.linalg.matrix_norm(OV, 2) * torch.linalg.matrix_norm(QK, 2)
            )
            right = both.norm() / sizes
            mistakes: dict[str, Tensor | float] = {
                "that is Q-composition: what was written is a part of the key here.": (
                    (OV @ QK).norm() / sizes
                ),
                "the earlier head writes, the later one reads: the order is the other one.": (
                    (QK.T @ OV).norm() / sizes
                ),
                "the key reads what OV wrote, its second axis, not what OV had read.": (
                    (QK @ OV).norm() / sizes
                ),
                "divide by both norms, or large weights look like an agreement.": both.norm(),
                "divide by the norm of QK, too.": both.norm() / OV.norm(),
                "divide by the norm of OV, too.": both.norm() / QK.norm(),
                "Frobenius norms: the root of the sum of squares of all entries.": spectral,
                "a ratio of norms, not of their squares.": right**2,
                "W_V and W_Q belong to it: they say how much of each direction counts.": (
                    (W_O @ W_K).norm() / (W_O.norm() * W_K.norm())
                ),
            }
            answer = read(call(composition, W_V, W_O, W_Q, W_K), [])
            compare(answer, right, mistakes)


def _duplicates(pattern: Tensor, ids: list[int]) -> tuple[Tensor, dict[str, Tensor | float]]:
    """The score, and what it would be after one of the usual mistakes; loops, plain to see."""
    n, nothing = len(ids), torch.zeros(len(pattern), dtype=torch.float64)
    latest, after, before, first, every, same = (nothing.clone() for _ in range(6))
    queries = 0
    for i in range(n):
        earlier = [j for j in range(i) if ids[j] == ids[i]]
        same += pattern[:, i, [*earlier, i]].sum(-1)
        if not earlier:
            continue
        queries += 1
        latest += pattern[:, i, earlier[-1]]
        after += pattern[:, i, earlier[-1] + 1]
        before += pattern[:, i, max(earlier[-1] - 1, 0)]
        first += pattern[:, i, earlier[0]]
        every += pattern[:, i, earlier].sum(-1)
    mistakes: dict[str, Tensor | float] = {
        "that is induction: this head looks at the same token, not at what followed it.": (
            after / queries
        ),
        "that looks one token too early: at what came before the same token.": before / queries,
        "the latest occurrence is asked, not the first.": first / queries,
        "only the latest occurrence counts, not all of them.": every / queries,
        "a token is no occurrence of itself, and only repeated tokens are asked.": same / n,
        "the mean is over the queries that have something to look back at.": latest / n,
        "that is a sum: take the mean over the queries.": latest,
    }
    return latest / queries, mistakes
