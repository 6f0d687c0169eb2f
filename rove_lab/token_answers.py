r"""Tasks whose answers are the next tokens of the sequence, asked at some positions only.

All share one alphabet, so that a model that learned one of them can go on to the next.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from string import ascii_lowercase, ascii_uppercase
from typing import Self

from torch import Tensor
from torch.nn.functional import cross_entropy

from rove_lab.arguments import check_size
from rove_lab.tasks import NOT_ASKED, TaskDraw

__all__ = ["TokenAnswers"]


@dataclass(frozen=True, kw_only=True)
class TokenAnswers(ABC):
    r"""Next-token prediction where the context determines the answer, and only there.

    The loss is the mean of :math:`-\log p(x_{t+1} \mid x_{\le t})` in nats over the asked t. The
    alphabet has three kinds of ``n_symbols`` tokens, spelt ``a b c`` (noise), ``A B C`` (keys),
    ``0 1 2`` (values), then ``?`` and ``=``.

    Args:
        n_symbols: Tokens of a kind.
        n_ctx: Length of a sequence in tokens; the last answer is the token after it.

    Raises:
        TypeError: If a size is not an integer.
        ValueError: If a size is not positive.
    """

    n_symbols: int = 16
    n_ctx: int = 64

    def __post_init__(self) -> None:
        for name in ("n_symbols", "n_ctx"):
            check_size(name, getattr(self, name))

    @property
    @abstractmethod
    def choices(self) -> tuple[int, ...]:
        """For each token of one answer, how many it is among for who did not read the context."""

    @abstractmethod
    def sequences(self, draw: TaskDraw) -> tuple[Tensor, Tensor]:
        """Tokens ``[batch, n_ctx + 1]``, and whether the next one is asked, ``[batch, n_ctx]``."""

    @property
    def first_key(self) -> int:
        """The first key."""
        return self.n_symbols

    @property
    def first_value(self) -> int:
        """The first value."""
        return 2 * self.n_symbols

    @property
    def question(self) -> int:
        """The token ``?``."""
        return 3 * self.n_symbols

    @property
    def d_in(self) -> int:
        """Tokens of the alphabet."""
        return 3 * self.n_symbols + 2

    @property
    def d_out(self) -> int:
        """Logits: as many."""
        return self.d_in

    @property
    def blind(self) -> float:
        """Share of whole answers right by guessing among the tokens that can be one."""
        return 1 / math.prod(self.choices)

    @property
    def blind_loss(self) -> float:
        """The same reader's loss in nats."""
        return sum(math.log(n) for n in self.choices) / len(self.choices)

    def at_length(self, n_ctx: int) -> Self:
        """The same task in sequences of ``n_ctx`` tokens, its distances spread over all of them."""
        return replace(self, n_ctx=n_ctx)

    def batches(self, batch_size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Tokens ``[batch, n_ctx]`` and the tokens after them where asked, −100 elsewhere."""
        draw = TaskDraw(batch_size, seed)
        while True:
            tokens, asked = self.sequences(draw)
            yield tokens[:, :-1], tokens[:, 1:].where(asked, NOT_ASKED)

    def loss(self, output: Tensor, targets: Tensor) -> Tensor:
        """Mean cross entropy in nats over the asked tokens.

        Args:
            output: Logits ``[batch, pos, d_out]``.
            targets: Tokens ``[batch, pos]``, −100 where none is asked.

        Returns:
            A scalar.
        """
        return cross_entropy(output.flatten(0, 1).float(), targets.flatten())

    def scores(self, output: Tensor, targets: Tensor) -> dict[str, float]:
        """The loss, the share of tokens right and, where an answer has several, of whole answers.

        An answer is whole if each of its tokens is right after those before it: what greedy
        decoding would say is then right too.

        Args:
            output: Logits ``[batch, pos, d_out]``.
            targets: Tokens ``[batch, pos]``, −100 where none is asked.

        Returns:
            ``{"nats": loss, "accuracy": share}``, then ``"whole answers"`` if they are longer.
        """
        asked = targets != NOT_ASKED
        right = output[asked].argmax(-1) == targets[asked]
        named = {
            "nats": self.loss(output, targets).item(),
            "accuracy": right.double().mean().item(),
        }
        if len(self.choices) > 1:
            whole = right.unflatten(0, (-1, len(self.choices))).all(-1)
            named["whole answers"] = whole.double().mean().item()
        return named

    def spell(self, tokens: Tensor) -> str:
        """A sequence ``[pos]`` in symbols: ``"a b A 3 c ? A"``; beyond z comes ``a1``."""
        kinds = (ascii_lowercase, ascii_uppercase)
        names = [
            letters[i % 26] + (str(i // 26) if i >= 26 else "")
            for letters in kinds
            for i in range(self.n_symbols)
        ]
        names += [*map(str, range(self.n_symbols)), "?", "="]
        return " ".join(names[token] for token in tokens.tolist())

    def _check_room(self, tokens: int, what: str) -> None:
        """Refuse a context that cannot hold what the sizes ask for."""
        if tokens > self.n_ctx + 1:
            raise ValueError(
                f"expected n_ctx of {tokens - 1} or more for {what}, got {self.n_ctx}: pass a "
                "longer n_ctx or smaller sizes."
            )

    def _check_symbols(self, needed: int, what: str) -> None:
        """Refuse an alphabet that is too small."""
        if needed > self.n_symbols:
            raise ValueError(
                f"expected n_symbols of {needed} or more for {what}, got {self.n_symbols}: pass a "
                "larger n_symbols or smaller sizes."
            )
