"""experiments/induction_heads.py in miniature, and what it measures."""

from dataclasses import replace

import pytest
import torch
from experiment_scripts import as_recorded, names, script

from rove_lab.experiment import described
from rove_lab.induction import Induction
from rove_lab.model import GPT
from rove_lab.records import open_record
from rove_lab.tasks import NOT_ASKED


@pytest.fixture
def heads(monkeypatch):
    return script("induction_heads", monkeypatch)


def small(module):
    task = Induction(n_symbols=4, n_ctx=16, n_segment=3)
    model = replace(module.CPU.model, d_vocab=task.d_in, n_ctx=16, d_model=16)
    training = replace(module.CPU.training, steps=4, batch_size=4)
    return module.Budget(task, model, training, 2, 16)


def expected_names(budget):
    scores = [f"{n} back" for n in range(budget.task.n_segment)] + ["first", "last", "only"]
    steps = range(budget.scored_every, budget.training.steps + 1, budget.scored_every)
    return dict.fromkeys(("RoPE", "RoVE"), dict.fromkeys(map(str, steps), dict.fromkeys(scores)))


def test_it_trains_pairs_and_looks_at_them(heads, capsys):
    budget = small(heads)
    record = heads.EXPERIMENT.record(budget, [0, 1, 2])
    assert names(record.values) == expected_names(budget)
    assert record.config == described(budget)
    assert "[3/3] seed 2: RoPE, 1 back: 0." in capsys.readouterr().out


def test_the_committed_record_is_what_the_script_would_write(heads):
    record, budget = open_record("induction_heads"), heads.EXPERIMENT.budget
    assert record.config == as_recorded(described(budget), record.config)
    assert names(record.values) == expected_names(budget)


def test_places_and_shares_are_those_found_by_reading(heads):
    budget = small(heads)
    torch.manual_seed(0)
    model = GPT(budget.model)
    inputs, targets = next(budget.task.batches(16, heads.HELD_OUT_SEED))
    patterns = heads.gpt_patterns(model, inputs)
    first, last, several = [], [], []
    for row, at in (targets != NOT_ASKED).nonzero().tolist():
        stood = [j for j in range(at) if inputs[row, j] == inputs[row, at]]
        assert inputs[row, stood[0] + 1] == inputs[row, stood[-1] + 1] == targets[row, at]
        first.append(patterns[-1, row, :, at, stood[0] + 1])
        last.append(patterns[-1, row, :, at, stood[-1] + 1])
        several.append(len(stood) > 1)
    first, last, several = torch.stack(first), torch.stack(last), torch.tensor(several)
    found = heads.looks(model, budget)
    head = (first + last)[several].mean(0).argmax()
    assert found["first"] == pytest.approx(first[several].mean(0)[head].item())
    assert found["last"] == pytest.approx(last[several].mean(0)[head].item())
    assert found["only"] == pytest.approx(first[~several].mean(0)[head].item())
    reads = max(range(2), key=lambda h: patterns[0, :, h, 2, 1].mean().item())
    for n in range(3):
        expected = patterns[0, :, reads, 2, 2 - n].mean().item()
        assert found[f"{n} back"] == pytest.approx(expected)
