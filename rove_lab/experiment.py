r"""One question, one script: the same jobs for every seed, side by side, and one record."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, ProcessPoolExecutor, wait
from dataclasses import dataclass, fields, is_dataclass
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from rove_lab.arguments import check_size
from rove_lab.records import Record, check_folder, check_seeds, write_record
from rove_lab.settings import changed
from rove_lab.surroundings import surroundings
from rove_lab.train_config import TrainConfig

__all__ = ["Experiment", "described"]

DIGITS = 6  # of a number that a record keeps, the zeros before them not counted


def described(value: Any) -> Any:
    """A budget in words and numbers that JSON can hold: what a record says was set.

    Args:
        value: A dataclass, a mapping, a sequence or one thing. Of a mapping the names become
            words, and a :class:`~rove_lab.train_config.TrainConfig` loses its seed, for a record
            has seeds of its own.

    Returns:
        Dicts, lists, numbers, words, flags and None. A dataclass inside another says its kind.

    Raises:
        TypeError: If there is something else inside.
        ValueError: If a number is not finite.

    Example:
        >>> described({"planes": (0, 1), "rate": 1e-3})
        {'planes': [0, 1], 'rate': 0.001}
    """
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value) if field.init]
        if isinstance(value, TrainConfig):
            names.remove("seed")
        return {name: _inside(getattr(value, name)) for name in names}
    return _inside(value)


def _inside(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {"kind": type(value).__name__, **described(value)}
    if isinstance(value, dict):
        return {str(name): _inside(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_inside(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"expected a budget of finite numbers, got {value}: JSON has no such.")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(
        f"expected a budget of dataclasses, numbers and words, got {type(value).__name__}: a "
        "record could not say what was set."
    )


def one_job(budget: Any) -> Sequence[tuple[str, ...]]:
    """Of an experiment whose job is the whole: one, without a name."""
    return [()]


def no_more_words(found: dict[str, Any]) -> str:
    """Of an experiment without a headline: that a job is done."""
    return "done"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A question that is answered by the same jobs, done once for every seed.

    Args:
        slug: The folder under ``results/`` that its record goes to.
        question: What is asked, in words.
        budget: What is done, and for how long, on two cores of a CPU: a dataclass.
        gpu_budget: The same for one GPU.
        jobs: From a budget to names, one tuple a job: where in the record's values its numbers
            lie. ``()`` is a job that is the whole.
        run: A function of a script, ``run(budget, *names, seed)``, to numbers under nested names;
            it trains with the seed, and raises KeyboardInterrupt where a training was stopped.
        headline: From what ``run`` returned to a few words, for who waits.
        seeds: How many, unless the command line says otherwise.
        config: From a budget to what the record says was set; asked when the jobs are done.
        kind: Of its record: ``"experiment"``, or ``"checkpoint"`` for models that are kept, of
            which one seed will do.

    Example:
        >>> coin = dict(slug="coin", question="Is it fair?", budget=None, gpu_budget=None)
        >>> flip = lambda budget, side, seed: {"share": seed / 2}
        >>> experiment = Experiment(**coin, jobs=lambda budget: [("heads",)], run=flip)
        >>> [*experiment.results(None, [0, 1])]
        [(('heads',), 0, {'share': 0.0}, ...), (('heads',), 1, {'share': 0.5}, ...)]
    """

    slug: str
    question: str
    budget: Any
    gpu_budget: Any
    run: Callable[..., dict[str, Any]]
    jobs: Callable[[Any], Sequence[tuple[str, ...]]] = one_job
    headline: Callable[[dict[str, Any]], str] = no_more_words
    seeds: int = 3
    config: Callable[[Any], dict[str, Any]] = described
    kind: str = "experiment"

    @property
    def root(self) -> Path:
        """The checkout that the script is in."""
        return Path(self.run.__code__.co_filename).resolve().parents[1]

    def results(
        self, budget: Any, seeds: Sequence[int], workers: int = 1
    ) -> Iterator[tuple[tuple[str, ...], int, dict[str, Any], float]]:
        """Each job as it is done: its names, its seed, its numbers, its processor seconds.

        Args:
            budget: What is done.
            seeds: The seeds.
            workers: Jobs at a time, one process each; 1 is this process.

        Yields:
            ``(names, seed, numbers, processor seconds)``, in no particular order.

        Raises:
            BaseException: Of a job that fails, when those that run beside it are done; no other is
                begun.
        """
        todo = iter([(names, seed) for seed in seeds for names in self.jobs(budget)])
        if check_size("workers", workers) == 1:
            for names, seed in todo:
                yield names, seed, *_timed(self.run, budget, names, seed)
            return
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            # Never more than can run: what an executor has been given it begins, Ctrl-C or not.
            running = {
                pool.submit(_alone, self.run, budget, *job): job for job in islice(todo, workers)
            }
            failed: list[BaseException] = []
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    job = running.pop(future)
                    if error := future.exception():
                        if isinstance(error, BrokenExecutor):  # who is killed says nothing
                            where = ", ".join([*job[0], f"seed {job[1]}"])
                            error.add_note(f"perhaps in the job {where}: out of memory?")
                        failed.append(error)
                        continue
                    running |= {
                        pool.submit(_alone, self.run, budget, *then): then
                        for then in islice(todo, 0 if failed else 1)
                    }
                    yield *job, *future.result()
            for error in failed[1:]:
                failed[0].add_note(f"and {error!r} {' '.join(getattr(error, '__notes__', []))}")
            if failed:
                raise failed[0]

    def record(self, budget: Any, seeds: Sequence[int], workers: int = 1) -> Record:
        """Do every job for every seed, say how far it is, and put the numbers together.

        Where a job fails or is stopped there is no record, and the numbers of those that were done
        are printed, a line of JSON each.

        Args:
            budget: What is done.
            seeds: Three or more, for an experiment.
            workers: Jobs at a time, one process and one thread each; 1 is this process.

        Returns:
            The record.

        Raises:
            TypeError: If the budget holds what a record could not say.
            ValueError: If there are too few seeds or no git checkout, before any job; or if jobs do
                not give the same numbers.
            KeyboardInterrupt: If it was stopped.
        """
        check_seeds(list(seeds), self.kind)
        if self.config is described:
            described(budget)
        # Of the start: the code that runs is the code that was there when it was imported.
        about = surroundings(self.root, threads=1 if workers > 1 else None)
        started, cpu_s = time.perf_counter(), 0.0
        found: dict[tuple[str, ...], dict[int, dict[str, Any]]] = {
            names: {} for names in self.jobs(budget)
        }
        total = len(found) * len(seeds)
        try:
            for done, one in enumerate(self.results(budget, seeds, workers), start=1):
                names, seed, numbers, seconds = one
                found[names][seed] = numbers
                cpu_s += seconds
                left = (time.perf_counter() - started) / done * (total - done)
                words = ", ".join([*names, f"seed {seed}: {self.headline(numbers)}"])
                print(f"[{done}/{total}] {words}; {left:.0f} s left", flush=True)
        except BaseException:
            for names, of_seed in found.items():
                for seed, numbers in of_seed.items():
                    print(json.dumps({"job": names, "seed": seed, "numbers": numbers}), flush=True)
            raise
        values: dict[str, Any] = {}
        for names, of_seed in found.items():
            _put(values, names, _merged([of_seed[seed] for seed in seeds]))
        return Record(
            question=self.question,
            kind=self.kind,
            config=self.config(budget),
            seeds=list(seeds),
            values=values,
            wall_s=round(time.perf_counter() - started, 1),
            cpu_s=round(cpu_s, 1),
            **about,
        )

    def command_line(self) -> None:
        """Run it as a script, ``--help`` included."""
        import tyro  # a part of the extra "training"

        def main(
            seeds: int = self.seeds,
            workers: int | None = None,
            gpu: bool = False,
            change: tuple[str, ...] = (),
            folder: Path | None = None,
        ) -> None:
            """Do every job for every seed, and write the record.

            Args:
                seeds: Repetitions, three or more for an experiment.
                workers: Jobs at a time; two on a CPU, with a thread each, and one on a GPU.
                gpu: Spend the budget for a GPU instead of the one for two cores of a CPU.
                change: Settings of the budget to set otherwise, such as training.steps=4; one each.
                folder: Where record.json goes; by default where the repository keeps it.
            """
            if any(one.partition("=")[0].rpartition(".")[2] == "seed" for one in change):
                sys.exit(
                    f"expected --seeds, got --change {' '.join(change)}: every job gets its own."
                )
            kept = self.root / "results" / self.slug
            if change and folder is None:
                sys.exit(f"expected --folder beside --change: {kept} is for the budget as it is.")
            folder = kept if folder is None else folder
            if not gpu:
                # Small models are faster on a core. The second is for a Mac, and for Accelerate.
                os.environ |= {"CUDA_VISIBLE_DEVICES": "", "ACCELERATE_USE_CPU": "true"}
            elif not torch.cuda.is_available():
                sys.exit("expected a GPU, got none: leave out --gpu for the budget of two cores.")
            try:
                check_folder(folder)
                check_seeds([*range(seeds)], self.kind)
                budget = changed(self.gpu_budget if gpu else self.budget, change)
            except (TypeError, ValueError) as error:
                sys.exit(str(error))
            if workers is None:
                workers = 1 if gpu else 2
            try:
                record = self.record(budget, range(seeds), workers)
            except KeyboardInterrupt:
                sys.exit("interrupted: no record was written")
            print(f"wrote {write_record(record, folder)}", flush=True)

        tyro.cli(main, description=self.question, config=(tyro.conf.UseAppendAction,))


def _timed(
    run: Callable[..., dict[str, Any]], budget: Any, names: tuple[str, ...], seed: int
) -> tuple[dict[str, Any], float]:
    started = time.process_time()
    try:
        numbers = run(budget, *names, seed)
        json.dumps(numbers, allow_nan=False, default=float)  # what no record can hold ends here
    except Exception as error:
        error.add_note(f"in the job {', '.join([*names, f'seed {seed}'])}")
        raise
    return numbers, time.process_time() - started


def _alone(*job: Any) -> tuple[dict[str, Any], float]:
    """A job in a process of its own, which takes no other's core."""
    torch.set_num_threads(1)
    return _timed(*job)


def _merged(parts: Sequence[Any]) -> Any:
    """The same names, with a list over seeds for every number."""
    if isinstance(parts[0], dict):
        if any(not isinstance(part, dict) or part.keys() != parts[0].keys() for part in parts):
            raise ValueError("expected the same numbers for every seed, got different names.")
        return {name: _merged([part[name] for part in parts]) for name in parts[0]}
    return [part if isinstance(part, int) else float(f"{part:.{DIGITS}g}") for part in parts]


def _put(values: dict[str, Any], names: tuple[str, ...], numbers: dict[str, Any]) -> None:
    for name in names:
        values = values.setdefault(name, {})
    values.update(numbers)
