r"""``rove-lab compare``: RoPE and RoVE, trained alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Annotated, Any

import torch

from rove_lab.arguments import check_size
from rove_lab.commands.learning import learn, say, write_json
from rove_lab.commands.measures import lengths_within, windows
from rove_lab.commands.processes import is_main_process, leave_group
from rove_lab.commands.recipe import Recipe, tyro
from rove_lab.evaluation import perplexity_by_length
from rove_lab.tables import Table
from rove_lab.training import Run

__all__ = ["Compare"]


@dataclass(frozen=True)
class Compare:
    """Train RoPE and RoVE alike, from the same weights on the same batches, and compare them.

    Both learn side by side, step by step. Then comes a table: their loss on held-out text (nats
    per byte or token), their perplexity at 1 to 16 times the length they were trained at, and the
    milliseconds of a step. comparison.json in the folder has the same numbers. The same command
    again goes on where it was stopped.

    For example: python -m rove_lab compare --seeds 3

    On several GPUs: torchrun --nproc-per-node 8 -m rove_lab compare --preset gpt2-124m --shards
    shards

    Args:
        recipe: What to train; rotate-values is what is compared.
        seeds: How many pairs to train, with seeds from --seed on: the table then has the mean, the
            least and the most. The first is in the folder, each other in a folder there.
        lengths: Tokens of a window to measure at, each a divisor of the longest. 1, 2, 4, 8 and 16
            times --n-ctx by default.
        n_tokens: Held-out tokens to measure on.

    Example:
        >>> Compare().seeds
        1
    """

    recipe: Annotated[Recipe, tyro.conf.arg(name="")] = field(default_factory=Recipe)
    seeds: int = 1
    lengths: tuple[int, ...] = ()
    n_tokens: int = 2**16

    def run(self) -> None:
        """Train both, measure both, say what differs.

        Raises:
            KeyboardInterrupt: If it was stopped.
            ValueError: If only one arm is asked for, or the text does not fit.
        """
        recipe, how = self.recipe, self.recipe.training
        if not recipe.model.rotate_values:
            raise ValueError(
                "expected both arms to be trained, got --no-rotate-values: leave it out, or use "
                "train for one of them."
            )
        check_size("seeds", self.seeds)
        check_size("n_tokens", self.n_tokens)
        arms = {
            "RoPE": replace(recipe.model, rotate_values=False, value_planes=None),
            "RoVE": recipe.model,
        }
        text = recipe.open_corpus()
        n_ctx, d_vocab = recipe.model.n_ctx, recipe.model.d_vocab
        asked = {n_ctx, *self.lengths} if self.lengths else ()  # the loss is that at n_ctx
        lengths = lengths_within(list(asked), n_ctx, text.held_out, d_vocab)
        scored = windows(text.held_out, max(lengths), self.n_tokens)
        measured = {name: _Measures() for name in arms}
        seeds = range(how.seed, how.seed + self.seeds)
        for seed in seeds:
            # The first in the folder itself: more can be added to it later.
            folder = recipe.folder if seed == how.seed else recipe.folder / f"seed-{seed}"
            if self.seeds > 1:
                say(f"seed {seed}, of {seeds[0]} to {seeds[-1]}")
            runs = learn(arms, recipe, replace(how, seed=seed), text, folder)
            if seed == seeds[-1]:
                leave_group()
            if is_main_process():
                say(f"measuring on {scored.numel():,} held-out {text.train.unit}s ...")
                for name, run in runs.items():
                    measured[name].add(run, scored, lengths, n_ctx)
        if is_main_process():
            say(_told(measured, text.train.unit, n_ctx))
            self._write(measured, list(seeds), scored, text)

    def _write(
        self, measured: dict[str, _Measures], seeds: Sequence[int], scored: torch.Tensor, text: Any
    ) -> None:
        file = self.recipe.folder / "comparison.json"
        accelerator = torch.accelerator.current_accelerator()
        content = {
            "seeds": list(seeds),
            "values": {name: asdict(of_arm) for name, of_arm in measured.items()},
            "held_out_tokens": scored.numel(),
            "unit": f"nats per {text.train.unit}",
            "text": repr(text),
            "model": asdict(self.recipe.model),
            "training": asdict(self.recipe.training),
            "torch": torch.__version__,
            "device": str(accelerator or f"CPU, {torch.get_num_threads()} threads"),
        }
        write_json(file, content)
        say(f"all numbers: {file}")


@dataclass
class _Measures:
    """One arm's numbers, one a seed."""

    loss: list[float] = field(default_factory=list)
    perplexity: dict[int, list[float]] = field(default_factory=dict)
    step_ms: list[float] = field(default_factory=list)

    def add(self, run: Run, scored: torch.Tensor, lengths: Sequence[int], n_ctx: int) -> None:
        """Those of one more seed."""
        for length, perplexity in perplexity_by_length(run.model, scored, lengths).items():
            self.perplexity.setdefault(length, []).append(perplexity)
        self.loss.append(math.log(self.perplexity[n_ctx][-1]))
        self.step_ms.append(1000 * run.wall_s / run.steps[-1])


def _told(measured: dict[str, _Measures], unit: str, n_ctx: int) -> str:
    """The table, and what differs, seed by seed."""
    columns = {}
    for name, of_arm in measured.items():
        by_length = {
            f"perplexity at {n} ({n / n_ctx:g} ×)": seeds for n, seeds in of_arm.perplexity.items()
        }
        columns[name] = {f"nats per {unit}": of_arm.loss, **by_length, "step, ms": of_arm.step_ms}
    rope, rove = measured["RoPE"], measured["RoVE"]
    losses = [b - a for a, b in zip(rope.loss, rove.loss, strict=True)]
    times = [b / a for a, b in zip(rope.step_ms, rove.step_ms, strict=True)]
    return (
        f"{Table(columns)}\n"
        f"RoVE − RoPE: {_spread(losses, '+.4f')} nats per {unit}; "
        f"step time RoVE / RoPE: {_spread(times, '.3f')}"
        f"{'' if len(losses) > 1 else ' (one seed; --seeds 3 shows how far seeds differ)'}"
    )


def _spread(seeds: Sequence[float], form: str) -> str:
    mean = format(fmean(seeds), form)
    if len(seeds) == 1:
        return mean
    return f"{mean} [{min(seeds):{form}}, {max(seeds):{form}}]"
