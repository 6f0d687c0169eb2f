"""RoVE in real models: load a Hugging Face causal LM, switch RoVE on and off, read its values."""

from rove_lab.pretrained import load_causal_lm, load_smollm2
from rove_lab.retrofit import RoveHandle, enable_rove
from rove_lab.value_projections import value_weights

__all__ = ["RoveHandle", "enable_rove", "load_causal_lm", "load_smollm2", "value_weights"]
