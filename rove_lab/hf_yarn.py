r"""Transformers' own YaRN in a Hugging Face model that is loaded already, and off again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from rove_lab.hf_config import text_config

__all__ = ["hf_yarn"]


@contextmanager
def hf_yarn(model: Any, factor: float, beta_fast: float, n_ctx: int) -> Iterator[None]:
    r"""A Hugging Face causal LM under transformers' own YaRN while a ``with`` block lasts.

    Its rotary module is made anew from a config that asks for YaRN, and both are put back. What it
    computes is what the same weights compute in a model that was built with that config, bit for
    bit. Peng et al. (2023), arXiv:2309.00071.

    Args:
        model: The model; its parameters are not touched.
        factor: How many times longer, 1 or more.
        beta_fast: Turns within ``n_ctx`` tokens above which a plane keeps its frequency.
        n_ctx: Tokens of the trained window, ``original_max_position_embeddings`` in the config.

    Yields:
        Nothing.

    Raises:
        ValueError: If the model's rotation is scaled already, or its family has no YaRN. The model
            is untouched then.

    Example:
        >>> from transformers import PhiConfig as Config, PhiForCausalLM as Phi
        >>> model = Phi(Config(hidden_size=8, num_attention_heads=2, num_hidden_layers=1))
        >>> with hf_yarn(model, 2.0, 4.0, 64): print(model.config.rope_parameters["rope_type"])
        yarn
    """
    config, (parent, name) = text_config(model), _rotary_module(model)
    module = getattr(parent, name)
    wanted = {
        "rope_type": "yarn",
        "factor": float(factor),
        "original_max_position_embeddings": n_ctx,
        "beta_fast": float(beta_fast),
        "beta_slow": 1.0,
    }
    changes: dict[str, Any] = {"rope_parameters": _parameters(config, module.rope_type, wanted)}
    if hasattr(config, "original_max_position_embeddings"):  # Phi-3's comes before the parameters'
        changes["original_max_position_embeddings"] = n_ctx
    before = {attribute: getattr(config, attribute) for attribute in changes}
    try:
        for attribute, value in changes.items():
            setattr(config, attribute, value)
        device = next(module.buffers()).device
        setattr(parent, name, type(module)(config).to(device).train(module.training))
        _values_follow(model)
        yield
    finally:
        for attribute, value in before.items():
            setattr(config, attribute, value)
        setattr(parent, name, module)
        _values_follow(model)


def _rotary_module(model: Any) -> tuple[nn.Module, str]:
    """The module of transformers that makes cos and sin for all layers, as parent and name."""
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model
    found = [
        (parent, name)
        for parent in decoder.modules()
        for name, child in parent.named_children()
        if hasattr(child, "rope_type")
    ]
    if len(found) != 1:
        raise ValueError(
            "expected one rotary module that knows YaRN in model type "
            f"{text_config(model).model_type!r}, got {len(found)}: take a model of another type, "
            "such as llama or gpt_neox."
        )
    return found[0]


def _parameters(config: Any, kinds: Any, wanted: dict[str, Any]) -> dict[str, Any]:
    """The model's ``rope_parameters``, as wanted for the layers that see everything."""
    parameters: dict[str, Any] = config.rope_parameters
    if not isinstance(kinds, dict):  # one kind of rotation for all layers
        _check_unscaled(kinds)
        return {**parameters, **wanted}
    if "full_attention" not in kinds:
        raise ValueError(
            f"expected layers that attend to everything in this {config.model_type}, got "
            f"{', '.join(kinds)} alone: layers that see a window need no stretching."
        )
    _check_unscaled(kinds["full_attention"])
    return {**parameters, "full_attention": {**parameters["full_attention"], **wanted}}


def _check_unscaled(kind: str) -> None:
    if kind != "default":
        raise already_scaled(kind)


def already_scaled(scaling: object) -> ValueError:
    """The error for a model whose rotation is scaled."""
    return ValueError(
        f"expected a model whose rotation is not scaled yet, got {scaling}: leave the block of the "
        "other yarn first, or take a model that was trained without scaling."
    )


def _values_follow(model: Any) -> None:
    """Values that enable_rove turns go on turning as the keys do."""
    for module in model.modules():
        handle = vars(module).get("rove")
        if handle is not None:
            handle.follow_config()
