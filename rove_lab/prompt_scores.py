r"""How a model answers prompts: how likely the right answer is to it, and whether it says it."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from rove_lab.evaluation import check_vocabulary, device_of, logits_of
from rove_lab.prompts import Prompt

__all__ = ["prompt_scores"]


@torch.no_grad()
def prompt_scores(model: nn.Module, prompts: Iterable[Prompt]) -> dict[str, float]:
    r"""The mean loss of the right answers, and the share of them that greedy decoding says.

    The loss is :math:`-\frac1k \sum_{t} \log p(a_t \mid \text{prompt}, a_{<t})` over an answer's k
    tokens, then the mean over prompts: the negative log-likelihood that the published RULER tables
    of RoVE show. An answer is said if each of its tokens is the likeliest after those before it.

    Args:
        model: A :class:`~rove_lab.model.GPT` or a Hugging Face causal LM whose tokenizer made the
            prompts, called as it is.
        prompts: From :mod:`rove_lab.ruler`; read one at a time, as they are long.

    Returns:
        ``{"nats": loss a token, "tokens right": share, "answers right": share}``.

    Raises:
        ValueError: If there is no prompt, or one has tokens beyond the model's vocabulary.

    Example:
        >>> from rove_lab.model import GPT, GPTConfig
        >>> from rove_lab.ruler import needle_prompt
        >>> prompt = needle_prompt(lambda text: list(text.encode()), n_tokens=300, seed=0)
        >>> list(prompt_scores(GPT(GPTConfig()), [prompt]))
        ['nats', 'tokens right', 'answers right']
    """
    found = []
    for prompt in prompts:
        tokens = torch.cat((prompt.tokens, prompt.answer_tokens))[None]
        check_vocabulary(model, tokens)
        tokens = tokens.to(device_of(model))
        k = len(prompt.answer_tokens)
        logits = logits_of(model, tokens)[0, -k - 1 : -1].float()
        right = logits.argmax(-1) == tokens[0, -k:]
        loss = cross_entropy(logits, tokens[0, -k:])
        found.append(torch.stack((loss, right.float().mean(), right.all().float())).cpu())
    if not found:
        raise ValueError("expected at least one prompt, got none.")
    names = ("nats", "tokens right", "answers right")
    return dict(zip(names, torch.stack(found).double().mean(0).tolist(), strict=True))
