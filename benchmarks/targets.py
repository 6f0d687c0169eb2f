"""What the rotations may cost: limits on ratios, set before they were measured.

They are meant for two threads of a processor and the halves layout; a GPU's ratios are not judged.
"""

from __future__ import annotations

from math import prod

import torch
from paired import DEVICE, Scores

Rows = dict[str, Scores]

GROWTH = {  # of one attention, RoVE over RoPE, both compiled, by the number of tokens
    "forward": {1024: 1.10, 4096: 1.03, 8192: 1.02},
    "forward and backward": {1024: 1.06, 4096: 1.03, 8192: 1.02},
}


def of_turning(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, float]:
    """Two tensors rotated, forward: limits by row."""
    large = prod(shape) * dtype.itemsize > 10e6
    if dtype == torch.float32:
        clone, compiled, eager = 1.4 if large else 1.7, 0.3, 0.55
    else:
        clone, compiled, eager = 3.0, 0.5, 1.2
    return {
        "ours, compiled / clone": clone,
        "ours, compiled / Hugging Face": compiled,
        "ours / Hugging Face": eager,
    }


def of_attention(kind: str, n: int) -> dict[str, float]:
    """Attention over n tokens, forward or with its backward: limits by row."""
    limits = {"RoVE, compiled / Hugging Face's RoPE": 1.0}
    if n in GROWTH[kind]:
        limits["RoVE, compiled / RoPE, compiled"] = GROWTH[kind][n]
    if (kind, n) == ("forward", 1024):
        limits["RoVE / RoPE"] = 1.2
    return limits


OF_A_STEP = {"RoVE / RoPE": 1.03, "RoVE / RoPE, peak memory": 1.02}
OF_MIXERS = {
    f"{name}, dense / torch.{other}": limit
    for name in ("RoPE", "RoVE", "any kernels")
    for other, limit in (("zeros", 1.4), ("kron", 1.3))
}
AT_LEAST = {  # how many times a matrix's product is faster than its building
    "RoVE, dense / RoVE, product": 100.0,
    "any kernels, dense / any kernels, product": 10.0,
}
OF_GROWTH = {"rotations": 1.1}  # the exponent of the tokens: O(nd)
OF_ERROR = {torch.float32: 1e-5, torch.bfloat16: 2e-2}  # relative, of a kernel's output


def judged(rows: Rows, limits: dict[str, float], score: str = "ratio") -> Rows:
    """The rows with ``"at most"`` and ``"met"`` (1 or 0) where there is a limit, in place."""
    for name, limit in limits.items():
        if DEVICE == "cpu":
            rows[name] |= {"at most": limit, "met": int(rows[name][score] <= limit)}
    return rows


def judged_below(rows: Rows, limits: dict[str, float]) -> Rows:
    """The same with ``"at least"``."""
    for name, limit in limits.items():
        if DEVICE == "cpu":
            rows[name] |= {"at least": limit, "met": int(rows[name]["ratio"] >= limit)}
    return rows
