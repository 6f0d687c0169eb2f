"""Chapter 15: channels that tell positions, a sink's share, decoding from rotated latents."""

from __future__ import annotations

import torch
from torch import Tensor

from rove_lab.checks.verdict import call, compare, draw, read, verdict
from rove_lab.rotary import RotaryEmbedding
from rove_lab.shared_kv import shared_kv_attention

__all__ = ["check_left", "check_step", "check_telling"]


def check_telling(telling: object) -> None:
    """Check ``telling(rotary)``: which channels of an output that is never undone see a shift.

    Args:
        telling: From an embedding to ``[d_head]``, True where the output changes.

    Example:
        >>> check_telling(lambda rotary: torch.ones(rotary.d_head))
        Not solved yet: channels that do not turn stay as they are.
    """
    with verdict("a rotation that is left in is seen in the planes that turn, and nowhere else."):
        rotaries = [
            RotaryEmbedding(12, rotary_dim=4, interleaved=True, trailing=True),
            RotaryEmbedding(12, rotary_dim=8, trailing=True),
            RotaryEmbedding(12, rotary_dim=4),
            RotaryEmbedding(12, rotary_dim=8, trailing=True).planes([1, 2]),
            RotaryEmbedding(12, interleaved=True).planes([]),
        ]
        for rotary in rotaries:
            turning = rotary.plane_channels[rotary.inv_freq != 0].flatten()
            right = _mask(turning)
            mistakes: dict[str, Tensor | float] = {
                "channels that do not turn stay as they are.": 1.0,
                "nothing is undone here: what turns can be seen.": 0.0,
                "a plane at frequency 0 stands still, and so do its channels.": _mask(
                    rotary.plane_channels.flatten()
                ),
                "that is the channels that stay.": 1 - right,
                "the rotary channels may trail, as DeepSeek's do: see plane_channels.": _mask(
                    torch.arange(rotary.rotary_dim)
                ),
                "the rotary channels may also lead: see plane_channels.": _mask(
                    torch.arange(12 - rotary.rotary_dim, 12)
                ),
                "a plane has two channels.": _mask(rotary.plane_channels[:, 0]),
                "planes are not channels: see plane_channels.": _mask(
                    rotary.inv_freq.nonzero().flatten()
                ),
            }
            compare(read(call(telling, rotary), [12]), right, mistakes)


def check_left(left: object) -> None:
    """Check ``left(logits, sinks)``: the share of each message that a sink leaves.

    Args:
        left: From logits ``[heads, query, key]`` and a sink's logit for each head ``[heads]`` to
            factors ``[heads, query]`` of the output without a sink.

    Example:
        >>> check_left(lambda logits, sinks: torch.ones(logits.shape[:2]))
        Not solved yet: that is without a sink: it takes a part of the attention.
    """
    with verdict("a sink makes an output shorter and never turns it; it needs no position."):
        random = draw(1502)
        for heads, queries, keys in ((2, 3, 5), (3, 1, 8)):
            logits = 2 * torch.randn(heads, queries, keys, generator=random, dtype=torch.float64)
            logits[:, 0, keys // 2 :] = -torch.inf  # keys that the first query does not see
            sinks = torch.randn(heads, generator=random, dtype=torch.float64)
            sink, total = sinks[:, None], logits.logsumexp(-1)
            seen = logits.masked_fill(logits == -torch.inf, 0)
            mistakes: dict[str, Tensor | float] = {
                "that is without a sink: it takes a part of the attention.": 1.0,
                "that is the sink's own share; the messages have the rest.": (
                    torch.sigmoid(sink - total)
                ),
                "all the keys compete with the sink, not the largest alone.": (
                    torch.sigmoid(logits.amax(-1) - sink)
                ),
                "logits are exponents: the sum is one of exponentials.": (
                    torch.sigmoid(seen.sum(-1) - sink)
                ),
                "logits are exponents, -inf that of a key not seen: sum their exponentials.": (
                    torch.sigmoid(logits.sum(-1) - sink)
                ),
                "a sink is a logit as well: take its exponential.": (
                    total.exp() / (total.exp() + sink)
                ),
                "a softmax compares exponentials, not logits.": total / (total + sink),
                "each head has a sink of its own: give it an axis for the queries.": (
                    torch.sigmoid(total - sinks[0])
                ),
                "the sink's logit is not scaled by the number of keys.": (
                    torch.sigmoid(total - sink - torch.tensor(float(keys)).log())
                ),
            }
            got = read(call(left, logits, sinks), [heads, queries])
            compare(got, torch.sigmoid(total - sink), mistakes)


def check_step(step: object) -> None:
    """Check ``step(q, cache, rotary, t)``: one query beside a cache of rotated latents.

    Args:
        step: From q ``[heads, 1, d_head]`` at position t, not rotated, and latents
            ``[1, pos, d_head]`` of which the last is the query's own token, rotated each at its
            position, to ``[heads, 1, d_head]``.

    Example:
        >>> check_step(lambda q, cache, rotary, t: q)
        Not solved yet: on one of our inputs it is off by up to ...
    """
    with verdict("a step rotates one query, reads the cache as it is, and turns back one output."):
        random = draw(1503)
        for heads, held, t in ((1, 6, 5), (3, 4, 41)):
            rotary = RotaryEmbedding(8, base=60.0, rotary_dim=4, interleaved=True, trailing=True)
            q, kv = (
                torch.randn(n, m, 8, generator=random, dtype=torch.float64)
                for n, m in ((heads, 1), (1, held))
            )
            at, there = rotary([t]), rotary(range(t - held + 1, t + 1))
            cache = there.apply(kv)

            def read_by(
                query: Tensor, key: Tensor, value: Tensor, scale: float = 8**-0.5
            ) -> Tensor:
                return (query @ key.mT * scale).softmax(-1) @ value

            turned = at.apply(q)
            z = read_by(turned, cache, cache)
            mistakes: dict[str, Tensor | float] = {
                "the output is not turned back: it tells absolute positions.": z,
                "at the query you rotated once more instead of undoing.": at.apply(z),
                "the query has to be rotated, as the latents are.": at.undo(
                    read_by(q, cache, cache)
                ),
                "the cache is rotated already: each latent is turned once, when it comes in.": (
                    at.undo(read_by(turned, there.apply(cache), there.apply(cache)))
                ),
                "undone at the keys it is RoPE: undo the output, at the query.": (
                    read_by(turned, cache, kv)
                ),
                "the logits are divided by the square root of d_head.": at.undo(
                    read_by(turned, cache, cache, 1.0)
                ),
                "is_causal counts from the first key, and a query alone sees that one: leave it.": (
                    at.undo(cache[:, :1]).expand_as(q)
                ),
                "the query stands at t; the cache may have lost its first tokens.": (
                    rotary([held - 1]).undo(read_by(rotary([held - 1]).apply(q), cache, cache))
                ),
            }
            right = shared_kv_attention(
                q, kv, rotary, positions=[t], key_positions=range(t - held + 1, t + 1)
            )
            compare(read(call(step, q, cache, rotary, t), q.shape), right, mistakes)


def _mask(channels: Tensor) -> Tensor:
    """One where a channel of twelve is named."""
    return torch.zeros(12, dtype=torch.float64).index_fill(0, channels, 1.0)
