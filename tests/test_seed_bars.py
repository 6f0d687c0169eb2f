"""Bars of means with their seeds upon them."""

import pytest
import torch

from rove_lab.figures import seed_bars
from rove_lab.panels import ROPE_COLOUR, ROVE_COLOUR
from rove_lab.sliders import Slider

ROWS = ["1 head", "2 heads", "MLP"]
AXES = {"x_axis": "model", "y_axis": "share", "alt": "What it shows, in words."}
SEEDS = torch.tensor([[1.0, 4.0, 2.0], [3.0, 0.0, 5.0], [5.0, 2.0, 2.0]])


def test_a_bar_is_the_mean_its_line_the_range_and_every_seed_a_point_on_it():
    bar, points = seed_bars(ROWS, {"RoVE": SEEDS}, **AXES).data
    assert bar.x == tuple(ROWS)
    assert bar.y == (3.0, 2.0, 3.0)
    assert bar.error_y.array == (2.0, 2.0, 2.0)
    assert bar.error_y.arrayminus == (2.0, 2.0, 1.0)
    assert [list(ends) for ends in bar.customdata] == [[1.0, 5.0], [0.0, 4.0], [2.0, 5.0]]
    assert points.x == tuple(ROWS) * 3
    assert points.y == tuple(SEEDS.flatten().tolist())


def test_groups_stand_side_by_side_their_points_on_their_own_bars():
    figure = seed_bars(ROWS, {"RoPE": SEEDS, "RoVE": SEEDS + 1}, **AXES)
    bars, points = figure.data[:2], figure.data[2:]
    assert figure.layout.scattermode == "group"
    assert figure.layout.scattergap == figure.layout.bargap
    for kind in (bars, points):
        assert [each.offsetgroup for each in kind] == ["RoPE", "RoVE"]
        assert [each.legendgroup for each in kind] == ["RoPE", "RoVE"]
        assert {each.alignmentgroup for each in kind} == {"bars"}
    assert [each.marker.color for each in points] == [ROPE_COLOUR, ROVE_COLOUR]
    assert not any(each.showlegend for each in points)


def test_a_slider_moves_bars_and_points_over_an_axis_that_stays():
    moving = torch.stack([SEEDS, 2 * SEEDS])
    stops = Slider("length", [1, 2])
    figure = seed_bars(ROWS, {"RoVE": moving}, slider=stops, **AXES)
    assert [[trace.y for trace in frame.data] for frame in figure.frames] == [
        [tuple(step.mean(0).tolist()), tuple(step.flatten().tolist())] for step in moving
    ]
    assert figure.frames[1].data[0].error_y.array == (4.0, 4.0, 4.0)
    low, high = figure.layout.yaxis.range
    assert low <= 0 < 10 <= high


def test_a_seed_without_a_value_leaves_its_bar_out():
    seeds = SEEDS.clone()
    seeds[1, 2] = torch.nan
    bar, points = seed_bars(ROWS, {"a": seeds}, **AXES).data
    assert bar.y == (3.0, 2.0, None)
    assert points.y[5] is None


@pytest.mark.parametrize("values", [SEEDS[0], SEEDS[:, :2], torch.ones(2, 3, 3)])
def test_values_without_seeds_or_of_other_bars_are_refused(values):
    with pytest.raises(ValueError, match=r"a: expected shape \[seeds, 3\]"):
        seed_bars(ROWS, {"a": values}, **AXES)
