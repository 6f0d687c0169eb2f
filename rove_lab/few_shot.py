r"""In-context learning: how much better than a guess a model answers after k examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from rove_lab.arguments import check_index, check_number, check_size
from rove_lab.evaluation import check_vocabulary, device_of, logits_of, vocabulary_of
from rove_lab.few_shot_tasks import SUITE, FewShotTask, Question

__all__ = ["centred_accuracy", "few_shot_scores", "suite_score"]

_MOST_BYTES = 512  # a vocabulary of bytes and a few signs of its own; larger ones need a tokenizer


def few_shot_scores(
    model: nn.Module,
    k_shots: Sequence[int],
    *,
    tasks: Sequence[FewShotTask] = SUITE,
    n_questions: int = 128,
    seed: int = 0,
    tokenizer: Any = None,
    batch_size: int = 16,
) -> dict[str, dict[int, float]]:
    r"""The centred accuracy on small tasks after k examples, for each task and k.

    Scored as DCLM's CORE scores multiple choice: the answer is the choice with the largest mean
    :math:`\log p(\text{token} \mid \text{prompt}, \dots)` over its tokens, and the accuracy a is
    centred, :math:`(a - c) / (1 - c)` with c the chance level: 0 for a guess, 1 for a perfect
    reader, below 0 for who does worse than guess. Choices that a model finds equally likely share
    the point. Li et al. (2024), arXiv:2406.11794.

    Args:
        model: A :class:`~rove_lab.model.GPT` or a Hugging Face causal LM, called as it is: one with
            dropout wants ``model.eval()`` first.
        k_shots: Numbers of examples, 0 or more.
        tasks: What to ask; five tasks of :mod:`rove_lab.few_shot_tasks` by default.
        n_questions: For each task and k; the standard error of an accuracy is at most
            0.5 / √n_questions, that of a centred one up to twice as much.
        seed: Of the questions.
        tokenizer: What the model reads text by: with an ``encode`` as in transformers; None for a
            model that reads bytes.
        batch_size: Prompts read at once.

    Returns:
        The task's name to k to centred accuracy.

    Raises:
        TypeError: If a number is not an integer.
        ValueError: If a number is out of range, two tasks have one name, or the model or the
            tokenizer cannot read the questions.

    Example:
        >>> from rove_lab.model import GPT, GPTConfig
        >>> found = few_shot_scores(GPT(GPTConfig()), [0, 2], n_questions=4)
        >>> list(found), list(found["copying"])
        (['one letter', 'copying', 'majority', 'parity of two', 'nearest neighbour'], [0, 2])
    """
    check_size("n_questions", n_questions)
    check_size("batch_size", batch_size)
    counts = [check_index("k", k) for k in k_shots]
    names = [task.name for task in tasks]
    if not counts or not names or len({*names}) != len(names):
        raise ValueError(
            f"expected one k or more and tasks with a name each, got {counts} and {names}: give "
            "tasks of one kind to calls of their own."
        )
    d_vocab = vocabulary_of(model)
    if tokenizer is None and d_vocab is not None and d_vocab > _MOST_BYTES:
        raise ValueError(
            f"expected a tokenizer for a vocabulary of {d_vocab}, got None, which means bytes: "
            "pass the model's own."
        )
    scores: dict[str, dict[int, float]] = {name: {} for name in names}
    for task in tasks:
        for k in counts:
            questions = task.questions(n_questions, k, seed)
            accuracy = _accuracy(model, questions, tokenizer, batch_size)
            scores[task.name][k] = centred_accuracy(accuracy, task.chance)
    return scores


def centred_accuracy(accuracy: float, chance: float) -> float:
    r"""An accuracy on a scale where a guess is 0 and perfection 1, :math:`(a - c) / (1 - c)`.

    Li et al. (2024), arXiv:2406.11794.

    Args:
        accuracy: Share of right answers a, 0 to 1.
        chance: What a guess gets, c, from 0 to less than 1.

    Returns:
        The centred accuracy; negative where a guess is better.

    Raises:
        TypeError: If they are not numbers.
        ValueError: If they are out of range.

    Example:
        >>> centred_accuracy(0.625, chance=0.25)
        0.5
    """
    if not 0 <= check_number("accuracy", accuracy) <= 1:
        raise ValueError(f"expected an accuracy from 0 to 1, got {accuracy}: it is a share.")
    if not 0 <= check_number("chance", chance) < 1:
        raise ValueError(
            f"expected a chance from 0 to less than 1, got {chance}: who is always right by chance "
            "cannot be better."
        )
    return (accuracy - chance) / (1 - chance)


def suite_score(scores: Mapping[str, Mapping[int, float]]) -> dict[int, float]:
    r"""The suite's score at each k: the mean of the tasks' centred accuracies.

    Args:
        scores: From :func:`few_shot_scores`.

    Returns:
        k to mean.

    Raises:
        ValueError: If there is no task, or not every task has every k.

    Example:
        >>> suite_score({"copying": {4: 1.0}, "majority": {4: 0.25}})
        {4: 0.625}
    """
    counts = {frozenset(of_task) for of_task in scores.values()}
    if len(counts) != 1:
        raise ValueError(
            f"expected tasks with the same k each, got { ({n: [*s] for n, s in scores.items()}) }."
        )
    first = next(iter(scores.values()))
    return {k: sum(of_task[k] for of_task in scores.values()) / len(scores) for k in first}


class _Choice(NamedTuple):
    """A choice to be scored: of which question, and its own tokens, from which place on."""

    question: int
    choice: int
    start: int
    tokens: list[int]


def _accuracy(model: nn.Module, questions: list[Question], tokenizer: Any, batch: int) -> float:
    right = 0.0
    scores = _choice_scores(model, questions, tokenizer, batch)
    for question, of_question in zip(questions, scores, strict=True):
        best = [i for i, score in enumerate(of_question) if score == max(of_question)]
        right += (question.answer in best) / len(best)
    return right / len(questions)


@torch.no_grad()
def _choice_scores(
    model: nn.Module, questions: list[Question], tokenizer: Any, batch_size: int
) -> list[list[float]]:
    """The mean log-probability of each choice's tokens after its question's prompt."""
    to_read: dict[tuple[int, ...], list[_Choice]] = {}  # choices of one token share what is read
    for q, question in enumerate(questions):
        encoded = [_encode(question.prompt + choice, tokenizer) for choice in question.choices]
        # A tokenizer may join a label with what is before: what the choices share is the prompt.
        columns = zip(*encoded, strict=False)
        start = sum(1 for _ in takewhile(lambda column: len({*column}) == 1, columns))
        if start == 0 or min(map(len, encoded)) == start:
            raise ValueError(
                f"expected a tokenizer that reads {question.prompt[-8:]!r} and tells "
                f"{question.choices} apart after it, got {encoded[0][-8:]} and {encoded[1][-8:]}."
            )
        for c, ids in enumerate(encoded):
            to_read.setdefault(tuple(ids[:-1]), []).append(_Choice(q, c, start, ids[start:]))
    scores = [[0.0] * len(question.choices) for question in questions]
    sequences = sorted(to_read, key=len)
    for first in range(0, len(sequences), batch_size):
        batch = sequences[first : first + batch_size]
        # Padded on the right, where a causal model does not look.
        tokens = pad_sequence([torch.tensor(ids) for ids in batch], batch_first=True)
        check_vocabulary(model, tokens)
        logits = logits_of(model, tokens.to(device_of(model)))
        for said, read in zip(logits, batch, strict=True):
            for q, c, start, own in to_read[read]:
                scores[q][c] = _mean_log_prob(said[start - 1 : len(read)], own)
    return scores


def _mean_log_prob(logits: Tensor, tokens: list[int]) -> float:
    wide = torch.promote_types(logits.dtype, torch.float32)
    said = logits.to(wide).log_softmax(-1)
    of_tokens = said.gather(1, torch.tensor(tokens, device=said.device)[:, None])
    mean = of_tokens.mean().item()
    if mean != mean:
        raise ValueError("expected logits that are numbers, got NaN: the model has diverged.")
    return mean


def _encode(text: str, tokenizer: Any) -> list[int]:
    """Token ids as the tokenizer itself begins a text, without a sign that the text ends."""
    if tokenizer is None:
        return list(text.encode())
    encoded = tokenizer.encode(text)
    ids = list(getattr(encoded, "ids", encoded))
    end = getattr(tokenizer, "eos_token_id", None)
    return ids[:-1] if ids and end is not None and ids[-1] == end else ids
