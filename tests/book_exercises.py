"""The exercises of the book as its notebooks hold them, and the chapters' code up to them."""

import contextlib
import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = sorted((ROOT / "book").glob("*.ipynb"))
DIRECTIVE = re.compile(r"^`{3,}\{(exercise|solution-start|solution-end)\} ?(.*)$", re.MULTILINE)
LABEL = re.compile(r"^:label: (\S+)$", re.MULTILINE)


@dataclass
class Exercise:
    """One exercise: its label, the code cells of its answer, those of its hidden solution."""

    chapter: Path
    label: str
    answer: list[str] = field(default_factory=list)
    solution: list[str] = field(default_factory=list)
    solved: bool = False

    @property
    def check(self) -> str:
        """The last line of the answer cell, ``check_something(name)``."""
        return self.answer[-1].splitlines()[-1]

    @property
    def name(self) -> str:
        """What the reader writes."""
        return re.fullmatch(r"check_\w+\((\w+)\)", self.check)[1]


@dataclass
class Chapter:
    """The code of a chapter that is in no exercise, and its exercises."""

    code: list[str]
    exercises: list[Exercise]


def read_chapter(path: Path) -> Chapter:
    """Sort a notebook's code cells by the directives between them."""
    chapter = Chapter([], [])
    current: list[str] = chapter.code
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            current.append(source)
            continue
        for found in DIRECTIVE.finditer(source):
            kind, words = found.groups()
            if kind == "exercise":
                label = LABEL.search(source, found.end())[1]
                chapter.exercises.append(Exercise(path, label))
                current = chapter.exercises[-1].answer
            elif kind == "solution-start":
                assert words == chapter.exercises[-1].label, "a solution follows its exercise"
                current = chapter.exercises[-1].solution
            else:
                chapter.exercises[-1].solved = True
                current = chapter.code
    return chapter


def said(code: str, names: dict[str, object]) -> str:
    """What code prints when it runs with these names, which it may add to."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "<cell>", "exec"), names)
    return out.getvalue()


def small_llama() -> tuple[LlamaForCausalLM, Callable[..., SimpleNamespace]]:
    """Random weights with SmolLM2's layers, heads and planes, and few other channels.

    Its tokenizer gives a token for each character.
    """
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=144,
        head_dim=64,
        intermediate_size=8,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
    )

    def tokenizer(text: str, return_tensors: str) -> SimpleNamespace:
        return SimpleNamespace(input_ids=torch.tensor([[ord(c) % 128 for c in text]]))

    return LlamaForCausalLM(config).eval(), tokenizer


def names_before_the_exercises(chapter: Chapter) -> dict[str, object]:
    """Run a chapter up to its exercises: figures undrawn, ten steps of training, a small model.

    A check looks at the reader's function alone, so what was learned does not matter to it.
    """
    from rove_lab.training import TrainConfig

    def few_steps(**_: object) -> TrainConfig:
        return TrainConfig(steps=10, batch_size=8)

    names: dict[str, object] = {}
    with pytest.MonkeyPatch.context() as patch:
        figures = ("arrows", "bands", "bars", "heatmaps", "lines", "pair_differences", "scenes")
        for figure in figures:
            patch.setattr(f"rove_lab.figures.{figure}", lambda *_, **__: None)
        patch.setattr("rove_lab.live_plot.LivePlot", lambda *_, **__: None)
        patch.setattr("rove_lab.training.TrainConfig", few_steps)
        patch.setattr("rove_lab.huggingface.load_smollm2", small_llama)
        patch.setattr("torch.set_num_threads", lambda _: None)  # of all tests in this process
        for cell in chapter.code[1:]:  # the first installs what is missing
            said(cell, names)
    names["default dtype"] = torch.get_default_dtype()
    names["gradients"] = torch.is_grad_enabled()
    return names
