"""Chapter 11's section on other shapes, and the log: what they say stands in the record."""

import json

import pytest
import torch
from experiment_scripts import ROOT

from rove_lab.records import open_record

RECORD = open_record("shapes")
LENGTHS = {"within": 0, "four times": 1, "sixteen times": 2}


def ahead(table):
    """RoPE less RoVE, shape to [seed, length]."""
    found = {}
    for shape in RECORD.values:
        loss = RECORD.curves(shape, table, score="nats per byte")
        found[shape] = torch.tensor(loss["RoPE"]) - torch.tensor(loss["RoVE"])
    return found


def span(of_shapes, length):
    """The least and the most of the means over seeds, and in how many pairs RoVE is ahead."""
    at = torch.stack([*of_shapes.values()])[..., LENGTHS[length]]
    return at.mean(1).min(), at.mean(1).max(), int((at > 0).sum())


@pytest.fixture(scope="module")
def words():
    cells = json.loads((ROOT / "book" / "11_length.ipynb").read_text(encoding="utf-8"))["cells"]
    return " ".join(" ".join("".join(cell["source"]) for cell in cells).split())


@pytest.fixture(scope="module")
def logged():
    text = (ROOT / "results" / "LOG.md").read_text(encoding="utf-8")
    (entry,) = [part for part in text.split("\n- ") if "`shapes`:" in part.partition("\n")[0]]
    return " ".join(entry.split())


@pytest.mark.parametrize(
    ("table", "length", "form", "short"),
    [
        ("plain", "within", "by {:.3f} to {:.3f} within the window ({} of 18 pairs)", "at 1 x"),
        ("plain", "four times", "by {:.3f} to {:.3f} at four times it ({} of 18)", "at 4 x"),
        ("plain", "sixteen times", "{:.3f} to {:.3f}, but only {} of the 18 pairs", "at 16 x"),
        ("YaRN", "four times", "{:.3f} to {:.3f} at four times, in all {} pairs", "chosen, at 4 x"),
        ("YaRN", "sixteen times", "{:.3f} to {:.3f} at sixteen ({} of 18)", "18 pairs; at 16 x"),
    ],
)
def test_they_say_how_far_rove_is_ahead(table, length, form, short, words, logged):
    least, most, pairs = span(ahead(table), length)
    assert least > 0
    assert form.format(least, most, pairs) in words
    by = f"{short} by {least:.3f} to {most:.3f}".replace("0.", ".")
    assert by in logged
    assert f"{pairs} pairs" in logged or f"({pairs} of 18" in logged


def test_they_say_where_a_pair_is_behind(words, logged):
    at_sixteen = {shape: int((of[:, 2] > 0).sum()) for shape, of in ahead("plain").items()}
    assert [shape for shape, pairs in at_sixteen.items() if pairs == 3] == ["2 layers, 2 heads"]
    assert {*at_sixteen.values()} == {2, 3}
    assert "with two layers of two heads all three, in each other shape one pair is behind" in words
    assert "one pair of three is behind in five of the six shapes" in logged
    four = span(ahead("plain"), "four times")[2], span(ahead("YaRN"), "four times")[2]
    assert "in {} of all 18 pairs and with YaRN in {}".format(*four) in words


def test_they_say_what_three_pairs_cannot_show(words, logged):
    plain = ahead("plain")
    means = {shape: of[:, 1].mean() for shape, of in plain.items()}
    assert max(means, key=means.get) == "4 layers, 4 heads"
    deep = plain["4 layers, 4 heads"]
    error = deep.std(0) / 3**0.5
    assert f"has a standard error of {error[1]:.3f}" in words
    said = "({:.3f}, standard error {:.3f}; {:.3f}, {:.3f})"
    numbers = deep[:, 1].mean(), error[1], deep[:, 2].mean(), error[2]
    assert said.format(*numbers).replace("0.", ".") in logged
    assert (deep[:, 1:] < 0).sum(0).tolist() == [1, 1]


def test_the_chapter_says_what_its_own_shape_does_after_fewer_steps(words):
    means = {shape: of[:, 1].mean() for shape, of in ahead("plain").items()}
    own = ahead("plain")["2 layers, 4 heads"][:, 1]
    assert min(means, key=means.get) == "2 layers, 4 heads"
    said = f"{own.mean():.3f} ± {own.std() / 3**0.5:.3f}, one pair behind"
    assert f"least of all at four times the window, {said}" in words
    assert (own < 0).sum() == 1
    loss = open_record("length").curves("pair", "plain", score="nats per byte")
    longer = (torch.tensor(loss["RoPE"]) - torch.tensor(loss["RoVE"]))[:, 2].mean()
    assert f"where four pairs had {longer:.2f} after 800" in words


def test_they_say_what_a_step_takes(words, logged):
    ratios = torch.tensor(
        [
            [
                after / before
                for before, after in zip(
                    *(arm["processor seconds a step"] for arm in of["training"].values()),
                    strict=True,
                )
            ]
            for of in RECORD.values.values()
        ]
    )
    said = f"takes {ratios.min():.2f} to {ratios.max():.2f}"
    assert said in words
    assert f"{said} of RoPE's processor time" in logged
