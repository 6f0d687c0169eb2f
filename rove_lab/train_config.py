r"""How to train: the optimiser's numbers, and the learning rate at every step."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from rove_lab.arguments import check_flag, check_number, check_size

__all__ = ["TrainConfig"]


@dataclass(frozen=True)
class TrainConfig:
    """How to train: AdamW, a linear warm-up, a constant or cosine rate, gradients clipped.

    Args:
        steps: Optimiser steps.
        batch_size: Sequences a step, over all devices and micro-batches together.
        learning_rate: Of AdamW, at its highest.
        final_rate: Share of it that a cosine ends at; 1 keeps the rate constant.
        warmup_steps: Steps over which the rate grows from 0.
        weight_decay: Of AdamW, on matrices alone: not on norms and biases.
        beta2: Of AdamW's second moment; 0.95 is usual for language models.
        clip: Largest norm of the gradient.
        accumulate: Micro-batches a step is made of, one after the other, to save memory.
        bf16: Whether matrix products are taken in bfloat16 (autocast); weights stay float32.
        compile: Whether ``torch.compile`` compiles the model first.
        seed: Of the initial weights and, apart, of the order of the data; below 2³⁰.
        log_every: Steps between two reports.
        checkpoint_every: Steps between two checkpoints, where there is a folder for them.

    Raises:
        TypeError: If a value is not a number, or a flag not a bool.
        ValueError: If a value is out of range.

    Example:
        >>> TrainConfig(steps=100, learning_rate=3e-3).batch_size
        64
    """

    steps: int = 200
    batch_size: int = 64
    learning_rate: float = 1e-2
    final_rate: float = 1.0
    warmup_steps: int = 0
    weight_decay: float = 0.0
    beta2: float = 0.999
    clip: float = 1.0
    accumulate: int = 1
    bf16: bool = False
    compile: bool = False
    seed: int = 0
    log_every: int = 10
    checkpoint_every: int = 500

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "accumulate", "log_every", "checkpoint_every"):
            check_size(name, getattr(self, name))
        for name in ("learning_rate", "clip"):
            if check_number(name, getattr(self, name)) <= 0:
                raise ValueError(f"expected a positive {name}, got {getattr(self, name)}.")
        for name in ("warmup_steps", "weight_decay"):
            if check_number(name, getattr(self, name)) < 0:
                raise ValueError(f"expected {name} of 0 or more, got {getattr(self, name)}.")
        if not 0 <= check_number("final_rate", self.final_rate) <= 1:
            raise ValueError(
                f"expected final_rate from 0 to 1, a share of learning_rate, got {self.final_rate}."
            )
        if not 0 <= check_number("beta2", self.beta2) < 1:
            raise ValueError(f"expected beta2 from 0 to below 1, got {self.beta2}.")
        for name in ("bf16", "compile"):
            check_flag(name, getattr(self, name))
        if self.batch_size % self.accumulate:
            raise ValueError(
                f"expected batch_size divisible by accumulate, got {self.batch_size} and "
                f"{self.accumulate}: batch_size counts all micro-batches of a step."
            )
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise TypeError(f"expected seed to be an integer, got {self.seed!r}: pass a plain int.")
        if not 0 <= self.seed < 2**30:
            raise ValueError(f"expected a seed from 0 to 2**30 - 1, got {self.seed}.")

    @classmethod
    def preset(cls, name: str, **changes: Any) -> TrainConfig:
        """How to train a language model of a named size, with changes.

        Args:
            name: A preset of :class:`~rove_lab.model.GPTConfig`. ``"tiny"`` takes a minute on two
                cores, ``"small"`` minutes on a GPU. For ``"gpt2-124m"`` and ``"gpt2-354m"`` 19 073
                steps of 512 × 1024 tokens are one epoch of the 10 billion tokens of FineWeb-Edu,
                as García-Castellanos et al. (2026), arXiv:2606.11275, trained; the rest is usual
                and not theirs: rates of Brown et al. (2020), arXiv:2005.14165, table 2.1, warmed
                up over 375 million tokens.
            changes: Fields to set otherwise.

        Raises:
            ValueError: If there is no such preset; says which there are.

        Example:
            >>> TrainConfig.preset("gpt2-124m", accumulate=64).learning_rate
            0.0006
        """
        language = cls(weight_decay=0.1, beta2=0.95, final_rate=0.1)
        gpt2 = replace(
            language,
            steps=19_073,
            batch_size=512,
            learning_rate=6e-4,
            warmup_steps=715,
            accumulate=32,
            bf16=True,
        )
        presets = {
            "tiny": cls(
                steps=400,
                batch_size=16,
                learning_rate=2e-3,
                warmup_steps=20,
                final_rate=0.1,
                checkpoint_every=100,
            ),
            "small": replace(
                language, steps=2000, batch_size=32, learning_rate=1e-3, warmup_steps=100
            ),
            "gpt2-124m": gpt2,
            "gpt2-354m": replace(gpt2, learning_rate=3e-4),
        }
        if name not in presets:
            raise ValueError(f"expected a preset among {', '.join(presets)}, got {name!r}.")
        return replace(presets[name], **changes)

    def rate(self, step: int) -> float:
        r"""The learning rate :math:`\eta` of a step, counted from 1.

        After w warm-up steps of n it is
        :math:`\eta (f + (1 - f)\,\tfrac12 (1 + \cos \pi \tfrac{t - w}{n - w}))` with f the final
        share (Loshchilov & Hutter 2017, arXiv:1608.03983, equation 5); before, it grows as t/w.

        Args:
            step: t, from 1 to ``steps``.

        Returns:
            The rate.

        Example:
            >>> TrainConfig(steps=100, learning_rate=1.0, final_rate=0.1).rate(100)
            0.1
        """
        if step < self.warmup_steps:
            return self.learning_rate * step / self.warmup_steps
        after = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        cosine = 0.5 * (1 + math.cos(math.pi * after))
        return self.learning_rate * (self.final_rate + (1 - self.final_rate) * cosine)
