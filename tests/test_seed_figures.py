"""Seeds together: means in their bands, gaps where a seed has one, pairs beside zero."""

import pytest
import torch

from rove_lab.panels import ROPE_COLOUR, ROVE_COLOUR
from rove_lab.seed_figures import bands, pair_differences
from rove_lab.sliders import Slider

AXES = {"x_axis": "step", "y_axis": "loss (nats)"}
WORDS = {"alt": "What it shows, in words."}
STOPS = Slider("length", [1, 2, 4], start=4)
SEEDS = torch.tensor([[1.0, 4.0, 2.0], [3.0, 0.0, 5.0], [5.0, 2.0, 2.0]])


def by_kind(figure):
    """The traces: bands, then points, then means."""
    kinds = {"band": [], "points": [], "mean": []}
    for trace in figure.data:
        kind = "band" if trace.fill else "points" if trace.mode == "markers" else "mean"
        kinds[kind].append(trace)
    assert list(figure.data) == [trace for traces in kinds.values() for trace in traces]
    return kinds.values()


def test_a_band_runs_from_the_least_seed_to_the_most_around_the_mean():
    (band,), (points,), (mean,) = by_kind(bands([0, 1, 2], {"RoVE": SEEDS}, **AXES, **WORDS))
    assert mean.y == (3.0, 2.0, 3.0)
    assert band.x == (0.0, 1.0, 2.0, 2.0, 1.0, 0.0, None)
    assert band.y == (5.0, 4.0, 5.0, 2.0, 0.0, 1.0, None)
    assert band.fill == "toself"
    assert points.x == (0.0, 1.0, 2.0) * 3
    assert points.y == tuple(SEEDS.flatten().tolist())
    # The mean's hover says what the band shows.
    assert [list(ends) for ends in mean.customdata] == [[1.0, 5.0], [0.0, 4.0], [2.0, 5.0]]
    assert "%{customdata[0]:.4g}, %{customdata[1]:.4g}" in mean.hovertemplate


def test_colours_are_the_methods_and_a_legend_entry_shows_and_hides_the_whole():
    names = ["RoPE", "RoVE", "RoPE + YaRN", "RoVE + YaRN"]
    under, points, means = by_kind(bands([0, 1, 2], dict.fromkeys(names, SEEDS), **AXES, **WORDS))
    assert [mean.line.color for mean in means] == [ROPE_COLOUR, ROVE_COLOUR] * 2
    assert [mean.line.dash for mean in means] == ["solid", "solid", "dash", "dash"]
    assert [each.marker.symbol for each in points] == ["circle"] * 2 + ["circle-open"] * 2
    assert [band.fillcolor for band in under[:2]] == [
        "rgba(31, 127, 193, 0.22)",
        "rgba(212, 97, 26, 0.22)",
    ]
    for traces in (under, points):
        assert [trace.legendgroup for trace in traces] == names
        assert not any(trace.showlegend for trace in traces)
        assert all(trace.hoverinfo == "skip" for trace in traces)
    assert means[0].line.width > means[1].line.width


def test_one_seed_is_a_line_and_many_points_are_not_drawn_seed_by_seed():
    for one in (SEEDS[0], SEEDS[:1]):
        (only,) = bands([0, 1, 2], {"RoPE": one}, **AXES, **WORDS).data
        assert only.y == (1.0, 4.0, 2.0)
        assert only.customdata is None
    under, points, means = by_kind(bands(range(41), {"a": torch.ones(2, 41)}, **AXES, **WORDS))
    assert (len(under), len(points), len(means)) == (1, 0, 1)


def test_a_seed_without_a_value_leaves_a_gap_in_all_of_it():
    seeds = torch.ones(2, 5)
    seeds[1, 2] = torch.nan
    (band,), _, (mean,) = by_kind(bands(range(5), {"a": seeds}, **AXES, **WORDS))
    assert mean.y == (1.0, 1.0, None, 1.0, 1.0)
    assert band.x == (0.0, 1.0, 1.0, 0.0, None, 3.0, 4.0, 4.0, 3.0, None)


def test_a_logarithmic_axis_leaves_a_gap_where_a_band_reaches_zero():
    logarithmic = {"x_axis": {"title": "n", "type": "log"}, "y_axis": {"title": "e", "type": "log"}}
    figure = bands([1, 2, 3], {"a": SEEDS}, **logarithmic, **WORDS)
    (band,), _, (mean,) = by_kind(figure)
    assert band.x == (1.0, 1.0, None, 3.0, 3.0, None)
    assert mean.y == (3.0, 2.0, 3.0)
    assert figure.layout.xaxis.exponentformat == "power"


def test_bands_move_with_their_slider_on_axes_that_stay():
    moving = torch.stack([SEEDS, SEEDS + 1, SEEDS * 10])
    figure = bands([0, 1, 2], {"still": SEEDS, "moving": moving}, slider=STOPS, **AXES, **WORDS)
    under, _, means = by_kind(figure)
    assert means[0].y == (3.0, 2.0, 3.0)
    assert means[1].y == (30.0, 20.0, 30.0)  # the stop shown first
    assert under[1].y[:3] == (50.0, 40.0, 50.0)
    frame = figure.frames[1]
    assert frame.traces == (1, 3, 5)
    assert [trace.y[0] for trace in frame.data] == [6.0, 2.0, 4.0]
    assert [list(ends) for ends in frame.data[2].customdata] == [[2.0, 6.0], [1.0, 5.0], [3.0, 6.0]]
    low, high = figure.layout.yaxis.range
    assert low < 0
    assert high > 50


def test_pairs_stand_in_a_row_a_measure_with_their_mean_beside_zero():
    differences = {"1 ×": [-0.3, -0.1, 0.1], "16 ×": torch.tensor([-1.0, torch.nan, -2.0])}
    figure = pair_differences(differences, x_axis="RoVE − RoPE (nats)", **WORDS)
    first, mean, second, other_mean = figure.data
    assert (first.x, mean.x) == ((-0.3, -0.1, 0.1), (-0.1,))
    assert (second.x, other_mean.x) == ((-1.0, None, -2.0), (-1.5,))
    assert first.y == ("1 ×",) * 3
    assert other_mean.y == ("16 ×",)
    assert [trace.showlegend for trace in figure.data] == [True, True, False, False]
    # The first measure is on top; zero is on the axis and marked.
    assert figure.layout.yaxis.categoryarray == ("16 ×", "1 ×")
    assert figure.layout.xaxis.rangemode == "tozero"
    assert figure.layout.xaxis.zerolinewidth == 2
    taller = pair_differences(differences | {"32 ×": [0.0]}, x_axis="nats", **WORDS)
    assert taller.layout.height > figure.layout.height
    assert pair_differences({"a": [1]}, x_axis="n", height=333, **WORDS).layout.height == 333


def test_pairs_move_with_their_slider_and_zero_stays_in_sight():
    moving = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    figure = pair_differences({"a": moving}, x_axis="nats", slider=STOPS, **WORDS)
    assert figure.data[0].x == (5.0, 6.0)
    assert [frame.data[1].x for frame in figure.frames] == [(1.5,), (3.5,), (5.5,)]
    low, high = figure.layout.xaxis.range
    assert low < 0 < 6 < high


@pytest.mark.parametrize(
    ("draw", "error", "message"),
    [
        (lambda: bands([[0]], {"a": [1]}, **AXES, **WORDS), ValueError, r"x: expected shape \[po"),
        (
            lambda: bands([0, 1], {"a": [[1, 2, 3]]}, **AXES, **WORDS),
            ValueError,
            r"a: expected shape \[seeds, 2\], got \[1, 3\]",
        ),
        (
            lambda: bands([0], {"a": torch.ones(4, 2, 1)}, slider=STOPS, **AXES, **WORDS),
            ValueError,
            r"expected shape \[seeds, 1\] or \[3 stops, seeds, 1\], got \[4, 2, 1\]",
        ),
        (lambda: bands([0], {"a": [[torch.inf]]}, **AXES, **WORDS), ValueError, "infinite value"),
        (
            lambda: bands([0], {"a": [["one"]]}, **AXES, **WORDS),
            TypeError,
            "nested list of numbers",
        ),
        (lambda: bands([0], {}, **AXES, **WORDS), ValueError, "nothing to draw"),
        (lambda: bands([0], {"a": [1]}, **AXES, alt=" "), ValueError, "alt is empty"),
        (lambda: pair_differences({}, x_axis="n", **WORDS), ValueError, "nothing to draw"),
        (
            lambda: pair_differences({"a": [[1.0]]}, x_axis="n", **WORDS),
            ValueError,
            r"a: expected shape \[seeds\], got \[1, 1\]; pass slider",
        ),
        (
            lambda: pair_differences({"a": []}, x_axis="n", **WORDS),
            ValueError,
            r"a: expected shape \[seeds\], got \[0\]",
        ),
        (lambda: pair_differences({"a": [1]}, x_axis="n", alt=""), ValueError, "alt is empty"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, error, message):
    with pytest.raises(error, match=message):
        draw()
