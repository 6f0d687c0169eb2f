"""How far off is each part of the core on a GPU, in float32 and bfloat16, from float64?

The cases are those that `tests/test_on_device.py` asks: small, each against a slow reference.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from gpu_parts import ROOT, Kept, Run, Values

sys.path.insert(0, str(ROOT / "tests"))  # where the reference lives

from device_cases import AT_MOST, CASES, asked_on, relative_error

FEW = ("rotation, halves", "GPT")  # of a tiny run


def checked(device: str, name: str, dtype: torch.dtype) -> Values:
    """One case: how far off it is, how far it may be, and whether that is kept."""
    error, limit = relative_error(*CASES[name](device, dtype)), AT_MOST[dtype]
    row: dict[str, Any] = {"relative error": [error], "at most": [limit]}
    return {str(dtype).removeprefix("torch."): {name: row | {"met": [int(error < limit)]}}}


def run(given: Run) -> None:
    """Asks every case; one that fails is named in the record."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    kept = Kept(
        "gpu_checks",
        "How far off is each part of the core on a GPU from the same in float64 on a processor?",
        {"error": "in the norm of the whole tensor, relative; inputs are rounded to the dtype"},
        given,
    )
    for name, dtype in asked_on(device):
        if not given.tiny or name in FEW:
            case = f"{name}, {str(dtype).removeprefix('torch.')}"
            kept.attempt(case, lambda name=name, dtype=dtype: checked(device, name, dtype))
    kept.ended()
