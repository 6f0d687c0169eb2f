r"""A curriculum: easier tasks first, in one alphabet, then the one that is meant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from torch import Tensor

from rove_lab.arguments import check_size
from rove_lab.token_answers import TokenAnswers

__all__ = ["Curriculum"]


@dataclass(frozen=True, kw_only=True)
class Curriculum:
    """Tasks one after the other: each stage for so many batches, the goal from then on.

    A task too, with the scores and the chance level of its goal. All draw from the same seed.
    Retrieval that a small model does not find by itself in reasonable time may come after
    induction, whose circuit it needs.

    Args:
        stages: Pairs of a task and its number of batches, in their order.
        goal: The task that is meant.

    Raises:
        TypeError: If a stage is not a pair, a task not one with token answers, or a number of
            batches no integer.
        ValueError: If there is no stage, a number is not positive, or the alphabets differ.

    Example:
        >>> from rove_lab.induction import Induction
        >>> from rove_lab.needles import Needles
        >>> Curriculum(stages=((Induction(), 300),), goal=Needles()).blind
        0.0625
    """

    stages: tuple[tuple[TokenAnswers, int], ...]
    goal: TokenAnswers

    def __post_init__(self) -> None:
        for stage in self.stages:
            if not isinstance(stage, tuple | list) or len(stage) != 2:
                raise TypeError(f"expected stages as pairs (task, batches), got {stage!r}.")
        stages = tuple((task, check_size("batches of a stage", n)) for task, n in self.stages)
        if not stages:
            raise ValueError("expected one stage or more before the goal, got none: use the goal.")
        object.__setattr__(self, "stages", stages)
        for task in (self.goal, *(task for task, _ in stages)):
            if not isinstance(task, TokenAnswers):
                raise TypeError(
                    f"expected tasks with token answers, got {type(task).__name__}: their losses "
                    "are one function."
                )
            if task.n_symbols != self.goal.n_symbols:
                raise ValueError(
                    f"expected one alphabet, got n_symbols={task.n_symbols} in "
                    f"{type(task).__name__} and {self.goal.n_symbols} in the goal."
                )

    @property
    def d_in(self) -> int:
        """Tokens of the alphabet."""
        return self.goal.d_in

    @property
    def d_out(self) -> int:
        """Logits: as many."""
        return self.goal.d_out

    @property
    def n_ctx(self) -> int:
        """Positions of a sequence of the goal."""
        return self.goal.n_ctx

    @property
    def blind(self) -> float:
        """The goal's chance level."""
        return self.goal.blind

    @property
    def blind_loss(self) -> float:
        """The goal's loss at chance."""
        return self.goal.blind_loss

    def at_length(self, n_ctx: int) -> TokenAnswers:
        """The goal alone, in sequences of ``n_ctx`` tokens: what a trained model is asked."""
        return self.goal.at_length(n_ctx)

    def batches(self, batch_size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of each stage in turn, then the goal's without end."""
        for task, n in self.stages:
            yield from islice(task.batches(batch_size, seed), n)
        yield from self.goal.batches(batch_size, seed)

    def loss(self, output: Tensor, targets: Tensor) -> Tensor:
        """Mean cross entropy in nats over the asked tokens.

        Args:
            output: Logits ``[batch, pos, d_out]``.
            targets: Tokens ``[batch, pos]``, −100 where none is asked.

        Returns:
            A scalar.
        """
        return self.goal.loss(output, targets)

    def scores(self, output: Tensor, targets: Tensor) -> dict[str, float]:
        """The goal's scores, on batches of the goal.

        Args:
            output: Logits ``[batch, pos, d_out]``.
            targets: Tokens ``[batch, pos]``, −100 where none is asked.

        Returns:
            Name to score, the headline last.
        """
        return self.goal.scores(output, targets)
