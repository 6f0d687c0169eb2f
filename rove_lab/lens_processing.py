r"""What TransformerLens did to a bridge's weights, kept with the bridge, and refused under RoVE.

Folding the value biases into the output bias rests on :math:`\sum_j A_{ij} b = b`. Under RoVE a
value bias adds :math:`\sum_j A_{ij} R_{j-i} b`, which depends on the pattern; and refactoring
:math:`W_V W_O` by its singular vectors gives the head's channels other planes.
"""

from __future__ import annotations

import inspect
from types import MethodType
from typing import Any

from rove_lab.lens_arguments import TransformerBridge, check_bridge

__all__ = ["check_processing", "compatible", "record_processing"]

_UNSAFE = ("fold_value_biases", "refactor_factored_attn_matrices")
_RECORD = "_rove_lab_processing"


def record_processing(bridge: Any) -> None:
    """Makes a bridge remember how its weights are processed, for :func:`check_processing`.

    Args:
        bridge: A bridge whose weights are still the model's.

    Raises:
        TypeError: If it is not a bridge.

    Example:
        >>> record_processing("gpt2")
        Traceback (most recent call last):
        TypeError: expected a TransformerBridge, got str: ...
    """
    check_bridge(bridge).process_weights = MethodType(_process_and_record, bridge)


def compatible(bridge: Any) -> TransformerBridge:
    r"""TransformerLens's compatibility mode in a form that holds under RoVE.

    Where the architecture allows it, norm weights are folded into what reads them (not in OLMo 2
    and Phi-3), and the unembedding (not under a soft cap) and what writes into the stream (under
    LayerNorm) are centred. Value biases stay where they are, ``fold_value_biases=False``, and
    :math:`W_V W_O` keeps its factors. Probabilities stay the same, with RoVE and without.
    Elhage et al. (2021), "A Mathematical Framework for Transformer Circuits".

    Args:
        bridge: From :func:`bridge_from_huggingface` or :func:`bridge_from_gpt`; changed in place.

    Returns:
        The same bridge.

    Raises:
        TypeError: If it is not a bridge.
        ValueError: If its value biases were folded, or its weights refactored, before; or if
            ``d_vocab`` (under LayerNorm ``d_mlp``, too) is ``d_model``, where TransformerLens 4.3
            takes one axis for the other.

    Example:
        >>> from transformers import GPTJConfig, GPTJForCausalLM
        >>> from rove_lab.lens import bridge_from_huggingface
        >>> config = GPTJConfig(n_embd=8, n_head=2, n_layer=3, rotary_dim=2, vocab_size=4)
        >>> bridge = compatible(bridge_from_huggingface(GPTJForCausalLM(config)))
    """
    check_processing(bridge)
    d_vocab, d_model = bridge.W_E.shape
    if d_vocab == d_model:
        raise ValueError(
            f"expected d_vocab other than d_model, got {d_model} for both: TransformerLens tells "
            "the axes of the unembedding apart by their lengths and would centre the wrong one. "
            "Fold with rove_lab.folding instead."
        )
    if bridge.cfg.d_mlp == d_model and not getattr(bridge.cfg, "uses_rms_norm", False):
        raise ValueError(
            f"expected d_mlp other than d_model, got {d_model} for both: TransformerLens centres "
            "a square writing matrix along the wrong axis. Centre with "
            "rove_lab.folding.center_writing_weights instead."
        )
    bridge.enable_compatibility_mode(
        disable_warnings=True,
        fold_ln=getattr(bridge.adapter, "supports_fold_ln", True),
        center_unembed=not bridge.cfg.output_logits_soft_cap,  # tanh is not shift-invariant
        fold_value_biases=False,
        refactor_factored_attn_matrices=False,
    )
    return bridge


def check_processing(bridge: Any) -> None:
    """Refuses a bridge whose weights were processed in a way that RoVE does not allow.

    Args:
        bridge: The bridge.

    Raises:
        TypeError: If it is not a bridge.
        ValueError: If value biases were folded, weights refactored, or nothing says how the
            weights were processed.

    Example:
        >>> check_processing("gpt2")
        Traceback (most recent call last):
        TypeError: expected a TransformerBridge, got str: ...
    """
    if not check_bridge(bridge)._weights_processed:
        return
    record = bridge.__dict__.get(_RECORD)
    fix = (
        "make a new bridge with bridge_from_huggingface(model, tokenizer) and, for compatibility "
        "mode, call compatible(bridge)."
    )
    if record is None:
        raise ValueError(
            "expected weights as they are in the model, got a bridge that was processed before "
            f"rove_lab could see how: {fix}"
        )
    unsafe = [name for name in _UNSAFE if record[name]]
    if unsafe:
        raise ValueError(
            f"expected weights that RoVE can turn, got a bridge processed with {unsafe[0]}=True: "
            "the effect of a value bias depends on the pattern under RoVE, and new factors of "
            f"W_V W_O have other planes. This cannot be undone: {fix}"
        )


def _process_and_record(bridge: Any, *args: Any, **kwargs: Any) -> None:
    process = type(bridge).process_weights
    given = inspect.signature(process).bind(bridge, *args, **kwargs)
    given.apply_defaults()
    if not bridge._weights_processed:  # a second time TransformerLens does nothing
        bridge.__dict__[_RECORD] = {name: given.arguments[name] for name in _UNSAFE}
    process(bridge, *args, **kwargs)
