r"""A trained model stretched to texts longer than it was trained on: YaRN, switched on and off."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

from torch import Tensor, nn

from rove_lab.arguments import check_integers, check_size
from rove_lab.evaluation import check_vocabulary, loss_by_position
from rove_lab.hf_config import text_config
from rove_lab.hf_yarn import already_scaled, hf_yarn
from rove_lab.model import GPT
from rove_lab.rotary import RotaryEmbedding, YarnScaling
from rove_lab.value_scaling import rescaled

__all__ = ["BetaFast", "choose_beta_fast", "yarn", "yarn_by_length"]

_BETAS = (2.0, 4.0, 8.0, 16.0, 32.0)


class BetaFast(NamedTuple):
    """YaRN's ``beta_fast`` as it was chosen, and what the others would have cost.

    Args:
        beta_fast: The one with the lowest loss.
        losses: Each candidate's loss beyond the trained window, in nats a token.

    Example:
        >>> BetaFast(4.0, {4.0: 1.9, 32.0: 2.6}).beta_fast
        4.0
    """

    beta_fast: float
    losses: dict[float, float]


@contextmanager
def yarn(
    model: Any, factor: float, *, beta_fast: float, n_ctx: int | None = None
) -> Iterator[YarnScaling]:
    r"""A model under YaRN while a ``with`` block lasts, then exactly what it was.

    Queries and keys turn by :math:`\omega'_m` of :class:`~rove_lab.rotary.YarnScaling` instead of
    :math:`\omega_m`, and so do the values where they turn at all; YaRN's temperature multiplies the
    logits alone. In a Hugging Face model it is transformers' own YaRN, and the config says so
    meanwhile; where layers that see a window have a rotation of their own (Gemma 3, OLMo 3), theirs
    stays. Values that :func:`rove_lab.huggingface.enable_rove` turns follow, whichever was switched
    on first. A cache that was filled outside the block must not be used inside, nor the other way.
    Peng et al. (2023), arXiv:2309.00071.

    Args:
        model: A :class:`~rove_lab.model.GPT`, or a Hugging Face causal LM whose rotation is not
            scaled already.
        factor: How many times longer, 1 or more.
        beta_fast: Turns within the trained window above which a plane keeps its frequency. There
            is no default: 32, the usual one, is for windows of thousands of tokens;
            :func:`choose_beta_fast` finds the model's.
        n_ctx: Tokens of the trained window; None for what the config says (``n_ctx``, or
            ``max_position_embeddings``).

    Yields:
        The scaling that is on.

    Raises:
        TypeError: If it is neither kind of model, or a number is not one.
        ValueError: If a number is out of range, the rotation is scaled already, or transformers has
            no YaRN for the family (GPT-J). The model is untouched then.

    Example:
        >>> from rove_lab.model import GPTConfig
        >>> with yarn(GPT(GPTConfig()), 8.0, beta_fast=4.0) as on: print(on)
        YarnScaling(factor=8.0, original_n_ctx=128, beta_fast=4.0, ...)
    """
    model = getattr(model, "_orig_mod", model)  # what torch.compile was given
    scaling = YarnScaling(factor, _trained_window(model, n_ctx), beta_fast=beta_fast)
    if isinstance(model, GPT):
        stretched = _in_gpt(model, scaling)
    else:
        stretched = hf_yarn(model, scaling.factor, beta_fast, scaling.original_n_ctx)
    with stretched:
        yield scaling


def yarn_by_length(
    model: Any, *, beta_fast: float, n_ctx: int | None = None
) -> Callable[[int], AbstractContextManager[object]]:
    r"""YaRN with the factor that each length needs, length / ``n_ctx``; none within the window.

    It is what :func:`~rove_lab.evaluation.perplexity_by_length` and
    :func:`~rove_lab.evaluation.accuracy_by_length` take as ``extension``.

    Args:
        model: As for :func:`yarn`.
        beta_fast: As for :func:`yarn`.
        n_ctx: As for :func:`yarn`.

    Returns:
        From a length in tokens to a context manager.

    Raises:
        TypeError: If it is no such model, or ``n_ctx`` is not an integer.
        ValueError: If a number is out of range.

    Example:
        >>> from rove_lab.model import GPTConfig
        >>> extension = yarn_by_length(GPT(GPTConfig(n_ctx=128)), beta_fast=4.0)
        >>> with extension(512) as on: print(on)
        YarnScaling(factor=4.0, original_n_ctx=128, beta_fast=4.0, ...)
    """
    window = _trained_window(getattr(model, "_orig_mod", model), n_ctx)
    YarnScaling(1.0, window, beta_fast=beta_fast)  # refuses now what it would refuse at a length

    def at(length: int) -> AbstractContextManager[object]:
        if length <= window:
            return nullcontext()
        return yarn(model, length / window, beta_fast=beta_fast, n_ctx=window)

    return at


def choose_beta_fast(
    model: nn.Module,
    tokens: Tensor,
    length: int,
    *,
    candidates: Sequence[float] = _BETAS,
    n_ctx: int | None = None,
) -> BetaFast:
    r"""The ``beta_fast`` under which a model loses least beyond its trained window.

    The loss is the mean of :math:`-\log p(x_t \mid x_{<t})` over the tokens of each window of
    ``length`` that have more than ``n_ctx`` before them, under YaRN with factor length / ``n_ctx``.
    Choose it on a text that the model is not scored on afterwards.

    Args:
        model: As for :func:`yarn`, called as it is: one with dropout wants ``model.eval()`` first.
        tokens: A text ``[pos]`` or texts ``[batch, pos]``, integers, each of ``length`` or more;
            what is left of whole windows is not read.
        length: Tokens of a window; the length the model is to be used at.
        candidates: What to choose from, each 1 or more; of equals the first is taken.
        n_ctx: As for :func:`yarn`.

    Returns:
        The choice, and the losses of all candidates in nats a token.

    Raises:
        TypeError: If tokens or a size are not integers.
        ValueError: If the length does not reach beyond the window, the text is shorter, there are
            no candidates, or no loss is finite.

    Example:
        >>> import torch
        >>> from rove_lab.model import GPTConfig
        >>> choose_beta_fast(GPT(GPTConfig(n_ctx=8)), torch.arange(64), 32, candidates=[1.0])
        BetaFast(beta_fast=1.0, losses={1.0: ...})
    """
    window = _trained_window(getattr(model, "_orig_mod", model), n_ctx)
    if check_size("length", length) < window + 2:
        raise ValueError(
            f"expected a length beyond the trained window, {window + 2} or more, got {length}: "
            "inside it no stretching is needed."
        )
    texts = check_integers("tokens", tokens)
    if texts.dim() not in (1, 2) or 0 in texts.shape or texts.shape[-1] < length:
        raise ValueError(
            f"expected tokens [pos] or [batch, pos] with {length} positions or more, the length, "
            f"got {list(texts.shape)}: give more text or a smaller length."
        )
    if len(candidates) == 0:
        raise ValueError("expected at least one candidate for beta_fast, got none.")
    check_vocabulary(model, texts)
    windows = texts[..., : texts.shape[-1] // length * length].reshape(-1, length)
    losses = {}
    for beta_fast in candidates:
        with yarn(model, length / window, beta_fast=beta_fast, n_ctx=window):
            beyond = loss_by_position(model, windows)[:, window:]
        losses[float(beta_fast)] = beyond.double().mean().item()
    finite = [beta_fast for beta_fast, loss in losses.items() if math.isfinite(loss)]
    if not finite:
        raise ValueError(f"expected a finite loss under some beta_fast, got {losses}.")
    return BetaFast(min(finite, key=losses.__getitem__), losses)


def _trained_window(model: Any, n_ctx: int | None) -> int:
    if hasattr(model, "original_model"):
        raise TypeError(
            "expected a GPT or a Hugging Face causal LM, got a bridge of TransformerLens: stretch "
            "the model before it is bridged."
        )
    if not isinstance(model, nn.Module) or not hasattr(model, "config"):
        raise TypeError(
            f"expected a GPT or a Hugging Face causal LM, got {type(model).__name__}: nothing else "
            "says how it turns."
        )
    if n_ctx is None:
        name = "n_ctx" if isinstance(model, GPT) else "max_position_embeddings"
        n_ctx = getattr(text_config(model), name, None)
        if n_ctx is None:
            raise ValueError(f"expected {name} in the model's config, got none: pass n_ctx.")
    return check_size("n_ctx", n_ctx)


@contextmanager
def _in_gpt(model: GPT, scaling: YarnScaling) -> Iterator[None]:
    layers: list[Any] = [block.attn for block in model.blocks]
    before = [(layer.rotary, layer.value_rotary) for layer in layers]
    stretched = [
        (_stretched(turn, scaling), None if values is turn else _stretched(values, scaling))
        for turn, values in before
    ]
    try:
        for layer, (turn, values) in zip(layers, stretched, strict=True):
            layer.rotary, layer.value_rotary = turn, values or turn
        yield
    finally:
        for layer, (turn, values) in zip(layers, before, strict=True):
            layer.rotary, layer.value_rotary = turn, values


def _stretched(rotary: RotaryEmbedding, scaling: YarnScaling) -> RotaryEmbedding:
    if rotary.scaling is not None:
        raise already_scaled(rotary.scaling)
    return rescaled(rotary, scaling)
