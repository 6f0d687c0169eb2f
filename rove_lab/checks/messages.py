"""Chapter 3: a model without its turn, filters one RoPE head can learn, messages of one plane."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from rove_lab.checks.verdict import call, compare, draw, read, require, verdict
from rove_lab.evaluation import held_out_scores
from rove_lab.messenger import MessengerConfig
from rove_lab.rotary import RotaryEmbedding
from rove_lab.self_attention import RotarySelfAttention
from rove_lab.tasks import DistanceRecall

__all__ = ["check_nearest", "check_one_head", "check_take_away"]


def check_take_away(without_turn: object) -> None:
    """Check ``without_turn(model, task)``: the scores with the values' rotation switched off.

    Args:
        without_turn: From a :class:`~rove_lab.messenger.Messenger` of one layer and its task to
            what :func:`~rove_lab.evaluation.held_out_scores` returns; the model is left as it was.

    Example:
        >>> check_take_away(held_out_scores)
        Not solved yet: the values were still rotated.
    """
    with verdict("one switch is all that RoVE adds, and your function leaves it as it found it."):
        task = DistanceRecall(5, 7, 11)
        torch.manual_seed(301)  # a model draws its weights from torch's own numbers; verdict undoes
        for _ in range(2):
            model = MessengerConfig(task.d_in, task.d_out, 16, 1, 16).build()
            turned = held_out_scores(model, task)
            layer = cast(RotarySelfAttention, model.attention[0])
            layer.rotate_values = False
            right = held_out_scores(model, task)
            layer.rotate_values = True
            answer = call(without_turn, model, task)
            require(
                isinstance(answer, dict) and set(answer) == set(right),
                "return what `held_out_scores` returns: a score for each question.",
            )
            mistakes = {"the values were still rotated.": _numbers(turned)}
            got = read([answer[question] for question in right], [len(right)])
            compare(got, _numbers(right), mistakes)
            require(
                held_out_scores(model, task) == turned,
                "the scores are right, but the model stays changed: leave it as you found it "
                "before you return.",
            )


def check_one_head(one_head: object) -> None:
    r"""Check ``one_head(taps)``: whether one position-only RoPE head can be the filter exactly.

    Args:
        one_head: From taps ``[K, d, d]`` to True or False.

    Example:
        >>> check_one_head(lambda taps: True)
        Not solved yet: you accept taps of rank two or more; one head has one matrix.
    """
    with verdict("one RoPE head is one matrix times weights that are not negative."):
        random = draw(302)

        def matrix(d: int) -> Tensor:
            return torch.randn(d, d, generator=random, dtype=torch.float64)

        def weighted(weights: list[float], d: int) -> Tensor:
            return torch.tensor(weights, dtype=torch.float64)[:, None, None] * matrix(d)

        many = "you accept taps of rank two or more; one head has one matrix."
        signs = "you accept weights of both signs: a softmax cannot give them."
        entries = "the matrix may have negative entries; only its weights may not."
        mirror = "weights that are all negative are positive weights of minus the matrix."
        zero = "a weight of zero is allowed: the head need not look there."
        one_channel = "with one channel a tap is a number: a blur of one channel can be learned."
        cases: list[tuple[Tensor, bool, str]] = [
            (torch.stack([matrix(3) for _ in range(4)]), False, many),
            (torch.stack([matrix(2).abs(), matrix(2).abs()]), False, many),
            (weighted([1.0, -1.0], 1), False, signs),
            (weighted([0.2, 0.5, -0.3], 3), False, signs),
            (weighted([0.0, 0.5, -0.5], 3), False, signs),
            (weighted([1.0, 0.0, -1.0], 2), False, signs),
            (weighted([0.7, 0.2, 0.1], 3), True, entries),
            (weighted([3.0, 2.0, 4.0], 4), True, entries),
            (-weighted([0.5, 0.25], 1).abs(), True, mirror),
            (weighted([0.0, 0.4, 0.0, 0.6], 2), True, zero),
            (weighted([0.3, 0.3, 0.4], 1).abs(), True, one_channel),
        ]
        for taps, right, hint in cases:
            compare(read(call(one_head, taps), []), float(right), {hint: float(not right)})


def check_nearest(nearest: object) -> None:
    r"""Check ``nearest(rotary, m, n)``: how far apart the two most alike of n messages are.

    Args:
        nearest: From an embedding, the one plane that turns and a number of distances, to the
            smallest distance between two of the messages :math:`R_{-1} v, \dots, R_{-n} v` where
            v has a one in every channel.

    Example:
        >>> check_nearest(lambda rotary, m, n: 0.0)
        Not solved yet: every message is as near as 0 to itself: compare different ones.
    """
    with verdict(
        "one plane is too slow for neighbours, or comes back too near: many have neither."
    ):
        for rotary, m, n in (
            (RotaryEmbedding(8, base=50.0), 2, 9),
            (RotaryEmbedding(12, base=100.0, interleaved=True), 0, 6),
            (RotaryEmbedding(16, base=30.0), 1, 12),
        ):

            def gap(tokens: int, omega: Tensor) -> Tensor:  # |e^(i tokens omega) - 1| sqrt 2
                return 2 * 2**0.5 * (tokens * omega / 2).sin().abs()

            omega = rotary.inv_freq[m]
            right = min(gap(k, omega) for k in range(1, n))
            mistakes = {
                "every message is as near as 0 to itself: compare different ones.": 0.0,
                "you compared neighbours only: a fast plane may come back later.": gap(1, omega),
                "these are n + 1 messages: the distances go from 1 to n.": (
                    min(gap(k, omega) for k in range(1, n + 1))
                ),
                "all planes turn here: keep plane m alone (`rotary.planes([m])`).": min(
                    gap(k, rotary.inv_freq).norm() for k in range(1, n)
                ),
                "these are the two that differ most, not least.": max(
                    gap(k, omega) for k in range(1, n)
                ),
            }
            compare(read(call(nearest, rotary, m, n), []), right, mistakes)


def _numbers(scores: dict[str, float]) -> Tensor:
    return torch.tensor(list(scores.values()), dtype=torch.float64)
