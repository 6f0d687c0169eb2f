"""The rotations around each attention kernel that exists here: the same numbers, and their cost.

SDPA's back-ends are forced one by one; FlexAttention is compiled, as it is meant to be used. What a
machine lacks is left out: `cudnn` and `flash` on half precision exist on a GPU alone.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from paired import DEVICE, Scores, interleaved, milliseconds, ratio, rounded
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention
from turning import compiled

from rove_lab import RotaryEmbedding

BACKENDS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}

Kernel = Callable[[Tensor, Tensor, Tensor], Tensor]


def forced(backend: SDPBackend) -> Kernel:
    """SDPA by this back-end, or a RuntimeError."""

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(q, k, v, is_causal=True)

    return kernel


def flex(n: int) -> Kernel:
    """FlexAttention with a causal mask of blocks, compiled."""

    def causal(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return query >= key

    mask = create_block_mask(causal, None, None, n, n, device=DEVICE)
    attention = compiled(flex_attention)
    return lambda q, k, v: attention(q, k, v, block_mask=mask)


def available(q: Tensor, k: Tensor, v: Tensor) -> dict[str, Kernel]:
    """The kernels that run on such tensors here."""
    found = {}
    ways = {name: lambda backend=backend: forced(backend) for name, backend in BACKENDS.items()}
    for name, build in (ways | {"flex": lambda: flex(q.shape[-2])}).items():
        try:
            kernel = build()
            kernel(q, k, v)
        except RuntimeError:
            if DEVICE == "cuda" and name == "flash" and q.dtype == torch.bfloat16:
                raise  # the kernel that the rotations are said to go with
            continue
        found[name] = kernel
    return found


def measured(
    shape: tuple[int, ...], dtype: torch.dtype, budget: float
) -> dict[str, dict[str, Scores]]:
    """Each kernel between our rotations: its time beside RoPE's, its error beside float64's.

    Args:
        shape: Batch, heads, tokens, channels.
        dtype: Of queries, keys and values.
        budget: Seconds for the rounds of each kernel.

    Returns:
        Kernel to rows.
    """
    torch.manual_seed(0)
    qkv = torch.randn(3, *shape, device=DEVICE).to(dtype).unbind()
    turn = RotaryEmbedding(shape[-1])(torch.arange(shape[-2]), device=DEVICE)

    def rope(kernel: Kernel, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return kernel(turn.apply(q), turn.apply(k), v)

    def rove(kernel: Kernel, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return turn.undo(kernel(turn.apply(q), turn.apply(k), turn.apply(v)))

    found = {}
    with torch.no_grad():
        exact = rove(forced(SDPBackend.MATH), *(x.double() for x in qkv))
        for name, kernel in available(*qkv).items():
            cases = {
                "RoPE": lambda kernel=kernel: rope(kernel, *qkv),
                "RoVE": lambda kernel=kernel: rove(kernel, *qkv),
            }
            times = interleaved(cases, budget)
            error = (rove(kernel, *qkv).double() - exact).norm() / exact.norm()
            found[name] = milliseconds(times) | ratio(times, "RoVE", "RoPE")
            found[name]["RoVE"]["relative error"] = rounded(float(error))
    torch.compiler.reset()
    return found
