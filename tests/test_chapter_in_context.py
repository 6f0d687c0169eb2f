"""Chapter 13 says of induction and of functions what its records hold."""

import json
from pathlib import Path

import pytest
import torch

from rove_lab.induction import Induction
from rove_lab.learning_curves import first_reached
from rove_lab.records import open_record

ROOT = Path(__file__).resolve().parent.parent
ARMS = ("RoPE", "RoVE")
SHAPE = "2 layers, 2 heads"


@pytest.fixture(scope="module")
def words():
    """The chapter's text, its spaces single."""
    text = (ROOT / "book" / "13_in_context.ipynb").read_text(encoding="utf-8")
    cells = json.loads(text)["cells"]
    return " ".join(" ".join("".join(cell["source"]) for cell in cells).split())


@pytest.fixture(scope="module")
def induction():
    return open_record("induction")


@pytest.fixture(scope="module")
def ways():
    return open_record("in_context").values


def means(*numbers):
    return [torch.tensor(some, dtype=torch.float64).mean().item() for some in numbers]


def reached(record, shape, level):
    at = [int(step) for step in record.values[shape]["learned"]["RoPE"]]
    curves = record.curves(shape, "learned", score="accuracy")
    return [first_reached(at, curves[arm], level) for arm in ARMS]


def slower(record, shape):
    rope, rove = (
        torch.tensor(record.values[shape]["milliseconds a step"][arm]["processor"]) for arm in ARMS
    )
    return rove / rope


# Induction


def test_when_it_forms(induction, words):
    assert len(induction.seeds) == 4
    steps = induction.values[SHAPE]["learned"]
    rope, rove = means(*(steps[arm]["260"]["accuracy"] for arm in ARMS))
    assert (
        f"they are right in {rove:.0%} of the answers, the others in {rope:.0%}".replace("%", " %")
        in words
    )
    assert [f"{mean:.2f}" for mean in means(*(steps[arm]["600"]["accuracy"] for arm in ARMS))] == [
        "0.99",
        "1.00",
    ]
    apart = [
        rove - rope
        for rope, rove in zip(
            *(means(*(step["accuracy"] for step in steps[arm].values())) for arm in ARMS),
            strict=True,
        )
    ]
    assert f"can be anything from nothing to {max(apart):.2f}." in words
    half, most = reached(induction, SHAPE, 0.5), reached(induction, SHAPE, 0.97)
    assert max(half[1]) < min(half[0])
    assert max(most[1]) < min(most[0])
    assert (
        f"RoVE takes {half[1].mean():.0f} steps to one half in the mean, RoPE "
        f"{half[0].mean():.0f}; to 97 % it is {most[1].mean():.0f} and {most[0].mean():.0f}."
    ) in words


def test_steps_and_seconds(induction, words):
    ratios = slower(induction, SHAPE)
    assert f"take {ratios.min():.2f} to {ratios.max():.2f} times as long" in words
    less, seconds = [], []
    for level in (0.5, 0.97):
        rope, rove = reached(induction, SHAPE, level)
        less.append(100 * (1 - rove / rope))
        seconds.append(100 * (1 - rove / rope * ratios))
    assert [f"{some.mean():.0f}" for some in less] == ["22", "22"]
    assert f"22 % fewer steps, {min(map(min, less)):.0f} to {max(map(max, less)):.0f} % in" in words
    half, most = seconds
    assert f"in seconds is {half.mean():.0f} % to one half and {most.mean():.0f} % to 97" in words
    least = min(half.min(), most.min())
    assert f"and {least:.0f} % in the pair that gains least" in words
    assert f"between -{least:.0f} and -{max(half.max(), most.max()):.0f}" in words.replace(
        '" "', ""
    )
    errors = [f"{some.std() / 2:.0f}" for some in seconds]
    assert f"({errors[0]} % and {errors[1]} % of the seconds)" in words


def test_heads_and_depth(induction, words):
    learned = [name for name in induction.values if name != "1 layer, 2 heads"]
    assert len(learned) == 4
    fewer = {}
    for name in learned:
        for level in (0.5, 0.97):
            rope, rove = reached(induction, name, level)
            assert (rove / rope * slower(induction, name) < 1).all()
            fewer.setdefault(name, 100 * (1 - rove / rope).mean())
    said = [fewer[name] for name in ("2 layers, 4 heads", SHAPE, "2 layers, 1 head", learned[-1])]
    told = (
        "{:.0f} % fewer steps with four heads, {:.0f} % with two, {:.0f} % with one and {:.0f} % w"
    )
    assert told.format(*said) in words
    (rope, rove), (rope_2, rove_2) = (
        reached(induction, name, 0.5) for name in ("3 layers, 2 heads", SHAPE)
    )
    assert f"({rope.mean():.0f} steps instead of {rope_2.mean():.0f})" in words
    assert f"({rove.mean():.0f} instead of {rove_2.mean():.0f})" in words
    single = induction.values["1 layer, 2 heads"]["learned"]
    last = [score for arm in ARMS for score in single[arm]["600"]["accuracy"]]
    assert f"({min(last):.2f} to {max(last):.2f}, a guess)" in words


def test_where_heads_look(induction, words):
    heads = open_record("induction_heads").values
    before = {arm: heads[arm]["600"]["1 back"] for arm in ARMS}
    rope, rove = means(*before.values())
    spread = [f"{min(some):.2f} to {max(some):.2f}" for some in before.values()]
    assert f"ends with {rope:.2f} on the token before ({spread[0]})" in words
    assert f"ends with {rove:.2f} ({spread[1]})" in words
    rest = means(*(heads["RoVE"]["600"][f"{n} back"] for n in (0, 2, 7)))
    told = "itself ({:.2f}), the one two back ({:.2f}) and the first of the sequence, seven"
    assert f"{told.format(*rest[:2])} back ({rest[2]:.2f})" in words
    itself = means(heads["RoVE"]["280"]["0 back"])[0]
    assert f"theirs has 0.44 there, and {itself:.2f} on the token itself" in words
    later = [induction.values[SHAPE]["learned"][arm]["600"]["previous token"] for arm in ARMS]
    assert "than {:.2f} in the mean under RoPE, {:.2f} under RoVE".format(*means(*later)) in words
    for arm, step, accuracy, sharp in (("RoPE", "360", 91, "0.65"), ("RoVE", "280", 92, "0.44")):
        right, looks = means(
            induction.values[SHAPE]["learned"][arm][step]["accuracy"], heads[arm][step]["1 back"]
        )
        assert f"{100 * right:.0f}" == str(accuracy)
        assert f"{looks:.2f}" == sharp
        assert f"{accuracy} %, at step {step}, the" in words
        assert sharp in words
    for arm in ARMS:
        first, last = heads[arm]["600"]["first"], heads[arm]["600"]["last"]
        assert min(first) > 0.88
        assert max(last) < 0.03


def test_the_trap_of_the_first_exercise(words):
    task = Induction()
    tokens, targets = next(task.batches(1024, seed=0))
    back = (tokens[:, 1:] == tokens[:, :1]).int().argmax(1) + 1
    asked = targets >= 0
    right = {}
    for period in range(8, 58):
        said = torch.full_like(targets, -1)
        said[:, period - 1 :] = tokens[:, : tokens.shape[1] - period + 1]
        right[period] = (said == targets) & asked
    shares = {period: (of.sum() / asked.sum()).item() for period, of in right.items()}
    assert max(shares, key=shares.get) == 24
    assert f"24, is right in {100 * shares[24]:.0f} % here" in words
    by_period = {
        n: (right[24][back == n].sum() / asked[back == n].sum()).item() for n in range(8, 58)
    }
    assert {n for n, share in by_period.items() if share > 0} == {8, 12, 24}
    assert by_period[24] == 1
    assert min(by_period[8], by_period[12]) > 0.5


# Functions


def test_functions(ways, words):
    learned, shortcuts = ways["functions"]["learned"], ways["functions"]["shortcuts"]
    both = shortcuts["the same input's class, else the rarer"]
    assert f"are right in {both['all'][0]:.0%} of the".replace("%", " %") in words
    last = {arm: learned[arm]["1600"] for arm in ARMS}
    ahead = torch.tensor(last["RoVE"]["all"]) - torch.tensor(last["RoPE"]["all"])
    assert (
        f"ahead by {ahead.min():.2f} to {ahead.max():.2f}, in the mean by {ahead.mean():.2f} (s"
        in (words)
    )
    assert f"(standard error {ahead.std() / 2:.2f})" in words
    above = [score > both["all"][0] for arm in ARMS for score in last[arm]["all"]]
    assert above == [False] * 4 + [True] + [False] * 3
    assert f"RoVE's of seed 0 with {last['RoVE']['all'][0]:.2f}" in words
    slow = last["RoPE"]["all"][1:]
    early = learned["RoPE"]["100"]["all"][1:]
    assert (
        f"at {min(slow):.2f} to {max(slow):.2f} and had {min(early):.2f} to {max(early):.2f}"
        in words
    )
    before, after = learned["RoVE"]["1200"]["all"], last["RoVE"]["all"]
    rises = sorted(b - a for a, b in zip(before, after, strict=True))
    assert (
        "rise to the end (by {:.2f} and {:.2f} in the last 400 steps)".format(*rises[2:]) in words
    )
    assert max(rises[:2]) < 0.03
    ratios = [
        f"{b / a:.2f}"
        for a, b in zip(
            *(ways["functions"]["milliseconds a step"][arm]["processor"] for arm in ARMS),
            strict=True,
        )
    ]
    assert set(ratios) == {"1.07"}


def test_examples_seen_and_new(ways, words):
    learned = ways["functions"]["learned"]
    last = {arm: learned[arm]["1600"] for arm in ARMS}
    gains = {
        arm: [b - a for a, b in zip(of["4 examples"], of["10 examples"], strict=True)]
        for arm, of in last.items()
    }
    spread = {arm: f"{min(some):.2f} to {max(some):.2f}" for arm, some in gains.items()}
    assert f"to the tenth, {spread['RoPE']}. RoVE gains {spread['RoVE']}." in words
    seen = {arm: of["seen before"] for arm, of in last.items()}
    said = [f"{min(some):.2f} to {max(some):.2f}" for some in seen.values()]
    assert f"RoVE has {said[1]}, RoPE {said[0]}." in words
    shortcut = ways["functions"]["shortcuts"]["the rarer class"]["new"][0]
    assert f"Where it is new the shortcut has {shortcut:.2f}" in words
    low, *just, best = sorted(last["RoVE"]["new"])
    assert low < shortcut < just[0]
    assert f"just above that ({just[0]:.2f}), one is below ({low:.2f})" in words
    assert f"one follows the rule ({best:.2f})" in words
    assert [score > shortcut for score in last["RoPE"]["new"]] == [True, False, False, False]
    assert f"the same seed's ({last['RoPE']['new'][0]:.2f})" in words
    lead, seen, new = (
        torch.tensor(last["RoVE"][inputs]) - torch.tensor(last["RoPE"][inputs])
        for inputs in ("all", "seen before", "new")
    )
    assert (new > 0).all()
    assert f"RoVE leads by {new.mean():.2f} ± {new.std() / 2:.2f}, in each of four" in words
    asked = ((lead - new) / (seen - new)).mean()  # the share of questions asked before
    assert asked == pytest.approx(0.48, abs=0.01)  # "nearly half of the questions"
    assert asked * seen.mean() / lead.mean() == pytest.approx(2 / 3, abs=0.03)
