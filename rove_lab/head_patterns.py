r"""What kind of head is it? Scores read from attention patterns, counted on the tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from rove_lab.arguments import check_floating, check_integers

__all__ = ["induction_score", "previous_token_score"]


def previous_token_score(pattern: Tensor) -> Tensor:
    r"""The mean attention to the token before, :math:`\frac{1}{n-1}\sum_{i\ge1} A_{i,i-1}`.

    A pattern with fewer queries than keys is that of the last queries, as in decoding. Padding is
    not known here and counts: give sequences without it.
    Elhage et al. (2021), "A Mathematical Framework for Transformer Circuits".

    Args:
        pattern: ``[..., heads, query_pos, key_pos]``.

    Returns:
        ``[..., heads]``, from 0 to 1, at least float32.

    Raises:
        TypeError: If the pattern is not floating point.
        ValueError: If its shape does not fit, or no query has a token before it.

    Example:
        >>> previous_token_score(torch.eye(4).roll(-1, 1)[None])
        tensor([1.])
    """
    before = _check(pattern).diagonal(pattern.shape[-1] - pattern.shape[-2] - 1, -2, -1)
    if before.shape[-1] == 0:
        raise ValueError(
            f"expected a pattern of two tokens or more, got {list(pattern.shape)}: the first token "
            "has none before it."
        )
    return before.to(torch.promote_types(pattern.dtype, torch.float32)).mean(-1)


def induction_score(pattern: Tensor, tokens: Tensor) -> Tensor:
    r"""The mean attention from a repeated token to what followed it the last time.

    :math:`\frac{1}{|I|}\sum_{i\in I} A_{i,\,p(i)+1}` with I the queries whose token occurs before
    them and :math:`p(i) = \max\{j < i : t_j = t_i\}` its latest occurrence. The tokens may be any,
    repeated in a block or not; in a run of one token, :math:`p(i) + 1` is i itself. Padding is not
    known here and counts as a token: give sequences without it. Prefix matching, Olsson et al.
    (2022), arXiv:2209.11895.

    Args:
        pattern: ``[..., heads, query_pos, key_pos]``; fewer queries than keys are the last ones.
        tokens: Token ids ``[..., key_pos]``, or ``[key_pos]`` for all.

    Returns:
        ``[..., heads]``, from 0 to 1, at least float32, a mean for each sequence.

    Raises:
        TypeError: If the pattern is not floating point or the tokens are not integers.
        ValueError: If shapes do not fit, or no token of a sequence is repeated.

    Example:
        >>> tokens = torch.tensor([7, 8, 9, 7, 8])  # the last two look at positions 1 and 2
        >>> induction_score(torch.eye(5).roll(-2, 1)[None], tokens)
        tensor([1.])
    """
    _check(pattern)
    q_len, k_len = pattern.shape[-2:]
    check_integers("tokens", tokens)
    if (
        tokens.dim() == 0
        or tokens.shape[-1] != k_len
        or tokens.shape[:-1] not in ((), pattern.shape[:-3])
    ):
        raise ValueError(
            f"expected tokens {[*pattern.shape[:-3], k_len]}, one for each key of the pattern, got "
            f"{list(tokens.shape)}: pass the ids that the pattern was made from, without heads."
        )
    tokens = tokens.to(pattern.device)
    place = torch.arange(k_len, device=pattern.device)
    earlier = (tokens[..., :, None] == tokens[..., None, :]) & (place < place[:, None])
    latest = torch.where(earlier, place, -1).amax(-1)[..., k_len - q_len :]  # −1: not seen yet
    repeated = latest >= 0
    if not bool(repeated.any(-1).all()):
        raise ValueError(
            "expected a repeated token among the queries of every sequence, got a sequence without "
            "one: take a longer text, or repeat a block of tokens."
        )
    # the key after it always exists: a query stands later than its token's last occurrence
    target = (latest + 1)[..., None, :, None].expand(*pattern.shape[:-1], 1)
    seen = pattern.to(torch.promote_types(pattern.dtype, torch.float32)).gather(-1, target)[..., 0]
    counted = repeated[..., None, :]
    return (seen * counted).sum(-1) / counted.sum(-1)


def _check(pattern: Tensor) -> Tensor:
    check_floating("pattern", pattern)
    if (
        pattern.dim() < 3
        or pattern.shape[-1] == 0
        or not 0 < pattern.shape[-2] <= pattern.shape[-1]
    ):
        raise ValueError(
            "expected pattern [..., heads, query_pos, key_pos] with at most as many queries as "
            f"keys, got {list(pattern.shape)}: one head needs pattern[None]."
        )
    return pattern
