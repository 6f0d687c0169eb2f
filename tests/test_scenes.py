"""Arrows stand where they should, move, and share one range; what cannot be drawn is refused."""

import pytest
import torch

from rove_lab.figures import scenes
from rove_lab.panels import ROPE_COLOUR, ROVE_COLOUR
from rove_lab.sliders import Slider

STOPS = Slider("turn of the world (degrees)", [0, 90])
WORDS = {"alt": "What it shows, in words."}
EAST, NORTH = [1.0, 2.0, 0.5, 0.0], [1.0, 2.0, 0.0, 0.5]


def test_an_arrow_runs_from_its_tail_to_its_tip_and_then_comes_a_gap():
    (trace,) = scenes({"": {"a": [EAST, [3.0, 3.0, -1.0, 2.0]]}}, **WORDS).data
    assert trace.x == (1.0, 1.5, None, 3.0, 2.0, None)
    assert trace.y == (2.0, 2.0, None, 3.0, 5.0, None)
    assert trace.marker.symbol == ("circle", "arrow", "circle") * 2
    assert trace.marker.angleref == "previous"


def test_tail_and_vector_move_with_the_slider_and_what_stands_still_has_no_frames():
    moving, still = torch.tensor([[EAST], [[-2.0, 1.0, 0.0, 0.5]]]), torch.tensor([NORTH])
    figure = scenes({"": {"moving": moving, "still": still}}, slider=STOPS, **WORDS)
    assert [trace.name for trace in figure.data] == ["moving", "still"]
    first, last = figure.frames
    assert first.traces == last.traces == (0,)
    assert last.data[0].x == (-2.0, -2.0, None)
    assert last.data[0].y == (1.0, 1.5, None)
    assert len(figure.data) == 2  # no trail


def test_what_points_nowhere_is_a_dot_and_what_is_not_there_is_nothing():
    places = {"dots": [[1.0, 1.0, 0.0, 0.0], [torch.nan] * 4], "arrows": [EAST, [torch.nan] * 4]}
    dots, arrows = scenes({"": places}, **WORDS).data
    assert (dots.mode, dots.x) == ("markers", (1.0, None))
    assert dots.marker.size > 0
    assert (arrows.mode, arrows.x) == ("lines+markers", (1.0, 1.5, None, None, None, None))
    assert arrows.marker.size[:3] == (0, 8, 0)


def test_an_arrow_that_shrinks_to_nothing_is_still_an_arrow():
    shrinking = torch.tensor([[EAST], [[1.0, 2.0, 0.0, 0.0]]])
    (trace,) = scenes({"": {"a": shrinking}}, slider=STOPS, **WORDS).data
    assert trace.mode == "lines+markers"


def test_panels_share_a_range_that_holds_every_stop_and_name_a_method_once():
    far = torch.tensor([[[0.0, 0.0, 1.0, 0.0]], [[7.0, -3.0, 1.0, 0.0]]])
    panels = {"world": {"RoPE": far}, "own": {"RoPE": [EAST], "RoVE": [NORTH]}}
    figure = scenes(panels, slider=STOPS, **WORDS)
    assert [trace.showlegend for trace in figure.data] == [True, False, True]
    assert [trace.line.color for trace in figure.data] == [ROPE_COLOUR, ROPE_COLOUR, ROVE_COLOUR]
    layout = figure.layout
    assert layout.xaxis.range == layout.xaxis2.range
    assert layout.yaxis.range == layout.yaxis2.range
    assert layout.xaxis.range[0] < 0 < 8 < layout.xaxis.range[1]
    assert layout.yaxis.range[0] < -3 < 2.5 < layout.yaxis.range[1]
    assert layout.yaxis.scaleanchor == "x"
    assert [title.text for title in layout.annotations] == ["world", "own"]


def test_axes_are_shown_where_they_have_a_name():
    bare = scenes({"": {"a": [EAST]}}, **WORDS).layout
    assert bare.xaxis.showticklabels is bare.yaxis.showticklabels is False
    panels = {"a": {"a": [EAST]}, "b": {"a": [EAST]}}
    named = scenes(panels, x_axis="east", y_axis={"title": "north", "dtick": 2}, **WORDS).layout
    assert named.yaxis.dtick == named.yaxis2.dtick == 2
    assert named.xaxis.title.text == named.xaxis2.title.text == "east"
    assert named.yaxis.title.text == "north"
    assert named.yaxis2.title.text is None
    assert named.xaxis.showticklabels is named.yaxis.showticklabels is not False


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: scenes({}, **WORDS), "nothing to draw"),
        (lambda: scenes({"": {"a": [EAST]}}, alt=" "), "alt is empty"),
        (
            lambda: scenes({"": {"a": [[1.0, 0.0]]}}, **WORDS),
            r"a: expected shape \[arrows, 4\], got \[1, 2\]",
        ),
        (
            lambda: scenes({"": {"a": [[EAST]] * 3}}, slider=STOPS, **WORDS),
            r"a: expected shape \[arrows, 4\] or \[2 stops, arrows, 4\], got \[3, 1, 4\]",
        ),
        (lambda: scenes({"": {"a": [[1.0, 0.0, torch.inf, 0.0]]}}, **WORDS), "infinite value"),
    ],
)
def test_scenes_that_cannot_be_drawn_are_refused(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()


def test_complex_numbers_are_refused():
    with pytest.raises(TypeError, match="expected real numbers"):
        scenes({"": {"a": torch.ones(1, 4, dtype=torch.complex64)}}, **WORDS)
