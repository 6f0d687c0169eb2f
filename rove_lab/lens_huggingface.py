"""A TransformerLens bridge from a Hugging Face model in memory, offline and on a copy."""

from __future__ import annotations

import copy
from typing import Any

from rove_lab.lens_arguments import TransformerBridge
from rove_lab.lens_cache import mend_cache
from rove_lab.lens_processing import record_processing

try:
    from transformer_lens.factories.architecture_adapter_factory import ArchitectureAdapterFactory
    from transformer_lens.model_bridge.sources._bridge_builder import (
        build_bridge_from_module,
        detect_tokenizer_bos_eos,
    )
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
except ImportError as error:
    raise ImportError(
        f"a part of TransformerLens could not be imported ({error}): "
        'pip install "rove-lab[lens]", which asks for transformer-lens>=4.3,<5'
    ) from error

__all__ = ["bridge_from_huggingface"]


def bridge_from_huggingface(model: Any, tokenizer: Any = None) -> TransformerBridge:
    r"""A TransformerLens bridge of a Hugging Face causal LM that is in memory already.

    The bridge holds a copy: the model, its hooks and its config stay as they are, and nothing is
    fetched. Weights are not processed (:func:`compatible` does that safely). Where TransformerLens
    4.3 loses the key-value cache of transformers 5.24, this bridge is mended. Attention is eager,
    and its softmax float32 whatever the dtype: with padding, float64 gives NaN. GPT-J's pattern can
    be read, and not edited (:func:`firing_hooks`).

    ``bridge.to_tokens(text)`` puts the tokenizer's BOS token first by default, also for models that
    were trained without one: pass ``prepend_bos=False`` to have the tokens as the tokenizer gives
    them. An EOS that the tokenizer appends is dropped.

    Args:
        model: A causal LM of transformers.
        tokenizer: Its tokenizer, for ``to_tokens`` and text input; the bridge takes a copy, padded
            with EOS where it has no padding token. ``None`` for token ids alone.

    Returns:
        A ``TransformerBridge`` on the model's device and in its dtype.

    Raises:
        TypeError: If the model or the tokenizer is something else.
        ValueError: If TransformerLens has no adapter for the architecture, the model or its
            config has RoVE, or the tokenizer has more tokens than the model embeds.

    Example:
        >>> from transformers import GPTJConfig, GPTJForCausalLM
        >>> config = GPTJConfig(n_embd=8, n_head=2, n_layer=3, rotary_dim=2, vocab_size=4)
        >>> bridge_from_huggingface(GPTJForCausalLM(config)).W_V.shape
        torch.Size([3, 2, 8, 4])
    """
    _check_model(model)
    own_tokenizer = None if tokenizer is None else _own_tokenizer(model, tokenizer)
    copied = copy.deepcopy(model)
    copied.set_attn_implementation("eager")  # or else GPT-J shows no pattern
    bridge = build_bridge_from_module(copied, type(model).__name__, hf_config=copied.config)
    if own_tokenizer is not None:
        # not by way of the builder, which asks the hub for the tokenizer again
        bridge.tokenizer = own_tokenizer
        starts, ends = detect_tokenizer_bos_eos(own_tokenizer)
        bridge.cfg.tokenizer_prepends_bos, bridge.cfg.tokenizer_appends_eos = starts, ends
    record_processing(bridge)
    mend_cache(bridge)
    return bridge


def _check_model(model: Any) -> None:
    if not isinstance(model, PreTrainedModel):
        raise TypeError(
            f"expected a causal LM of transformers, got {type(model).__name__}: load one with "
            "load_causal_lm(name), or take bridge_from_gpt for the lab's own GPT."
        )
    said = getattr(model.config, "rove", None)
    if said is not None:
        which = said if isinstance(said, dict) else {}
        hooks = f"rove_hooks(bridge, {', '.join(f'{k}={v}' for k, v in which.items())})"
        off = "model.rove.remove()" if hasattr(model, "rove") else "del model.config.rove"
        raise ValueError(
            f"expected a model without RoVE, got one whose config says it has: {off}, and then run "
            f"its bridge with {hooks}."
        )
    ArchitectureAdapterFactory.discover_entry_points()
    if type(model).__name__ not in ArchitectureAdapterFactory._adapters:
        raise ValueError(
            f"expected an architecture that TransformerLens knows, got {type(model).__name__}: "
            "pass the model with its language model head (AutoModelForCausalLM), not wrapped."
        )


def _own_tokenizer(model: Any, tokenizer: Any) -> Any:
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise TypeError(
            f"expected a tokenizer of transformers, got {type(tokenizer).__name__}: load it with "
            "AutoTokenizer.from_pretrained(name)."
        )
    embedded = model.get_input_embeddings().weight.shape[0]
    largest = max(tokenizer.get_vocab().values(), default=-1)
    if largest >= embedded:
        raise ValueError(
            f"expected a tokenizer of at most {embedded} tokens, as many as the model embeds, got "
            f"ids up to {largest}: take the model's own tokenizer, or call "
            "model.resize_token_embeddings(len(tokenizer)) if you added tokens."
        )
    own = copy.deepcopy(tokenizer)
    if own.pad_token is None:  # TransformerLens pads every call
        own.pad_token = own.eos_token or own.unk_token or own.bos_token
    return own
