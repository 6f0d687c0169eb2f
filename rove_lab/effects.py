r"""What RoVE changes in a record beside RoPE: a difference a pair, and what it says of a claim."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from statistics import fmean, stdev
from typing import Any

from rove_lab.records import open_record

__all__ = ["Effect"]

_CLAIMED = ("lower", "higher", "no more")
_LEAST_PAIRS = 3


@dataclass(frozen=True)
class Effect:
    """What RoVE changes in a record, pair by pair: its number less RoPE's of the same seed.

    A difference counts as seen where every pair is as claimed, and the mean of the pairs by more
    than two standard errors. That is no proof: of differences that mean nothing, three are as
    claimed one time in eight.

    Args:
        name: A short name, by which the words of a :class:`Part` call it.
        what: What was measured, in a few words.
        record: The slug of a record.
        rope: Names down to one number a seed in its values: RoPE's; ``*`` is the mean over all
            names there. Empty where the record holds ratios to RoPE.
        rove: RoVE's.
        claimed: What is claimed of RoVE: ``"lower"``, ``"higher"`` or ``"no more"`` than RoPE.
        unit: Of the difference; ``"%"`` is of RoPE's number.
        within: How much still counts as no more, in that unit.
        beside: RoPE's names and RoVE's in another place, whose difference is taken off: what is
            left is how much more RoVE changes here than there.

    Raises:
        ValueError: If something else is claimed, the record has no such numbers, or ``within`` or
            ``beside`` do not fit the claim and its unit.

    Example:
        >>> where = ["held out", "{arm}", "800", "all"]
        >>> paths = [tuple(name.format(arm=arm) for name in where) for arm in ("RoPE", "RoVE")]
        >>> Effect("loss", "held-out loss", "training", *paths, "lower", "nats per byte").agree
        3
    """

    name: str
    what: str
    record: str
    rope: tuple[str, ...]
    rove: tuple[str, ...]
    claimed: str
    unit: str
    within: float = 0.0
    beside: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(f"expected a name of one word, got {self.name!r}.")
        if self.claimed not in _CLAIMED:
            raise ValueError(
                f"expected {' or '.join(_CLAIMED)} to be claimed, got {self.claimed!r}."
            )
        if self.within and self.claimed != "no more":
            raise ValueError(f"expected 'no more' to be claimed within {self.within}, got another.")
        if self.beside and (self.unit == "%" or len(self.beside) != 2):
            raise ValueError(
                f"expected RoPE's names and RoVE's to stand beside, in a unit but %, got "
                f"{len(self.beside)} and {self.unit!r}: per cent of two numbers do not subtract."
            )
        if len(self.pairs) < _LEAST_PAIRS:
            raise ValueError(
                f"expected {_LEAST_PAIRS} pairs or more in {self.record}, got {len(self.pairs)}."
            )

    @property
    def pairs(self) -> list[float]:
        """RoVE's number less RoPE's, one a seed; in per cent of RoPE's where that is the unit."""
        rove = self._seeds(self.rove)
        rope = self._seeds(self.rope) if self.rope else [1.0] * len(rove)
        apart = [b - a for a, b in zip(rope, rove, strict=True)]
        if self.unit == "%":
            return [100 * less / a for a, less in zip(rope, apart, strict=True)]
        if self.beside:
            other, own = map(self._seeds, self.beside)
            return [less - (b - a) for less, a, b in zip(apart, other, own, strict=True)]
        return apart

    @property
    def gains(self) -> list[float]:
        """The differences as the claim counts them: positive where a pair is as claimed."""
        if self.claimed == "no more":
            return [self.within - pair for pair in self.pairs]
        return [pair if self.claimed == "higher" else -pair for pair in self.pairs]

    @property
    def count(self) -> int:
        """How many pairs there are."""
        return len(self.pairs)

    @property
    def agree(self) -> int:
        """How many pairs are as claimed."""
        return sum(gain > 0 for gain in self.gains)

    @property
    def mean(self) -> float:
        """The mean of the differences."""
        return fmean(self.pairs)

    @property
    def size(self) -> float:
        """How large that is, without its sign."""
        return abs(self.mean)

    @property
    def error(self) -> float:
        """The standard error of the mean: the deviation of the pairs over √n."""
        return float(stdev(self.pairs) / self.count**0.5)

    @property
    def least(self) -> float:
        """The lowest of the differences."""
        return min(self.pairs)

    @property
    def most(self) -> float:
        """The highest of the differences."""
        return max(self.pairs)

    @property
    def rope_mean(self) -> float:
        """RoPE's own number, in the mean over the seeds."""
        return fmean(self._seeds(self.rope))

    @property
    def rove_mean(self) -> float:
        """RoVE's."""
        return fmean(self._seeds(self.rove))

    @property
    def borne(self) -> bool:
        """Whether every pair is as claimed, and the mean by more than two standard errors."""
        gains = self.gains
        sure = self.claimed == "no more" or fmean(gains) > 2 * self.error
        return min(gains) > 0 and sure

    @property
    def against(self) -> bool:
        """Whether it is the other way round in every pair, by as much."""
        gains = self.gains
        return max(gains) < 0 and fmean(gains) < -2 * self.error

    def _seeds(self, names: tuple[str, ...]) -> list[float]:
        try:
            return _numbers(_values(self.record), names)
        except LookupError as error:
            raise ValueError(
                f"expected numbers at {' / '.join(names)} in {self.record}, got {error}."
            ) from error


def _numbers(found: Any, names: tuple[str, ...]) -> list[float]:
    """One number a seed; at ``*`` their mean over all names that are there."""
    if not names:
        if not isinstance(found, list):
            raise LookupError("more names")
        return [float(number) for number in found]
    first, rest = names[0], names[1:]
    if isinstance(found, dict) and first == "*":
        every = [_numbers(inner, rest) for inner in found.values()]
        return [fmean(seed) for seed in zip(*every, strict=True)]
    if not isinstance(found, dict) or first not in found:
        raise LookupError(f"no {first!r}")
    return _numbers(found[first], rest)


@cache
def _values(slug: str) -> dict[str, Any]:
    return open_record(slug).values
