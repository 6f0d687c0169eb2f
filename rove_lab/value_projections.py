r"""Where the values of a Hugging Face model come from, and where its heads' output goes.

Most families have a projection of their own for the values; some compute queries, keys and values
by one matrix, in an order of their own. Nothing here imports ``transformers``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rove_lab.hf_config import text_config

__all__ = ["AttentionLayer", "ValueLayout", "attention_layers", "value_layout", "value_weights"]

OUTPUTS = ("o_proj", "out_proj", "dense")


@dataclass(frozen=True)
class ValueLayout(ABC):
    """Which channels of a projection are the values, head by head.

    Args:
        n_heads: Query heads.
        n_kv_heads: Heads of keys and values.
    """

    projection: ClassVar[str]  # its name in Hugging Face's attention modules
    n_heads: int
    n_kv_heads: int

    @abstractmethod
    def read(self, projected: Tensor) -> Tensor:
        """The values in it: ``[..., out]`` to ``[..., n_kv_heads, d_head]``."""

    @abstractmethod
    def write(self, projected: Tensor, values: Tensor) -> Tensor:
        """A new tensor ``[..., out]`` with these values in their place and all else as it was."""


class _Separate(ValueLayout):
    projection = "v_proj"

    def read(self, projected: Tensor) -> Tensor:
        values: Tensor = projected.unflatten(-1, (self.n_kv_heads, -1))
        return values

    def write(self, projected: Tensor, values: Tensor) -> Tensor:
        return values.flatten(-2)


class _HeadByHead(ValueLayout):
    """The first head's query, key and value, then the next head's (GPT-NeoX)."""

    projection = "query_key_value"

    def read(self, projected: Tensor) -> Tensor:
        return self._heads(projected)[..., 2, :]

    def write(self, projected: Tensor, values: Tensor) -> Tensor:
        others = self._heads(projected)[..., :2, :]
        return torch.cat((others, values.unsqueeze(-2)), -2).flatten(-3)

    def _heads(self, projected: Tensor) -> Tensor:
        heads: Tensor = projected.unflatten(-1, (self.n_heads, 3, -1))
        return heads


class _ValuesLast(ValueLayout):
    """All queries, then all keys, then all values (Phi-3)."""

    projection = "qkv_proj"

    def read(self, projected: Tensor) -> Tensor:
        return self._heads(projected)[..., -self.n_kv_heads :, :]

    def write(self, projected: Tensor, values: Tensor) -> Tensor:
        others = self._heads(projected)[..., : -self.n_kv_heads, :]
        return torch.cat((others, values), -2).flatten(-2)

    def _heads(self, projected: Tensor) -> Tensor:
        n = self.n_heads + 2 * self.n_kv_heads
        heads: Tensor = projected.unflatten(-1, (n, -1))
        return heads


def value_layout(config: Any) -> ValueLayout:
    """Where this family's projections have the values.

    Args:
        config: A ``transformers`` config of a decoder.

    Returns:
        The layout; for a family that is not known to be fused, a ``v_proj`` of its own.

    Example:
        >>> from transformers import GPTNeoXConfig
        >>> value_layout(GPTNeoXConfig()).projection
        'query_key_value'
    """
    n_heads = config.num_attention_heads
    n_kv_heads = getattr(config, "num_key_value_heads", None) or n_heads
    if config.model_type == "gpt_neox":
        return _HeadByHead(n_heads, n_heads)
    return (_ValuesLast if config.model_type == "phi3" else _Separate)(n_heads, n_kv_heads)


@dataclass(frozen=True)
class AttentionLayer:
    """The attention module of a layer and the names of the two projections its values pass.

    Args:
        name: Of the module, in the decoder.
        attention: The module.
        projection: The child whose output holds the values.
        output: The child that gets the heads' sums, ``[batch, pos, n_heads * d_head]``.

    Example:
        >>> AttentionLayer("h.0.attn", nn.Identity(), "v_proj", "out_proj").output
        'out_proj'
    """

    name: str
    attention: nn.Module
    projection: str
    output: str


def attention_layers(model: Any) -> list[AttentionLayer]:
    """The attention of every layer, in order.

    Args:
        model: A Hugging Face causal LM.

    Returns:
        One :class:`AttentionLayer` a layer.

    Raises:
        ValueError: If not every layer has one, with a value and an output projection.

    Example:
        >>> from transformers import GPTJConfig, GPTJForCausalLM
        >>> config = GPTJConfig(n_embd=8, n_head=2, n_layer=3, rotary_dim=2, vocab_size=4)
        >>> [layer.name for layer in attention_layers(GPTJForCausalLM(config))]
        ['h.0.attn', 'h.1.attn', 'h.2.attn']
    """
    config = text_config(model)
    projection = value_layout(config).projection
    found = []
    for name, module in _decoder(model).named_modules():
        children = dict(module.named_children())
        output = next((each for each in OUTPUTS if each in children), None)
        if projection in children and output is not None:
            found.append(AttentionLayer(name, module, projection, output))
    if len(found) != config.num_hidden_layers:
        raise ValueError(
            f"expected a {projection} and one of {', '.join(OUTPUTS)} in each of the "
            f"{config.num_hidden_layers} layers of {config.model_type}, got them in {len(found)}: "
            "its attention is not built like the one in transformers."
        )
    return found


def value_weights(model: Any) -> Tensor:
    r"""The value weights :math:`W_V` of every layer, for row vectors: ``v = x @ W_V``.

    In TransformerLens' orientation, one for each KV head; value biases (Qwen2) are not in it.

    Args:
        model: A Hugging Face causal LM with a ``v_proj`` in every layer, or GPT-NeoX or Phi-3,
            whose projections are fused.

    Returns:
        ``[n_layers, n_kv_heads, d_model, d_head]``, a copy in the weights' dtype.

    Raises:
        ValueError: If the value weights of every layer cannot be told apart from the others.

    Example:
        >>> from transformers import GPTJConfig, GPTJForCausalLM
        >>> config = GPTJConfig(n_embd=8, n_head=2, n_layer=3, rotary_dim=2, vocab_size=4)
        >>> value_weights(GPTJForCausalLM(config)).shape
        torch.Size([3, 2, 8, 4])
    """
    config = text_config(model)
    layout = value_layout(config)
    found = []
    for name, module in _decoder(model).named_modules():
        # exactly nn.Linear: an adapter or a quantised layer has a `weight` that is not all of it
        if name.rpartition(".")[2] == layout.projection and type(module) is nn.Linear:
            found.append(module.weight.detach())  # [out, d_model]
    shapes = {weight.shape for weight in found}
    if len(found) != config.num_hidden_layers or len(shapes) != 1:
        raise ValueError(
            f"expected one {layout.projection} (nn.Linear, of one shape) in each of the "
            f"{config.num_hidden_layers} layers of {config.model_type}, got {len(found)} of "
            f"{len(shapes)} shapes: merge adapters, load without quantisation, or take the "
            "weights from the modules themselves."
        )
    values = layout.read(torch.stack(found).mT)  # [n_layers, d_model, n_kv_heads, d_head]
    return values.transpose(1, 2).contiguous()


def _decoder(model: Any) -> Any:
    return model.get_decoder() if hasattr(model, "get_decoder") else model
