"""Chapter 14: what it says of its figures is so, and what it says of the record stands there."""

import json
import math

import pytest
import torch
from book_exercises import names_before_the_exercises, read_chapter
from experiment_scripts import ROOT

from rove_lab.frames import frame_attention, planar_poses

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


def test_moving_the_reader_moves_the_pictures(names):
    shares, walk = names["shares"]["RoVE, channel 0"].unflatten(-1, (9, 9)), names["walk"]
    spot = names["pattern"].unflatten(-1, (9, 9))
    here, there = walk.index((2, 4)), walk.index((6, 6))
    for picture in (shares / spot, spot / spot.amax((1, 2), keepdim=True)):
        torch.testing.assert_close(picture[here][:5, :7], picture[there][4:, 2:])
    above, level, below = shares[here][:2], shares[here][2], shares[here][3:6]
    assert (above > 0).all()
    assert level.abs().max() < 1e-12
    assert (below < 0).all()


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


def test_apply_for_dual_is_found_by_shifts_and_not_by_turns(names):
    wrong, right = names["drift"]["apply in its place"], names["drift"]["dual"]
    assert wrong[-1] > 1
    assert right.max() < 1e-12
    as_keys, worlds = names["AsKeys"], names["worlds"]
    q = k = v = torch.randn(1, 5, 3, generator=torch.Generator().manual_seed(1)).double()
    still, turned = (frame_attention(q, k, v, as_keys(at), at) for at in (worlds[0], worlds[7]))
    torch.testing.assert_close(still, turned)
    elsewhere = planar_poses(x=[1.0] * 5, y=[2.0] * 5, heading=[0.3] * 5, d_head=3)
    assert (as_keys(elsewhere).dual(q) - elsewhere.dual(q)).norm() > 1
