"""Chapter 13: a reader of fixed distances, when half of the seeds are there, a suite's score."""

from __future__ import annotations

import torch
from torch import Tensor

from rove_lab.checks.verdict import call, compare, draw, read, verdict
from rove_lab.induction import Induction
from rove_lab.tasks import NOT_ASKED

__all__ = ["check_half_there", "check_look_back", "check_suite"]


def check_look_back(look_back: object) -> None:
    r"""Check ``look_back(tokens, targets, period)``: what a head gets that looks back so far.

    Args:
        look_back: From tokens and targets ``[batch, pos]``, −100 where none is asked, and a period
            to the share of asked tokens that are the one ``period`` places before them.

    Example:
        >>> check_look_back(lambda tokens, targets, period: (tokens == targets).double().mean())
        Not solved yet: on one of our inputs the answer is 0.03896104; yours is 0.
    """
    with verdict("one distance for all sequences would teach a distance, and no induction."):
        task = Induction(n_symbols=8, n_ctx=20, n_segment=3)
        for seed, period in ((1, 11), (2, 6), (3, 11)):
            tokens, targets = next(task.batches(160, seed))
            asked = targets != NOT_ASKED

            def share(shift: int, tokens: Tensor = tokens, targets: Tensor = targets) -> Tensor:
                """Of all places, right where the token ``shift`` back from t is the target of t."""
                right = torch.zeros_like(targets)
                right[:, shift:] = tokens[:, : tokens.shape[1] - shift] == targets[:, shift:]
                return right.double()

            right = share(period - 1)
            wrapped = (tokens.roll(period - 1, 1) == targets).double()
            late = torch.arange(20) >= period - 1
            mistakes = {
                "place t asks for the token at t + 1: the one to say is at t + 1 - period.": (
                    share(period)[asked].mean()
                ),
                "place t asks for the token at t + 1: yours comes from one place later.": (
                    share(period - 2)[asked].mean()
                ),
                "divide by how many are asked, not by all places.": right.mean(),
                "that counts sequences: each token that is asked counts once.": (
                    (right * asked).sum(1) / asked.sum(1)
                ).mean(),
                "where the sequence is shorter than that nothing can be said: it wraps around.": (
                    wrapped[asked].mean()
                ),
                "a question too early to look back so far counts too, as wrong.": (
                    right[asked & late].mean()
                ),
            }
            answer = read(call(look_back, tokens, targets, period), [])
            compare(answer, right[asked].mean(), mistakes)


def check_half_there(half_there: object) -> None:
    r"""Check ``half_there(steps, scores, level)``: when half of the seeds have reached a level.

    Args:
        half_there: From the steps of the reports ``[points]``, scores ``[seeds, points]`` and a
            level to the first of the steps by which at least half of the seeds have been at the
            level or above.

    Example:
        >>> mean = lambda steps, scores, level: steps[scores.mean(0) >= level][0]
        >>> check_half_there(mean)
        Not solved yet: that is where the mean curve gets there: one slow seed holds it back.
    """
    with verdict("a seed that never gets there has no step, and the half has one all the same."):
        for scores, level in (
            (
                [
                    [0.1, 0.8, 0.6, 0.9, 0.9, 0.99],  # there and back
                    [0.1, 0.2, 0.7, 0.8, 0.9, 0.99],
                    [0.1, 0.1, 0.1, 0.1, 0.1, 0.2],  # never there
                    [0.1, 0.1, 0.2, 0.3, 0.75, 0.95],
                ],
                0.7,
            ),
            (
                [
                    [0.1, 0.9, 0.9, 0.9, 0.9, 0.9],
                    [0.0, 0.0, 0.1, 0.9, 0.9, 0.9],
                    [0.0, 0.0, 0.0, 0.0, 0.1, 0.2],
                    [0.0, 0.0, 0.0, 0.3, 0.4, 0.6],
                    [0.0, 0.0, 0.3, 0.3, 0.5, 0.4],
                ],
                0.5,
            ),
        ):
            curves = torch.tensor(scores, dtype=torch.float64)
            steps = 20.0 + 20.0 * torch.arange(curves.shape[1], dtype=torch.float64)
            there = curves >= level
            ever = there.long().cummax(1).values.bool()
            first = torch.where(ever.any(1), steps[ever.long().argmax(1)], torch.inf)
            n = len(curves)
            right = steps[ever.sum(0) * 2 >= n][0]
            mean = steps[curves.mean(0) >= level]
            mistakes = {
                "that is where the mean curve gets there: one slow seed holds it back.": (
                    mean[0] if len(mean) else steps[-1]
                ),
                "a seed that comes back down has been there: count it from then on.": (
                    steps[there.sum(0) * 2 >= n][0] if (there.sum(0) * 2 >= n).any() else steps[-1]
                ),
                "that is the first seed: wait for half of them.": first.min(),
                "that is where more than half are there: half will do.": (
                    steps[ever.sum(0) * 2 > n][0]
                ),
                "that leaves out the seed that never gets there: it counts among all.": (
                    first[first.isfinite()].sort().values[(int(first.isfinite().sum()) - 1) // 2]
                ),
                "that is the mean over the seeds that get there: the others count as well.": (
                    first[first.isfinite()].mean()
                ),
                "that is the place among the reports: the steps are given.": (
                    (ever.sum(0) * 2 >= n).long().argmax().double()
                ),
            }
            compare(read(call(half_there, steps, curves, level), []), right, mistakes)


def check_suite(suite: object) -> None:
    r"""Check ``suite(right, chances)``: the suite's score, and its standard error.

    Args:
        suite: From what was right, ``[tasks, questions]``, and each task's chance level,
            ``[tasks]``, to two numbers: the mean over tasks of :math:`(a - c) / (1 - c)`, and the
            standard error of that, each task's accuracy having variance :math:`a (1 - a) / n`.

    Example:
        >>> check_suite(lambda right, chances: (right.double().mean(), 0.1))
        Not solved yet: that is the mean accuracy: centre each task's first, ...
    """
    with verdict("0 is a guess, and a few hundred questions leave some hundredths in doubt."):
        random = draw(1303)
        for chances, n in (((0.25, 0.5, 0.5), 64), ((0.1, 0.5, 0.25, 1 / 3), 200)):
            c = torch.tensor(chances, dtype=torch.float64)
            likely = c + (1 - c) * 0.4 * torch.rand(len(c), generator=random, dtype=torch.float64)
            right = torch.rand(len(c), n, generator=random, dtype=torch.float64) < likely[:, None]
            a = right.double().mean(1)
            variance = a * (1 - a) / n
            score = ((a - c) / (1 - c)).mean()
            error = (variance / (1 - c) ** 2).sum().sqrt() / len(c)
            hints = {
                "that is the mean accuracy: centre each task's first, by its own chance.": (
                    a.mean(),
                    None,
                ),
                "that subtracts a guess, and the best is not 1: divide by 1 - c.": (
                    (a - c).mean(),
                    None,
                ),
                "centre each task by its own chance, not the mean by the mean.": (
                    (a.mean() - c.mean()) / (1 - c.mean()),
                    None,
                ),
                "the score is right; centring stretches the error too: divide by 1 - c.": (
                    score,
                    variance.sum().sqrt() / len(c),
                ),
                "the score is right; that is the sum's error: the mean of T has a T-th of it.": (
                    score,
                    error * len(c),
                ),
                "the score is right; add variances, not errors, and take the root.": (
                    score,
                    (variance.sqrt() / (1 - c)).mean(),
                ),
                "the score is right; that is its variance: the error is its root.": (
                    score,
                    error**2,
                ),
                "the score is right; that is the spread of the tasks, not of the questions.": (
                    score,
                    ((a - c) / (1 - c)).std() / len(c) ** 0.5,
                ),
            }
            answer = read(call(suite, right, c), [2])
            mistakes = {
                hint: torch.stack((wrong, answer[1] if off is None else off))
                for hint, (wrong, off) in hints.items()
            }
            compare(answer, torch.stack((score, error)), mistakes, tolerance=1e-5)
