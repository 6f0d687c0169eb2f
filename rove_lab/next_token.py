r"""What every text asks of a model: the token after each, in nats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

__all__ = ["NextToken"]

NOT_ASKED = -100  # what PyTorch's cross entropy leaves out


class NextToken(ABC):
    r"""A task: predict each token of a text from those before it.

    The loss is the mean cross entropy :math:`-\log p(x_{t+1} \mid x_{\le t})` in nats per token. A
    reader blind to what came before pays the entropy of single tokens.

    Attributes:
        d_in: Tokens of the vocabulary.
        n_ctx: Tokens of a window, each the context of the one after it.
        unit: What a token is, in words.
    """

    d_in: int
    n_ctx: int
    unit = "token"

    @property
    @abstractmethod
    def counts(self) -> Tensor:
        """How often each token of the vocabulary occurs, ``[d_in]``."""

    @abstractmethod
    def at_length(self, n_ctx: int) -> Self:
        """The same text in windows of ``n_ctx`` tokens."""

    @abstractmethod
    def batches(self, batch_size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Tokens ``[batch, n_ctx]`` and the token after each, ``[batch, n_ctx]``, without end."""

    @property
    def d_out(self) -> int:
        """Logits: one a token of the vocabulary."""
        return self.d_in

    @property
    def blind(self) -> float:
        """The same as the loss: nats per token are the headline."""
        return self.blind_loss

    @property
    def blind_loss(self) -> float:
        """Entropy of single tokens in nats."""
        entropy: float = torch.special.entr(self.counts.double() / self.counts.sum()).sum().item()
        return entropy

    def loss(self, output: Tensor, targets: Tensor) -> Tensor:
        """Mean cross entropy in nats per token.

        Args:
            output: Logits ``[batch, pos, d_out]``.
            targets: Tokens ``[batch, pos]``, −100 where none is asked.

        Returns:
            A scalar.
        """
        return cross_entropy(output.flatten(0, 1).float(), targets.flatten())

    def scores(self, output: Tensor, targets: Tensor) -> dict[str, float]:
        """The share of tokens guessed right, and the loss.

        Args:
            output: Logits ``[batch, pos, d_out]``.
            targets: Tokens ``[batch, pos]``, −100 where none is asked.

        Returns:
            ``{"accuracy": share, "nats per token": loss}``; of a text of bytes, nats per byte.
        """
        right = (output.argmax(-1) == targets)[targets != NOT_ASKED].double().mean().item()
        return {"accuracy": right, f"nats per {self.unit}": self.loss(output, targets).item()}
