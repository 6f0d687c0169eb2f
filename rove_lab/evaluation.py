"""How good a model is at what it has not seen, and at which position."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rove_lab.arguments import check_integers
from rove_lab.tasks import Task

__all__ = ["held_out_scores", "loss_by_position"]

_HELD_OUT = 2**32 - 1  # no training draws with this seed: `TrainConfig.seed` is below 2**30


@torch.no_grad()
def held_out_scores(model: nn.Module, task: Task, batch_size: int = 1024) -> dict[str, float]:
    """The task's scores on sequences that no training draws.

    Args:
        model: The trained model.
        task: The task.
        batch_size: Sequences to score.

    Returns:
        Name to score, the headline last.

    Example:
        >>> from rove_lab.messenger import MessengerConfig
        >>> from rove_lab.filters import Filter
        >>> held_out_scores(MessengerConfig(1, 1, 8, 1, 4).build(), Filter.edge())
        {'relative error': ...}
    """
    device = next(model.parameters()).device
    inputs, targets = next(iter(task.batches(batch_size, _HELD_OUT)))
    return task.scores(model(inputs.to(device)), targets.to(device))


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
    tokens = tokens.to(next(model.parameters()).device).long()
    losses = []
    for sequence in tokens:
        output = model(sequence[None])
        logits = getattr(output, "logits", output)[0, :-1]
        wide = torch.promote_types(logits.dtype, torch.float32)
        losses.append(cross_entropy(logits.to(wide), sequence[1:], reduction="none").cpu())
    return torch.stack(losses)
