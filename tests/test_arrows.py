"""Arrows point where they should, from where they should, and leave a trail."""

import pytest
import torch

from rove_lab.arrows import arrows
from rove_lab.panels import ROPE_COLOUR
from rove_lab.sliders import Slider

STOPS = Slider("offset δ (tokens)", [-2, -1, 0], start=0)
WORDS = {"alt": "What it shows, in words."}


def test_arrows_point_from_their_origins_and_their_trail_runs_from_the_first_stop():
    turn = torch.tensor([[[0.0, 1.0]], [[-1.0, 0.0]], [[1.0, 0.0]]])
    figure = arrows({"": {"RoVE": turn}}, origins=[[5.0, 0.0]], slider=STOPS, **WORDS)
    trail, arrow = figure.data
    assert arrow.x == (5.0, 6.0, None)
    assert arrow.y == (0.0, 0.0, None)
    assert arrow.marker.symbol[1] == "arrow"
    assert trail.x == (6.0, None)  # where it starts
    first, _, last = figure.frames
    assert first.data[1].x == (5.0, 5.0, None)
    assert first.data[1].y == (0.0, 1.0, None)
    assert first.data[0].x == (5.0, 4.0, 6.0, None)  # from stop 0 back to stop -2
    assert last.data[0].x == (6.0, None)
    (circle,) = figure.layout.shapes
    assert (circle.x0, circle.x1, circle.y0, circle.y1) == (4, 6, -1, 1)
    low, high = figure.layout.xaxis.range
    assert low < 4 < 6 < high


def test_panels_of_arrows_name_a_method_once():
    figure = arrows({"a": {"RoPE": [[1, 0]]}, "b": {"RoPE": [[0, 1]], "RoVE": [[0, 2]]}}, **WORDS)
    assert [trace.showlegend for trace in figure.data] == [True, False, True]
    assert [trace.xaxis for trace in figure.data] == ["x", "x2", "x2"]
    assert figure.data[0].line.color == figure.data[1].line.color == ROPE_COLOUR


def test_two_arrows_that_agree_are_both_seen():
    below, above = arrows({"": {"RoPE": [[1, 0]], "RoVE": [[1, 0]]}}, **WORDS).data
    assert below.line.width > above.line.width
    assert below.marker.size[1] > above.marker.size[1]


def test_a_vector_that_is_not_there_leaves_its_dial_empty():
    (arrow,) = arrows({"": {"RoVE": [[torch.nan, torch.nan], [0.0, 2.0]]}}, **WORDS).data
    assert arrow.x == (0.0, None, None, 0.0, 0.0, None)
    assert arrow.y == (0.0, None, None, 0.0, 2.0, None)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: arrows({}, **WORDS), "nothing to draw"),
        (
            lambda: arrows({"": {"a": [1.0, 0.0]}}, **WORDS),
            r"a: expected shape \[vectors, 2\], got \[2\]",
        ),
        (
            lambda: arrows({"": {"a": [[1.0, 0.0]]}}, origins=[[0, 0], [1, 0]], **WORDS),
            r"origins: expected \[1, 2\], one for each vector of 'a', got \[2, 2\]",
        ),
        (
            lambda: arrows({"": {"a": [[1.0, 0.0]]}}, origins=[0.0, 0.0], **WORDS),
            r"origins: expected \[1, 2\]",
        ),
    ],
)
def test_arrows_that_cannot_be_drawn_are_refused(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()
