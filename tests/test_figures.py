"""Figures show the numbers given, move as their slider says, refuse what cannot be drawn."""

import json

import pytest
import torch

from rove_lab.figures import (
    Slider,
    arrows,
    bands,
    bars,
    heatmaps,
    lines,
    pair_differences,
    seed_bars,
)

AXES = {"x_axis": "offset δ (tokens)", "y_axis": "cosine"}
WORDS = {"alt": "What it shows, in words."}
STOPS = Slider("offset δ (tokens)", [-2, -1, 0], start=0)


def draw_each():
    """One small moving figure of each kind."""
    moving = torch.arange(12.0).reshape(3, 4)
    return {
        "lines": lines(
            range(4), {"RoPE": moving[0], "RoVE": moving}, slider=STOPS, **AXES, **WORDS
        ),
        "bars": bars("abcd", {"head 0": moving}, slider=STOPS, **AXES, **WORDS),
        "heatmaps": heatmaps(
            {"RoPE": torch.eye(2), "RoVE": moving.reshape(3, 2, 2)}, slider=STOPS, **AXES, **WORDS
        ),
        "arrows": arrows(
            {"plane 0": {"RoPE": [[1.0, 0.0]], "RoVE": moving[:, None, :2]}}, slider=STOPS, **WORDS
        ),
        "bands": bands(
            range(2),
            {"RoPE": moving[:, :2], "RoVE": moving.reshape(3, 2, 2)},
            slider=STOPS,
            **AXES,
            **WORDS,
        ),
        "pair_differences": pair_differences(
            {"loss": moving[0], "error": moving}, x_axis="nats", slider=STOPS, **WORDS
        ),
        "seed_bars": seed_bars(
            "ab",
            {"RoPE": moving[:, :2], "RoVE": moving.reshape(3, 2, 2)},
            slider=STOPS,
            **AXES,
            **WORDS,
        ),
    }


KINDS = list(draw_each())


@pytest.mark.parametrize("kind", KINDS)
def test_every_figure_carries_its_words_and_its_slider(kind):
    figure = draw_each()[kind]
    assert figure.layout.meta["alt"] == WORDS["alt"]
    (slider,) = figure.layout.sliders
    assert [step.label for step in slider.steps] == ["−2", "−1", "0"]
    assert slider.active == 2
    assert slider.currentvalue.prefix == "offset δ (tokens): "
    # Each stop calls the frame of its name, at once; the play button never starts by itself.
    assert [step.args[0] for step in slider.steps] == [(frame.name,) for frame in figure.frames]
    assert all(step.args[1]["transition"]["duration"] == 0 for step in slider.steps)
    assert figure.layout.updatemenus[0].buttons[0].method == "animate"
    # It is JSON that the book and Jupyter can read.
    json.loads(figure.to_json())


def test_lines_show_their_numbers_and_move_only_what_moves():
    y = torch.tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], requires_grad=True)
    figure = lines([10, 20], {"RoPE": [1, 1], "RoVE": y}, slider=STOPS, **AXES, **WORDS)
    still, moving = figure.data
    assert (still.name, moving.name) == ("RoPE", "RoVE")
    assert still.x == moving.x == (10.0, 20.0)
    assert still.y == (1.0, 1.0)
    assert moving.y == (4.0, 5.0)  # the stop shown first
    assert [frame.traces for frame in figure.frames] == [(1,)] * 3
    assert [frame.data[0].y for frame in figure.frames] == [(0.0, 1.0), (2.0, 3.0), (4.0, 5.0)]


def test_the_axis_of_moving_lines_holds_every_stop_and_stays():
    y = torch.tensor([[0.0, 1.0], [0.0, 100.0], [0.0, 0.0]])
    low, high = lines([0, 1], {"a": y}, slider=STOPS, **AXES, **WORDS).layout.yaxis.range
    assert low < 0
    assert high > 100
    logarithmic = {"x_axis": "n", "y_axis": {"title": "loss", "type": "log"}}
    low, high = lines([0, 1], {"a": y + 1}, slider=STOPS, **logarithmic, **WORDS).layout.yaxis.range
    assert low == pytest.approx(-0.05 * 2.0043, abs=1e-3)  # powers of ten: from 1 to 101
    assert high == pytest.approx(1.05 * 2.0043, abs=1e-3)
    # A still figure leaves the range to plotly, a range that is given stays as it is.
    assert lines([0, 1], {"a": y[0]}, **AXES, **WORDS).layout.yaxis.range is None
    given = {"x_axis": "n", "y_axis": {"title": "loss", "range": [0, 7]}}
    assert lines([0, 1], {"a": y}, slider=STOPS, **given, **WORDS).layout.yaxis.range == (0, 7)


def test_numbers_are_rounded_and_nan_leaves_a_gap():
    figure = lines([0, 1, 1_000_001], {"a": [1 / 3, torch.nan, 2e-7 / 3]}, **AXES, **WORDS)
    assert figure.data[0].y == (0.3333, None, 6.667e-08)
    assert figure.data[0].x == (0.0, 1.0, 1_000_001.0)


def test_bars_show_their_numbers():
    figure = bars(["p0", "p1"], {"head 0": [0.25, 0.75], "head 1": [1, 0]}, **AXES, **WORDS)
    assert [bar.y for bar in figure.data] == [(0.25, 0.75), (1.0, 0.0)]
    assert figure.data[0].x == ("p0", "p1")
    moving = bars(["p0"], {"head 0": [[1.0], [2.0], [4.0]]}, slider=STOPS, **AXES, **WORDS)
    assert moving.layout.yaxis.range[0] <= 0 < 4 <= moving.layout.yaxis.range[1]


def test_heatmaps_share_one_range_of_colours_symmetric_about_zero():
    one, other = torch.tensor([[1.0, 2.0]]), torch.tensor([[[0.0, 0.5]], [[-3.0, 0]], [[0, 0]]])
    figure = heatmaps({"one": one, "other": other}, slider=STOPS, **AXES, **WORDS)
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (-3, 3)
    middle = figure.layout.coloraxis.colorscale[2]
    assert middle[0] == 0.5
    assert all(trace.coloraxis == "coloraxis" for trace in figure.data)
    assert [list(row) for row in figure.data[0].z] == [[1.0, 2.0]]
    assert [note.text for note in figure.layout.annotations] == ["one", "other"]
    assert figure.layout.yaxis.autorange == figure.layout.yaxis2.autorange == "reversed"


def test_heatmaps_of_what_is_never_negative_use_the_positive_half_of_the_same_colours():
    signed = heatmaps({"a": [[-1.0, 1.0]]}, **AXES, **WORDS).layout.coloraxis
    positive = heatmaps({"a": [[0.0, 1.0]]}, **AXES, **WORDS).layout.coloraxis
    assert (positive.cmin, positive.cmax) == (0, 1)
    assert [colour for _, colour in positive.colorscale] == [
        colour for _, colour in signed.colorscale[2:]
    ]
    assert heatmaps({"a": [[0.0]]}, **AXES, **WORDS).layout.coloraxis.cmax > 0


def test_cells_are_square_unless_the_matrix_is_long():
    assert heatmaps({"a": torch.eye(3)}, **AXES, **WORDS).layout.yaxis.scaleanchor == "x"
    assert heatmaps({"a": torch.ones(2, 9)}, **AXES, **WORDS).layout.yaxis.scaleanchor is None


@pytest.mark.parametrize(
    ("draw", "error", "message"),
    [
        (lambda: lines([0], {"a": [1]}, **AXES, alt="  \n"), ValueError, "alt is empty"),
        (lambda: lines([0], {}, **AXES, **WORDS), ValueError, "nothing to draw"),
        (lambda: heatmaps({}, **AXES, **WORDS), ValueError, "nothing to draw"),
        (lambda: lines([[0]], {"a": [1]}, **AXES, **WORDS), ValueError, r"x: expected shape \[po"),
        (
            lambda: lines([0, 1], {"a": [1, 2, 3]}, **AXES, **WORDS),
            ValueError,
            r"a: expected shape \[2\], got \[3\]",
        ),
        (
            lambda: lines([0, 1], {"a": [[1, 2]] * 3}, **AXES, **WORDS),
            ValueError,
            r"got \[3, 2\]; pass slider=Slider",
        ),
        (
            lambda: lines([0, 1], {"a": [[1, 2]] * 4}, slider=STOPS, **AXES, **WORDS),
            ValueError,
            r"expected shape \[2\] or \[3 stops, 2\], got \[4, 2\]",
        ),
        (
            lambda: lines([0, 1], {"a": [1, 2]}, slider=STOPS, **AXES, **WORDS),
            ValueError,
            "moves nothing",
        ),
        (
            lambda: bars(["p"], {"a": [1, 2]}, **AXES, **WORDS),
            ValueError,
            r"a: expected shape \[1\], got \[2\]",
        ),
        (
            lambda: heatmaps({"A": [1, 2]}, **AXES, **WORDS),
            ValueError,
            r"A: expected shape \[rows, columns\], got \[2\]",
        ),
        (
            lambda: heatmaps({"A": torch.ones(0, 2)}, **AXES, **WORDS),
            ValueError,
            r"A: expected shape \[rows, columns\], got \[0, 2\]",
        ),
        (
            lambda: lines([0], {"a": [torch.inf]}, **AXES, **WORDS),
            ValueError,
            "a: an infinite value cannot be drawn",
        ),
        (
            lambda: lines([0], {"a": torch.ones(1, dtype=torch.complex64)}, **AXES, **WORDS),
            TypeError,
            r"a: expected real numbers, got torch.complex64; pass .real",
        ),
        (
            lambda: lines([0], {"a": ["one"]}, **AXES, **WORDS),
            TypeError,
            "a: expected a tensor or a nested list of numbers",
        ),
        (
            lambda: lines([0, 1], {"a": [torch.ones(2), torch.ones(2)]}, **AXES, **WORDS),
            TypeError,
            "put tensors together with torch.stack first",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, error, message):
    with pytest.raises(error, match=message):
        draw()
