"""experiments/retrieval.py in miniature, and what its record holds."""

import json
from dataclasses import replace

import pytest
import torch
from experiment_scripts import ROOT, as_recorded, names, script

from rove_lab.experiment import described
from rove_lab.model import GPT
from rove_lab.needles import Needles
from rove_lab.records import open_record
from rove_lab.rotary import RotaryEmbedding, YarnScaling

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
        every = {*range(how.log_every, how.steps + 1, how.log_every), how.steps}
        return {str(step): {"nats": None} for step in sorted(every)}

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


def test_within_the_window_yarn_is_off(retrieval, monkeypatch):
    budget = miniature(retrieval)
    model = GPT(budget.model).eval()
    extended = []

    def accuracy_by_length(model, goal, lengths, *, extension, **how):
        extended.extend(lengths if extension else [])
        return dict.fromkeys(lengths, 0.25 if extension else 0.5)

    monkeypatch.setattr(retrieval, "accuracy_by_length", accuracy_by_length)
    found = retrieval.asked(model, Needles(), budget)
    assert extended == [128]
    rows = {name: [row["accuracy"] for row in of.values()] for name, of in found.items()}
    assert rows == {retrieval.PLAIN: [0.5, 0.5], "YaRN, beta_fast 4": [0.5, 0.25]}


def test_the_committed_record_is_what_the_script_would_write(retrieval):
    record = open_record("retrieval")
    budget = retrieval.EXPERIMENT.budget
    assert record.config == as_recorded(described(budget), record.config)
    assert names(record.values) == expected_names(retrieval, budget)
    assert len(record.seeds) >= 3
    assert not record.commit.endswith("dirty")


def words_of(name):
    cells = json.loads((ROOT / "book" / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    return " ".join(" ".join("".join(cell["source"]) for cell in cells).split())


def signed(number, digits=3):
    return f"{number:.{digits}f}".replace("-", "−")


def test_the_chapter_says_what_the_record_holds():
    record = open_record("retrieval")
    words, values = words_of("12_retrieval"), record.values
    tasks = list(values["accuracy"])
    betas = (2, 4, 8)
    yarn = {beta: f"YaRN, beta_fast {beta}" for beta in betas}

    def at(task, stretch, arm, times):
        return torch.tensor(values["accuracy"][task][stretch][arm][f"{times} ×"]["accuracy"])

    def apart(task, stretch, times, arm="RoVE"):
        return at(task, stretch, arm, times) - at(task, stretch, "RoPE", times)

    def mean_and_error(pairs):
        return f"{signed(pairs.mean())} ± {pairs.std() / len(pairs) ** 0.5:.3f}"

    # as long as trained
    assert len(record.seeds) == 4
    assert "the lab's record, four seeds" in words
    learned = values["in distribution"]
    for of in learned.values():
        assert min(of["needles"]["accuracy"] + of["associative recall"]["accuracy"]) > 0.996
        assert min(of["induction"]["accuracy"]) > 0.989
        assert min(of["variable tracking, 1 hop"]["accuracy"]) > 0.25
        assert max(of["variable tracking, 1 hop"]["accuracy"]) < 0.33
        assert max(of["needles"]["nats"]) < 0.027
    assert "(the largest loss of any model is 0.027)" in words
    rope, rove = (torch.tensor(learned[arm]["needles"]["nats"]) for arm in ("RoPE", "RoVE"))
    behind = rove - rope
    assert [f"{behind.min():.4f}", f"{behind.max():.3f}"] == ["0.0002", "0.005"]
    assert "behind on needles in every pair, by 0.0002 to 0.005" in words
    seconds = values["seconds a step"]
    pairs = zip(*(seconds[arm]["processor"] for arm in ("RoPE", "RoVE")), strict=True)
    ratios = [rove / rope for rope, rove in pairs]
    assert f"took {min(ratios):.2f} to {max(ratios):.2f} times RoPE's" in words

    # longer
    for task in tasks:
        assert (apart(task, "as trained", 2) > 0).all()
    assert round(apart("needles", "as trained", 2).min().item() * 192) == 1
    assert "(on needles one of them by a single needle of 192)" in words
    for task, name in (("needles", "needles"), ("associative recall", "recall")):
        rope, rove = (at(task, "as trained", arm, 8).mean() for arm in ("RoPE", "RoVE"))
        assert f"on {name} ({rove:.2f} against {rope:.2f})" in words
        assert (apart(task, "as trained", 8) < 0).all()
    rope, rove = (at("induction", "as trained", arm, 8).mean() for arm in ("RoPE", "RoVE"))
    assert f"it is not: {rove:.2f} against {rope:.2f}, with one pair of four the other" in words
    assert (apart("induction", "as trained", 8) < 0).sum() == 1
    lost = [-apart(task, "as trained", 8) for task in ("needles", "associative recall")]
    needles, recall = map(mean_and_error, lost)
    assert f"answers {needles} fewer of the needles than RoPE and {recall} fewer of" in words
    rope, rove = (at("needles", "as trained", arm, 8).mean() for arm in ("RoPE", "RoVE"))
    assert f"{rove:.3f} against {rope:.3f} ({needles})" in words
    ahead = {task: mean_and_error(apart(task, yarn[4], 8)) for task in tasks}
    assert (
        f"by {ahead['needles']} on needles (one pair of four even), "
        f"{ahead['associative recall']} on recall and {ahead['induction']} on induction" in words
    )
    assert (apart("needles", yarn[4], 8) == 0).sum() == 1
    others = [mean_and_error(apart("induction", yarn[beta], 8)) for beta in (2, 8)]
    assert f"with 2 or 8 it is {others[0]} and {others[1]}" in words

    # YaRN
    rope, rove = (
        [f"{at('needles', yarn[beta], arm, 8).mean():.3f}" for beta in betas]
        for arm in ("RoPE", "RoVE")
    )
    assert f"RoPE gets {rope[0]}, {rope[1]} and {rope[2]} of the needles" in words
    assert f"RoVE {rove[0]}, {rove[1]} and {rove[2]}." in words
    every = [apart(t, yarn[b], n).mean() for t in tasks for b in betas for n in (2, 4, 8)]
    assert len(every) == 27
    assert min(every) > 0
    agree = {
        t: sum(bool((apart(t, yarn[b], n) > 0).all()) for b in betas for n in (2, 4, 8))
        for t in tasks
    }
    assert agree == {"induction": 9, "needles": 2, "associative recall": 5}
    assert "all nine cases of induction, in five of recall and in two of needles" in words
    before, *after = (
        f"{at('needles', how, 'RoPE', 2).mean():.3f}"
        for how in ("as trained", yarn[4], yarn[8], yarn[2])
    )
    said = f"{before} of the needles become {after[0]} and {after[1]}"
    assert f"{said} with `beta_fast` 4 and 8 ({after[2]} with 2)" in words

    # planes
    won = [mean_and_error(apart(t, "as trained", 8, "RoVE, fast half")) for t in tasks]
    induction, needles, recall = won
    assert f"against RoPE on needles ({needles})" in words
    assert f"won on recall ({recall}) and induction ({induction})" in words
    for n in (2, 4, 8):
        lead = apart("needles", "as trained", n, "RoVE, fast half")
        assert lead.mean() > -lead.std() / len(lead) ** 0.5
    induction, needles, recall = (
        mean_and_error(apart(t, "as trained", 8, "RoVE, slow half")) for t in tasks
    )
    assert f"from RoPE there: {needles}, {recall} and {induction}" in words
    slow = f"{at('needles', 'as trained', 'RoVE, slow half', 8).mean():.3f}"
    assert f"loses nothing: {slow} of the needles" in words
    near = [
        f"{at('needles', 'as trained', arm, 2).mean():.3f}"
        for arm in ("RoVE", "RoVE, fast half", "RoVE, slow half")
    ]
    assert "than either half ({}; {} and {})".format(*near) in words
    for t in tasks:
        all_, slow = (at(t, "as trained", arm, 2).mean() for arm in ("RoVE", "RoVE, slow half"))
        assert all_ > slow


def test_the_planes_of_the_fast_half_that_do_not_come_round_in_training():
    turned = 63 * RotaryEmbedding(32).inv_freq / (2 * torch.pi)
    assert [*map(bool, turned[:8] < 1)] == [False] * 5 + [True] * 3
    added = (511 / 63 * turned).clamp(max=1) - turned.clamp(max=1)
    assert added.topk(3).indices.sort().values.tolist() == [6, 7, 8]
    assert added.topk(3).values.min() > 2 / 3
    assert "planes 6, 7 and 8 add most, two thirds of the circle and more" in words_of(
        "12_retrieval"
    )


def test_a_beta_of_32_is_one_of_8_in_a_window_of_64():
    frequencies = [
        RotaryEmbedding(32, scaling=YarnScaling(8.0, 64, beta_fast=beta)).inv_freq
        for beta in (8.0, 32.0)
    ]
    assert torch.equal(*frequencies)
