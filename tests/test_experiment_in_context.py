"""experiments/in_context.py in miniature, and what it measures."""

from dataclasses import replace

import pytest
import torch
from experiment_scripts import as_recorded, names, script_on_small_files

from rove_lab.evaluation import position_groups
from rove_lab.experiment import described
from rove_lab.few_shot_tasks import SUITE
from rove_lab.in_context_functions import FunctionClassification
from rove_lab.model import GPT
from rove_lab.records import open_record

ARMS = ("RoPE", "RoVE")
TASK = FunctionClassification(n_symbols=3, n_ctx=36, n_examples=3, n_features=3, n_queries=4)


@pytest.fixture
def in_context(monkeypatch, tmp_path):
    return script_on_small_files("in_context", monkeypatch, tmp_path / "sources")


def small(module):
    functions = module.Functions(
        task=TASK,
        model=replace(module.CPU.functions.model, d_vocab=TASK.d_in, n_ctx=TASK.n_ctx, d_model=16),
        training=replace(module.CPU.functions.training, steps=4, batch_size=4),
        scored_every=2,
        n_sequences=8,
    )
    text = replace(
        module.CPU.text,
        model=replace(module.CPU.text.model, n_ctx=16, d_model=16, n_layers=1, n_heads=2),
        training=replace(module.CPU.text.training, steps=4, warmup_steps=1, log_every=2),
        scored_at=(2, 4),
        k_shots=(0, 2),
        n_questions=4,
        n_snippets=4,
        held_out_bytes=64,
        early=(2, 4),
        late=(8, 16),
    )
    return module.Budget(functions, text)


def expected_names(module, budget):
    text, functions = budget.text, budget.functions

    def each(steps, scores):
        return dict.fromkeys(ARMS, dict.fromkeys(map(str, steps), dict.fromkeys(scores)))

    of_k = each(text.scored_at, [f"k = {k}" for k in text.k_shots])
    groups = position_groups(text.model.n_ctx // 2 - 1)
    of_groups = each(text.scored_at, ["all", *groups])
    every, task = functions.scored_every, functions.task
    counts = range(task.n_examples, task.n_examples + task.n_queries)
    shares = ["all", "seen before", "new", *(f"{count} examples" for count in counts)]
    clocks = dict.fromkeys(ARMS, dict.fromkeys(("wall", "processor")))
    return {
        "text": {
            "suite": of_k,
            "tasks": dict.fromkeys((task.name for task in SUITE), of_k),
            "snippets": dict.fromkeys(
                ("text", "letters"), dict.fromkeys(("first", "again", "after another"), of_groups)
            ),
            "positions": each(text.scored_at, ("all", "early", "late", "late - early")),
            "milliseconds a step": clocks,
        },
        "functions": {
            "learned": each(range(every, functions.training.steps + 1, every), shares),
            "shortcuts": dict.fromkeys(
                ("the rarer class", "the same input's class, else the rarer"),
                dict.fromkeys(shares),
            ),
            "milliseconds a step": clocks,
        },
    }


def test_it_trains_both_pairs_and_scores_them(in_context, capsys):
    budget = small(in_context)
    record = in_context.EXPERIMENT.record(budget, [0, 1, 2])
    assert names(record.values) == expected_names(in_context, budget)
    assert record.config == described(budget)
    said = capsys.readouterr().out
    assert "text, seed 2: RoPE, k = 2: " in said
    assert "functions, seed 2: RoPE, 6 examples: " in said
    rope, rove = record.values["text"]["positions"].values()
    assert rope["4"] != rove["4"]
    tasks = [of_task["RoVE"]["4"]["k = 2"] for of_task in record.values["text"]["tasks"].values()]
    suite = record.values["text"]["suite"]["RoVE"]["4"]["k = 2"]
    mean = [sum(of_seed) / 5 for of_seed in zip(*tasks, strict=True)]
    assert suite == pytest.approx(mean, abs=2e-5)  # rounded in the record


def test_the_committed_record_is_what_the_script_would_write(in_context):
    record, budget = open_record("in_context"), in_context.EXPERIMENT.budget
    assert record.config == as_recorded(described(budget), record.config)
    assert names(record.values) == expected_names(in_context, budget)


def test_shortcuts_are_those_of_a_reader_of_the_text(in_context):
    inputs, targets = next(TASK.batches(64, seed=3))
    tokens = torch.cat((inputs, targets[:, -1:]), 1)
    seen, rarer = in_context.shortcuts(TASK, tokens)
    assert seen.shape == rarer.shape == (64, 4)
    for row, sequence in enumerate(tokens):
        words = [word for word in TASK.spell(sequence).split() if word not in "abc?"]
        items = ["".join(words[at : at + 4]) for at in range(0, len(words), 4)]
        assert len(items) == 7
        for j, item in enumerate(items[3:]):
            before = {one[:3]: one[3] for one in items[: 3 + j]}
            assert seen[row, j] == (item[:3] in before)
            ones = sum(label == "1" for label in before.values())
            zeros = len(before) - ones
            if ones == zeros:
                assert rarer[row, j] == 0.5
            else:
                assert rarer[row, j] == (("1" if ones < zeros else "0") == item[3])


def test_shares_are_over_questions_seen_and_new_and_by_number(in_context):
    right = torch.tensor([[1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 1.0]]).double()
    seen = torch.tensor([[False, False, True, True], [False, True, False, True]])
    assert in_context.shares(TASK, right, seen) == {
        "all": 0.75,
        "seen before": 1.0,
        "new": 0.5,
        "3 examples": 1.0,
        "4 examples": 0.5,
        "5 examples": 0.5,
        "6 examples": 1.0,
    }


class Repeater(torch.nn.Module):
    """Certain of what followed a byte the last time within reach, blind where nothing did."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, tokens):
        logits = torch.zeros(*tokens.shape, 256)
        for row, sequence in enumerate(tokens.tolist()):
            for at, token in enumerate(sequence):
                before = [j for j in range(at) if sequence[j] == token]
                if before:
                    logits[row, at, sequence[before[-1] + 1]] = 50.0
        return logits


def test_a_snippet_read_again_is_known_and_after_another_is_not(in_context):
    snippets = torch.stack([torch.arange(32), torch.arange(64, 96)])
    found = in_context.readings(Repeater(), snippets)
    blind = torch.tensor(256.0).log().item()
    assert found["first"]["all"] == found["after another"]["all"] == pytest.approx(blind)
    assert found["again"]["all"] == pytest.approx(0)
    assert [*found["again"]] == ["all", "1", "2", "3 to 4", "5 to 8", "9 to 16", "17 to 31"]


def test_losses_are_those_of_the_places_that_are_named(in_context):
    torch.manual_seed(0)
    config = replace(in_context.CPU.text.model, n_ctx=32, d_model=16, n_layers=1)
    model, plan = GPT(config), replace(small(in_context).text, model=config)
    snippets = in_context.held_out_snippets(in_context.standard_library(32).held_out, 3)
    assert snippets.shape == (3, 16)
    found = in_context.readings(model, snippets)
    losses = in_context.loss_by_position(model, torch.cat((snippets, snippets), 1))
    assert found["first"]["3 to 4"] == pytest.approx(losses[:, 2:4].mean().item())
    assert found["again"]["3 to 4"] == pytest.approx(losses[:, 18:20].mean().item())
    held_out = in_context.standard_library(32).held_out
    scores = in_context.late_and_early(model, held_out, plan)
    inputs, targets = next(held_out.batches(2, in_context.HELD_OUT_SEED))
    said = model(inputs).log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    assert scores["early"] == pytest.approx(-said[:, 1:3].mean().item())  # 2 and 3 bytes read
    assert scores["late"] == pytest.approx(-said[:, 7:15].mean().item())
    assert scores["late - early"] == pytest.approx(scores["late"] - scores["early"])


def test_random_letters_are_letters(in_context):
    letters = in_context.random_letters(64, 32)
    assert letters.shape == (64, 32)
    assert bytes(sorted({*letters.flatten().tolist()})) == b"abcdefghijklmnopqrstuvwxyz"
