"""Chapter 18: perplexities in nats, gains that add or do not, how far a model can be read."""

from __future__ import annotations

import torch

from rove_lab.checks.verdict import call, compare, draw, read, verdict

__all__ = ["check_beyond_sum", "check_nats_ahead", "check_reach"]


def check_nats_ahead(nats_ahead: object) -> None:
    r"""Check ``nats_ahead(rope, rove)``: by how many nats per token RoVE is ahead.

    Args:
        nats_ahead: From two perplexities to one number, positive where RoVE's is lower.

    Example:
        >>> check_nats_ahead(lambda rope, rove: rope - rove)
        Not solved yet: that is in perplexity: take the logarithm of each first.
    """
    with verdict("a ratio of perplexities is a difference of losses, whatever the two are."):
        for rope, rove in ((22.37, 22.30), (840.1, 311.4), (10.6, 26.9)):
            a, b = (torch.tensor(p, dtype=torch.float64) for p in (rope, rove))
            mistakes: dict[str, torch.Tensor | float] = {
                "that is in perplexity: take the logarithm of each first.": a - b,
                "that is RoVE's loss less RoPE's: ahead is positive.": (b / a).log(),
                "that is a ratio: nats are its logarithm.": a / b,
                "that is in bits: nats are by the natural logarithm.": (a / b).log2(),
                "that is by the logarithm to base ten: nats are by the natural one.": (
                    (a / b).log10()
                ),
                "that is the share by which the perplexity is lower.": 1 - b / a,
            }
            compare(read(call(nats_ahead, rope, rove), []), (a / b).log(), mistakes)


def check_beyond_sum(beyond_sum: object) -> None:
    r"""Check ``beyond_sum(plain, rove, yarn, both)``: what two changes gain beyond their sum.

    Args:
        beyond_sum: From four perplexities, of RoPE, with RoVE, with YaRN and with both, to nats per
            token: the gain of both over RoPE, less the gains of each alone. Chapter 11 asks it of
            losses with the other sign, as an overlap: :func:`rove_lab.checks.length.check_overlap`.

    Example:
        >>> check_beyond_sum(lambda plain, rove, yarn, both: math.log(plain / both))
        Not solved yet: your function raised NameError: name 'math' is not defined.
    """
    with verdict("gains that add leave 0: above it they help each other, below they overlap."):
        random = draw(1801)
        for _ in range(3):
            logs = 2 + 4 * torch.rand(4, generator=random, dtype=torch.float64)
            plain, rove, yarn, both = logs
            right = (plain - both) - (plain - rove) - (plain - yarn)
            p, r, y, b = logs.exp()
            mistakes = {
                "that is the gain of both: take off what each gains alone.": plain - both,
                "that is what RoVE adds over YaRN: take off what it gains without.": yarn - both,
                "that is what YaRN adds over RoVE: take off what it gains without.": rove - both,
                "that is the sum of the two less the gain of both: the other way round.": -right,
                "that is in perplexity: take the logarithm of each first.": r + y - p - b,
                "that is the sum of the gains: how much more do both together gain?": (
                    (plain - rove) + (plain - yarn)
                ),
                "that is a product of ratios: nats are its logarithm.": right.exp(),
            }
            given = [perplexity.item() for perplexity in (p, r, y, b)]
            compare(read(call(beyond_sum, *given), []), right, mistakes)


def check_reach(reach: object) -> None:
    r"""Check ``reach(lengths, perplexities, limit)``: up to which length a text can be read.

    Args:
        reach: From lengths in tokens and the perplexities there, ``[points]`` each and both rising,
            and a limit between the first and the last, to the length at which the perplexity
            reaches it: along a straight line between the logarithms of both.

    Example:
        >>> check_reach(lambda lengths, perplexities, limit: lengths[perplexities <= limit][-1])
        Not solved yet: that is the last length that was measured below the limit.
    """
    with verdict("a straight line between logarithms: lengths double, and perplexities multiply."):
        for points, limit in (
            ([15.0, 21.0, 34.0, 130.0], 60.0),
            ([16.0, 50.0, 155.0, 270.0], 40.0),
        ):
            lengths = torch.tensor([2048.0, 4096.0, 8192.0, 16384.0], dtype=torch.float64)
            perplexities = torch.tensor(points, dtype=torch.float64)
            i = int((perplexities > limit).long().argmax())
            at, low, high = torch.tensor(limit), perplexities[i - 1], perplexities[i]
            along = (at / low).log() / (high / low).log()
            straight = (at - low) / (high - low)
            before = lengths[i - 1]
            mistakes: dict[str, torch.Tensor | float] = {
                "that is the last length that was measured below the limit.": before,
                "that is the first length that was measured above the limit.": lengths[i],
                "go along the line between logarithms of both.": before * (1 + straight),
                "the perplexity is on a logarithm, the length is not yet.": before * (1 + along),
                "the length is on a logarithm, the perplexity is not yet.": before * 2**straight,
                "you went along the line from the wrong end.": lengths[i] * 2**-along,
                "that is the logarithm of the length.": (before * 2**along).log(),
            }
            answer = read(call(reach, lengths, perplexities, limit), [])
            compare(answer, before * 2**along, mistakes)
