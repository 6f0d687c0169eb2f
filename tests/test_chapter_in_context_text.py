"""Chapter 13 says of text what its record holds, and what the package's pair does live."""

import json
from pathlib import Path

import pytest
import torch

from rove_lab.data import standard_library
from rove_lab.evaluation import loss_by_position
from rove_lab.few_shot import suite_score
from rove_lab.few_shot_baselines import label_shortcut_scores, suite_error
from rove_lab.model import load_pretrained
from rove_lab.records import open_record

ROOT = Path(__file__).resolve().parent.parent
ARMS = ("RoPE", "RoVE")


@pytest.fixture(scope="module")
def words():
    """The chapter's text, its spaces single."""
    text = (ROOT / "book" / "13_in_context.ipynb").read_text(encoding="utf-8")
    cells = json.loads(text)["cells"]
    return " ".join(" ".join("".join(cell["source"]) for cell in cells).split())


@pytest.fixture(scope="module")
def ways():
    return open_record("in_context").values


def means(*numbers):
    return [torch.tensor(some, dtype=torch.float64).mean().item() for some in numbers]


def test_the_suite_is_at_chance(ways, words):
    scores = [
        score
        for of in ways["text"]["suite"].values()
        for step in of.values()
        for seeds in step.values()
        for score in seeds
    ]
    assert max(map(abs, scores)) < 0.053
    assert "All scores of the suite" in words
    assert "are within 0.053 of a guess" in words
    asked = {
        name: {4: means(of["RoVE"]["800"]["k = 4"])[0]}
        for name, of in ways["text"]["tasks"].items()
    }
    assert f"has a standard error of {suite_error(asked, 256)[4]:.3f} from its 256" in words
    shortcut = suite_score(label_shortcut_scores([4], n_questions=256))[4]
    assert f"shortcut, which would give them {shortcut:.2f}" in words


def test_snippets_read_twice(ways, words):
    snippets = ways["text"]["snippets"]

    def gain(kind, arm, step, read="all"):
        another, again = (snippets[kind][of][arm][step][read] for of in ("after another", "again"))
        return means(another)[0] - means(again)[0]

    rope, rove = (gain("text", arm, "800") for arm in ARMS)
    assert (
        f"{rope:.2f} nats per byte for text under RoPE and {rove:.2f} under RoVE, 0.01 for" in words
    )
    assert [f"{gain('letters', arm, '800'):.2f}" for arm in ARMS] == ["0.01", "0.01"]
    early = [gain("text", arm, "100") for arm in ARMS]
    assert "text had gained {:.2f} and {:.2f} as well".format(*early) in words
    late = [ways["text"]["positions"][arm]["800"]["late - early"] for arm in ARMS]
    told = [f"{-of.mean():.3f} ± {of.std() / 2:.3f}" for of in map(torch.tensor, late)]
    assert f"{told[0]} under RoPE, {told[1]} under RoVE" in words
    less = torch.tensor(late[1]) - torch.tensor(late[0])
    assert less.mean().abs() < less.std() / 2
    end = [gain("text", arm, "800", "33 to 63") for arm in ARMS]
    assert [f"{gained:.2f}" for gained in end] == ["0.04", "0.04"]
    assert "and 0.04 at the end" in words


def test_the_pair_of_the_package_knows_text_again_and_no_letters(words):
    snippets, _ = next(standard_library(n_ctx=64).held_out.batches(64, seed=0))
    letters = torch.randint(97, 123, (64, 64), generator=torch.Generator().manual_seed(0))

    def gain(model, some):
        n = some.shape[1]
        again = loss_by_position(model, torch.cat((some, some), 1))
        another = loss_by_position(model, torch.cat((some.roll(1, 0), some), 1))
        return (another - again)[:, n:].mean(1)

    assert "by 0.1 nats per byte over 64 bytes, and by 0.3 over 8" in words
    for name in ("byte-rope", "byte-rove"):
        model = load_pretrained(name)
        assert f"{gain(model, snippets[:, :8]).mean():.1f}" in ("0.3", "0.4")
        assert f"{gain(model, snippets).mean():.1f}" == "0.1"
        for n in (16, 64):
            found = gain(model, letters[:, :n])
            assert found.mean().abs() < found.std() / 8
