r"""Which context extension a Hugging Face config asks for: linear, Llama 3, YaRN, or none."""

from __future__ import annotations

import operator
from typing import Any

from rove_lab.scaling import LinearScaling, Llama3Scaling, Scaling, YarnScaling, yarn_mscale

__all__ = ["scaling_of"]

# Models that read one set of parameters for each kind of layer.
BY_LAYER_TYPE = frozenset({"deepseek_v4", "gemma3_text", "olmo3"})
DIRECTLY = "RotaryEmbedding(d_head, base=..., rotary_dim=..., interleaved=..., trailing=...)"
REFUSED_KINDS = {
    "longrope": "its table changes once a sequence outgrows the original length, so a cache would "
    "hold keys and values turned by one table and read by another",
    "su": "it is an old name of longrope, whose table changes with the length",
    "dynamic": "its base follows the length of the sequence, so a cache would hold keys and values "
    "turned by one table and read by another; a fixed NTKScaling(factor) does not change",
    "proportional": "it turns only some planes of a whole head; RotaryEmbedding(d_head, base=...)"
    ".planes(range(n)) does the same",
    "axial": "it turns by positions along several axes, and RotaryEmbedding by one",
    "mrope": "it turns by positions along several axes, and RotaryEmbedding by one",
}


def scaling_of(config: Any, parameters: dict[str, Any]) -> Scaling | None:
    """The context extension of a layer, by Hugging Face's rules.

    Args:
        config: A ``transformers`` config of a decoder.
        parameters: What it says of the layer's rotation, as one flat dict.

    Returns:
        The scaling, or None for none.

    Raises:
        ValueError: If the kind is not one that can be honoured, or a number is missing.

    Example:
        >>> from types import SimpleNamespace as Config
        >>> scaling_of(Config(model_type="llama"), {"rope_type": "linear", "factor": 2.0})
        LinearScaling(factor=2.0)
    """
    rope_type = parameters.get("rope_type") or parameters.get("type") or "default"
    if "short_factor" in parameters or "long_factor" in parameters:
        rope_type = "longrope"  # Phi-3 has called it "yarn", too

    def need(name: str) -> Any:
        if parameters.get(name) is None:
            raise ValueError(f"expected {name!r} in the rope_parameters of type {rope_type!r}.")
        return parameters[name]

    if rope_type == "default":
        if parameters.get("factor") not in (None, 1):
            raise ValueError(
                f"expected a rope_type beside the factor in {parameters}, got none: name the "
                "scaling, as 'linear'."
            )
        return None
    if rope_type == "linear":
        return LinearScaling(need("factor"))
    if rope_type == "llama3":
        low, high = need("low_freq_factor"), need("high_freq_factor")
        return Llama3Scaling(need("factor"), low, high, _original_n_ctx(config, parameters))
    if rope_type == "yarn":
        original = _original_n_ctx(config, parameters)
        factor = parameters.get("factor")
        if factor is None:
            factor = read(config, "max_position_embeddings") / original
        attention_factor = parameters.get("attention_factor")
        mscale, of_all = parameters.get("mscale"), parameters.get("mscale_all_dim")
        if attention_factor is None and mscale and of_all:  # DeepSeek's
            attention_factor = yarn_mscale(factor, mscale) / yarn_mscale(factor, of_all)
        return YarnScaling(
            factor,
            original,
            beta_fast=parameters.get("beta_fast") or 32.0,
            beta_slow=parameters.get("beta_slow") or 1.0,
            truncate=True if parameters.get("truncate") is None else parameters["truncate"],
            attention_factor=attention_factor,
        )
    reason = REFUSED_KINDS.get(rope_type, "it is not a kind that rove_lab knows")
    raise ValueError(
        f"cannot honour the rope_type {rope_type!r} of {config.model_type}: {reason}. For a "
        f"rotation that does not change, build {DIRECTLY}."
    )


def _original_n_ctx(config: Any, parameters: dict[str, Any]) -> int:
    original = parameters.get("original_max_position_embeddings")
    if config.model_type not in BY_LAYER_TYPE:  # the config's own attribute comes first, as in HF
        original = getattr(config, "original_max_position_embeddings", None) or original
    return operator.index(original or read(config, "max_position_embeddings"))


def read(config: Any, *names: str) -> Any:
    """The first of these attributes that the config has."""
    for name in names:
        if (value := getattr(config, name, None)) is not None:
            return value
    raise ValueError(f"expected {names[0]} in the config of {config.model_type}, got None.")
