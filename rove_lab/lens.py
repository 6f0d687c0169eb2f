r"""TransformerLens: bridges of Hugging Face models, RoVE as hooks, and what the heads do."""

from __future__ import annotations

from rove_lab.lens_attribution import attribute_offsets
from rove_lab.lens_firing import firing_hooks
from rove_lab.lens_gpt import bridge_from_gpt
from rove_lab.lens_hooks import rotary_of, rove_hooks
from rove_lab.lens_huggingface import bridge_from_huggingface
from rove_lab.lens_patching import patch_offsets
from rove_lab.lens_processing import compatible
from rove_lab.lens_scores import HeadScores, head_scores, strongest_heads

__all__ = [
    "HeadScores",
    "attribute_offsets",
    "bridge_from_gpt",
    "bridge_from_huggingface",
    "compatible",
    "firing_hooks",
    "head_scores",
    "patch_offsets",
    "rotary_of",
    "rove_hooks",
    "strongest_heads",
]
