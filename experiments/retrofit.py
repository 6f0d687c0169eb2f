"""Is RoVE plug and play? Switched on in SmolLM2 as it is: all of it, by plane, by layer.

Run it from a clone: `python experiments/retrofit.py`. It scores each switch on three windows of
text and on repeated random tokens, about 12 minutes of one idle core, and writes
results/retrofit/record.json. Nothing is trained: what a seed changes is the data.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import torch
import tyro
from torch import Tensor

from rove_lab import RotaryEmbedding
from rove_lab.evaluation import loss_by_position
from rove_lab.huggingface import enable_rove, load_smollm2
from rove_lab.records import Record, write_record
from rove_lab.surroundings import surroundings

ROOT = Path(__file__).resolve().parents[1]
WINDOW = 1536  # tokens of text for each seed; the windows follow one another
BLOCK, BLOCKS = 64, 2  # random tokens that come twice; how many such sequences for each seed
GROUP = 8  # planes that are switched on together


@dataclass(frozen=True)
class Switch:
    """What is switched on for one row of a table."""

    table: str
    row: str
    layers: list[int] | None = None
    planes: list[int] | None = None


def switches(n_layers: int, n_planes: int) -> Iterator[Switch]:
    """Every row: nothing, everything, groups of planes in all layers, layers alone."""
    yield Switch("planes", "none", planes=[])
    yield Switch("planes", "all")
    for first in range(0, n_planes, GROUP):
        group = list(range(first, min(first + GROUP, n_planes)))
        yield Switch("planes", f"{group[0]} to {group[-1]}", planes=group)
    half = n_planes // 2
    yield Switch("planes", f"{half} fastest", planes=list(range(half)))
    yield Switch("planes", f"{half} slowest", planes=list(range(half, n_planes)))
    for layer in range(n_layers):
        yield Switch("layers", str(layer), layers=[layer])


def text_windows(tokenizer: Any, count: int) -> list[Tensor]:
    """Windows of the text that Python's `help()` knows its topics by, [1, WINDOW] each."""
    text = "\n\n".join(topics[name] for name in sorted(topics))
    tokens = tokenizer(text, return_tensors="pt").input_ids[:, : count * WINDOW]
    if tokens.shape[1] < count * WINDOW:
        sys.exit(f"the text has {tokens.shape[1]} tokens: too few for {count} windows of {WINDOW}")
    return list(tokens.split(WINDOW, dim=1))


def repeated(seed: int, n_tokens: int) -> Tensor:
    """Random tokens twice over, [BLOCKS, 2 * BLOCK]."""
    generator = torch.Generator().manual_seed(seed)
    block = torch.randint(n_tokens, (BLOCKS, BLOCK), generator=generator)
    return torch.cat((block, block), dim=1)


def scores(model: Any, switch: Switch, text: Tensor, twice: Tensor) -> dict[str, float]:
    """Perplexity of the text; nats per token the second time random tokens come."""
    nothing = switch.planes == []
    with nullcontext() if nothing else enable_rove(model, switch.layers, switch.planes):
        return {
            "perplexity": loss_by_position(model, text).mean().exp().item(),
            "loss on repeated tokens": loss_by_position(model, twice)[:, BLOCK - 1 :].mean().item(),
        }


def config(weights: str) -> dict[str, Any]:
    """What was set, for the record."""
    return {
        "model": "HuggingFaceTB/SmolLM2-135M-Instruct",
        "weights": weights,
        "text": "pydoc_data.topics, by name, joined by blank lines",
        "seed": "which window of the text, and the seed of the random tokens; nothing is trained",
        "tokens in a window": WINDOW,
        "random tokens that come twice": BLOCK,
        "sequences of random tokens": BLOCKS,
        "planes in a group": GROUP,
    }


def main(seeds: int = 3, threads: int = 1, folder: Path = ROOT / "results" / "retrofit") -> None:
    """Score every switch on every seed, and write the record.

    Args:
        seeds: Windows of text and draws of random tokens, three or more.
        threads: How many torch may use.
        folder: Where record.json goes.
    """
    torch.set_num_threads(threads)
    model, tokenizer = load_smollm2()
    n_planes = len(RotaryEmbedding.from_config(model.config).inv_freq)
    todo = list(switches(model.config.num_hidden_layers, n_planes))
    texts = text_windows(tokenizer, seeds)
    twice = [repeated(seed, model.config.vocab_size) for seed in range(seeds)]
    values: dict[str, Any] = {}
    started, cpu = time.perf_counter(), time.process_time()
    try:
        for done, switch in enumerate(todo, start=1):
            row = (
                values.setdefault(switch.table, {})
                .setdefault("RoVE", {})
                .setdefault(switch.row, {})
            )
            for each in zip(texts, twice, strict=True):
                for name, score in scores(model, switch, *each).items():
                    row.setdefault(name, []).append(round(score, 5))
            left = (time.perf_counter() - started) / done * (len(todo) - done)
            words = "; ".join(f"{name} {of_seeds}" for name, of_seeds in row.items())
            print(
                f"[{done}/{len(todo)}] {switch.table}, {switch.row}: {words}; {left:.0f} s left",
                flush=True,
            )
    except KeyboardInterrupt:
        sys.exit("interrupted: no record was written")
    record = Record(
        question="Can RoVE be switched on in a model that was trained without it?",
        kind="experiment",
        config=config(model.source),
        seeds=list(range(seeds)),
        values=values,
        wall_s=round(time.perf_counter() - started, 1),
        cpu_s=round(time.process_time() - cpu, 1),
        **surroundings(ROOT),
    )
    print(f"wrote {write_record(record, folder)}", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
