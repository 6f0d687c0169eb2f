r"""Where a result was made: versions, device, commit."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

__all__ = ["surroundings"]


def surroundings(root: Path | str, *, threads: int | None = None) -> dict[str, Any]:
    """The fields of a record that follow from where it is made: versions, device and commit.

    A copy without git, on a machine that is lent, is told its commit by the environment variable
    ``ROVE_LAB_COMMIT``; where git answers, git is believed.

    Args:
        root: The checkout the code runs from.
        threads: Of each process that works; None for as many as torch has in this one.

    Returns:
        ``versions``, ``device`` and ``commit``: fields of a :class:`rove_lab.records.Record`.

    Raises:
        ValueError: If ``root`` is no git checkout, and no commit was told.

    Example:
        >>> sorted(surroundings(Path(__file__).parent))
        ['commit', 'device', 'versions']
    """
    versions = {"python": platform.python_version()}
    for package in ("torch", "accelerate", "rove-lab"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    if torch.cuda.is_available():
        device = torch.cuda.get_device_name()
    else:
        threads = threads or torch.get_num_threads()
        device = f"{platform.machine()} CPU, {threads} threads a process"
    return {"versions": versions, "device": device, "commit": _commit(Path(root))}


def _commit(root: Path) -> str:
    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        top = Path(git("rev-parse", "--show-toplevel"))
        files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        loaded = [str(Path(file).resolve()) for file in files if file]
        ours = [file for file in loaded if Path(file).is_relative_to(top)]
        changed = git("status", "--porcelain", "--", *ours)  # of the code that runs, no more
        return git("rev-parse", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError) as error:
        told = os.environ.get("ROVE_LAB_COMMIT", "")
        if re.fullmatch(r"[0-9a-f]{40}(-dirty)?", told):
            return told
        raise ValueError(
            f"expected a git checkout at {root}, got none: run from a clone of the repository, or "
            "set ROVE_LAB_COMMIT to what `git rev-parse HEAD` prints where the copy was made."
        ) from error
