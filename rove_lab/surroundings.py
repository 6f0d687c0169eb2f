r"""Where a result was made: versions, device, commit."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

__all__ = ["surroundings"]


def surroundings(root: Path | str, *, threads: int | None = None) -> dict[str, Any]:
    """The fields of a record that follow from where it is made: versions, device and commit.

    Args:
        root: The checkout the code runs from.
        threads: Of each process that works; None for as many as torch has in this one.

    Returns:
        ``versions``, ``device`` and ``commit``: fields of a :class:`rove_lab.records.Record`.

    Raises:
        ValueError: If ``root`` is no git checkout.

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
        raise ValueError(
            f"expected a git checkout at {root}, got none: run from a clone of the repository."
        ) from error
