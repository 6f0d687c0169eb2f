r"""One command in several processes: the main one speaks and writes, all of them leave together."""

from __future__ import annotations

import os

from torch import distributed

__all__ = ["is_main_process", "leave_group", "rank"]


def rank() -> int:
    """The number of this process, as torchrun and accelerate launch say it; 0 without them.

    Returns:
        0 for the main process.

    Example:
        >>> rank()
        0
    """
    return int(os.environ.get("RANK", "0"))


def is_main_process() -> bool:
    """Whether this process is the one that prints and writes.

    Returns:
        True where there is no other.

    Example:
        >>> is_main_process()
        True
    """
    return rank() == 0


def leave_group() -> None:
    """End what training began between processes; what follows is the main process's alone.

    Example:
        >>> leave_group()
    """
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
