"""Is a vector that was turned and turned back what it was, under every scaling?

YaRN and LongRoPE multiply logits by a square, which Hugging Face puts into cosines and sines. There
it is fine for a query and a key. A value that is turned by them and turned back is multiplied, too.
"""

from __future__ import annotations

from typing import Any

import torch
from exact_turns import channels, drawn_planes
from paired import DEVICE, Scores, rounded
from position_error import HEADS, TOKENS
from rotations_in_use import (
    BASE,
    D_HEAD,
    FACTOR,
    LONGEST,
    ORIGINAL,
    WINDOW,
    HuggingFace,
    Setting,
    turned_by,
)
from torch import Tensor

from rove_lab import LinearScaling, Llama3Scaling, NTKScaling, RotaryEmbedding, YarnScaling
from rove_lab.scaling import Scaling

OURS: dict[str, Scaling | None] = {
    "none": None,
    "linear": LinearScaling(FACTOR),
    "NTK": NTKScaling(FACTOR),
    "Llama 3": Llama3Scaling(FACTOR, 1.0, 4.0, WINDOW),
    "YaRN": YarnScaling(FACTOR, WINDOW),
}
_FACTOR = {"factor": float(FACTOR)}
_STRETCHED = _FACTOR | {ORIGINAL: WINDOW}
_FACTORS = {  # a plane's; LongRoPE's own are searched for, model by model
    "short_factor": [1.0] * (D_HEAD // 2),
    "long_factor": torch.linspace(1, FACTOR, D_HEAD // 2).tolist(),
}
THEIRS: dict[str, dict[str, Any]] = {
    "none": {},
    "linear": {"rope_type": "linear"} | _FACTOR,
    "dynamic NTK": {"rope_type": "dynamic"} | _FACTOR,
    "Llama 3": {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    | _STRETCHED,
    "YaRN": {"rope_type": "yarn"} | _STRETCHED,
    "LongRoPE": {"rope_type": "longrope"} | _FACTORS | _STRETCHED,
}


def ours(setting: Setting, kind: str, seed: int) -> Scores:
    """The lab's: turned and turned back anywhere up to sixteen times the window.

    Args:
        setting: How the model comes to its dtype.
        kind: Of :data:`OURS`.
        seed: Of positions and vectors.

    Returns:
        ``gain``, the mean ratio of lengths; ``error``, relative, the root of the mean square; and
        ``error, grown``, of vectors turned while the text was as long as the window, and turned
        back when it was sixteen times as long.
    """
    x, far, near = drawn(setting, seed)
    rotary = RotaryEmbedding(D_HEAD, base=BASE, scaling=OURS[kind])
    with setting.running():
        back = [rotary(at).undo(rotary(at).apply(x)) for at in (far, near)]
    return compared(x, *back)  # its tables do not know how long a text is


def hugging_face(setting: Setting, kind: str, seed: int) -> Scores:
    """The naive way back by Hugging Face's tables; ``kind`` is of :data:`THEIRS`."""
    x, far, near = drawn(setting, seed)
    with setting.running():
        always, grown = (HuggingFace(setting, **THEIRS[kind]) for _ in range(2))
        back = always.undo(always(x, far), far)
        before = grown(x, near)
        cos, sin = (table[:, :TOKENS] for table in grown.tables(torch.cat((near, far))))
        after = turned_by(before, cos, -sin)
    return compared(x, back, after)


def drawn(setting: Setting, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Vectors, positions in the long text up to its end, positions in the window."""
    random = torch.Generator().manual_seed(seed)
    far = torch.randint(LONGEST, (TOKENS,), generator=random)
    far[-1] = LONGEST - 1
    near = torch.randint(WINDOW, (TOKENS,), generator=random)
    z = drawn_planes(HEADS, TOKENS, D_HEAD // 2, generator=random)
    return channels(z, False).to(DEVICE, setting.dtype), far.to(DEVICE), near.to(DEVICE)


def compared(x: Tensor, back: Tensor, grown: Tensor) -> Scores:
    """What came back beside what was turned."""
    x, back, grown = x.double(), back.double(), grown.double()
    length = x.norm(dim=-1)
    found = {
        "gain": (back.norm(dim=-1) / length).mean(),
        "error": ((back - x).norm(dim=-1) / length).square().mean().sqrt(),
        "error, grown": ((grown - x).norm(dim=-1) / length).square().mean().sqrt(),
    }
    return {name: rounded(value.item()) for name, value in found.items()}
