r"""What train and compare do alike: read the text, train what is asked, keep how it was asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from rove_lab.commands.processes import is_main_process
from rove_lab.commands.recipe import Recipe
from rove_lab.data import Split
from rove_lab.model import GPTConfig
from rove_lab.progress import Step
from rove_lab.run_folder import last_checkpoint
from rove_lab.train_config import TrainConfig
from rove_lab.training import Run, train_matched
from rove_lab.whole_files import whole_file

__all__ = ["SETTINGS", "learn", "say", "write_json"]

SETTINGS = "settings.json"


def learn(
    arms: Mapping[str, GPTConfig],
    recipe: Recipe,
    training: TrainConfig,
    text: Split[Any],
    folder: Path,
) -> dict[str, Run]:
    """Train one model or a matched pair in a folder, or go on there.

    Args:
        arms: Name to sizes.
        recipe: As it was asked; its corpus is noted for whoever reads the models later.
        training: How to train.
        text: What to learn from.
        folder: Of the run.

    Returns:
        Name to finished run; in processes beside the main one, of no use but to leave.

    Raises:
        KeyboardInterrupt: If it was stopped; says how to go on.

    Example:
        >>> learn.__name__
        'learn'
    """
    with torch.device("meta"):
        sizes = {
            sum(weight.numel() for weight in config.build().parameters())
            for config in arms.values()
        }
    millions = " and ".join(f"{size / 1e6:.2f}" for size in sizes)
    say(f"{' and '.join(arms)}: {millions} million parameters, on {text.train}, in {folder}")
    if training.warmup_steps >= training.steps:  # a preset's does not follow --steps
        say(
            f"the learning rate only grows: {training.warmup_steps:g} warm-up steps of "
            f"{training.steps}; --warmup-steps sets fewer"
        )
    before = last_checkpoint(folder)
    done = 0 if before is None else int(before.name.rpartition("-")[2])
    file = folder / SETTINGS
    reported: list[int] = []

    def note(step: Step) -> None:
        if done and not reported:  # said once the folder is seen to be this run's
            say(f"going on after step {done}")
        reported.append(step.step)
        if is_main_process() and not file.exists():
            write_json(file, {"preset": recipe.start.preset} | _absolute(recipe))

    runs = train_matched(arms, training, text.train, folder=folder, callback=note)
    if done and not reported:
        say(f"finished already: nothing to train in {folder}")
    if any(run.interrupted for run in runs.values()):
        kept = last_checkpoint(folder)
        raise KeyboardInterrupt(
            f"stopped: the same command goes on from {kept}"
            if kept
            else "stopped before the first checkpoint: the same command begins anew"
        )
    return runs


def say(words: str) -> None:
    """Print a line, once however many processes there are.

    Args:
        words: The line.

    Example:
        >>> say("done")
        done
    """
    if is_main_process():
        print(words, flush=True)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file whole or not at all.

    Args:
        path: Of the file.
        content: What it holds.

    Raises:
        OSError: If it cannot be written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write_json(Path(folder) / "a.json", {"loss": 0.5})
    """
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    with whole_file(path) as file:
        file.write(text.encode())


def _absolute(recipe: Recipe) -> dict[str, str | None]:
    # A run is read from other folders than the one it was started in.
    paths = asdict(recipe.start.corpus)
    return {name: path and str(Path(path).resolve()) for name, path in paths.items()}
