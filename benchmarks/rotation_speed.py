"""What do rotations cost, beside a copy, beside other people's, and inside attention?

Run it by `make bench`, which fetches the peers, or as `python benchmarks/rotation_speed.py` with
`--sections` for some of it. All is paired: cases take turns in one process, in random order, on the
clock of the processor (two threads) or of a GPU. It takes about forty minutes of an otherwise idle
machine, and writes results/rotation_speed/record.json with the limits of targets.py beside.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import attention_core
import decoding
import dense_mixers
import gpt2_step
import kernels
import targets
import torch
import turning
from paired import DEVICE, FEWEST_ROUNDS, LEAST_SECONDS, MOST_ROUNDS
from peers import PEERS, find_peers

from rove_lab.records import Record, write_record
from rove_lab.surroundings import surroundings

QUESTION = "What do rotations cost, beside a copy, beside other people's, inside attention?"
ROOT = Path(__file__).resolve().parents[1]
THREADS = 2
SHAPES = [(1, 12, 1024, 64), (8, 12, 1024, 64), (1, 12, 4096, 64), (1, 9, 8192, 64)]
DTYPES = [torch.float32, torch.bfloat16]
GPT = gpt2_step.SHAPE
GPT_BATCH = 8 if DEVICE == "cuda" else 1
MIXER = {"n": 256, "d": 64}
LENGTHS, HEADS = [1024, 2048, 4096, 8192], 12
HELD = 8192
BUDGET = 20.0  # seconds for the rounds of one table, fewer than 60 where they are long

Values = dict[str, Any]


def words(shape: tuple[int, ...], dtype: torch.dtype) -> str:
    """A case's name: ``1x12x1024x64 float32``."""
    return f"{'x'.join(map(str, shape))} {str(dtype).removeprefix('torch.')}"


def rotation() -> Values:
    """Two tensors rotated."""
    found = {}
    for shape in SHAPES:
        for dtype in DTYPES:
            tables = turning.measured(shape, dtype, PEERS, BUDGET)
            targets.judged(tables["forward"], targets.of_turning(shape, dtype))
            found[words(shape, dtype)] = tables
    return found


def attention() -> Values:
    """Attention with RoVE beside RoPE."""
    found = {}
    for shape in SHAPES:
        for dtype in DTYPES:
            tables = attention_core.measured(shape, dtype, BUDGET)
            for kind, rows in tables.items():
                targets.judged(rows, targets.of_attention(kind, shape[-2]))
            found[words(shape, dtype)] = tables
    return found


def attention_kernels() -> Values:
    """Each kernel between the same rotations."""
    found = {}
    for dtype in DTYPES:
        tables = kernels.measured(SHAPES[0], dtype, BUDGET)
        for rows in tables.values():
            targets.judged(rows, {"RoVE": targets.OF_ERROR[dtype]}, "relative error")
        found[words(SHAPES[0], dtype)] = tables
    return found


def training_step() -> Values:
    """A whole step of a GPT."""
    return targets.judged(gpt2_step.measured(GPT, GPT_BATCH, BUDGET), targets.OF_A_STEP)


def mixers() -> Values:
    """Dense matrices and products."""
    rows = targets.judged(dense_mixers.built(**MIXER, budget=BUDGET), targets.OF_MIXERS)
    return targets.judged_below(rows, targets.AT_LEAST)


def growth() -> Values:
    """Cost against the number of tokens."""
    rows = dense_mixers.exponents(LENGTHS, HEADS, MIXER["d"])
    return targets.judged(rows, targets.OF_GROWTH, "exponent")


def decode() -> Values:
    """One token more."""
    return decoding.measured(HELD, HEADS, 64, BUDGET)


SECTIONS: dict[str, Callable[[], Values]] = {
    "rotation": rotation,
    "attention": attention,
    "kernels": attention_kernels,
    "training step": training_step,
    "decoding": decode,
}
if DEVICE == "cpu":
    SECTIONS |= {"mixers": mixers, "growth": growth}


def config(peers: dict[str, str]) -> dict[str, Any]:
    """What was set, for the record."""
    return {
        "shapes": "batch x heads x tokens x channels, halves layout",
        "rounds": f"{FEWEST_ROUNDS} to {MOST_ROUNDS} of each table, cases in random order",
        "calls": f"one that is not counted, then {LEAST_SECONDS * 1e3:g} ms of them or one",
        "ratio": "median of the rounds' ratios; low and high are the first and the last decile",
        "clock": "wall" if DEVICE == "cuda" else f"processor time of {THREADS} threads",
        "ms": "median of the rounds" + ("" if DEVICE == "cuda" else ", seconds of all threads / 2"),
        "gpt": asdict(GPT) | {"batch_size": GPT_BATCH},
        "mixer": MIXER,
        "growth": {"lengths": LENGTHS, "heads": HEADS},
        "held": HELD,
        "peers": peers,
    }


def added(values: Values, found: Values) -> None:
    """Appends one repetition's numbers to those before."""
    for name, inner in found.items():
        if isinstance(inner, dict):
            added(values.setdefault(name, {}), inner)
        else:
            values.setdefault(name, []).append(inner)


def told(place: str, found: Values) -> None:
    """Prints the rows that have a ratio."""
    for name, inner in found.items():
        if isinstance(inner, dict):
            told(f"{place}, {name}", inner)
    if "met" in found or "ratio" in found:
        print(place, " ".join(f"{score} {value:g}" for score, value in found.items()), flush=True)


def main(
    sections: tuple[str, ...] = tuple(SECTIONS),
    repetitions: int = 2,
    folder: Path = ROOT / "results" / "rotation_speed",
) -> None:
    """Measure, and write the record.

    Args:
        sections: Which parts.
        repetitions: How often everything is measured.
        folder: Where record.json goes.
    """
    torch.set_num_threads(THREADS)
    peers = find_peers()
    about = surroundings(ROOT)  # of the start, before there is a record in the checkout
    wall, cpu = time.perf_counter(), time.process_time()
    values: Values = {}
    for repetition in range(repetitions):
        for name in sections:
            started = time.perf_counter()
            found = SECTIONS[name]()
            told(f"[{repetition + 1}/{repetitions}] {name}", found)
            print(f"{name} took {time.perf_counter() - started:.0f} s", flush=True)
            added(values.setdefault(name, {}), found)
        # of what is done so far: the next may be stopped
        record = Record(
            question=QUESTION,
            kind="measurement",
            config=config(peers),
            seeds=list(range(repetition + 1)),
            values=values,
            wall_s=round(time.perf_counter() - wall, 1),
            cpu_s=round(time.process_time() - cpu, 1),
            **about,
        )
        print(f"wrote {write_record(record, folder)}", flush=True)


if __name__ == "__main__":
    import tyro  # not where other scripts measure these tables, on a machine that lacks it

    tyro.cli(main)
