"""A figure with a slider: plotly's own where no kernel is behind it, ipywidgets' where one is."""

import copy
import json
import os
import pickle
import subprocess
import sys

import nbformat
import plotly.graph_objects as go
import pytest
from nbclient import NotebookClient
from test_figures import KINDS, draw_each

from rove_lab import live_figure
from rove_lab.figures import lines
from rove_lab.live_figure import LiveFigure

PLOTLY = "application/vnd.plotly.v1+json"
VIEW = "application/vnd.jupyter.widget-view+json"
STATE = "application/vnd.jupyter.widget-state+json"


@pytest.fixture
def figure():
    return draw_each()["lines"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_shows_what_its_frame_holds_in_the_same_layout_without_a_slider(kind):
    figure = draw_each()[kind]
    before = figure.to_json()
    stops = [figure.at(stop) for stop in range(3)]
    for stop, frame in zip(stops, figure.frames, strict=True):
        assert type(stop) is go.Figure
        assert not stop.frames
        assert not stop.layout.sliders
        assert not stop.layout.updatemenus
        for index, trace in enumerate(stop.data):
            given = json.loads(trace.to_json())
            kept = json.loads(figure.data[index].to_json())
            if index in frame.traces:
                kept |= json.loads(frame.data[frame.traces.index(index)].to_json())
            assert given == kept
    assert len({json.dumps(stop.layout.to_plotly_json(), default=list) for stop in stops}) == 1
    room = figure.layout.meta["slider_room"]
    assert stops[0].layout.height == figure.layout.height - room
    assert stops[0].layout.margin.b == figure.layout.margin.b - room
    assert figure.to_json() == before, "looking at a stop changes nothing"


@pytest.mark.parametrize("kind", ["lines", "bars", "arrows"])
def test_the_ranges_that_values_set_are_given_not_found_anew_at_each_stop(kind):
    assert draw_each()[kind].at(0).layout.yaxis.range is not None


@pytest.mark.parametrize("stop", [-1, 3])
def test_a_stop_that_is_not_there_is_refused(figure, stop):
    with pytest.raises(IndexError, match=f"expected a stop from 0 to 2, got {stop}"):
        figure.at(stop)


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))]
)
def test_a_copy_is_the_same_figure(figure, again):
    twin = again(figure)
    assert type(twin) is LiveFigure
    assert json.loads(twin.to_json()) == json.loads(figure.to_json())
    assert twin.at(0).data[1].y == figure.at(0).data[1].y


def test_what_plotly_does_with_a_figure_it_does_with_this_one(figure):
    assert isinstance(figure, go.Figure)
    assert len(json.loads(figure.to_json())["frames"]) == 3
    assert "Plotly.addFrames" in figure.to_html(include_plotlyjs=False)
    assert repr(figure).startswith("LiveFigure({")
    assert type(lines([0], {"a": [0]}, x_axis="x", y_axis="y", alt="A point.")) is go.Figure


@pytest.fixture
def displayed(monkeypatch):
    """What reaches the notebook, and how: `plotly` for plotly's own display."""
    seen = []
    monkeypatch.setattr(go.Figure, "_ipython_display_", lambda self: seen.append("plotly"))
    monkeypatch.setattr("IPython.display.display", seen.append)
    return seen


@pytest.mark.parametrize("place", ["book", "python"])
def test_without_a_kernel_behind_the_page_plotly_shows_it(figure, displayed, monkeypatch, place):
    monkeypatch.setattr(live_figure, "where", lambda: place)
    figure._ipython_display_()
    assert displayed == ["plotly"]


@pytest.mark.parametrize("place", ["jupyter", "colab"])
def test_with_a_kernel_there_is_a_slider_of_widgets(figure, displayed, monkeypatch, place):
    monkeypatch.setattr(live_figure, "where", lambda: place)
    monkeypatch.setattr("plotly.io.renderers.default", "plotly_mimetype")
    figure._ipython_display_()
    (box,) = displayed
    controls = box.children[1]
    play, select = controls.children
    assert select.description == "offset δ (tokens)"
    assert [label for label, _ in select.options] == ["−2", "−1", "0"]
    assert (select.label, play.value, play.max) == ("0", 2, 2)
    output = box.children[0]

    def shown():
        (drawn,) = output.outputs
        return drawn["data"][PLOTLY]["data"]

    assert shown() == json.loads(figure.at(2).to_json())["data"]
    play.value = 1  # as the button does
    assert select.label == "−1"
    assert shown() == json.loads(figure.at(1).to_json())["data"]
    select.value = 0
    assert play.value == 0
    # Without its frames or its slider it is a figure like any other.
    figure.frames = ()
    figure._ipython_display_()
    assert displayed[1:] == ["plotly"]


def test_without_ipywidgets_plotly_shows_it(figure, displayed, monkeypatch):
    monkeypatch.setattr(live_figure, "where", lambda: "jupyter")
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    figure._ipython_display_()
    assert displayed == ["plotly"]


def run(build, *cells):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    client = NotebookClient(notebook, timeout=300, kernel_name="python3")
    environment = dict(os.environ, ROVE_BOOK_BUILD=build, PLOTLY_RENDERER="plotly_mimetype")
    client.execute(env=environment)
    return notebook


DRAW = """
from IPython.display import display
from rove_lab.figures import Slider, lines
figure = lines(
    [0, 1],
    {"RoPE": [5, 5], "RoVE": [[1, 0], [1, 1], [1, 2]]},
    slider=Slider("offset δ (tokens)", [-2, -1, 0], start=-1),
    x_axis="x", y_axis="y", alt="Two curves.",
)
"""
MOVE = """
import gc, ipywidgets
(select,) = [w for w in gc.get_objects() if isinstance(w, ipywidgets.SelectionSlider)]
select.value = {stop}
"""


def test_in_a_live_kernel_moving_the_slider_shows_that_stop():
    notebook = run("", DRAW + "figure", MOVE.format(stop=0), MOVE.format(stop=2))
    (view,) = notebook.cells[0].outputs
    assert VIEW in view.data
    assert PLOTLY not in view.data
    state = notebook.metadata.widgets[STATE]["state"].values()
    (output,) = [one["state"] for one in state if one["model_name"] == "OutputModel"]
    (shown,) = output["outputs"]  # in place of what it showed before
    drawn = shown["data"][PLOTLY]
    assert [trace["y"] for trace in drawn["data"]] == [[5.0, 5.0], [1.0, 2.0]]
    assert "sliders" not in drawn["layout"]
    assert not drawn.get("frames")


def test_in_the_books_build_there_is_only_plotlys_json():
    notebook = run("1", DRAW + "display(figure)\nfigure.show()\nfigure")
    outputs = notebook.cells[0].outputs
    assert len(outputs) == 3
    for output in outputs:
        assert set(output.data) == {PLOTLY}
        assert len(output.data[PLOTLY]["frames"]) == 3
    assert "widgets" not in notebook.metadata


def test_without_plotly_the_error_says_what_to_install():
    program = "import sys; sys.modules['plotly'] = None; import rove_lab.live_figure"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "ImportError: the figures are drawn with plotly, which is missing" in done.stderr
