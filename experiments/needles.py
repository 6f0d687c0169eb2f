"""Why are needles lost beyond the trained length, and why does RoVE lose other ones than RoPE?

Run it from a clone: `python experiments/needles.py`. For each seed it trains pairs on induction and
then on needles: of four sizes, and at positions spread over eight times the length. In longer
sequences it asks where the models look, makes them look at the right token, and turns the values
otherwise than the scores. The heads it looks at are picked by where they look, in sequences of the
trained length from the same held-out seed as those that are scored. Two jobs at a time with one
thread each, about 15 minutes of two idle cores. It writes results/needles/record.json.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rove_lab.context_extension import yarn_by_length
from rove_lab.evaluation import HELD_OUT_SEED, Extension, device_of
from rove_lab.experiment import Experiment, described
from rove_lab.induction import Induction
from rove_lab.matched_pairs import rope_and_rove, value_halves
from rove_lab.model import GPT, GPTConfig
from rove_lab.needle_reading import NeedleHeads, needle_heads, read_needles
from rove_lab.needles import Needles
from rove_lab.open_attention import open_attention
from rove_lab.random_positions import RandomPositions, RandomSkips, Scattered
from rove_lab.rotary import LinearScaling, YarnScaling
from rove_lab.train_config import TrainConfig
from rove_lab.training import train
from rove_lab.value_scaling import value_scaling
from rove_lab.warm_start import WarmStart

WHY, SIZES = "why", "sizes"
PLAIN, YARN = "as trained", "YaRN"
MODELS = {
    "1 head": {"n_heads": 1},
    "4 heads": {"n_heads": 4},
    "3 layers": {"n_layers": 3},
}
# What is set right by hand: the head that binds a value to its key, the one that reads it, both.
HELP = {
    "nothing": (),
    "binding": (NeedleHeads.bind,),
    "reading": (NeedleHeads.point,),
    "both": (NeedleHeads.bind, NeedleHeads.point),
}


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What is trained, for how long, and what is asked of it.

    `times` are lengths over the trained one; `spread` is how models learn needles at `positions`.
    """

    model: GPTConfig
    induction: TrainConfig
    needles: TrainConfig
    spread: TrainConfig
    positions: dict[str, RandomSkips | Scattered]
    beta_fast: float = 4.0
    times: tuple[int, ...] = (1, 2, 4, 8)
    n_sequences: int = 128


FEW = TrainConfig(steps=700, batch_size=32, learning_rate=3e-3, log_every=50)
MANY = TrainConfig(steps=4000, batch_size=128, learning_rate=1e-3, warmup_steps=200, log_every=50)
CPU = Budget(
    model=GPTConfig(d_vocab=Needles().d_in, n_ctx=64, d_model=64, n_layers=2, n_heads=2),
    induction=FEW,
    needles=replace(FEW, steps=250, warmup_steps=20, final_rate=0.1),
    spread=replace(FEW, steps=350, warmup_steps=20, final_rate=0.1),
    positions={"skips": RandomSkips(512)},
)
# For a card of 80 GB: the patterns of six layers, of 32 sequences of 2,048 tokens, are 26 GB, and a
# layer takes some of 4 GB more while it is computed (reckoned, not measured).
GPU = Budget(
    model=GPTConfig.preset("small", d_vocab=Needles().d_in),
    induction=MANY,
    needles=replace(MANY, final_rate=0.1),
    spread=replace(MANY, final_rate=0.1),
    positions={"skips": RandomSkips(2048), "scattered": Scattered(2048)},
    n_sequences=1024,
)


def trained(config: Any, how: TrainConfig, task: Any) -> GPT:
    """A model after a training that nobody stopped."""
    run = train(config, how, task, progress=False)
    if run.interrupted:
        raise KeyboardInterrupt
    model: GPT = run.model  # type: ignore[assignment]
    return model


class Asked:
    """One trained model and what is asked of it: readings by length, with `times` for names."""

    def __init__(self, model: GPT, budget: Budget) -> None:
        self.model, self.budget = model, budget
        self.task = Needles(n_ctx=model.config.n_ctx)
        self.heads = needle_heads(model, self.task)
        self.yarn = yarn_by_length(model, beta_fast=budget.beta_fast)
        self.stretches: dict[str, Extension | None] = {PLAIN: None, YARN: self.yarn}

    def read(
        self,
        extension: Extension | None,
        aims: Sequence[Callable[..., Tensor]] = (),
        opening: Callable[..., Any] = open_attention,
    ) -> dict[str, dict[str, float]]:
        """Every length."""
        lengths = {f"{times} ×": times * self.task.n_ctx for times in self.budget.times}
        found = read_needles(
            self.model,
            self.task,
            [*lengths.values()],
            self.heads,
            aims=[partial(aim, self.heads) for aim in aims],
            opening=opening,
            n_sequences=self.budget.n_sequences,
            extension=extension,
        )
        return {name: asdict(found[length]) for name, length in lengths.items()}

    def helped(self) -> dict[str, dict[str, Any]]:
        """With heads set right by hand, or not, as trained and under YaRN."""
        return {
            stretch: {name: self.read(extension, aims) for name, aims in HELP.items()}
            for stretch, extension in self.stretches.items()
        }

    def value_angles(self) -> dict[str, dict[str, Any]]:
        """With values that turn otherwise than the scores, the reading head set right or not."""
        # No offset is longer in training.
        near = partial(open_attention, reach=self.task.n_ctx - 1)
        fast, slow = (half.value_planes for half in value_halves(self.model.config).values())
        ways: dict[str, dict[str, tuple[Extension | None, Callable[..., Any]]]] = {
            PLAIN: {
                "as the scores": (None, open_attention),
                "linear": (self.values(lambda times: LinearScaling(times), None), open_attention),
                "YaRN": (self.values(self.yarn_scaling, None), open_attention),
                "trained offsets": (None, near),
                "trained offsets, fast half": (None, partial(near, planes=fast)),
                "trained offsets, slow half": (None, partial(near, planes=slow)),
            },
            YARN: {
                "as the scores": (self.yarn, open_attention),
                "linear": (
                    self.values(lambda times: LinearScaling(times), self.yarn),
                    open_attention,
                ),
                "unscaled": (self.values(lambda times: None, self.yarn), open_attention),
            },
        }
        return {
            scores: {
                head: {
                    way: self.read(extension, aims, opening)
                    for way, (extension, opening) in of_scores.items()
                }
                for head, aims in (("as it looks", ()), ("set right", HELP["reading"]))
            }
            for scores, of_scores in ways.items()
        }

    def values(
        self, scaling: Callable[[float], Any], scores: Extension | None
    ) -> Callable[[int], AbstractContextManager[None]]:
        """An extension: one for the scores, and another scaling for the values."""

        @contextmanager
        def at(length: int) -> Any:
            times = max(length / self.task.n_ctx, 1.0)
            on = nullcontext() if scores is None else scores(length)
            with on, value_scaling(self.model, scaling(times) if times > 1 else None):
                yield

        return at

    def yarn_scaling(self, times: float) -> YarnScaling:
        """YaRN's, for the values."""
        return YarnScaling(times, self.task.n_ctx, beta_fast=self.budget.beta_fast)

    def start(self, offset: int) -> dict[str, float]:
        """How much a logit changes, at most, where the sequence is said to start elsewhere."""
        tokens, _ = next(self.task.batches(32, HELD_OUT_SEED))
        tokens = tokens.to(device_of(self.model))
        places = torch.arange(tokens.shape[1])
        with torch.no_grad():
            here, there = self.model(tokens), self.model(tokens, places + offset)
        return {"largest change of a logit": float((here - there).abs().max())}


def why(budget: Budget, seed: int) -> dict[str, Any]:
    """The pair of the budget's own size: what is asked of it, and the pairs of spread positions."""
    n_ctx = budget.model.n_ctx
    span = max(budget.times) * n_ctx
    asked: dict[str, Asked] = {}
    apart: dict[str, Any] = {name: {PLAIN: {}, YARN: {}} for name in budget.positions}
    for arm, config in rope_and_rove(budget.model).items():
        first = trained(config, replace(budget.induction, seed=seed), Induction(n_ctx=n_ctx))
        start, task = WarmStart(config, first), Needles(n_ctx=n_ctx)
        asked[arm] = Asked(trained(start, replace(budget.needles, seed=seed), task), budget)
        for name, positions in budget.positions.items():
            drawn = RandomPositions(start, positions, seed=seed)
            one = Asked(trained(drawn, replace(budget.spread, seed=seed), task), budget)
            for stretch, extension in one.stretches.items():
                apart[name][stretch][arm] = one.read(extension)
    helped = {arm: one.helped() for arm, one in asked.items()}
    return {
        "help": {
            stretch: {
                name: {arm: of_arm[stretch][name] for arm, of_arm in helped.items()}
                for name in HELP
            }
            for stretch in (PLAIN, YARN)
        },
        "value angles": asked["RoVE"].value_angles(),
        "positions in training": apart,
        "start": {arm: one.start(span) for arm, one in asked.items()},
    }


def run(budget: Budget, *job: Any) -> dict[str, Any]:
    """Why, or one of the other sizes: both arms in every length, as trained and under YaRN."""
    *names, seed = job
    if names == [WHY]:
        return why(budget, seed)
    found: dict[str, dict[str, Any]] = {PLAIN: {}, YARN: {}}
    n_ctx = budget.model.n_ctx
    for arm, config in rope_and_rove(replace(budget.model, **MODELS[names[-1]])).items():
        first = trained(config, replace(budget.induction, seed=seed), Induction(n_ctx=n_ctx))
        how = replace(budget.needles, seed=seed)
        one = Asked(trained(WarmStart(config, first), how, Needles(n_ctx=n_ctx)), budget)
        for stretch, extension in one.stretches.items():
            found[stretch][arm] = one.read(extension)
    return found


def jobs(budget: Budget) -> Sequence[tuple[str, ...]]:
    """The long one first."""
    return [(WHY,), *((SIZES, name) for name in MODELS)]


def headline(found: dict[str, Any]) -> str:
    """Accuracy at the longest length."""
    arms = found[PLAIN] if PLAIN in found else found["help"][PLAIN]["nothing"]
    return ", ".join(f"{arm} {[*rows.values()][-1]['accuracy']:.2f}" for arm, rows in arms.items())


EXPERIMENT = Experiment(
    slug="needles",
    question="Why are needles lost beyond the trained length, under RoPE and under RoVE?",
    budget=CPU,
    gpu_budget=GPU,
    run=run,
    jobs=jobs,
    headline=headline,
    config=lambda budget: described(budget) | {"sizes": described(MODELS)},
)

if __name__ == "__main__":
    EXPERIMENT.command_line()
