"""A whole training step of a GPT of GPT-2's 124 million parameters, and the memory at its peak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import accumulate

import torch
from paired import DEVICE, Scores, interleaved, milliseconds, ratio, rounded
from torch import nn
from torch.nn.functional import cross_entropy
from torch.profiler import ProfilerActivity, profile

from rove_lab.model import GPT, GPTConfig

SHAPE = GPTConfig.preset("gpt2-124m")


def trained(config: GPTConfig, batch_size: int) -> Callable[[], None]:
    """A model on the device, and one step of training it: forward, backward, clip, AdamW."""
    torch.manual_seed(0)
    model = GPT(config).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, config.d_vocab, (batch_size, config.n_ctx + 1), device=DEVICE)

    def step() -> None:
        with torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda"):
            logits = model(tokens[:, :-1])
        loss = cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def measured(config: GPTConfig, batch_size: int, budget: float) -> dict[str, Scores]:
    """The step of both, paired, and the peak of each: milliseconds, megabytes and ratios.

    Args:
        config: The model's sizes; whether values turn is set here.
        batch_size: Sequences of a step.
        budget: Seconds for the rounds.

    Returns:
        Rows by name.
    """
    configs = {name: replace(config, rotate_values=name == "RoVE") for name in ("RoPE", "RoVE")}
    builds = {name: partial(trained, each, batch_size) for name, each in configs.items()}
    peaks = {name: peak_bytes(build) for name, build in builds.items()}
    times = interleaved({name: build() for name, build in builds.items()}, budget)
    found = milliseconds(times) | ratio(times, "RoVE", "RoPE")
    for name, peak in peaks.items():
        found[name]["peak MB"] = rounded(peak / 1e6)
    return found | {"RoVE / RoPE, peak memory": {"ratio": rounded(peaks["RoVE"] / peaks["RoPE"])}}


def peak_bytes(build: Callable[[], Callable[[], None]]) -> float:
    """The most bytes that torch held at once, from the model's making to its second step.

    Counted allocation by allocation: what a process has resident depends on its allocator's past.
    """
    if DEVICE == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before, step = torch.cuda.memory_allocated(), build()
        step(), step()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        step = build()
        step(), step()
    events = sorted(seen.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    return max(accumulate(event.nbytes() for event in events if event.name() == "[memory]"))
