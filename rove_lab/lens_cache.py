r"""TransformerLens 4.3's silent cache: found by one step of decoding, mended by one name.

transformers 5.24 hands a layer's attention its key-value cache as ``cache``; TransformerLens 4.3
reads ``past_key_values`` and ``layer_past`` alone. The bridge of a Llama then fills no cache, and
each decoded token attends to itself: logits are off by 0.3 to 7, and nothing is said.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

from rove_lab.lens_arguments import check_bridge

__all__ = ["cache_is_filled", "mend_cache"]


def cache_is_filled(bridge: Any) -> bool:
    """Whether one step of decoding leaves a key and a value in the cache of every layer.

    Args:
        bridge: A bridge of a Hugging Face causal LM.

    Returns:
        ``False`` where TransformerLens drops the cache, so that decoded tokens see no other.

    Raises:
        TypeError: If it is not a bridge.

    Example:
        >>> cache_is_filled("gpt2")
        Traceback (most recent call last):
        TypeError: expected a TransformerBridge, got str: ...
    """
    token = torch.zeros(1, 1, dtype=torch.int64, device=check_bridge(bridge).W_E.device)
    training = bridge.training
    bridge.eval()  # no draws for dropout; a checkpointed model has no cache while it trains
    try:
        with torch.no_grad():
            _, cache = bridge(token, return_type="logits_and_cache", use_cache=True)
    finally:
        bridge.train(training)
    return all(cache.get_seq_length(layer) == 1 for layer in range(bridge.cfg.n_layers))


def mend_cache(bridge: Any) -> bool:
    """Mends the cache of a bridge whose one-step check fails, and of no other.

    The attention of each layer gets its cache under the name that TransformerLens reads, and the
    model under the name that transformers wants (it warns of the other).

    Args:
        bridge: A bridge of a Hugging Face causal LM, changed in place.

    Returns:
        Whether there was a cache to mend.

    Raises:
        RuntimeError: If the cache stays empty all the same.
        TypeError: If it is not a bridge.

    Example:
        >>> mend_cache("gpt2")
        Traceback (most recent call last):
        TypeError: expected a TransformerBridge, got str: ...
    """
    model = check_bridge(bridge).original_model
    if "cache" in inspect.signature(model.forward).parameters:
        model.register_forward_pre_hook(_model_wants_cache, with_kwargs=True)
    if cache_is_filled(bridge):
        return False
    for block in bridge.blocks:
        block.attn.register_forward_pre_hook(_bridge_wants_past_key_values, with_kwargs=True)
    if not cache_is_filled(bridge):
        raise RuntimeError(
            f"the key-value cache of this {bridge.cfg.architecture} bridge stays empty, so that "
            "decoding with it would be wrong without a word: use the transformer-lens and the "
            "transformers that rove-lab was tested with (requirements.txt)."
        )
    return True


def _model_wants_cache(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if "past_key_values" in kwargs:
        kwargs["cache"] = kwargs.pop("past_key_values")
    return args, kwargs


def _bridge_wants_past_key_values(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if kwargs.get("past_key_values") is None and kwargs.get("layer_past") is None:
        kwargs["past_key_values"] = kwargs.get("cache")
    return args, kwargs
