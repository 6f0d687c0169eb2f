r"""Training at positions of longer texts: each short sequence lies somewhere in a long one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from rove_lab.arguments import check_size
from rove_lab.model import GPT

__all__ = ["RandomPositions", "RandomSkips", "RandomStart", "Scattered"]


class DrawnPositions(Protocol):
    """Where the tokens of a sequence are said to stand."""

    def draw(self, n: int, random: torch.Generator) -> Tensor:
        """Increasing positions ``[n]`` in tokens."""


@dataclass(frozen=True)
class RandomStart:
    """``s, s + 1, ..., s + n - 1`` with s uniform: offsets stay what they are, RoPE sees no change.

    Args:
        span: Tokens of the long text.

    Raises:
        TypeError: If ``span`` is not an integer.
        ValueError: If it is not positive.

    Example:
        >>> RandomStart(100).draw(3, torch.Generator().manual_seed(0))
        tensor([60, 61, 62])
    """

    span: int

    def __post_init__(self) -> None:
        check_size("span", self.span)

    def draw(self, n: int, random: torch.Generator) -> Tensor:
        """Positions ``[n]`` in tokens."""
        start = torch.randint(_room(self.span, n) + 1, (1,), generator=random)
        return start + torch.arange(n)


@dataclass(frozen=True)
class Scattered:
    """A random subset of ``0 .. span - 1``, in order: every offset of the long text is seen.

    Ruoss et al. (2023), arXiv:2305.16843.

    Args:
        span: Tokens of the long text.

    Raises:
        TypeError: If ``span`` is not an integer.
        ValueError: If it is not positive.

    Example:
        >>> Scattered(100).draw(4, torch.Generator().manual_seed(0))
        tensor([19, 44, 90, 93])
    """

    span: int

    def __post_init__(self) -> None:
        check_size("span", self.span)

    def draw(self, n: int, random: torch.Generator) -> Tensor:
        """Positions ``[n]`` in tokens."""
        _room(self.span, n)
        return torch.randperm(self.span, generator=random)[:n].sort().values


@dataclass(frozen=True)
class RandomSkips:
    """Chunks of neighbours with random gaps between them: far offsets are seen, near ones kept.

    Cuts and gaps are uniform, and so is where the last token stands. The positional skips of PoSE:
    Zhu et al. (2023), arXiv:2309.10400.

    Args:
        span: Tokens of the long text.
        n_chunks: Chunks, 2 or more.

    Raises:
        TypeError: If a size is not an integer.
        ValueError: If a size is not positive, or there is one chunk.

    Example:
        >>> RandomSkips(100, n_chunks=2).draw(5, torch.Generator().manual_seed(0))
        tensor([ 0,  1,  2,  3, 48])
    """

    span: int
    n_chunks: int = 4

    def __post_init__(self) -> None:
        check_size("span", self.span)
        if check_size("n_chunks", self.n_chunks) < 2:
            raise ValueError("expected n_chunks of 2 or more, got 1: one chunk has no gap.")

    def draw(self, n: int, random: torch.Generator) -> Tensor:
        """Positions ``[n]`` in tokens."""
        cuts = min(self.n_chunks, n) - 1
        total = torch.randint(_room(self.span, n) + 1, (1,), generator=random)
        where = torch.randperm(n - 1, generator=random)[:cuts] + 1
        shares = torch.rand(cuts, generator=random)
        gaps = torch.zeros(n, dtype=torch.int64)
        gaps[where] = (shares / shares.sum() * total).long()
        return torch.arange(n) + gaps.cumsum(0)


@dataclass(frozen=True)
class RandomPositions:
    """A config whose model is trained at drawn positions and read at 0, 1, 2, ...

    While the model is in training mode each pass draws positions, one sequence of them for the
    whole batch; in ``eval()`` it is an ordinary GPT. Models built with one seed draw the same ones:
    matched arms stay matched. A run that is taken up again draws them from the beginning.

    Args:
        config: Builds the GPT: a config or a warm start.
        positions: How they are drawn.
        seed: Of the draws.

    Raises:
        TypeError: If ``positions`` draws none.

    Example:
        >>> from rove_lab.model import GPTConfig
        >>> model = RandomPositions(GPTConfig(), Scattered(1024)).build()
        >>> model(torch.tensor([[1, 2, 3]])).shape
        torch.Size([1, 3, 256])
    """

    config: Any
    positions: DrawnPositions
    seed: int = 0

    def __post_init__(self) -> None:
        if not hasattr(self.positions, "draw"):
            raise TypeError(
                f"expected positions that draw, as Scattered(1024), got {self.positions!r}."
            )

    def build(self) -> GPT:
        """A new model that draws while it trains."""
        model: GPT = self.config.build()
        random = torch.Generator().manual_seed(self.seed)

        def draw(
            module: GPT, given: tuple[Tensor, ...], named: dict[str, Any]
        ) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
            if module.training and named.get("positions") is None and len(given) == 1:
                named = named | {"positions": self.positions.draw(given[0].shape[1], random)}
            return given, named

        model.register_forward_pre_hook(draw, with_kwargs=True)
        return model


def _room(span: int, n: int) -> int:
    if n > span:
        raise ValueError(
            f"expected sequences of at most span={span} tokens, got {n}: pass a longer span."
        )
    return span - n
