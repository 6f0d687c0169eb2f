r"""Ctrl-C between two steps, never within one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

__all__ = ["Interruption", "held_back"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C; what a cluster sends before it takes a machine


@dataclass
class Interruption:
    """Whether somebody asked to stop.

    Args:
        asked: Whether so.

    Example:
        >>> Interruption().asked
        False
    """

    asked: bool = False


@contextmanager
def held_back() -> Iterator[Interruption]:
    """Note Ctrl-C (or SIGTERM) instead of raising it, so that a step is never half taken.

    The second one is raised at once, as :class:`KeyboardInterrupt`. Signals reach the main thread
    alone; in another one nothing is changed.

    Yields:
        Whether a stop was asked for.

    Raises:
        KeyboardInterrupt: At the second signal.

    Example:
        >>> with held_back() as interruption:
        ...     signal.raise_signal(signal.SIGINT)
        >>> interruption.asked
        True
    """
    interruption = Interruption()

    def note(number: int, frame: FrameType | None) -> None:
        if interruption.asked:
            raise KeyboardInterrupt
        interruption.asked = True

    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    before = {one: signal.signal(one, note) for one in _SIGNALS}
    try:
        yield interruption
    finally:
        for one, handler in before.items():
            signal.signal(one, handler or signal.SIG_DFL)
