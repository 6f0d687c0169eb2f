"""Chapter 6: a pattern of one offset, the terms of an expansion, a convolution by FFT."""

from __future__ import annotations

import torch
from torch import Tensor

from rove_lab.checks.verdict import call, compare, draw, read, require, verdict
from rove_lab.matrix_mixer import kronecker_rank
from rove_lab.mixers import rove_mixer
from rove_lab.rotary import RotaryEmbedding

__all__ = ["check_convolve", "check_one_offset", "check_terms"]


def check_one_offset(pattern: object) -> None:
    """Check ``pattern(n)``: a causal pattern for which RoVE's mixer is one Kronecker product.

    Args:
        pattern: From a number of tokens to ``[n, n]``, not negative, in which at least two tokens
            read something.

    Example:
        >>> check_one_offset(lambda n: torch.ones(n, n).tril())
        Not solved yet: for 5 tokens the Kronecker rank is 4: how many offsets are in it?
    """
    with verdict("with one offset only one kernel is left: one pattern times one matrix."):
        random = draw(601)
        for n in (5, 9):
            A = read(call(pattern, n), [n, n])
            require(not (A < 0).any(), "a pattern has no negative entries.")
            require(
                not A.triu(1).any(),
                "a query reads the future: rows are queries, columns are keys.",
            )
            readers = int(A.any(-1).sum())
            require(readers > 1, f"at least two tokens must read something; here {readers} do.")
            W_V = torch.randn(4, 4, generator=random, dtype=torch.float64)
            rank = kronecker_rank(rove_mixer(A, W_V, RotaryEmbedding(4, base=20.0)))
            require(
                rank == 1 or A.any(0).sum() > 1,
                f"all read one key, each at another offset: with {n} tokens the rank is {rank}.",
            )
            require(
                rank == 1,
                f"for {n} tokens the Kronecker rank is {rank}: how many offsets are in it?",
            )


def check_terms(terms: object) -> None:
    """Check ``terms(d_head, turning)``: the Kronecker rank when that many planes turn.

    Args:
        terms: From an even number of channels and how many of the d_head / 2 planes turn to the
            number of Kronecker products a long sequence needs.

    Example:
        >>> check_terms(lambda d_head, turning: 2 * turning)
        Not solved yet: the channels that do not turn need a term too, one for all of them.
    """
    with verdict("a cosine and a sine for each plane that turns, and one term for all the rest."):
        random = draw(602)
        A = torch.ones(20, 20, dtype=torch.float64).tril()
        for d_head, turning in ((8, 2), (6, 1), (6, 3), (10, 4), (8, 0)):
            rotary = RotaryEmbedding(d_head, base=30.0).planes(range(turning))
            W_V = torch.randn(d_head, d_head, generator=random, dtype=torch.float64)
            mistakes = {
                "each plane that turns needs two terms, its cosine and its sine.": turning,
                "each plane that turns needs two terms, its cosine and its sine, "
                "and the rest one.": turning + 1,
                "the channels that do not turn need a term too, one for all of them.": 2 * turning,
                "if all planes turn, nothing is left that needs a term.": 2 * turning + 1,
                "planes that do not turn share one term, whatever their number.": (
                    2 * turning + (d_head // 2 - turning)
                ),
                "d_head is the bound for all planes; here some do not turn.": d_head,
            }
            right = kronecker_rank(rove_mixer(A, W_V, rotary))
            compare(read(call(terms, d_head, turning), []), right, mistakes)


def check_convolve(convolve: object) -> None:
    r"""Check ``convolve(kernels, x)``: :math:`y_i = \sum_k x_{i-k} K_k`, a causal convolution.

    Args:
        convolve: From kernels ``[n, d_in, d_out]``, kernel k for the token k back, and inputs
            ``[n, d_in]`` to ``[n, d_out]``.

    Example:
        >>> check_convolve(lambda kernels, x: x @ kernels[0])
        Not solved yet: every token hears itself alone: only kernel 0 is used.
    """
    with verdict(
        "where the pattern knows only offsets, an FFT does in n log n what attention does."
    ):
        random = draw(603)
        for n, d_in, d_out in ((8, 3, 3), (11, 2, 4), (1, 3, 2)):
            kernels = torch.randn(n, d_in, d_out, generator=random, dtype=torch.float64)
            x = torch.randn(n, d_in, generator=random, dtype=torch.float64)
            right = _convolved(kernels, x)
            mistakes = {
                "every token hears itself alone: only kernel 0 is used.": x @ kernels[0],
                "the end of the text wraps round to its beginning: pad to 2n before the FFT.": (
                    torch.stack([_heard(kernels, x.roll(-i - 1, 0), n - 1) for i in range(n)])
                ),
                "kernel k is for the token k back; yours reads k ahead.": (
                    _convolved(kernels, x.flip(0)).flip(0)
                ),
            }
            if d_in == d_out:
                hint = "x is a row: it multiplies a kernel from the left, x @ K."
                mistakes[hint] = _convolved(kernels.mT, x)
                hint = "reverse nothing: kernel 0 is for the token itself."
                mistakes[hint] = _convolved(kernels.flip(0), x)
            compare(read(call(convolve, kernels, x), [n, d_out]), right, mistakes)


def _convolved(kernels: Tensor, x: Tensor) -> Tensor:
    """The double sum, written out."""
    return torch.stack([_heard(kernels, x, i) for i in range(len(x))])


def _heard(kernels: Tensor, x: Tensor, i: int) -> Tensor:
    return torch.stack([x[i - k] @ kernels[k] for k in range(i + 1)]).sum(0)
