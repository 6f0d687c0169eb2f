"""The pair of byte models that comes with the package: RoPE and RoVE, trained alike.

Run it from a clone: `python experiments/byte_pair.py`. Both start from the same weights and see the
same batches, side by side with one thread each, about 10 minutes of two idle cores. It writes the
two models into rove_lab/byte_models/ and results/byte_pair/record.json. One seed: a pair to take
apart, not a comparison; results/training has the seeds that one needs.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from rove_lab.checkpoints import save_model, sha256
from rove_lab.data import standard_library
from rove_lab.evaluation import held_out_scores, loss_by_position
from rove_lab.experiment import Experiment, described
from rove_lab.matched_pairs import rope_and_rove
from rove_lab.model import GPT, GPTConfig
from rove_lab.training import TrainConfig, train
from rove_lab.training_time import seconds_a_step

ROOT = Path(__file__).resolve().parents[1]
# The standard library differs from Python to Python; what the models say of this does not.
PROBE = "def total(values):\n    total = 0\n    for value in values:\n        total += value\n"


@dataclass(frozen=True)
class Budget:
    """Two models, how they are trained, and where they are written."""

    models: dict[str, GPTConfig]
    training: TrainConfig
    folder: str  # from the root of the checkout


def arms(preset: str) -> dict[str, GPTConfig]:
    """The two models of a named size."""
    return {
        f"byte-{name.lower()}": config
        for name, config in rope_and_rove(GPTConfig.preset(preset)).items()
    }


CPU = Budget(
    arms("tiny"),
    TrainConfig(
        steps=4500,
        batch_size=16,
        learning_rate=2e-3,
        final_rate=0.1,
        warmup_steps=100,
        log_every=100,
    ),
    "rove_lab/byte_models",
)
GPU = Budget(
    arms("small"),
    replace(CPU.training, steps=20_000, batch_size=64, learning_rate=1e-3, warmup_steps=500),
    "_build/byte_models",
)


def jobs(budget: Budget) -> list[tuple[str, ...]]:
    """One a model."""
    return [(name,) for name in budget.models]


def run(budget: Budget, name: str, seed: int) -> dict[str, Any]:
    """Train one model, write it, and score what was written."""
    if budget.folder == CPU.folder and budget != CPU:
        raise ValueError(
            f"expected another folder for another budget, got {budget.folder}: the package's own "
            "models would be lost. Add --folder, and --change 'folder=\"_build/byte_models\"'."
        )
    config = budget.models[name]
    text = standard_library(config.n_ctx)
    how = replace(budget.training, seed=seed)
    one = train(config, how, text.train, progress=False)
    if one.interrupted or not isinstance(one.model, GPT):
        raise KeyboardInterrupt
    save_model(one.model, ROOT / budget.folder / (f"{name}-{seed}" if seed else name))
    probe = torch.tensor([list(PROBE.encode())])
    return {
        "curve": {str(step): loss for step, loss in zip(one.steps, one.losses, strict=True)},
        "held out": held_out_scores(one.model, text.held_out),
        "training": {"nats per byte": one.losses[-1]},
        "probe": {"nats per byte": loss_by_position(one.model, probe).mean().item()},
        "seconds a step": seconds_a_step(one),
    }


def config(budget: Budget) -> dict[str, Any]:
    """What was set, what was read, and by which marks the files are known."""
    text = standard_library(next(iter(budget.models.values())).n_ctx)
    return {
        **described(budget),
        "text": {
            "what": "the standard library's sources as bytes, split by file",
            **{
                part: {
                    "bytes": len(found.bytes),
                    "sha256": hashlib.sha256(found.bytes.numpy().tobytes()).hexdigest(),
                }
                for part, found in zip(("train", "held out"), text, strict=True)
            },
        },
        "probe": PROBE,
        "sha256": {
            name: sha256(ROOT / budget.folder / name / "model.safetensors")
            for name in budget.models
        },
    }


EXPERIMENT = Experiment(
    slug="byte_pair",
    question="Which RoPE and RoVE byte models, trained alike, come with the package?",
    kind="checkpoint",
    budget=CPU,
    gpu_budget=GPU,
    jobs=jobs,
    run=run,
    config=config,
    headline=lambda found: f"{found['held out']['nats per byte']:.3f} nats per byte held out",
    seeds=1,
)

if __name__ == "__main__":
    EXPERIMENT.command_line()
