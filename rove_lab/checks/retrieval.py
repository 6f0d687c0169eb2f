"""Chapter 12: where the answer stands, angles that training has not shown, positions that skip."""

from __future__ import annotations

import math

import torch

from rove_lab.checks.verdict import call, compare, draw, read, verdict
from rove_lab.needles import Needles
from rove_lab.rotary import RotaryEmbedding

__all__ = ["check_answer_place", "check_skipping", "check_unseen"]


def check_answer_place(answer_place: object) -> None:
    """Check ``answer_place(tokens)``: where the value of the asked key stands.

    Args:
        answer_place: From tokens ``[batch, pos]`` of a needle task, which end in the key that is
            asked, to places ``[batch]``: of the token after that key where it stood first.

    Example:
        >>> check_answer_place(lambda tokens: (tokens == tokens[:, -1:]).int().argmax(-1))
        Not solved yet: that is where the key stands: its value is the token after it.
    """
    with verdict("an induction head's two steps: the same token before, and one on."):
        for seed, task in ((1201, Needles()), (1202, Needles(n_ctx=40, n_keys=5))):
            tokens, targets = next(task.batches(16, seed))
            same = tokens == tokens[:, -1:]
            key = same.int().argmax(-1)
            length = tokens.shape[1]
            values = (tokens == targets[:, -1:]).int()
            mistakes = {
                "that is where the key stands: its value is the token after it.": key,
                "that is the question's own key: look for it earlier.": torch.full_like(
                    key, length - 1
                ),
                "that is a place past the end: the question's key has nothing after it.": (
                    torch.full_like(key, length)
                ),
                "that is the token before the key: the value comes after it.": key - 1,
                "that is how far back it stands: count from the start.": length - 2 - key,
                "that is the first such value: another key may have the same.": values.argmax(-1),
                "those are the tokens that stand there: their places are asked.": targets[:, -1],
            }
            answer = read(call(answer_place, tokens), [16])
            compare(answer, (key + 1).double(), {k: v.double() for k, v in mistakes.items()})


def check_unseen(unseen: object) -> None:
    r"""Check ``unseen(inv_freq, n_ctx, times)``: the share of the circle that training left out.

    Args:
        unseen: From frequencies ``[planes]`` in radians a token, the trained length and how many
            times longer a text is, to ``[planes]``: how much of the circle the turns of the longer
            text cover that those of training did not, from 0 to 1.

    Example:
        >>> check_unseen(lambda inv_freq, n_ctx, times: 0 * inv_freq)
        Not solved yet: a plane that did not come round in training has new turns to make.
    """
    with verdict("the planes in the middle meet new turns: faster ones went round, slower creep."):
        for n_ctx, times, d_head in ((64, 8, 32), (128, 4, 16), (50, 16, 24)):
            inv_freq = RotaryEmbedding(d_head).inv_freq
            circle = 2 * math.pi

            def covered(
                n: float, inv_freq: torch.Tensor = inv_freq, circle: float = circle
            ) -> torch.Tensor:
                return (n * inv_freq / circle).clamp(max=1)

            long, short = times * n_ctx - 1, n_ctx - 1
            right = covered(long) - covered(short)
            wide = (long - short) * inv_freq / circle
            mistakes = {
                "a plane that did not come round in training has new turns to make.": 0 * right,
                "a plane that comes round meets nothing new: a turn counts up to once.": wide,
                "that is all the turns of the longer text: leave out those of training.": (
                    covered(long)
                ),
                "that is what training covered: what the longer text adds is asked.": covered(
                    short
                ),
                "the farthest of n tokens is n - 1 away, not n.": (
                    covered(times * n_ctx) - covered(n_ctx)
                ),
                "that is in radians: divide by those of a circle.": right * circle,
                "that is the rest of the circle, whether the longer text gets there or not.": (
                    1 - covered(short)
                ),
                "the difference of the turns, cut at a circle, counts the first one twice.": (
                    wide.clamp(max=1)
                ),
            }
            answer = read(call(unseen, inv_freq, n_ctx, times), [d_head // 2])
            compare(answer, right, mistakes)


def check_skipping(skipping: object) -> None:
    """Check ``skipping(n, cuts, gaps)``: positions of n tokens that skip some numbers.

    Args:
        skipping: From a number of tokens, places ``[cuts]`` of the tokens before which there is a
            gap, in order, and the numbers left out there ``[cuts]``, to positions ``[n]``.

    Example:
        >>> check_skipping(lambda n, cuts, gaps: torch.arange(n))
        Not solved yet: nothing is skipped: from each cut on all positions are farther by its gap.
    """
    with verdict("near tokens stay near, far ones get farther: every offset can be trained."):
        random = draw(1203)
        for n, n_cuts in ((8, 1), (12, 3), (64, 3)):
            cuts = (torch.randperm(n - 3, generator=random)[:n_cuts] + 1).sort().values
            gaps = torch.randint(2, 40, (n_cuts,), generator=random)
            plain = torch.arange(n)
            marks = torch.zeros(n, dtype=torch.int64)
            marks[cuts] = gaps
            right = plain + marks.cumsum(0)
            mistakes = {
                "nothing is skipped: from each cut on all positions are farther by its gap.": plain,
                "only the token at a cut has moved: all after it move, too.": plain + marks,
                "a gap belongs before the token at the cut: yours comes after it.": (
                    plain + marks.roll(1).cumsum(0)
                ),
                "the gaps alone: the tokens count on, too.": marks.cumsum(0),
                "the gap is what is left out: the next token stands one beyond it.": (
                    plain + (marks - (marks > 0).long()).cumsum(0)
                ),
                "yours grow backwards: the gaps add up from the start.": (
                    plain + marks.flip(0).cumsum(0).flip(0)
                ),
            }
            answer = read(call(skipping, n, cuts, gaps), [n])
            compare(answer, right.double(), {k: v.double() for k, v in mistakes.items()})
