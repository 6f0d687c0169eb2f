"""How good a model is at what it has not seen, at which position and at which length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rove_lab.arguments import check_integers, check_size
from rove_lab.tasks import Task

__all__ = [
    "accuracy_by_length",
    "held_out_scores",
    "loss_by_position",
    "perplexity_by_length",
    "position_groups",
]

HELD_OUT_SEED = 2**32 - 1  # no training draws with this seed: `TrainConfig.seed` is below 2**30
_ROWS = 1024  # logits taken to float32 at once: a large vocabulary at 16 windows is gigabytes

# A length to what extends the model to it while it is read, as `yarn_by_length` makes.
Extension = Callable[[int], AbstractContextManager[object]]


@torch.no_grad()
def held_out_scores(model: nn.Module, task: Task, batch_size: int = 1024) -> dict[str, float]:
    """The task's scores on sequences that no training draws.

    Args:
        model: The trained model, or a Hugging Face causal LM.
        task: The task.
        batch_size: Sequences to score.

    Returns:
        Name to score, the headline last.

    Raises:
        ValueError: If the task has tokens beyond the model's vocabulary.

    Example:
        >>> from rove_lab.messenger import MessengerConfig
        >>> from rove_lab.filters import Filter
        >>> held_out_scores(MessengerConfig(1, 1, 8, 1, 4).build(), Filter.edge())
        {'relative error': ...}
    """
    task = task.at_length(task.n_ctx)  # a curriculum's goal, not its first stage
    inputs, targets = next(task.batches(batch_size, HELD_OUT_SEED))
    return _scores(model, task, inputs, targets)


@torch.no_grad()
def loss_by_position(model: nn.Module, tokens: Tensor) -> Tensor:
    r"""The loss :math:`-\log p(x_{t+1} \mid x_{\le t})` of every token but the first.

    Its mean over everything is the model's loss on the text, and the exponential of that the
    perplexity (Jelinek et al., 1977). Sequences are read one at a time, as many logits are large.

    Args:
        model: A :class:`~rove_lab.model.GPT`, a Hugging Face causal LM or a TransformerBridge: from
            ``[batch, pos]`` to logits, or to something with ``logits``. It is called as it is: one
            with dropout wants ``model.eval()`` first.
        tokens: ``[batch, pos]``, integers; moved to the model's device.

    Returns:
        ``[batch, pos - 1]`` in nats, at least float32, on the CPU: entry t is the loss of
        token t + 1.

    Raises:
        TypeError: If tokens are not a tensor of integers.
        ValueError: If they are not ``[batch, pos]`` with two positions or more.

    Example:
        >>> from rove_lab.model import GPT, GPTConfig
        >>> loss_by_position(GPT(GPTConfig()), torch.tensor([[1, 2, 3]])).shape
        torch.Size([1, 2])
    """
    check_integers("tokens", tokens)
    if tokens.dim() != 2 or tokens.shape[0] == 0 or tokens.shape[1] < 2:
        raise ValueError(
            f"expected tokens [batch, pos] with two positions or more, got {list(tokens.shape)}: "
            "the loss is of the next token; a single text needs tokens[None]."
        )
    return torch.cat([_losses(model, sequence[None]) for sequence in tokens])


def position_groups(n: int) -> dict[str, slice]:
    """Groups of a loss by position, by how many tokens were read before: 1, 2, 3 to 4, 5 to 8, ...

    Args:
        n: Losses of a sequence; entry t of :func:`loss_by_position` had t + 1 tokens before it.

    Returns:
        Name to slice. Each group reaches twice as far as the one before, the last to the end.

    Raises:
        TypeError: If it is not an integer.
        ValueError: If it is not positive.

    Example:
        >>> position_groups(7)
        {'1': slice(0, 1, None), '2': slice(1, 2, None), '3 to 4': slice(2, 4, None), '5 to 7': ...}
    """
    check_size("n", n)
    found, first = {"1": slice(0, 1)}, 1
    while first < n:
        last = min(2 * first, n)
        found[f"{first + 1} to {last}" if last > first + 1 else str(last)] = slice(first, last)
        first = last
    return found


@torch.no_grad()
def perplexity_by_length(
    model: nn.Module,
    tokens: Tensor,
    lengths: Sequence[int],
    *,
    extension: Extension | None = None,
) -> dict[int, float]:
    r"""The perplexity of the same tokens, read in windows of one length after another.

    :math:`\exp\bigl(-\frac{1}{|T|}\sum_{t\in T}\log p(x_t \mid x_{w(t)},\dots,x_{t-1})\bigr)` with
    w(t) the start of the window of t, and T every token that opens a window at none of the lengths:
    all means are over one set, and differ by what the model had read before. The text is cut into
    spans of the longest length, which all others divide; what is left at its end is not read. A
    span is read at a time, in windows side by side: it takes the memory of the longest window.

    Args:
        model: A :class:`~rove_lab.model.GPT` or a Hugging Face causal LM, called as it is: one with
            dropout wants ``model.eval()`` first.
        tokens: A text ``[pos]`` or texts ``[batch, pos]``, integers, each of the longest length or
            more.
        lengths: Tokens of a window, each 2 or more and a divisor of the longest.
        extension: From a length to what extends the model to it meanwhile, as
            :func:`rove_lab.context_extension.yarn_by_length` makes; None reads on as it is.

    Returns:
        Length to perplexity, without unit, in the order given; 1 is perfect.

    Raises:
        TypeError: If tokens or lengths are not integers.
        ValueError: If lengths do not divide the longest, the text is shorter than it, or a token
            is beyond the model's vocabulary.

    Example:
        >>> from rove_lab.model import GPT, GPTConfig
        >>> list(perplexity_by_length(GPT(GPTConfig()), torch.arange(32), [4, 8, 16]))
        [4, 8, 16]
    """
    lengths = _check_lengths(lengths)
    longest = max(lengths)
    if odd := [n for n in lengths if n < 2 or longest % n]:
        raise ValueError(
            f"expected lengths of 2 or more that divide the longest, {longest}, got {odd}: all are "
            "scored on the same tokens. Powers of two times the shortest do."
        )
    texts = check_integers("tokens", tokens).reshape(-1, tokens.shape[-1] if tokens.dim() else 1)
    if tokens.dim() not in (1, 2) or len(texts) == 0 or texts.shape[1] < longest:
        raise ValueError(
            f"expected tokens [pos] or [batch, pos] with {longest} positions or more, the longest "
            f"length, got {list(tokens.shape)}: give more text or shorter lengths."
        )
    check_vocabulary(model, texts)
    spans = texts[:, : texts.shape[1] // longest * longest].reshape(-1, longest)
    opens = torch.arange(longest)[:, None] % torch.tensor(lengths) == 0
    scored = ~opens.any(1)
    perplexities = {}
    for length in lengths:
        total = torch.zeros((), dtype=torch.float64)
        with nullcontext() if extension is None else extension(length):
            for span in spans:
                losses = _losses(model, span.reshape(-1, length))
                of_span = nn.functional.pad(losses, (1, 0)).flatten()  # an opener has none
                total += of_span[scored.to(of_span.device)].double().sum()
        perplexities[length] = (total / (len(spans) * scored.sum())).exp().item()
    return perplexities


@torch.no_grad()
def accuracy_by_length(
    model: nn.Module,
    task: Task,
    lengths: Sequence[int],
    *,
    n_sequences: int = 256,
    batch_size: int = 32,
    extension: Extension | None = None,
) -> dict[int, float]:
    """The task's headline score in sequences of each length, drawn as no training draws them.

    Args:
        model: A model that was trained on the task, a lab GPT or a Hugging Face causal LM.
        task: The task; ``task.at_length(n)`` is what is asked at length n.
        lengths: Tokens of a sequence.
        n_sequences: Sequences at each length, a multiple of ``batch_size``.
        batch_size: Sequences read at once; the score is the mean over the batches' scores.
        extension: From a length to what extends the model to it meanwhile, as
            :func:`rove_lab.context_extension.yarn_by_length` makes; None reads on as it is.

    Returns:
        Length to score, in the task's unit (a share of right answers, for most), in the order
        given. Chance is ``task.blind``.

    Raises:
        TypeError: If lengths or sizes are not integers.
        ValueError: If they are not positive, the batches do not fill the sequences, the task has
            no such length, or tokens beyond the model's vocabulary.

    Example:
        >>> from rove_lab.messenger import MessengerConfig
        >>> from rove_lab.tasks import DistanceRecall as Recall
        >>> model = MessengerConfig(Recall().d_in, Recall().d_out, 8).build()
        >>> accuracy_by_length(model, Recall(), [24, 48], n_sequences=32)
        {24: ..., 48: ...}
    """
    if check_size("n_sequences", n_sequences) % check_size("batch_size", batch_size):
        raise ValueError(
            f"expected n_sequences divisible by batch_size, got {n_sequences} and {batch_size}: "
            "batches of one size count alike in the mean."
        )
    found = {}
    for length in _check_lengths(lengths):
        of_length = task.at_length(length)
        batches = of_length.batches(batch_size, HELD_OUT_SEED)
        scores = []
        with nullcontext() if extension is None else extension(length):
            for _ in range(n_sequences // batch_size):
                named = _scores(model, of_length, *next(batches))
                scores.append(list(named.values())[-1])
        found[length] = sum(scores) / len(scores)
    return found


def device_of(model: nn.Module) -> torch.device:
    """Where a model reads."""
    return next(model.parameters()).device


def logits_of(model: nn.Module, inputs: Tensor) -> Tensor:
    """What a model says of inputs, whether it says logits or something with ``logits``."""
    output = model(inputs)
    logits: Tensor = getattr(output, "logits", output)
    return logits


def vocabulary_of(model: nn.Module) -> int | None:
    """How many tokens a model says it knows; None where it does not say."""
    config = getattr(model, "config", None)
    config = getattr(config, "text_config", None) or config
    d_vocab: int | None = getattr(config, "d_vocab", None) or getattr(config, "vocab_size", None)
    return d_vocab


def check_vocabulary(model: nn.Module, tokens: Tensor) -> None:
    """Refuses tokens that the model has no embedding for: a GPU would stop without saying why.

    Raises:
        ValueError: If there is such a token.
    """
    d_vocab = vocabulary_of(model)
    if d_vocab is None or tokens.is_floating_point():
        return
    if int(tokens.min()) < 0 or int(tokens.max()) >= d_vocab:
        raise ValueError(
            f"expected tokens from 0 to {d_vocab - 1}, the model's vocabulary, got "
            f"{int(tokens.min())} to {int(tokens.max())}: are they of another tokenizer or task?"
        )


def _scores(model: nn.Module, task: Task, inputs: Tensor, targets: Tensor) -> dict[str, float]:
    check_vocabulary(model, inputs)
    device = device_of(model)
    return task.scores(logits_of(model, inputs.to(device)), targets.to(device))


def _losses(model: nn.Module, tokens: Tensor) -> Tensor:
    """The losses of each next token, ``[batch, pos]`` to ``[batch, pos - 1]`` on the CPU."""
    tokens = tokens.to(device_of(model)).long()
    logits = logits_of(model, tokens).flatten(0, 1)  # with the last ones, lest they be copied
    wide = torch.promote_types(logits.dtype, torch.float32)
    after = tokens.roll(-1, 1).flatten()
    losses = [
        cross_entropy(part.to(wide), following, reduction="none")
        for part, following in zip(logits.split(_ROWS), after.split(_ROWS), strict=True)
    ]
    return torch.cat(losses).view_as(tokens)[:, :-1].cpu()


def _check_lengths(lengths: Sequence[int]) -> list[int]:
    if isinstance(lengths, (str, bytes)) or not hasattr(lengths, "__iter__"):
        raise TypeError(f"expected lengths as integers, got {lengths!r}: one length is [n].")
    checked = [check_size("a length", length) for length in lengths]
    if not checked:
        raise ValueError("expected at least one length, got none.")
    return checked
