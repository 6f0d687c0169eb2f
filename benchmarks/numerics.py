"""How exact are rotations, up to position 1,000,000, in every dtype and in four libraries?

Run it by `make numerics`, which fetches the peers. It takes some minutes and writes
results/numerics/record.json. Nothing is timed: another processor may round its last digits
otherwise, and no more.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import output_error
import position_error
import round_trip
import torch
import tyro
from peers import find_peers
from rotations_in_use import BASE, D_HEAD, FACTOR, SETTINGS, WINDOW, libraries_in

from rove_lab.records import Record, write_record
from rove_lab.surroundings import surroundings

ROOT = Path(__file__).resolve().parents[1]
STOPS = [10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000]

Values = dict[str, Any]


def measured(name: str, stops: list[int], seed: int) -> Values:
    """All that one setting shows with one seed: by library or method, then by stop or scaling."""
    setting = SETTINGS[name]
    found: Values = {"turned": {}, "drift": {}}
    for library, how in libraries_in(setting).items():
        for part, score in (("turned", position_error.turned), ("drift", position_error.drift)):
            found[part][library] = {str(t): score(how, setting, t, seed) for t in stops}
    found["round trip"] = {
        "ours": {kind: round_trip.ours(setting, kind, seed) for kind in round_trip.OURS},
        "Hugging Face": {
            kind: round_trip.hugging_face(setting, kind, seed) for kind in round_trip.THEIRS
        },
    }
    found["output"] = output_error.outputs(setting, stops, seed)
    return found


def side_by_side(seeds: list[Values]) -> Values:
    """What every seed found, down to lists of one number a seed."""
    return {
        name: side_by_side([seed[name] for seed in seeds])
        if isinstance(inner, dict)
        else [seed[name] for seed in seeds]
        for name, inner in seeds[0].items()
    }


def config(stops: list[int], peers: dict[str, str]) -> dict[str, Any]:
    """What was set, for the record."""
    return {
        "d_head": D_HEAD,
        "base": BASE,
        "stops": stops,
        "positions": f"{position_error.TOKENS} between {position_error.NEAREST} of a stop and it",
        "heads": position_error.HEADS,
        "offsets of a query from its key": [1, position_error.FARTHEST_KEY],
        "round trip": {"window": WINDOW, "factor": FACTOR},
        "output": {"heads": output_error.HEADS, "tokens": output_error.TOKENS},
        "settings": {name: f"{setting}" for name, setting in SETTINGS.items()},
        "peers": peers,
    }


def main(
    settings: tuple[str, ...] = tuple(SETTINGS),
    stops: tuple[int, ...] = tuple(STOPS),
    seeds: int = 5,
    folder: Path = ROOT / "results" / "numerics",
) -> None:
    """Measure, and write the record.

    Args:
        settings: Which dtypes, and how models come to them.
        stops: Positions up to which.
        seeds: How many draws of positions and vectors.
        folder: Where record.json goes.
    """
    peers = find_peers()
    wall, cpu = time.perf_counter(), time.process_time()
    values: Values = {}
    for name in settings:
        seed_by_seed = [measured(name, list(stops), seed) for seed in range(seeds)]
        for part, found in side_by_side(seed_by_seed).items():
            values.setdefault(part, {})[name] = found
        print(f"{name}: done", flush=True)
    record = Record(
        question="How exact are rotations up to position 1,000,000, in every dtype, and whose?",
        kind="measurement",
        config=config(list(stops), peers),
        seeds=list(range(seeds)),
        values=values,
        wall_s=round(time.perf_counter() - wall, 1),
        cpu_s=round(time.process_time() - cpu, 1),
        **surroundings(ROOT),
    )
    print(f"wrote {write_record(record, folder)}", flush=True)


if __name__ == "__main__":
    with torch.no_grad():
        tyro.cli(main)
