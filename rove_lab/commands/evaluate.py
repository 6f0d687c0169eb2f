r"""``rove-lab evaluate``: how good a model is, by position, by length, in context."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from rove_lab.arguments import check_size
from rove_lab.commands.learning import write_json
from rove_lab.commands.measures import Encode, lengths_within, windows
from rove_lab.commands.recipe import Corpus, tyro
from rove_lab.commands.trained import corpus_of, is_of_the_lab, models_in
from rove_lab.commands.vocabulary import tokenizer_of
from rove_lab.context_extension import choose_beta_fast, yarn_by_length
from rove_lab.data import ByteText
from rove_lab.evaluation import loss_by_position, perplexity_by_length, vocabulary_of
from rove_lab.few_shot import few_shot_scores, suite_score
from rove_lab.tables import Table

__all__ = ["Evaluate"]


@dataclass(frozen=True)
class Evaluate:
    """Measure a trained model on held-out text, beyond its length, and in context.

    The table has the loss by position in nats a token; the perplexity, always of the same tokens,
    in windows of 1 to 16 times the trained length, as it is and with YaRN (arXiv:2309.00071), whose
    beta_fast is chosen on the training text at the second of these lengths; and the centred
    accuracy on small tasks after some examples (0 is a guess, 1 is perfect).

    For example: python -m rove_lab evaluate runs/compare-tiny

    Or a model of the hub: python -m rove_lab evaluate HuggingFaceTB/SmolLM2-135M --n-ctx 512

    Args:
        model: A run's folder, a model's, or the name of a causal language model on the Hugging
            Face hub; or byte-rope or byte-rove, which come with the package.
        corpus: What to read; what a run was trained on by default.
        n_ctx: Tokens of the trained window; what the model's config says by default.
        lengths: Tokens of a window to measure at, each a divisor of the longest.
        n_tokens: Held-out tokens to measure on.
        yarn: Whether to measure with YaRN too.
        shots: Numbers of examples before a question; none to leave the questions out.
        out: A JSON file to write the numbers to.

    Example:
        >>> Evaluate("runs/compare-tiny").shots
        (0, 4, 16)
    """

    model: tyro.conf.Positional[str]
    corpus: Corpus = field(default_factory=Corpus)
    n_ctx: int | None = None
    lengths: tuple[int, ...] = ()
    n_tokens: int = 2**16
    yarn: bool = True
    shots: tuple[int, ...] = (0, 4, 16)
    out: Path | None = None

    def run(self) -> None:
        """Measure, print the table, write the numbers where asked."""
        check_size("n_tokens", self.n_tokens)
        columns: dict[str, dict[str, float]] = {}
        chosen = {}
        for name, model, tokenizer, encode in self._models():
            print(f"measuring {name} ...", flush=True)
            columns[name], chosen[name] = self._column(model, tokenizer, encode)
        print(Table({name: {row: [x] for row, x in of.items()} for name, of in columns.items()}))
        words = ", ".join(f"{beta:g} for {name}" for name, beta in chosen.items() if beta)
        if words:
            print(f"YaRN: beta_fast {words}, chosen on the training text")
        if self.out is not None:
            write_json(self.out, {"values": columns, "beta_fast": chosen})
            print(f"all numbers: {self.out}")

    def _models(self) -> Iterator[tuple[str, Any, Any, Encode | None]]:
        """Names and models with their tokenizers, and how they encode a text that is bytes."""
        folder = Path(self.model)
        if is_of_the_lab(folder):
            for name, model in models_in(folder).items():
                tokenizer = tokenizer_of(model)
                spelt = None if tokenizer is None else tokenizer.encode_ordinary
                yield name, model, tokenizer, spelt
            return
        from rove_lab.huggingface import load_causal_lm  # transformers takes seconds to import

        model, tokenizer = load_causal_lm(self.model)
        device = torch.accelerator.current_accelerator() or torch.device("cpu")

        def encode(text: str) -> list[int]:
            ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
            return ids

        yield self.model, model.to(device), tokenizer, encode

    def _column(
        self, model: Any, tokenizer: Any, encode: Encode | None
    ) -> tuple[dict[str, float], float | None]:
        """One model's numbers, and its beta_fast."""
        of_model = getattr(model.config, "n_ctx", None) or model.config.max_position_embeddings
        n_ctx = check_size("n_ctx", of_model if self.n_ctx is None else self.n_ctx)
        corpus = self.corpus if self.corpus != Corpus() else corpus_of(Path(self.model))
        text = corpus.open(n_ctx)
        d_vocab = vocabulary_of(model) or 1
        if not isinstance(text.train, ByteText):
            encode = None
            if d_vocab != text.train.d_in:
                raise ValueError(
                    f"expected shards of the model's {d_vocab} tokens, got those of another "
                    f"tokenizer with {text.train.d_in}: give --text."
                )
        print(f"  on {text.held_out}", flush=True)
        lengths = lengths_within(self.lengths, n_ctx, text.held_out, d_vocab, encode)
        at = windows(text.held_out, n_ctx, self.n_tokens, encode)
        column = _by_position(loss_by_position(model, at))
        scored = windows(text.held_out, max(lengths), self.n_tokens, encode)
        plain = perplexity_by_length(model, scored, lengths)
        column |= {f"perplexity at {n} ({n / n_ctx:g} ×)": x for n, x in plain.items()}
        beyond, beta_fast = [n for n in lengths if n > n_ctx + 1], None
        if self.yarn and beyond:
            learned = windows(text.train, beyond[0], self.n_tokens // 4, encode)
            beta_fast = choose_beta_fast(model, learned, beyond[0], n_ctx=n_ctx).beta_fast
            extension = yarn_by_length(model, beta_fast=beta_fast, n_ctx=n_ctx)
            longer = perplexity_by_length(model, scored, lengths, extension=extension)
            column |= {f"  with YaRN at {n} ({n / n_ctx:g} ×)": longer[n] for n in beyond}
        if self.shots:
            found = few_shot_scores(model, self.shots, tokenizer=tokenizer)
            for k, mean in suite_score(found).items():
                column[f"in context, {k} examples"] = mean
        return column, beta_fast


def _by_position(losses: torch.Tensor) -> dict[str, float]:
    """The mean loss after 1 to 3, 4 to 15, 16 to 63 ... tokens; entry t of the losses has t + 1."""
    rows, first, end = {}, 1, losses.shape[1]
    while first <= end:
        last = min(4 * first - 1, end)
        words = f"{first} to {last} tokens" if last > first else "1 token"
        rows[f"loss after {words}"] = losses[:, first - 1 : last].double().mean().item()
        first = last + 1
    return rows
