r"""What kind of head is each? Scores of all heads of a bridge from one forward pass."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from rove_lab.head_patterns import induction_score, previous_token_score
from rove_lab.lens_arguments import check_bridge, check_tokens
from rove_lab.lens_firing import check_fires

__all__ = ["HeadScores", "head_scores", "strongest_heads"]


class HeadScores(NamedTuple):
    """Two scores of every head, from 0 to 1; printed, the five strongest heads of each.

    Args:
        previous_token: ``[n_layers, n_heads]``, the mean attention to the token before.
        induction: ``[n_layers, n_heads]``, the mean attention to what followed a token last time.

    Example:
        >>> HeadScores(torch.tensor([[0.1, 0.9]]), torch.tensor([[0.5, 0.25]]))
        previous token   L0H1 0.900   L0H0 0.100
        induction        L0H0 0.500   L0H1 0.250
    """

    previous_token: Tensor
    induction: Tensor

    def __repr__(self) -> str:
        return "\n".join(
            f"{name:14}" + "".join(f"   {head} {score:.3f}" for head, score in heads)
            for name, heads in self._strongest()
        )

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th scope="row">{name}</th>'
            + "".join(f"<td>{head} <small>{score:.3f}</small></td>" for head, score in heads)
            + "</tr>"
            for name, heads in self._strongest()
        )
        return f'<table class="rove-table"><tbody>{rows}</tbody></table>'

    def _strongest(self) -> list[tuple[str, list[tuple[str, float]]]]:
        return [
            ("previous token", strongest_heads(self.previous_token)),
            ("induction", strongest_heads(self.induction)),
        ]


def strongest_heads(scores: Tensor, n: int = 5) -> list[tuple[str, float]]:
    """The heads with the highest scores, in the field's short names.

    Args:
        scores: ``[n_layers, n_heads]``.
        n: How many at most.

    Returns:
        ``("L16H0", score)`` pairs, the highest first.

    Example:
        >>> strongest_heads(torch.tensor([[0.25, 0.5]]), n=1)
        [('L0H1', 0.5)]
    """
    values, places = scores.flatten().topk(min(n, scores.numel()))
    return [
        (f"L{place // scores.shape[1]}H{place % scores.shape[1]}", value)
        for value, place in zip(values.tolist(), places.tolist(), strict=True)
    ]


def head_scores(bridge: Any, tokens: Tensor) -> HeadScores:
    r"""The previous-token and the induction score of every head of a bridge.

    :func:`previous_token_score`, :math:`\frac{1}{n-1}\sum_{i\ge1} A_{i,i-1}`, and
    :func:`induction_score`, the mean attention of a repeated token to what followed it the last
    time, averaged over the sequences. Each layer is scored as its pattern passes, so that no
    pattern is kept. With RoVE: ``with bridge.hooks(fwd_hooks=rove_hooks(bridge)):`` around it.
    Elhage et al. (2021), "A Mathematical Framework for Transformer Circuits"; Olsson et al. (2022),
    arXiv:2209.11895.

    Args:
        bridge: The bridge.
        tokens: Ids ``[batch, pos]`` or ``[pos]`` on the bridge's device, without padding; every
            sequence repeats some token, as ``block.repeat(1, 2)`` does.

    Returns:
        Scores by layer and head, on the CPU.

    Raises:
        TypeError: If it is not a bridge, or tokens are not integers.
        ValueError: If tokens do not fit, none is repeated, or the bridge shows no patterns.

    Example:
        >>> head_scores("gpt2", torch.tensor([1, 2, 3, 1, 2, 3]))
        Traceback (most recent call last):
        TypeError: expected a TransformerBridge, got str: ...
    """
    tokens = check_tokens(check_bridge(bridge), tokens)
    found: dict[int, tuple[Tensor, Tensor]] = {}

    def score(layer: int) -> Any:
        def at_pattern(pattern: Tensor, hook: Any) -> None:
            scores = previous_token_score(pattern), induction_score(pattern, tokens)
            found[layer] = tuple(each.mean(0).cpu() for each in scores)  # type: ignore[assignment]

        return at_pattern

    layers = range(bridge.cfg.n_layers)
    hooks = [(f"blocks.{layer}.attn.hook_pattern", score(layer)) for layer in layers]
    with torch.no_grad():
        bridge.run_with_hooks(tokens, fwd_hooks=hooks)
    check_fires(bridge, [name for layer, (name, _) in enumerate(hooks) if layer not in found])
    return HeadScores(*(torch.stack(each) for each in zip(*map(found.get, layers), strict=True)))
