r"""Which rotation a Hugging Face model uses, read from its config.

A config names its base and its scaling, but not how a head's channels are paired: that is written
in the model's code. So the families below are listed by name, each checked against the model
itself (``tests/test_hf_config.py`` runs a tiny one of every family), and a model type that is not
listed is refused rather than guessed. Nothing here imports ``transformers``.
"""

from __future__ import annotations

import operator
from typing import Any

from rove_lab.hf_scaling import BY_LAYER_TYPE, DIRECTLY, REFUSED_KINDS, read, scaling_of

__all__ = ["rotary_arguments", "rotating_layers"]

# Channel m turns with channel m + rotary_dim / 2.
HALVES = frozenset(
    "apertus arcee bitnet cwm dots1 exaone4 falcon flex_olmo gemma gemma2 gemma3_text glm4_moe "
    "gpt_neox gpt_oss granite granitemoe hyperclovax jais2 llama minimax_m2 ministral ministral3 "
    "mistral mixtral nemotron olmo olmo2 olmo3 olmoe persimmon phi phi3 qwen2 qwen2_moe qwen3 "
    "qwen3_moe seed_oss smollm3 stablelm starcoder2 vaultgemma".split()
)
# Channel 2m turns with channel 2m + 1.
INTERLEAVED = frozenset(
    "codegen cohere cohere2 deepseek_v4 ernie4_5 ernie4_5_moe glm glm4 gptj helium "
    "llama4_text".split()
)
TRAILING = frozenset({"deepseek_v4"})
# Models that read `partial_rotary_factor`; the others rotate whole heads whatever it says.
PARTIAL = frozenset(
    "deepseek_v4 glm glm4 glm4_moe gpt_neox minimax_m2 nemotron persimmon phi phi3 stablelm".split()
)
FIXED_BASE = frozenset({"codegen", "gptj"})  # `rotary_dim` is all their configs say


def rotary_arguments(hf_config: Any, layer: int | None = None) -> dict[str, Any]:
    r"""The arguments of ``RotaryEmbedding`` for which :math:`R_t` is a Hugging Face model's.

    Reads the attributes of transformers 5 (``rope_parameters``, flat or one set per layer type) and
    the older ones (``rope_theta``, ``rope_scaling``, ``rotary_pct``, ...). YaRN's
    ``attention_factor`` follows Hugging Face's rules; its ``truncate`` is honoured wherever it
    stands (transformers 5.24 ignores it inside parameters per layer type).

    Args:
        hf_config: A ``transformers`` config, or any object with the same attributes.
        layer: Index of the layer; needed where the rotation differs by layer.

    Returns:
        ``d_head``, ``base``, ``rotary_dim``, ``interleaved``, ``trailing`` and ``scaling``.

    Raises:
        TypeError: If ``hf_config`` is not a config, or ``layer`` is not an integer.
        ValueError: If the model type is not known, if its rotation cannot be honoured exactly, if
            ``layer`` is out of range, has no rotation, or is needed and missing.

    Example:
        >>> from types import SimpleNamespace as Config
        >>> gptj = Config(model_type="gptj", n_embd=64, n_head=4, rotary_dim=8, n_layer=2)
        >>> [rotary_arguments(gptj)[name] for name in ("d_head", "rotary_dim", "interleaved")]
        [16, 8, True]
    """
    config, n_layers = _checked(hf_config)
    if layer is None:
        by_layer = [_layer_arguments(config, i) for i in range(n_layers)]
        different = next((i for i, found in enumerate(by_layer) if found != by_layer[0]), None)
        if different is not None:
            raise ValueError(
                f"the rotation of {config.model_type} differs by layer (layer {different} is not "
                f"as layer 0): pass layer=0 to layer={n_layers - 1}."
            )
        arguments = by_layer[0]
    else:
        if isinstance(layer, bool) or not hasattr(layer, "__index__"):
            raise TypeError(f"expected layer to be an integer or None, got {layer!r}.")
        if not 0 <= operator.index(layer) < n_layers:
            raise ValueError(
                f"expected a layer of {config.model_type} from 0 to {n_layers - 1}, got {layer}."
            )
        arguments = _layer_arguments(config, operator.index(layer))
    if arguments is None:
        where = "" if layer is None else f" in layer {layer}"
        raise ValueError(
            f"{config.model_type} has no rotation{where}: its queries and keys are not turned. Ask "
            "for a layer that has one, and leave this one as it is."
        )
    return arguments


def rotating_layers(hf_config: Any) -> list[int]:
    r"""The layers whose queries and keys turn; in some families (SmolLM3, Cohere 2) not all do.

    Args:
        hf_config: As for :func:`rotary_arguments`.

    Returns:
        Indices of layers, ascending.

    Raises:
        TypeError: If ``hf_config`` is not a config.
        ValueError: If the model type is not known or a layer's rotation cannot be honoured.

    Example:
        >>> from types import SimpleNamespace as Config
        >>> rotating_layers(Config(model_type="gptj", n_embd=64, n_head=4, rotary_dim=8, n_layer=2))
        [0, 1]
    """
    config, n_layers = _checked(hf_config)
    return [i for i in range(n_layers) if _layer_arguments(config, i) is not None]


def text_config(model: Any) -> Any:
    """The config of the decoder, which a vision or audio model holds in ``text_config``."""
    return getattr(model.config, "text_config", None) or model.config


def _checked(hf_config: Any) -> tuple[Any, int]:
    """The decoder's config, of a known family, and its number of layers."""
    config = _text_config(hf_config)
    _check_model_type(config)
    n_layers = operator.index(read(config, "num_hidden_layers", "n_layer"))
    if n_layers < 1:
        raise ValueError(f"expected num_hidden_layers of at least 1, got {n_layers}.")
    return config, n_layers


def _text_config(hf_config: Any) -> Any:
    # a vision or audio model holds its decoder's config in `text_config`
    config = getattr(hf_config, "text_config", None) or hf_config
    if not isinstance(getattr(config, "model_type", None), str):
        fix = "load one with transformers.AutoConfig.from_pretrained(name)"
        raise TypeError(
            "expected a Hugging Face config (with a model_type), got "
            f"{type(config).__name__}: {'pass model.config' if hasattr(config, 'config') else fix}."
        )
    return config


def _check_model_type(config: Any) -> None:
    kind = config.model_type
    if kind in HALVES | INTERLEAVED:
        return
    marks = ("rope_parameters", "rope_theta", "rotary_dim", "rotary_emb_base")
    if getattr(config, "kv_lora_rank", None) is not None:
        reason = (
            "it has latent attention (MLA), whose rotated channels are apart from the rest of the "
            "head and shared by all heads; its values have none"
        )
    elif all(getattr(config, name, None) is None for name in marks):
        reason = "its config has no rotary parameters (it may use learned positions or ALiBi)"
    else:
        reason = "how it pairs the channels of a head is not in its config, and is not guessed"
    raise ValueError(
        f"cannot read the rotation of model type {kind!r}: {reason}. If its code turns heads by "
        f"token positions, build {DIRECTLY} from what the code says."
    )


def _layer_arguments(config: Any, layer: int) -> dict[str, Any] | None:
    """The arguments for one layer, or None where that layer does not rotate."""
    if getattr(config, "is_heterogeneous", False):
        config = config.per_layer_config[layer]
    kind, d_head = config.model_type, _d_head(config)
    parameters = _parameters(config, layer) if _rotates(config, layer) else None
    if parameters is None:
        return None
    if kind in FIXED_BASE:
        rotary_dim = read(config, "rotary_dim")
    else:
        rotary_dim = int(d_head * _partial_rotary_factor(config, parameters))
    return {
        "d_head": d_head,
        "base": 10000.0 if kind in FIXED_BASE else _base(config, parameters),
        "rotary_dim": rotary_dim,
        "interleaved": kind in INTERLEAVED,
        "trailing": kind in TRAILING,
        "scaling": None if kind in FIXED_BASE else scaling_of(config, parameters),
    }


def _rotates(config: Any, layer: int) -> bool:
    kind = config.model_type
    if kind in ("llama4_text", "smollm3"):
        return bool(_of_layer(config, "no_rope_layers", layer))  # 1 where there *is* a rotation
    if kind == "falcon":
        return not getattr(config, "alibi", False)
    if kind in ("cohere2", "exaone4"):
        windowed = getattr(config, "sliding_window", None) is not None
        sliding = _of_layer(config, "layer_types", layer) == "sliding_attention"
        return windowed and sliding if kind == "cohere2" else not windowed or sliding
    return True


def _parameters(config: Any, layer: int) -> dict[str, Any] | None:
    """What the config says of one layer's rotation, as one flat dict; None for no rotation."""
    kind = config.model_type
    given = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    nested = any(isinstance(value, dict) for value in given.values())
    found = given
    if kind in BY_LAYER_TYPE:
        label = _of_layer(config, "layer_types", layer)
        if kind == "deepseek_v4":
            label = "main" if label == "sliding_attention" else "compress"
        if nested:
            if label not in given:
                raise ValueError(
                    f"expected rope_parameters of {kind} for {label!r}, got them for "
                    f"{sorted(given)}: add the missing set."
                )
            found = given[label]
            if found is not None and "truncate" in given:
                found = {"truncate": given["truncate"], **found}
        elif label == "sliding_attention":  # before transformers 5 a scaling was for full attention
            # Gemma 3's sliding layers have a base of their own, the others' share the global one
            local = kind == "gemma3_text"
            found = {"rope_theta": read(config, "rope_local_base_freq")} if local else {}
    elif nested:
        raise ValueError(
            f"expected one set of rope_parameters for {kind}, got one for each of {sorted(given)}: "
            "its code reads a single set. Remove the nesting."
        )
    if found is not None and "mrope_section" in found:
        raise ValueError(f"cannot honour the mrope_section of {kind}: {REFUSED_KINDS['mrope']}.")
    return found


def _base(config: Any, parameters: dict[str, Any]) -> float:
    base = parameters.get("rope_theta") or getattr(config, "rope_theta", None)
    if base is None:
        base = getattr(config, "rotary_emb_base", None)  # GPT-NeoX before transformers 5
    if base is None:
        raise ValueError(
            f"expected a base in the config of {config.model_type}, got no rope_theta, neither in "
            f"its rope_parameters ({parameters}) nor as an attribute: set one."
        )
    return float(base)


def _partial_rotary_factor(config: Any, parameters: dict[str, Any]) -> float:
    factor = parameters.get("partial_rotary_factor")
    for name in ("partial_rotary_factor", "rotary_pct"):
        factor = getattr(config, name, None) if factor is None else factor
    if factor not in (None, 1) and config.model_type not in PARTIAL:
        raise ValueError(
            f"expected no partial_rotary_factor for {config.model_type}, got {factor}: the model "
            "rotates whole heads and would ignore it. Remove it from the config."
        )
    return 1.0 if factor is None else float(factor)


def _d_head(config: Any) -> int:
    if getattr(config, "head_dim", None) is not None:
        return operator.index(config.head_dim)
    width = read(config, "hidden_size", "n_embd")
    n_heads = read(config, "num_attention_heads", "n_head")
    if width % n_heads:
        raise ValueError(
            f"expected hidden_size divisible by num_attention_heads, got {width} and {n_heads}."
        )
    return operator.index(width // n_heads)


def _of_layer(config: Any, name: str, layer: int) -> Any:
    values = read(config, name)
    if layer >= len(values):
        raise ValueError(f"expected an entry of {name} for every layer, got {len(values)}.")
    return values[layer]
