r"""RoVE switched on in a Hugging Face causal LM that was built without it, and off again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from rove_lab.arguments import check_index
from rove_lab.hf_config import rotating_layers, text_config
from rove_lab.rotary import RotaryEmbedding
from rove_lab.value_hooks import ValueHooks
from rove_lab.value_projections import AttentionLayer, attention_layers, value_layout

__all__ = ["RoveHandle", "enable_rove"]

# Families whose attention takes the values straight from a projection, and whose output projection
# takes the heads' sums straight from it: nothing between is blind to a rotation. Every one of them
# is held against a float64 reference in the tests.
DIRECT = frozenset(
    "apertus arcee cohere cohere2 cwm dots1 ernie4_5 ernie4_5_moe exaone4 flex_olmo gemma gemma2 "
    "gemma3_text glm glm4 glm4_moe gpt_neox gpt_oss gptj granite granitemoe helium hyperclovax "
    "jais2 llama minimax_m2 ministral ministral3 mistral mixtral nemotron olmo olmo2 olmo3 olmoe "
    "phi phi3 qwen2 qwen2_moe qwen3 qwen3_moe seed_oss smollm3 stablelm starcoder2 "
    "vaultgemma".split()
)


class RoveHandle:
    """RoVE that is on in a model: what :func:`enable_rove` returns, and ``model.rove``.

    Args:
        model: The model.
        hooks: The hooks, one :class:`ValueHooks` a layer, by the layer's index.
        planes: The planes that turn; None for all.

    Attributes:
        layers: Indices of the layers it is on in.
        planes: Indices of the planes that turn; None for all.

    Example:
        >>> from transformers import GPTJConfig, GPTJForCausalLM
        >>> model = GPTJForCausalLM(GPTJConfig(n_embd=8, n_head=2, n_layer=3, rotary_dim=4))
        >>> enable_rove(model, layers=[0, -1], planes=[1])
        RoveHandle(layers=[0, 2], planes=[1])
    """

    def __init__(self, model: Any, hooks: dict[int, ValueHooks], planes: list[int] | None) -> None:
        self.layers, self.planes = sorted(hooks), planes
        self._model, self._hooks = model, hooks
        self._before = {k: v for k, v in vars(model.config).items() if k == "rove"}
        _forget_compiled_code()
        model.rove = self
        kept = None if planes is None else [*planes]  # lists of its own: what is saved stays true
        model.config.rove = {"layers": [*self.layers], "planes": kept}

    def remove(self) -> None:
        """Make the model what it was: the same hooks, config and outputs. Twice is as once."""
        if self._model is None:
            return
        for hooks in self._hooks.values():
            hooks.remove()
        _forget_compiled_code()
        vars(self._model).pop("rove", None)
        vars(self._model.config).pop("rove", None)
        for name, value in self._before.items():
            setattr(self._model.config, name, value)
        self._model, self._hooks = None, {}

    def follow_config(self) -> None:
        """Turn values as the model's config now says, once its ``rope_parameters`` have changed."""
        if self._model is None:
            return
        for i, hooks in self._hooks.items():
            rotary = RotaryEmbedding.from_config(text_config(self._model), i)
            hooks.rotary = rotary if self.planes is None else rotary.planes(self.planes)
        _forget_compiled_code()

    def __enter__(self) -> RoveHandle:
        if self._model is None:
            raise ValueError(
                "expected a handle of a model in which RoVE is on, got one that was removed: call "
                "enable_rove(model) for every block."
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        off = "" if self._model is not None else ", removed"
        return f"RoveHandle(layers={self.layers}, planes={self.planes}{off})"


def enable_rove(
    model: Any,
    layers: Sequence[int] | slice | None = None,
    planes: Sequence[int] | slice | Tensor | None = None,
) -> RoveHandle:
    r"""Switch RoVE on: :math:`z_i = \sum_j A_{ij} v_j` becomes :math:`\sum_j A_{ij} R_{j-i} v_j`.

    The rotation is the one that the model's queries and keys have, layer by layer; YaRN's factor
    never scales a value. Values turn before they are cached, so every kind of cache, ``generate``,
    left padding, gradient checkpointing and ``torch.compile`` work as they did; do not go on with a
    cache that was filled while RoVE was off. A value bias (Qwen2, Phi) is part of the values and
    turns with them. Half precision is turned in float32 and rounded once. The flag stands in the
    model's config: two models that were built on one config object share it. The
    ``from_pretrained`` of transformers does not act on it.

    **A model trained without RoVE is changed by this, not improved.** SmolLM2-135M-Instruct, on
    3 x 1,536 tokens of ``pydoc_data.topics``: perplexity 12.9 without, 56.1 with RoVE; 13.5 with
    the 16 slowest planes alone, 43.1 with the 16 fastest. On 64 random tokens said again its loss
    goes from 3.7 to 10.7 nats: its induction heads copy no more. These are means of
    three windows and seeds (``results/retrofit/record.json``).

    García-Castellanos et al. (2026), arXiv:2606.11275.

    Args:
        model: A Hugging Face causal LM; it is changed in place, its parameters are not.
        layers: Indices of layers or a slice, from the end where negative; None for every layer
            that has a rotation (in SmolLM3 and Cohere 2, not all have).
        planes: Indices of planes (0 turns fastest) or a slice; None for all.

    Returns:
        The handle, also in ``model.rove``: ``remove()`` makes the model what it was, and so does
        leaving a ``with`` block. ``model.config.rove`` says what is on, so that
        :func:`rove_lab.huggingface.load_causal_lm` switches it on again in a saved model.

    Raises:
        TypeError: If it is not a Hugging Face model, or the indices are not integers.
        ValueError: If the model's values cannot be turned exactly (no rotary embedding, latent or
            linear attention, a family that is not known), its queries and keys turn otherwise than
            its config says, RoVE is on already, or an index is out of range. The model is untouched
            then.

    Example:
        >>> from transformers import GPTJConfig, GPTJForCausalLM
        >>> model = GPTJForCausalLM(GPTJConfig(n_embd=8, n_head=2, n_layer=3, rotary_dim=4))
        >>> with enable_rove(model, planes=slice(1, 2)) as rove: print(rove)
        RoveHandle(layers=[0, 1, 2], planes=[1])
    """
    model = getattr(model, "_orig_mod", model)  # what torch.compile was given
    if hasattr(model, "original_model"):
        raise TypeError(
            "expected a Hugging Face causal LM, got a bridge of TransformerLens: run it with "
            "rove_lab.lens.rove_hooks(bridge)."
        )
    if not isinstance(model, nn.Module) or not hasattr(model, "config"):
        raise TypeError(
            f"expected a Hugging Face causal LM, got {type(model).__name__}: load one with "
            "rove_lab.huggingface.load_causal_lm(name)."
        )
    config = text_config(model)
    _check_family(config)
    found, layout = attention_layers(model), value_layout(config)
    if hasattr(model, "rove") or any(map(_is_on, found)):
        raise ValueError(
            "expected a model without RoVE, got one where it is on already: call remove() on its "
            "handle first (model.rove, if the model is what it was switched on in)."
        )
    turning = rotating_layers(config)
    chosen = turning if layers is None else _layer_indices(layers, len(found))
    first = turning[0] if turning else 0  # if none has a rotation, the next line says so
    rotaries = {i: RotaryEmbedding.from_config(config, i) for i in {first, *chosen}}
    for i, rotary in rotaries.items():
        check_table(model, i, rotary)
    kept: list[int] | None = None
    if planes is not None:
        kept = rotaries[first].planes(planes).inv_freq.nonzero().flatten().tolist()
        rotaries = {i: rotary.planes(kept) for i, rotary in rotaries.items()}
    hooks = {i: ValueHooks(found[i], layout, rotaries[i]) for i in chosen}
    return RoveHandle(model, hooks, kept)


def _check_family(config: Any) -> None:
    kind = config.model_type
    if kind in DIRECT and getattr(config, "clip_qkv", None) is None:
        return
    marks = ("rope_parameters", "rope_theta", "rotary_dim", "rotary_emb_base")
    layer_types = set(getattr(config, "layer_types", None) or ())
    if getattr(config, "kv_lora_rank", None) is not None:
        reason = (
            "it has latent attention (MLA), whose rotated channels are apart from the rest and "
            "shared by all heads; its values have none"
        )
    elif others := {each for each in layer_types if not each.endswith("attention")} | (
        layer_types & {"linear_attention"}
    ):
        reason = f"some of its layers ({', '.join(sorted(others))}) have no pattern over positions"
    elif kind in DIRECT:
        reason = (
            f"it clips values (clip_qkv={config.clip_qkv}) after their projection, and a vector "
            "that is clipped and one that is turned and clipped differ by more than the turn"
        )
    elif all(getattr(config, name, None) is None for name in marks):
        reason = "it has no rotary embedding"
    else:
        reason = "whether its values go straight from projection to pattern has not been checked"
    raise ValueError(
        f"cannot switch RoVE on in model type {kind!r}: {reason}. Take a model of another type: "
        f"{', '.join(sorted(DIRECT))}."
    )


def check_table(model: Any, layer: int, rotary: RotaryEmbedding) -> None:
    """Refuses a model whose queries and keys turn otherwise than its config says values should.

    Args:
        model: A Hugging Face causal LM.
        layer: Index of a layer.
        rotary: That layer's rotation by the config.

    Raises:
        ValueError: If the model's own table of frequencies is another.
    """
    config = text_config(model)
    kinds = getattr(config, "layer_types", None)
    names = {"inv_freq", f"{kinds[layer]}_inv_freq"} if kinds else {"inv_freq"}
    # in the decoder alone: the part of a model that sees images has a table of its own
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model
    for name, table in decoder.named_buffers():
        if name.rpartition(".")[-1] not in names or table.is_meta:
            continue
        theirs, ours = table.double().cpu(), rotary.inv_freq
        # wide enough for a table that was rounded to half precision with the model
        if theirs.shape != ours.shape or not torch.allclose(theirs, ours, rtol=0.02, atol=1e-6):
            raise ValueError(
                f"expected {name} to hold the frequencies that the config gives layer {layer}, got "
                "others, so that values would turn otherwise than queries and keys: build the "
                "model from its config again. transformers reads YaRN's truncate beside the layer "
                "types, not inside one."
            )


def _is_on(layer: AttentionLayer) -> bool:
    hooks = layer.attention._forward_pre_hooks.values()
    return any(isinstance(getattr(hook, "__self__", None), ValueHooks) for hook in hooks)


def _forget_compiled_code() -> None:
    """For code that was compiled without hooks would never notice that there are some now."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()


def _layer_indices(layers: Sequence[int] | slice, n: int) -> list[int]:
    if isinstance(layers, slice):
        return list(range(n))[layers]
    try:
        indices = [check_index("layer", layer) for layer in layers]
    except TypeError as error:
        raise TypeError(
            f"expected layers as integer indices or a slice, got {layers!r}: one layer is [l]."
        ) from error
    for layer in indices:
        if not -n <= layer < n:
            raise ValueError(f"expected layers among 0..{n - 1}, got layer {layer}.")
    return sorted({layer % n for layer in indices})
