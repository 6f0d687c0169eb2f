"""Chapter 11: the same targets, turns within a window, YaRN's ramp, gains that add up or not."""

from __future__ import annotations

import math

import torch

from rove_lab.checks.verdict import call, compare, read, verdict
from rove_lab.scaling import YarnScaling, frequencies

__all__ = ["check_kept", "check_overlap", "check_ramp", "check_scored"]


def check_scored(scored: object) -> None:
    """Check ``scored(n, lengths)``: which tokens are predicted whatever the windows' length.

    A window of L tokens starts at every multiple of L, and nothing predicts its first token.

    Args:
        scored: From the tokens of a text and the lengths of windows it is read in, of which each
            divides the next, to ``[n]``: true for a token that has something before it in the
            windows of every length.

    Example:
        >>> check_scored(lambda n, lengths: torch.arange(n) > 0)
        Not solved yet: every window has a first token, not the text alone.
    """
    with verdict("one set of targets for all lengths: only what was read before them differs."):
        for n, lengths in ((32, [4, 8, 16]), (24, [3, 6, 12]), (20, [5, 10])):
            at = torch.arange(n)
            opens = torch.stack([at % length == 0 for length in lengths])
            right = ~opens.any(0)
            mistakes = {
                "every window has a first token, not the text alone.": at > 0,
                "those open windows of the longest; shorter ones open more often.": ~opens[-1],
                "the other way round: a token that opens a window is not scored.": ~right,
                "the last of a window is predicted well: it is the first that has nothing.": (
                    ~torch.stack([(at + 1) % length == 0 for length in lengths]).any(0)
                ),
                "only what has the shortest length before it: that is too strict.": (
                    at >= lengths[0]
                ),
            }
            answer = read(call(scored, n, lengths), [n])
            compare(answer, right.double(), {hint: of.double() for hint, of in mistakes.items()})


def check_kept(kept: object) -> None:
    r"""Check ``kept(inv_freq, n_ctx, beta_fast)``: how many planes turn more often than that.

    Plane m turns :math:`n_{ctx}\,\omega_m / 2\pi` times within the window.

    Args:
        kept: From frequencies ``[planes]`` in radians per token, the tokens of the window and
            YaRN's ``beta_fast`` to the number of planes that turn more than ``beta_fast`` times.

    Example:
        >>> check_kept(lambda inv_freq, n_ctx, beta_fast: (n_ctx * inv_freq > beta_fast).sum())
        Not solved yet: a turn is 2 pi radians.
    """
    with verdict("beta_fast counts turns within the window the model was trained on."):
        for base, d_head, n_ctx, beta in (
            (10_000.0, 32, 128, 4.0),
            (10_000.0, 32, 128, 32.0),
            (10_000.0, 64, 1024, 8.0),
            (500.0, 16, 300, 3.0),
        ):
            omega = frequencies(base, d_head)
            turns = n_ctx * omega / (2 * math.pi)
            right = int((turns > beta).sum())
            mistakes = {
                "a turn is 2 pi radians.": int((n_ctx * omega > beta).sum()),
                "those are the ones that turn less often.": int((turns <= beta).sum()),
                "one too many: the first plane that turns less often is not counted.": (right + 1),
                "that counts planes that come round at all: compare with beta_fast.": (
                    int((turns > 1).sum())
                ),
                "radians per token times tokens: the frequency is not the wavelength.": (
                    int((n_ctx / (2 * math.pi * omega) > beta).sum())
                ),
                "beta_fast is a number of turns, not an angle.": (
                    int((turns > beta * math.pi * 2).sum())
                ),
            }
            compare(read(call(kept, omega, n_ctx, beta), []), float(right), mistakes)


def check_ramp(ramp: object) -> None:
    r"""Check ``ramp(inv_freq, factor, low, high)``: YaRN's frequencies, given where the ramp lies.

    .. math:: \omega'_m = \gamma_m \omega_m + (1 - \gamma_m)\,\omega_m / s, \quad
              \gamma_m = 1 - \mathrm{clamp}\Bigl(\frac{m - low}{high - low}, 0, 1\Bigr)

    Peng et al. (2023), arXiv:2309.00071, equations 17 to 22.

    Args:
        ramp: From frequencies ``[planes]``, the factor s and two planes to frequencies
            ``[planes]``: kept up to plane ``low``, divided by s from plane ``high`` on, between
            them mixed along a line.

    Example:
        >>> check_ramp(lambda inv_freq, factor, low, high: inv_freq / factor)
        Not solved yet: that slows every plane: those up to low keep their frequency.
    """
    with verdict("fast planes tell neighbours apart and stay; slow ones see no new angle."):
        for base, d_head, window, factor, beta in (
            (10_000.0, 32, 128, 8.0, 4.0),
            (10_000.0, 32, 128, 16.0, 1.0),
            (500.0, 64, 1024, 3.0, 16.0),
        ):
            omega = frequencies(base, d_head)
            m = torch.arange(len(omega), dtype=torch.float64)

            def plane(
                turns: float, base: float = base, d_head: int = d_head, window: int = window
            ) -> float:
                of_window = window / (2 * math.pi * turns)
                return d_head * math.log(of_window) / (2 * math.log(base))

            low, high = max(math.floor(plane(beta)), 0), math.ceil(plane(1.0))
            line = (m - low) / (high - low)
            gamma = 1 - line.clamp(0, 1)
            right = YarnScaling(factor, window, beta_fast=beta).inv_freq(base, d_head)

            def mixed(
                keep: torch.Tensor, omega: torch.Tensor = omega, factor: float = factor
            ) -> torch.Tensor:
                return keep * omega + (1 - keep) * omega / factor

            mistakes = {
                "that slows every plane: those up to low keep their frequency.": omega / factor,
                "the wrong way round: the fast planes, which come first, are kept.": (
                    mixed(1 - gamma)
                ),
                "outside low to high the line goes on: clamp it to 0 and 1.": mixed(1 - line),
                "that makes them faster: for a longer text they turn slower, by 1 / factor.": (
                    gamma * omega + (1 - gamma) * omega * factor
                ),
                "that is a step: between low and high the two are mixed along a line.": (
                    mixed((m <= low).double())
                ),
                "that mixes wavelengths: mix the frequencies.": (
                    1 / (gamma / omega + (1 - gamma) * factor / omega)
                ),
                "that is the share that is kept: which frequency follows from it?": gamma,
            }
            compare(read(call(ramp, omega, factor, low, high), [len(omega)]), right, mistakes)


def check_overlap(overlap: object) -> None:
    """Check ``overlap(rope, rove, rope_yarn, rove_yarn)``: what two gains have in common.

    Args:
        overlap: From the losses of four arms in nats, ``[seeds]`` each, to the gain of RoVE alone
            plus the gain of YaRN alone less the gain of both, ``[seeds]``: 0 if gains add up.

    Example:
        >>> check_overlap(lambda rope, rove, rope_yarn, rove_yarn: rope_yarn - rove_yarn)
        Not solved yet: that is what RoVE gains under YaRN: how much less is it than without?
    """
    with verdict("gains that add up have no overlap; one that does the other's work has."):
        for rope, rove, rope_yarn, rove_yarn in (
            ([3.0, 3.2, 2.9], [2.7, 2.6, 2.8], [2.2, 2.1, 2.3], [2.15, 2.2, 2.0]),
            ([7.4, 6.7], [6.4, 5.7], [5.6, 3.9], [4.8, 2.9]),
        ):
            a, b, c, d = (
                torch.tensor(x, dtype=torch.float64) for x in (rope, rove, rope_yarn, rove_yarn)
            )
            right = (a - b) + (a - c) - (a - d)
            mistakes = {
                "that is what RoVE gains under YaRN: how much less is it than without?": c - d,
                "that is the gain of both together.": a - d,
                "those are the two gains: take away that of both together.": (a - b) + (a - c),
                "the sign: a gain is the loss before less the loss after.": -right,
                "that is a ratio of losses: nats are logarithms already; take differences.": (
                    a * d / (b * c)
                ),
                "one number a seed: do not take the mean yet.": right.mean().expand(len(a)),
            }
            compare(read(call(overlap, a, b, c, d), [len(a)]), right, mistakes)
