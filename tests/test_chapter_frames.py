"""Chapter 14: what it says of its figures is so, and what it says of the record stands there."""

import json
import math

import pytest
import torch
from book_exercises import names_before_the_exercises, read_chapter
from experiment_scripts import ROOT

from rove_lab.frames import frame_attention, planar_poses
from rove_lab.records import open_record

CHAPTER = ROOT / "book" / "14_frames.ipynb"


@pytest.fixture(scope="module")
def words():
    cells = json.loads(CHAPTER.read_text(encoding="utf-8"))["cells"]
    return " ".join(" ".join("".join(cell["source"]) for cell in cells).split())


@pytest.fixture(scope="module")
def names():
    dtype = torch.get_default_dtype()
    yield names_before_the_exercises(read_chapter(CHAPTER))
    torch.set_default_dtype(dtype)


def test_the_arrows_turn_as_far_as_the_chapter_says(names, words):
    slow = math.degrees(names["axial"].inv_freq[1])
    assert f"the slower ones turn by {slow:.0f} degrees a patch" in words
    assert f"three rows below they have turned by {3 * slow:.0f} degrees" in words
    at_2_4 = names["heard"][names["walk"].index((2, 4))].unflatten(0, (9, 9))
    up = torch.tensor([0.0, 1.0]).double()
    torch.testing.assert_close(at_2_4[5, 4, 2:4] @ up, torch.tensor(math.cos(1)).double())
    torch.testing.assert_close(at_2_4[5, 4, 6:8], up)
    assert (at_2_4[2, 3:6, 3] > 0.9).all()
    assert "Next to the reader the arrows point up" in words


def test_moving_the_reader_moves_the_pictures(names, words):
    shares, walk = names["shares"]["RoVE, channel 0"].unflatten(-1, (9, 9)), names["walk"]
    spot = names["pattern"].unflatten(-1, (9, 9))
    here, there = walk.index((2, 4)), walk.index((6, 6))
    for picture in (shares / spot, spot / spot.amax((1, 2), keepdim=True)):
        torch.testing.assert_close(picture[here][:5, :7], picture[there][4:, 2:])
    above, level, below = shares[here][:2], shares[here][2], shares[here][3:6]
    assert (above > 0).all()
    assert level.abs().max() < 1e-12
    assert (below < 0).all()
    assert "RoVE, channel 0: positive above the reader, zero in its row, " in words
    assert "negative below it" in words


def test_one_head_of_three_is_right_and_another_one_is_still(names, words):
    own = names["seen"][0, 0]
    assert [round(own[0].item(), 1), round(-own[1].item(), 1)] == [3.5, 1.3]
    assert "three and a half steps ahead and 1.3 to the right" in words
    moves, misses = {}, {}
    for name, told in names["heads"].items():
        moves[name] = (told - told[0]).norm(dim=-1).max().item()
        misses[name] = (told - own).norm(dim=-1).max().item()
    assert max(moves["RoVE"], moves["RoPE"], misses["RoVE"]) < 1e-12
    assert min(moves["not undone"], misses["RoPE"]) > 1


def test_apply_for_dual_is_found_by_shifts_and_not_by_turns(names, words):
    wrong, right = names["drift"]["apply in its place"], names["drift"]["dual"]
    assert 1 < wrong[-1] < 3
    assert "steps = torch.randn(1, 5, 3), torch.linspace(0, 4, 17)" in words
    assert "grows to more than 1 after four steps" in words
    assert right.max() < 1e-12
    as_keys, worlds = names["AsKeys"], names["worlds"]
    q = k = v = torch.randn(1, 5, 3, generator=torch.Generator().manual_seed(1)).double()
    still, turned = (frame_attention(q, k, v, as_keys(at), at) for at in (worlds[0], worlds[7]))
    torch.testing.assert_close(still, turned)
    elsewhere = planar_poses(x=[1.0] * 5, y=[2.0] * 5, heading=[0.3] * 5, d_head=3)
    assert (as_keys(elsewhere).dual(q) - elsewhere.dual(q)).norm() > 1


# The record

NUMBERS, MOVED = "pose as input", "pose as input, moved in training"
SCORES, BOTH = "frames on scores", "frames on scores and values"
BESIDE, BY_PLACE = "frames on scores, pose as input", "rotations by place on both, pose as input"
WAYS = ["as trained", "turned", "shifted", "turned and shifted", "twice the agents"]


def percent(arm, way, step=600):
    """[seeds]"""
    errors = open_record("frames").values[arm]["error"][str(step)]
    assert list(errors) == WAYS
    return 100 * torch.tensor(errors[way])


def test_the_chapter_says_what_was_asked(words):
    record = open_record("frames")
    scenes, config = record.config["scenes"], record.config
    assert scenes["n_ctx"] == 8  # "eight agents"
    assert record.seeds == [0, 1, 2, 3]
    assert config["sizes"]["n_layers"] == 2
    assert config["turn"] == pytest.approx([math.pi / 2, 3 * math.pi / 2])
    assert config["shift"] == 4
    assert config["scored_at"][-1] == config["training"]["steps"] == 600
    assert scenes["shift"] == [0.0, 0.0]  # places from -1 to 1: four units are twice the width
    for phrase in (
        "turned by 90 to 270 degrees, shifted by four units (twice a scene's width)",
        "A scene has eight agents",
        "A transformer of two layers",
        "with four seeds",
        "After 600 steps, in percent, with two arms more",
    ):
        assert phrase in words, phrase
    assert len(record.values) == 4 + 2
    assert list(record.values) == [NUMBERS, MOVED, SCORES, BESIDE, BOTH, BY_PLACE]


def test_the_chapter_says_what_was_learned_as_trained(words):
    numbers, both = percent(NUMBERS, "as trained"), percent(BOTH, "as trained")
    assert f"learned well, to {numbers.mean():.3f} %" in words
    assert f"get to {both.mean():.3f} %, six to thirty times less" in words
    assert both.mean() / numbers.mean() == pytest.approx(0.1, abs=0.02)
    assert "to a tenth of the error of poses given as numbers" in words
    ratio = numbers / both
    assert ratio.min() > 6
    assert ratio.max() < 30
    for step in open_record("frames").config["scored_at"]:
        assert (percent(BOTH, "as trained", step) < percent(NUMBERS, "as trained", step)).all()
    assert (percent(BOTH, "as trained", 400) < numbers).all()
    assert "their error after 400 steps is below that of numbers after 600 in every pair" in words
    assert not (percent(BOTH, "as trained", 200) < numbers).any()
    assert f"(at {600 / 400} times, 400 of their steps cost as much)" in words
    arms = open_record("frames").values
    times = [torch.tensor(arms[arm]["milliseconds a step"]["processor"]) for arm in (BOTH, NUMBERS)]
    longer = times[0] / times[1]
    assert f"took {longer.min():.1f} to {longer.max():.1f} times the processor time" in words
    more = percent(BOTH, "twice the agents")
    assert f"With twice the agents it grows, in all four, to {more.mean():.3f} %" in words
    assert (more > both).all()
    same = percent(NUMBERS, "twice the agents") / numbers
    assert same.mean() == pytest.approx(1, abs=0.05)
    assert "%, which that of numbers does not" in words


def test_the_chapter_says_what_is_left_in_moved_scenes(words):
    turned = percent(NUMBERS, "turned")
    assert f"they err by {turned.mean():.0f} %" in words
    assert (percent(NUMBERS, "turned and shifted") > 100).all()
    assert f"bear better ({percent(NUMBERS, 'shifted').mean():.2f} %)" in words
    for way in WAYS[:-1]:
        for arm in (SCORES, BOTH):
            torch.testing.assert_close(
                percent(arm, way), percent(arm, "as trained"), rtol=1e-2, atol=0
            )
    for way in WAYS:
        assert f"{percent(MOVED, way).mean():.2f}" in ("0.12", "0.13")
        assert (percent(MOVED, way) > percent(BOTH, way)).all()
        assert percent(MOVED, way, 400).mean() > 1.5 * percent(MOVED, way).mean()
    assert "numbers get to 0.12 or 0.13 % everywhere" in words
    dearer = percent(MOVED, "as trained") / percent(NUMBERS, "as trained")
    assert f"{dearer.min():.1f} to {dearer.max():.1f} times the error of numbers" in words


def test_the_chapter_says_what_frames_on_the_scores_alone_do(words):
    alone, beside = percent(SCORES, "as trained"), percent(BESIDE, "as trained")
    assert f"do not notice a move, and are at {alone.mean():.0f} %, still falling" in words
    assert percent(SCORES, "as trained", 400).mean() > 1.5 * alone.mean()
    assert f"beside them it is {beside.mean():.2f} %" in words
    assert percent(BESIDE, "turned").mean() == pytest.approx(168, abs=1)
    by_place = [percent(BY_PLACE, way).mean() for way in ("as trained", "turned and shifted")]
    assert f"({by_place[0]:.2f} %, and {by_place[1]:.0f} %)" in words


def test_the_chapter_says_that_frames_beside_numbers_did_not_help(words):
    for arm in (BESIDE, BY_PLACE):
        for way in ("as trained", "shifted"):
            assert (percent(arm, way) > percent(NUMBERS, way)).all()
    numbers, beside, by_place = (percent(a, "shifted").mean() for a in (NUMBERS, BESIDE, BY_PLACE))
    assert f"({numbers:.2f} % against {beside:.1f} % and {by_place:.0f} %)" in words
    assert "numbers alone get to less than either as trained" in words


def test_the_figures_words_are_the_records(words):
    assert "fall below 0.002, frames as RoVE to 0.00003" in words
    for arm in (NUMBERS, MOVED, BOTH, BESIDE, BY_PLACE):
        assert percent(arm, "as trained").max() < 0.2
    assert f"{percent(BOTH, 'as trained').mean() / 100:.5f}" == "0.00003"
    assert f"{percent(NUMBERS, 'turned').mean() / 100:.1f}" == "1.7"
    assert f"{percent(MOVED, 'turned').mean() / 100:.3f}" == "0.001"
