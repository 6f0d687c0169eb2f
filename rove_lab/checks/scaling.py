"""The chapter on scaling: micro-batches, how busy the devices are, pairs against noise."""

from __future__ import annotations

import math

from rove_lab.checks.verdict import call, compare, read, verdict

__all__ = ["check_accumulate", "check_busy", "check_pairs_for"]


def check_accumulate(accumulate: object) -> None:
    """Check ``accumulate(batch_size, n_devices, fits)``: the fewest micro-batches that fit.

    Args:
        accumulate: From the sequences of a step, the devices, and how many sequences one device
            can hold, to the micro-batches that each device takes one after the other.

    Example:
        >>> check_accumulate(lambda batch_size, n_devices, fits: batch_size // fits)
        Not solved yet: the devices work side by side: each has its share of the batch only.
    """
    with verdict("the batch stays what it was, however many devices share it."):
        for batch_size, n_devices, fits in ((512, 8, 16), (512, 4, 24), (96, 2, 5), (64, 8, 64)):
            share = batch_size // n_devices
            right = next(n for n in range(1, share + 1) if share % n == 0 and share // n <= fits)
            answer = read(call(accumulate, batch_size, n_devices, fits), [])
            mistakes = {
                "the devices work side by side: each has its share of the batch only.": (
                    batch_size // fits
                ),
                "that is the size of a micro-batch: how many are there?": share // right,
                "that rounds down: the last sequences of the share would not fit.": share // fits,
                "the micro-batches must be equally large: the number divides the share.": (
                    math.ceil(share / fits)
                ),
                "that is one sequence at a time, which always fits: fewer would do.": share,
            }
            compare(answer, float(right), {hint: float(of) for hint, of in mistakes.items()})


def check_busy(busy: object) -> None:
    """Check ``busy(tokens_per_s, flops_per_token, peak, n_devices)``: model FLOPs utilisation.

    Args:
        busy: From tokens per second of all devices together, the FLOPs of a token, the peak FLOP/s
            of one device and their number, to the share of their peak that they reach.

    Example:
        >>> check_busy(lambda tokens_per_s, flops_per_token, peak, n: tokens_per_s / peak)
        Not solved yet: every token takes flops_per_token operations: count them.
    """
    with verdict("a speed in tokens becomes a share of what the devices could do."):
        for speed, flops, peak, n in ((1.1e6, 8.5e8, 312e12, 8), (4e5, 2.4e9, 989e12, 3)):
            right = speed * flops / (peak * n)
            mistakes = {
                "every token takes flops_per_token operations: count them.": speed / peak,
                "n devices have n times the peak of one.": speed * flops / peak,
                "tokens per second are of all devices together: do not multiply by n.": (
                    n * speed * flops / peak
                ),
                "that is the other way round: what is done, over what could be.": 1 / right,
                "a share, not per cent.": 100 * right,
            }
            compare(read(call(busy, speed, flops, peak, n), []), right, mistakes)


def check_pairs_for(pairs_for: object) -> None:
    r"""Check ``pairs_for(difference, noise, shared)``: as many as make two standard errors.

    The standard error of a mean over n pairs is :math:`\sigma \sqrt{2 (1 - \rho) / n}`.

    Args:
        pairs_for: From a difference, the standard deviation over the seeds of one method and the
            share of its variance that a pair has in common, to the least number of pairs for which
            the difference is two standard errors or more.

    Example:
        >>> check_pairs_for(lambda gap, noise, shared: math.ceil(8 * (noise / gap) ** 2))
        Not solved yet: a pair shares a part of the noise: only the rest is left in a difference.
    """
    with verdict("what a pair shares is noise that nobody has to average away."):
        for difference, noise, shared in ((0.002, 0.0024, 0.4), (1.0, 1.3, 0.25), (-0.2, 0.9, 0.8)):
            own = 2 * (1 - shared) * noise**2
            ratio = own / difference**2
            right = math.ceil(4 * ratio)
            mistakes = {
                "a pair shares a part of the noise: only the rest is left in a difference.": (
                    math.ceil(8 * (noise / difference) ** 2)
                ),
                "a difference has the noise of two runs in it.": math.ceil(2 * ratio),
                "two standard errors, not one.": math.ceil(ratio),
                "shared is the part that goes: 1 - shared is left.": (
                    math.ceil(4 * ratio * shared / (1 - shared))
                ),
                "the standard error falls with the root of n: square the ratio.": (
                    math.ceil(2 * ratio**0.5)
                ),
                "round up: with fewer pairs it is less than two standard errors.": (
                    math.floor(4 * ratio)
                ),
                "a number of pairs is a whole one: round up.": 4 * ratio,
            }
            compare(read(call(pairs_for, difference, noise, shared), []), right, mistakes)
