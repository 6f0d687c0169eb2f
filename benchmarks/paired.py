"""Times taken in pairs: what the machine does besides falls on all that is compared alike.

Every round runs every case once, in random order; a ratio is the median of the rounds' ratios, with
the first and the last decile beside it. The clock is that of the processor, all threads together,
or that of a GPU which has done what it was told. A case comes once before the clock is read, and a
short one several times until it is read again: memory that is asked for anew, threads that wake up
and a GPU that is waited for take as long as a short case does.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from statistics import median, quantiles

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MOST_ROUNDS, FEWEST_ROUNDS = 60, 9
LEAST_SECONDS, MOST_CALLS = (2e-3 if DEVICE == "cuda" else 1e-2), 100  # of a case in a round

Times = dict[str, list[float]]
Scores = dict[str, float]


def now() -> float:
    """Seconds: of the processor, whoever else uses the machine, or of a GPU that is done."""
    if DEVICE == "cpu":
        return time.process_time()
    return wall()


def wall() -> float:
    """Seconds that pass, when a GPU is done."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def interleaved(cases: Mapping[str, Callable[[], object]], budget: float) -> Times:
    """The seconds of each case in each round.

    Args:
        cases: What to run, by name.
        budget: About how many seconds the rounds may take: at most 60 of them, at least 9.

    Returns:
        One list a case, of equal lengths, round by round.
    """
    for run in cases.values():
        run()  # compiles, and touches its memory
    taken = {}
    for name, run in cases.items():
        started = wall()
        run()
        taken[name] = wall() - started
    calls = {name: calls_a_round(seconds) for name, seconds in taken.items()}
    whole = sum((calls[name] + 1) * max(seconds, 1e-7) for name, seconds in taken.items())
    rounds = int(min(MOST_ROUNDS, max(FEWEST_ROUNDS, budget / whole)))
    order, seconds = random.Random(0), {name: [0.0] * rounds for name in cases}
    for turn in range(rounds):
        for name in order.sample(list(cases), len(cases)):
            run = cases[name]
            run()  # what it finds in caches, and how the allocator stands, is its own doing
            before = now()
            for _ in range(calls[name]):
                run()
            seconds[name][turn] = (now() - before) / calls[name]
    return seconds


def calls_a_round(seconds: float) -> int:
    """How often a case of so many seconds is called between two readings of the clock."""
    return min(MOST_CALLS, max(1, round(LEAST_SECONDS / max(seconds, 1e-9))))


def milliseconds(times: Times) -> dict[str, Scores]:
    """The median of each case; on a processor the seconds of all its threads over their number."""
    threads = torch.get_num_threads() if DEVICE == "cpu" else 1
    return {name: {"ms": rounded(1e3 * median(taken) / threads)} for name, taken in times.items()}


def ratio(times: Times, one: str, other: str) -> dict[str, Scores]:
    """A row ``"one / other"``: the median of the rounds' ratios, and their deciles."""
    return {f"{one} / {other}": spread([a / b for a, b in pairs(times, one, other)])}


def pairs(times: Times, one: str, other: str) -> list[tuple[float, float]]:
    """Both cases' seconds, round by round; none of them nought."""
    least = 1e-9
    return [(max(a, least), max(b, least)) for a, b in zip(times[one], times[other], strict=True)]


def spread(ratios: list[float]) -> Scores:
    """Median, first and last decile of some rounds."""
    tenths = quantiles(ratios, n=10, method="inclusive")
    return {
        "ratio": rounded(median(ratios)),
        "low": rounded(tenths[0]),
        "high": rounded(tenths[-1]),
        "rounds": len(ratios),
    }


def rounded(value: float) -> float:
    """Four digits, which is more than a second run agrees with."""
    return float(f"{value:.4g}")
