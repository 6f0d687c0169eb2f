"""Rotary value embeddings (RoVE): the rotations, the attention, the kernels and the mixers."""

from rove_lab.attention import (
    KVCache,
    RotarySelfAttention,
    attention_pattern,
    attentive_convolution,
    rope_attention,
    rove_attention,
)
from rove_lab.kernels import kernel_spectrum, offset_kernels
from rove_lab.layouts import channel_permutation, convert_layout
from rove_lab.mixers import (
    BlockToeplitzMixer,
    GatedBlockToeplitzMixer,
    KroneckerMixer,
    RotaryMixer,
    kronecker_rank,
    rope_mixer,
    rove_mixer,
)
from rove_lab.rotary import (
    LinearScaling,
    Llama3Scaling,
    NTKScaling,
    RotaryEmbedding,
    Rotation,
    YarnScaling,
)

__version__ = "0.1.0"

__all__ = [
    "BlockToeplitzMixer",
    "GatedBlockToeplitzMixer",
    "KVCache",
    "KroneckerMixer",
    "LinearScaling",
    "Llama3Scaling",
    "NTKScaling",
    "RotaryEmbedding",
    "RotaryMixer",
    "RotarySelfAttention",
    "Rotation",
    "YarnScaling",
    "attention_pattern",
    "attentive_convolution",
    "channel_permutation",
    "convert_layout",
    "kernel_spectrum",
    "kronecker_rank",
    "offset_kernels",
    "rope_attention",
    "rope_mixer",
    "rove_attention",
    "rove_mixer",
]
