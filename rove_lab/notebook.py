"""What only a notebook needs to know: where it is running."""

from __future__ import annotations

import os
import sys
from typing import Literal

__all__ = ["where"]


def where() -> Literal["book", "colab", "jupyter", "python"]:
    """Tell where this code runs: the book's build, Colab, another Jupyter, or plain Python.

    Pages of the book have no kernel behind them: what needs one belongs to the other places.

    Returns:
        ``"book"``, ``"colab"``, ``"jupyter"`` or ``"python"``.

    Example:
        >>> where()
        'python'
    """
    if os.environ.get("ROVE_BOOK_BUILD") == "1":
        return "book"
    if "google.colab" in sys.modules:
        return "colab"
    # Not by looking for ipykernel alone: a test or a script may import it and have no kernel.
    kernelapp = sys.modules.get("ipykernel.kernelapp")
    return "jupyter" if kernelapp and kernelapp.IPKernelApp.initialized() else "python"
