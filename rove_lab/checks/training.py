"""Chapter 10: when a curve reaches a loss, differences in pairs, the rate that falls."""

from __future__ import annotations

import torch

from rove_lab.checks.verdict import call, compare, draw, read, verdict
from rove_lab.train_config import TrainConfig

__all__ = ["check_paired", "check_share", "check_steps_to"]


def check_steps_to(steps_to: object) -> None:
    r"""Check ``steps_to(steps, losses, level)``: at which step a curve first reaches a loss.

    Args:
        steps_to: From the steps of the reports and the losses, ``[points]`` each, and a loss
            between the first and the least, to one number: along the straight line from the last
            report before the curve comes down to it, to the report after.

    Example:
        >>> check_steps_to(lambda steps, losses, level: steps[losses <= level][0])
        Not solved yet: that is the first report at or under it: the curve got there earlier.
    """
    with verdict("a curve turned on its side: not how low, but how soon."):
        for losses, level in (
            ([4.0, 2.4, 2.6, 2.2, 2.5, 2.1], 2.48),  # a training curve goes up, too
            ([5.0, 3.0, 2.0, 1.8, 1.75], 2.25),
        ):
            curve = torch.tensor(losses, dtype=torch.float64)
            steps = 25.0 + 50.0 * torch.arange(len(losses), dtype=torch.float64)
            under = curve <= level
            i = int(under.long().argmax())
            crossings = [k for k in range(1, len(losses)) if under[k] and not under[k - 1]]

            def along(k: int, curve: torch.Tensor = curve, level: float = level) -> torch.Tensor:
                return (curve[k - 1] - level) / (curve[k - 1] - curve[k])

            right = steps[i - 1] + along(i) * 50
            mistakes = {
                "that is the first report at or under it: the curve got there earlier.": steps[i],
                "that is the last report above it: the curve got there later.": steps[i - 1],
                "that is the nearest report: go along the line between two.": (
                    steps[(curve - level).abs().argmin()]
                ),
                "you went along the line from the wrong end.": steps[i] - along(i) * 50,
                "that is how many reports it takes: the steps are given.": i - 1 + along(i),
                "the curve comes back up and down again: the first time counts.": (
                    steps[crossings[-1] - 1] + along(crossings[-1]) * 50
                ),
                "that is how far the line goes beyond the report before: add its step.": (
                    along(i) * 50
                ),
            }
            compare(read(call(steps_to, steps, curve, level), []), right, mistakes)


def check_paired(paired: object) -> None:
    r"""Check ``paired(rope, rove)``: the mean difference over seeds, and its standard error.

    Args:
        paired: From two losses a seed, ``[seeds]``, the same seed at the same place, to RoVE less
            RoPE in the mean and to the standard error of that.

    Example:
        >>> check_paired(lambda rope, rove: ((rove - rope).mean(), (rove - rope).std()))
        Not solved yet: that is the spread of the seeds: the mean of n is surer by a root of n.
    """
    with verdict("what both arms of a pair share falls out of their difference."):
        random = draw(1001)
        for n in (4, 7):
            shared = torch.rand(n, generator=random, dtype=torch.float64)  # by how the seeds differ
            rope = 1.5 + shared
            rove = rope - 0.03 + 0.02 * torch.rand(n, generator=random, dtype=torch.float64)
            apart = rove - rope
            mean, error = apart.mean(), apart.std() / n**0.5
            spread = (rope.var() / n + rove.var() / n).sqrt()
            mistakes = {
                "that is the spread of the seeds: the mean of n is surer by a root of n.": (
                    mean,
                    apart.std(),
                ),
                "that is as if the arms had nothing in common: take differences first.": (
                    mean,
                    spread,
                ),
                "that is RoPE less RoVE: a lower loss of RoVE should be negative.": (-mean, error),
                "n differences around their own mean: divide by n - 1, as std does.": (
                    mean,
                    apart.std(correction=0) / n**0.5,
                ),
                "that is the variance of the mean: the error is its root.": (mean, error**2),
                "divide by the root of n, not by n.": (mean, apart.std() / n),
            }
            hints = {hint: torch.stack(pair) for hint, pair in mistakes.items()}
            answer = read(call(paired, rope, rove), [2])
            compare(answer, torch.stack((mean, error)), hints, tolerance=1e-5)


def check_share(share: object) -> None:
    r"""Check ``share(step, steps, warmup, final)``: the learning rate, as a share of its peak.

    Args:
        share: From a step counted from 1, the steps of the run, those of the warm-up and the share
            at the end to one number: up a straight line, down a half cosine.

    Example:
        >>> check_share(lambda step, steps, warmup, final: step / warmup)
        Not solved yet: the warm-up is right; after it the rate falls along a half cosine.
    """
    with verdict(
        "the rate looks ahead to the last step: a shorter run is not a longer one's start."
    ):
        for step, steps, warmup, final in (
            (3, 100, 10, 0.1),
            (10, 100, 10, 0.1),
            (40, 100, 10, 0.1),
            (200, 250, 50, 0.0),
            (100, 100, 10, 0.2),
        ):
            how = TrainConfig(steps=steps, learning_rate=1.0, final_rate=final, warmup_steps=warmup)
            after = torch.tensor((step - warmup) / (steps - warmup), dtype=torch.float64)
            wave = 0.5 * (1 + (torch.pi * after).cos())
            whole = 0.5 * (1 + (torch.pi * torch.tensor(step / steps)).cos())
            mistakes: dict[str, torch.Tensor | float] = {
                "the warm-up is right; after it the rate falls along a half cosine.": step / warmup,
                "in the warm-up the rate grows along a line from 0: step over warmup.": (
                    final + (1 - final) * wave
                ),
                "the cosine begins where the warm-up ends, not at step 0.": (
                    final + (1 - final) * whole
                ),
                "that ends at 0: it should end at the share `final`.": wave,
                "that starts above 1: only what lies over `final` falls.": final + wave,
                "that falls along a line: take a half cosine.": 1 - (1 - final) * after,
                "that is a whole cosine, down and up again: take half of it.": (
                    final + (1 - final) * 0.5 * (1 + (2 * torch.pi * after).cos())
                ),
            }
            compare(read(call(share, step, steps, warmup, final), []), how.rate(step), mistakes)
