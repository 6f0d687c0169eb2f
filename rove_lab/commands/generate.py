r"""``rove-lab generate``: what a trained model writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from rove_lab.arguments import check_size
from rove_lab.commands.recipe import tyro
from rove_lab.commands.trained import models_in
from rove_lab.commands.vocabulary import spell, tokenizer_of, tokens_of

__all__ = ["Generate"]


@dataclass(frozen=True)
class Generate:
    """Let a trained model write on: both models of a comparison, one after the other.

    For example: python -m rove_lab generate runs/compare-tiny --prompt "def " --temperature 0.7

    Args:
        folder: A run's folder, or a model's; or byte-rope or byte-rove, which are trained already.
        prompt: What the text begins with.
        n_tokens: How many tokens to add: bytes, for a model that reads bytes.
        temperature: Below 1 the likely becomes likelier; 0 always takes the likeliest.
        seed: Of the draws; every model gets the same.

    Example:
        >>> Generate(Path("runs/compare-tiny")).prompt
        'def '
    """

    folder: tyro.conf.Positional[Path]
    prompt: str = "def "
    n_tokens: int = 300
    temperature: float = 0.8
    seed: int = 0

    def run(self) -> None:
        """Print a heading and a text for each model.

        Raises:
            ValueError: If the prompt is empty, or a number out of range.
        """
        check_size("n_tokens", self.n_tokens)
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"expected a seed from 0 to 2**63 - 1, got {self.seed}.")
        for name, model in models_in(self.folder).items():
            tokenizer = tokenizer_of(model)
            prompt = tokens_of(self.prompt, tokenizer)
            if not prompt:
                raise ValueError("expected a prompt to go on from, got none: give --prompt TEXT.")
            device = next(model.parameters()).device
            written = model.generate(
                torch.tensor([prompt], device=device),
                self.n_tokens,
                temperature=self.temperature,
                generator=torch.Generator(device).manual_seed(self.seed),
            )
            print(f"--- {name}\n{spell(written[0].tolist(), tokenizer)}\n", flush=True)
