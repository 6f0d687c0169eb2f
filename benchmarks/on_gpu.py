"""All that there is to ask of a GPU, in one run of less than eight minutes.

Run it by `make gpu`, or as `python benchmarks/on_gpu.py --folder elsewhere`; `--tiny` runs the same
small, on a processor too. Each part has a process and a share of the time of its own: one that
fails, or has to be ended, takes nothing from the others, and what it had measured is kept. Time
that a part leaves goes to those after it. Every record is a results/gpu_.../record.json.

The machine may be one that is lent for minutes: it has torch, accelerate and transformers, and
little else. So the standard library reads the command line.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch
from gpu_parts import ROOT, Run

from rove_lab.records import check_folder
from rove_lab.surroundings import surroundings

GRACE = 5.0  # seconds from when a part should have ended to when it is


@dataclass(frozen=True)
class Part:
    """A function ``run`` of a module beside this one.

    Args:
        module: Its name.
        share: Of the time.
        arguments: What it takes besides the :class:`gpu_parts.Run`.
    """

    module: str
    share: float
    arguments: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """For the output."""
        return " ".join(self.arguments) or self.module


PARTS = (
    Part("gpu_checks", 90),
    Part("gpu_speed", 140),
    Part("gpu_training", 35, ("gpu_training",)),
    Part("gpu_training", 45, ("gpu_length",)),
    Part("gpu_training", 60, ("gpu_retrieval",)),
    Part("gpu_training", 25, ("gpu_induction",)),
    Part("gpu_training", 65, ("gpu_larger",)),
)


def work(part: Part, given: Run) -> None:
    """What a part's process does. The processes that it starts can be ended with it."""
    os.setpgrp()
    import_module(part.module).run(given, *part.arguments)


def end(process: BaseProcess) -> None:
    """Ends a process that is late: first politely, so that a training may say what it has."""
    process.terminate()
    process.join(GRACE / 2)
    process.kill()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # what it started, too
    process.join()


def passed(part: Part, given: Run) -> str:
    """Runs a part to its end, or to the end of its time; says how it went."""
    process = get_context("spawn").Process(target=work, args=(part, given))
    process.start()
    try:
        process.join(max(given.left, 0) + GRACE / 2)
    except BaseException:  # Ctrl-C reaches this process alone
        end(process)
        raise
    if process.is_alive():
        end(process)
        return "ENDED, its time was up"
    return "done" if process.exitcode == 0 else f"FAILED in part, exit {process.exitcode}"


def run(parts: Sequence[Part], folder: Path, seconds: float, tiny: bool) -> dict[str, str]:
    """Every part in turn.

    Args:
        parts: What is run.
        folder: Where the records' folders go.
        seconds: What all of them may take.
        tiny: Whether everything is small.

    Returns:
        How each went.
    """
    until, outcomes = time.time() + seconds, {}
    for number, part in enumerate(parts):
        left = until - time.time()
        share = part.share / sum(other.share for other in parts[number:])
        limit = max(share * left - GRACE, 0.0)
        place = f"[{number + 1}/{len(parts)}] {part.name}"
        print(f"\n{place}: {limit:.0f} s, of {left:.0f} s that are left", flush=True)
        started = time.time()
        outcomes[part.name] = passed(part, Run(folder, started + limit, tiny))
        print(f"{place}: {outcomes[part.name]}, {time.time() - started:.0f} s", flush=True)
    return outcomes


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    results = ROOT / "results"
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=460.0, help="for all of it: %(default)s")
    parser.add_argument("--folder", type=Path, default=results, help="where the records go")
    parser.add_argument("--tiny", action="store_true", help="everything small, without a GPU too")
    given = parser.parse_args(arguments)
    if not (given.tiny or torch.cuda.is_available()):
        parser.error("expected a GPU, got none: --tiny --folder elsewhere shows that it runs.")
    if given.tiny and given.folder == results:
        parser.error(f"expected --folder beside --tiny: {results} is for what a GPU measured.")
    try:
        check_folder(given.folder)
        about = surroundings(ROOT)
    except ValueError as error:
        parser.error(str(error))
    print(f"{about['device']}, torch {torch.__version__}, commit {about['commit']}", flush=True)
    started = time.time()
    outcomes = run(PARTS, given.folder, given.seconds, given.tiny)
    print(f"\nall in {time.time() - started:.0f} s", flush=True)
    for name, outcome in outcomes.items():
        print(f"{name}: {outcome}", flush=True)
    sys.exit(any(outcome != "done" for outcome in outcomes.values()))


if __name__ == "__main__":
    main()
