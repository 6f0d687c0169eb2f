"""experiments/retrieval.py in miniature, and what its record holds."""

from dataclasses import replace

import pytest
from experiment_scripts import as_recorded, names, script

from rove_lab.experiment import described
from rove_lab.model import GPT
from rove_lab.needles import Needles
from rove_lab.records import open_record

FEW = {"steps": 2, "batch_size": 4, "log_every": 1, "warmup_steps": 0}


@pytest.fixture
def retrieval(monkeypatch):
    return script("retrieval", monkeypatch)


def miniature(module):
    budget = module.CPU
    return replace(
        budget,
        model=replace(budget.model, d_model=16, n_layers=1),
        induction=replace(budget.induction, **FEW),
        task=replace(budget.task, **FEW),
        goals={"needles": Needles()},
        times=(1, 2),
        beta_fast=(4.0,),
        n_sequences=32,
    )


def expected_names(module, budget):
    asked = [module.INDUCTION, *budget.goals]
    tasks = [*asked, *budget.tries]
    arms = list(module.arms(budget.model))
    stretches = [module.PLAIN, *(f"YaRN, beta_fast {beta:g}" for beta in budget.beta_fast)]
    rows = {f"{times} ×": {"accuracy": None} for times in budget.times}

    def curve(how):
        every = range(how.log_every, how.steps + 1, how.log_every)
        return {str(step): {"nats": None} for step in every}

    curves = {name: curve(budget.task) for name in tasks}
    curves[module.INDUCTION] = curve(budget.induction)
    return {
        "accuracy": {
            name: {stretch: dict.fromkeys(arms, rows) for stretch in stretches} for name in asked
        },
        "in distribution": {
            key: {key: {"nats": None, "accuracy": None} for key in tasks} for key in arms
        },
        "curve": {name: dict.fromkeys(arms, curves[name]) for name in tasks},
        "seconds a step": {key: {"processor": None, "wall": None} for key in arms},
    }


def test_it_trains_every_arm_on_every_task(retrieval):
    budget = miniature(retrieval)
    record = retrieval.EXPERIMENT.record(budget, seeds=[0, 1, 2])
    assert names(record.values) == expected_names(retrieval, budget)
    assert record.config == described(budget)


def test_the_arms_differ_in_the_planes_of_their_values_alone(retrieval):
    arms = retrieval.arms(retrieval.CPU.model)
    assert [arm.rotate_values for arm in arms.values()] == [False, True, True, True]
    fast, slow = (arms[f"RoVE, {half} half"].value_planes for half in ("fast", "slow"))
    assert fast + slow == (*range(16),)
    plain = [replace(arm, rotate_values=True, value_planes=None) for arm in arms.values()]
    assert len({*plain}) == 1


def test_within_the_window_yarn_is_off(retrieval):
    budget = miniature(retrieval)
    model = GPT(budget.model).eval()
    found = retrieval.asked(model, Needles(), budget)
    assert found["YaRN, beta_fast 4"]["1 ×"] == found[retrieval.PLAIN]["1 ×"]


def test_the_committed_record_is_what_the_script_would_write(retrieval):
    record = open_record("retrieval")
    budget = retrieval.EXPERIMENT.budget
    assert record.config == as_recorded(described(budget), record.config)
    assert names(record.values) == expected_names(retrieval, budget)
    assert len(record.seeds) >= 3
    assert not record.commit.endswith("dirty")
