r"""Common words: say which words of a list came more often than the others."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rove_lab.arguments import check_size
from rove_lab.placement import distinct
from rove_lab.tasks import TaskDraw
from rove_lab.token_answers import TokenAnswers

__all__ = ["CommonWords"]


@dataclass(frozen=True, kw_only=True)
class CommonWords(TokenAnswers):
    """Count: name the words that came ``ratio`` times as often as each of the others.

    ``A C B a A C D A b C ? A C``: every key is a word of the list; ``n_common`` of them come
    ``ratio`` times as often as the rest, which come as often as fits; noise fills what is left.
    After ``?`` the common words are asked, in the order in which they first came. In a longer
    sequence all counts grow. Guessing distinct words is right in one of n (n − 1) (n − 2) cases
    with n = ``n_symbols`` and three of them (1/3360). After RULER's common words extraction: Hsieh
    et al. (2024), arXiv:2404.06654.

    Args:
        n_symbols: Tokens of a kind; as many words in the list.
        n_ctx: Length of a sequence in tokens.
        n_common: Common words, fewer than ``n_symbols``.
        ratio: How many times as often as another word they come, 2 or more.

    Raises:
        TypeError: If a size is not an integer.
        ValueError: If a size is not positive, no word is left to be rare, the ratio is 1, or the
            list does not fit once.

    Example:
        >>> task = CommonWords(n_symbols=3, n_ctx=11, n_common=2, ratio=3)
        >>> tokens, targets = next(task.batches(1, seed=0))
        >>> task.spell(tokens[0]), task.spell(targets[0][targets[0] >= 0])
        ('C B C c C A c A A ? C', 'C A')
    """

    n_common: int = 3
    ratio: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_size("n_common", self.n_common)
        self._check_symbols(self.n_common + 1, f"{self.n_common} common words and a rare one")
        if check_size("ratio", self.ratio) < 2:
            raise ValueError("expected a ratio of 2 or more, got 1: no word would be common.")
        self._check_room(
            self.n_words + self.n_common + 1,
            f"{self.n_symbols} words, {self.n_common} of them {self.ratio} times, and the answer",
        )

    @property
    def n_words(self) -> int:
        """Words of the list in which each rare word comes once."""
        return self.n_symbols + self.n_common * (self.ratio - 1)

    @property
    def choices(self) -> tuple[int, ...]:
        """Each token of the answer is among the words not yet named."""
        return tuple(range(self.n_symbols, self.n_symbols - self.n_common, -1))

    def sequences(self, draw: TaskDraw) -> tuple[Tensor, Tensor]:
        """Tokens ``[batch, n_ctx + 1]``, and whether the next one is asked, ``[batch, n_ctx]``."""
        batch, room = draw.batch_size, self.n_ctx - self.n_common
        often = room // self.n_words
        words = self.first_key + distinct(draw, self.n_symbols, self.n_symbols)
        common = words[:, : self.n_common]
        deck = draw.integers(self.n_symbols, room)
        times = torch.full((self.n_symbols,), often)
        times[: self.n_common] *= self.ratio
        deck[:, : often * self.n_words] = words.repeat_interleave(times, 1)
        listed = deck.gather(1, distinct(draw, room, room))

        stands = listed[:, None] == common[..., None]
        first = torch.arange(room).where(stands, room).amin(-1)
        answers = common.gather(1, first.argsort(1))
        question = torch.full((batch, 1), self.question)
        asked = torch.zeros(batch, self.n_ctx, dtype=torch.bool)
        asked[:, room:] = True
        return torch.cat((listed, question, answers), 1), asked
