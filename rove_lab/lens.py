r"""TransformerLens: bridges of Hugging Face models, RoVE as hooks, and what the heads do."""

from __future__ import annotations

from rove_lab.lens_firing import firing_hooks
from rove_lab.lens_hooks import rotary_of, rove_hooks
from rove_lab.lens_huggingface import bridge_from_huggingface
from rove_lab.lens_processing import compatible
from rove_lab.lens_scores import HeadScores, head_scores, strongest_heads

__all__ = [
    "HeadScores",
    "bridge_from_huggingface",
    "compatible",
    "firing_hooks",
    "head_scores",
    "rotary_of",
    "rove_hooks",
    "strongest_heads",
]
