"""Colours stand for methods and stand out; axes hold what they must."""

import pytest
import torch

from rove_lab.panels import ROPE_COLOUR, ROVE_COLOUR, axis, styles, translucent


def test_rope_and_rove_keep_their_colours_and_a_second_curve_of_one_is_dashed():
    names = ["RoPE", "RoVE", "RoVE, half the planes", "chance", "RoPE + YaRN"]
    chosen = dict(zip(names, styles(names), strict=True))
    assert chosen["RoPE"] == (ROPE_COLOUR, "solid")
    assert chosen["RoVE"] == (ROVE_COLOUR, "solid")
    assert chosen["RoVE, half the planes"] == (ROVE_COLOUR, "dash")
    assert chosen["RoPE + YaRN"] == (ROPE_COLOUR, "dash")
    assert chosen["chance"][0] not in {ROPE_COLOUR, ROVE_COLOUR}


@pytest.mark.parametrize("page", ["#ffffff", "#121212"])
def test_colours_stand_out_from_the_page(page):
    def luminance(colour):
        shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for colour, _ in styles(["RoPE", "RoVE", *"abcdef"]):
        dark, light = sorted([luminance(colour), luminance(page)])
        assert (light + 0.05) / (dark + 0.05) >= 3.6


@pytest.mark.parametrize(
    ("low", "high", "dtick"),
    [(1, 64, "D2"), (1, 1e6, 1), (1e-13, 1.0, 2), (5, 5, "D2"), (1.4, 3, None)],
)
def test_a_logarithmic_axis_labels_no_more_than_can_be_read(low, high, dtick):
    seen = [torch.tensor([low, 0.0, float("nan")]), torch.tensor([high])]
    drawn = axis({"title": "error", "type": "log"}, seen)
    assert (drawn.get("dtick"), drawn["exponentformat"]) == (dtick, "power")
    assert "range" not in drawn
    assert axis({"type": "log", "dtick": 3}, seen)["dtick"] == 3


def test_a_translucent_colour_is_the_same_colour():
    assert translucent("#1f7fc1", 0.25) == "rgba(31, 127, 193, 0.25)"
