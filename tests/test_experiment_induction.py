"""experiments/induction.py in miniature, and what it measures."""

from dataclasses import replace

import pytest
import torch
from experiment_scripts import as_recorded, names, script

from rove_lab.experiment import described
from rove_lab.induction import Induction
from rove_lab.model import GPT
from rove_lab.records import open_record
from rove_lab.tasks import NOT_ASKED

ARMS = ("RoPE", "RoVE")


@pytest.fixture
def induction(monkeypatch):
    return script("induction", monkeypatch)


def small(module):
    task = Induction(n_symbols=4, n_ctx=16, n_segment=3)
    shapes = {
        name: module.shape(task, d_model=16, n_layers=layers, n_heads=2)
        for name, layers in {"1 layer": 1, "2 layers": 2}.items()
    }
    training = replace(module.CPU.training, steps=4, batch_size=4)
    return module.Budget(task, shapes, training, (3, 6), 2, 64, 8)


def expected_names(module, budget):
    scores = ["accuracy", *module.groups(budget), "previous token", "induction"]
    steps = range(budget.scored_every, budget.training.steps + 1, budget.scored_every)
    learned = dict.fromkeys(map(str, steps), dict.fromkeys(scores))
    clocks = dict.fromkeys(("wall", "processor"))
    of_row = {"learned": dict.fromkeys(ARMS, learned)}
    return dict.fromkeys(
        budget.shapes, of_row | {"milliseconds a step": dict.fromkeys(ARMS, clocks)}
    )


def test_it_trains_a_pair_of_every_shape_and_scores_it(induction, capsys):
    budget = small(induction)
    record = induction.EXPERIMENT.record(budget, [0, 1, 2])
    assert names(record.values) == expected_names(induction, budget)
    assert record.config == described(budget)
    assert "[6/6] " in capsys.readouterr().out
    rope, rove = record.values["2 layers"]["learned"].values()
    assert rope["4"] != rove["4"]


def test_the_committed_record_is_what_the_script_would_write(induction):
    record, budget = open_record("induction"), induction.EXPERIMENT.budget
    assert record.config == as_recorded(described(budget), record.config)
    assert names(record.values) == expected_names(induction, budget)


@pytest.mark.parametrize("which", ["CPU", "GPU"])
def test_the_groups_are_all_distances_there_are(induction, which):
    budget = getattr(induction, which)
    first, *_, last = induction.groups(budget).values()
    assert (first[0], last[1]) == (
        budget.task.n_segment,
        budget.task.n_ctx + 1 - budget.task.n_segment,
    )
    if which == "CPU":
        _, _, back = induction.held_out(budget)
        assert (back.min(), back.max()) == (first[0], last[1])


class Oracle(torch.nn.Module):
    """Says what followed the last time; where nothing did, or far back, what is no answer."""

    def __init__(self, d_vocab, most):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.d_vocab, self.most = d_vocab, most

    def forward(self, tokens):
        said = torch.full_like(tokens, self.d_vocab - 1)
        for row, sequence in enumerate(tokens.tolist()):
            for at, token in enumerate(sequence):
                before = [j for j in range(max(0, at - self.most), at) if sequence[j] == token]
                if before:
                    said[row, at] = sequence[before[-1] + 1]
        return torch.nn.functional.one_hot(said, self.d_vocab).float()


def test_accuracy_is_the_share_said_right_by_distance(induction):
    budget = small(induction)
    found = induction.answers(Oracle(budget.task.d_in, 5), budget)
    assert found["3 to 5 back"] == 1
    assert found["6 to 14 back"] == 0
    assert 0 < found["accuracy"] < 1
    assert induction.answers(Oracle(budget.task.d_in, 99), budget)["accuracy"] == 1


def test_heads_are_scored_where_the_answer_stood(induction):
    budget = small(induction)
    torch.manual_seed(0)
    model = GPT(budget.shapes["2 layers"])
    found = induction.heads(model, budget)
    inputs, targets, _ = induction.held_out(budget)
    inputs, targets = inputs[: budget.n_looked_at], targets[: budget.n_looked_at]
    patterns = induction.gpt_patterns(model, inputs)
    looks, before = [], []
    for row, at in (targets != NOT_ASKED).nonzero().tolist():
        latest = max(j for j in range(at) if inputs[row, j] == inputs[row, at])
        looks.append(patterns[:, row, :, at, latest + 1])
        if at + 1 < budget.task.n_ctx:
            before.append(patterns[:, row, :, at + 1, at])
    assert found["induction"] == pytest.approx(torch.stack(looks).mean(0).max().item())
    assert found["previous token"] == pytest.approx(torch.stack(before).mean(0).max().item())
