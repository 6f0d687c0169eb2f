"""Chapter 9: perplexity in pieces, what is left beside a control, planes that turn little."""

from __future__ import annotations

import torch

from rove_lab.checks.verdict import call, compare, draw, read, verdict
from rove_lab.rotary import RotaryEmbedding

__all__ = ["check_damage_left", "check_hardly_turning", "check_perplexity"]


def check_perplexity(perplexity: object) -> None:
    r"""Check ``perplexity(losses)``: of a text read in pieces of unequal lengths.

    Args:
        perplexity: From a list of losses by token, ``[pos]`` each, in nats, to one number.

    Example:
        >>> check_perplexity(lambda losses: torch.cat(losses).mean())
        Not solved yet: that is the loss: perplexity is its exponential.
    """
    with verdict("every token counts once, and the exponential comes last."):
        random = draw(901)
        for lengths in ([40, 3], [5, 17, 200]):
            losses = [
                (3 * torch.rand((), generator=random) + torch.rand(n, generator=random)).double()
                for n in lengths
            ]
            every = torch.cat(losses)
            means = torch.stack([piece.mean() for piece in losses])
            mistakes = {
                "the pieces are not equally long: every token counts once.": means.mean().exp(),
                "take the exponential last: that is the mean of each token's.": every.exp().mean(),
                "take the exponential last, and let every token count once.": (
                    torch.stack([one.exp().mean() for one in losses]).mean()
                ),
                "that is the mean of the pieces' perplexities: take the mean of losses first.": (
                    means.exp().mean()
                ),
                "these are nats: the base is e, not 2.": 2 ** every.mean(),
                "that is the loss: perplexity is its exponential.": every.mean(),
                "that is one over the perplexity: mind the sign.": (-every.mean()).exp(),
            }
            compare(read(call(perplexity, losses), []), every.mean().exp(), mistakes)


def check_damage_left(damage_left: object) -> None:
    r"""Check ``damage_left(rope_before, rove_at_once, rope_after, rove_after)``, a share of one.

    Args:
        damage_left: From four losses in nats: the trained RoPE model, the same with RoVE switched
            on, the control trained on with RoPE, and RoVE trained on alike; to the gap beside the
            control that is left, as a share of the gap at once.

    Example:
        >>> check_damage_left(lambda before, at_once, rope, rove: rove - rope)
        Not solved yet: that is a loss in nats: divide it by the gap at once.
    """
    with verdict("beside the control, and no other way, it can be read what the switch costs."):
        for before, at_once, rope, rove in ((2.0, 3.0, 1.7, 1.9), (1.5, 1.9, 1.45, 1.4)):
            gap, left = at_once - before, rove - rope
            mistakes = {
                "the control has learned too: compare with it, not with the old model.": (
                    (rove - before) / gap
                ),
                "that is the share won back: what is left is one less that.": 1 - left / gap,
                "that is a loss in nats: divide it by the gap at once.": left,
                "divide by the gap at once, not by what training on gained.": (
                    left / (at_once - rove)
                ),
                "the gap at once is beside the trained model, before anything is trained on.": (
                    left / (at_once - rope)
                ),
                "that is the right size with the wrong sign: RoVE less RoPE.": -left / gap,
            }
            answer = read(call(damage_left, before, at_once, rope, rove), [])
            compare(answer, left / gap, mistakes)


def check_hardly_turning(hardly_turning: object) -> None:
    r"""Check ``hardly_turning(rotary, n_ctx, angle)``: which planes turn little in a window.

    Args:
        hardly_turning: From an embedding, a window's tokens and an angle in radians, to a mask
            ``[planes]``: True where no two tokens of the window are turned apart by more.

    Example:
        >>> check_hardly_turning(lambda rotary, n_ctx, angle: rotary.inv_freq <= angle)
        Not solved yet: that is the turn from one token to the next: a window is longer.
    """
    with verdict("the slow planes are those whose whole turn in a window is small."):
        slow = RotaryEmbedding(4, base=1e4)  # its plane 1 turns by a hundredth of a radian
        for rotary, n_ctx, angle in (
            (RotaryEmbedding(16, base=100.0), 11, 1.01),
            (RotaryEmbedding(32, base=1000.0), 64, 0.5),
            (slow, 101, 1.005),
            (slow, 102, 1.005),
        ):
            omega = rotary.inv_freq
            right = (n_ctx - 1) * omega <= angle
            mistakes = {
                "those are the planes that turn more: you want the slow ones.": ~right,
                "that is the turn from one token to the next: a window is longer.": omega <= angle,
                "the angle is in radians, not in degrees.": (
                    torch.rad2deg((n_ctx - 1) * omega) <= angle
                ),
                "the first and the last of n tokens are n - 1 apart, not n - 2.": (
                    (n_ctx - 2) * omega <= angle
                ),
                "the angle is in radians, not in turns.": (
                    (n_ctx - 1) * omega <= 2 * torch.pi * angle
                ),
                "the first and the last of n tokens are n - 1 apart.": n_ctx * omega <= angle,
            }
            hints = {hint: mask.double() for hint, mask in mistakes.items()}
            compare(
                read(call(hardly_turning, rotary, n_ctx, angle), [len(omega)]),
                right.double(),
                hints,
            )
