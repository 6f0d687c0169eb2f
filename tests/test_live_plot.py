"""The live plot: what it draws, where, how often, and in a real kernel."""

import base64
import io
import os
import struct

import nbformat
import pytest
from nbclient import NotebookClient
from PIL import Image as Picture

from rove_lab import live_plot
from rove_lab.live_plot import LivePlot
from rove_lab.progress import Step


def plot(**more):
    return LivePlot("loss (nats)", alt="Two curves.", **more)


def feed(target, count=10):
    for step in range(1, count + 1):
        for name, loss in (("RoPE", 2.8), ("RoVE", 2.8 / step)):
            target(Step(name, step, count, loss, 10.0, count - step, 640.0))


def test_reports_become_curves():
    target = plot()
    feed(target, 3)
    assert target.curves == {
        "RoPE": ([1, 2, 3], [2.8] * 3),
        "RoVE": ([1, 2, 3], [2.8, 1.4, 2.8 / 3]),
    }


def colours_in(png):
    picture = Picture.open(io.BytesIO(png)).convert("RGBA")
    return {pixel[:3] for _, pixel in picture.getcolors(1 << 22) if pixel[3] == 255}


def test_the_picture_is_small_transparent_and_in_the_methods_colours():
    target = plot(levels={"guessing": 2.77})
    feed(target)
    png = target.png()
    assert len(png) < 300_000
    assert struct.unpack(">II", png[16:24]) == (896, 512)
    assert Picture.open(io.BytesIO(png)).convert("RGBA").getpixel((0, 0))[3] == 0
    assert {(0x1F, 0x7F, 0xC1), (0xD4, 0x61, 0x1A)} <= colours_in(png)
    assert plot(log=True).png() != plot().png()


@pytest.fixture
def shown(monkeypatch):
    """What reaches the notebook: first the display, then its updates."""
    seen = []

    class Handle:
        def update(self, image):
            seen.append(image)

    def display(image, display_id):
        assert display_id
        seen.append(image)
        return Handle()

    monkeypatch.setattr(live_plot, "display", display)
    return seen


def test_plain_python_draws_nothing(shown):
    feed(plot())
    assert shown == []


def test_the_book_draws_the_last_picture_only(shown, monkeypatch):
    monkeypatch.setattr(live_plot, "where", lambda: "book")
    feed(plot())
    assert len(shown) == 2  # one for each curve's last point
    assert shown[-1].alt == "Two curves."


def test_a_notebook_draws_on_the_way_and_spends_little_time_on_it(shown, monkeypatch):
    monkeypatch.setattr(live_plot, "where", lambda: "jupyter")
    clock = [0.0]
    monkeypatch.setattr(live_plot.time, "perf_counter", lambda: clock[0])
    target = plot()
    png, took = target.png, 0.5

    def slow_png():
        clock[0] += took
        return png()

    target.png = slow_png
    for step in range(1, 101):
        clock[0] += 0.1
        target(Step("RoVE", step, 100, 1.0, 10.0, 1.0, 640.0))
    assert 2 <= len(shown) <= 5  # 10 s of training: half a second of drawing in every 5 s


def test_words_are_asked_for():
    with pytest.raises(
        ValueError, match="expected alt, what the plot shows in words, got an empty"
    ):
        LivePlot("loss", alt=" ")


def test_a_real_kernel_updates_one_picture_in_place_and_says_nothing_on_stderr():
    code = """
from rove_lab.live_plot import LivePlot
from rove_lab.progress import Step
plot = LivePlot("loss (nats)", alt="A curve.")
for step in range(1, 4):
    plot(Step("RoVE", step, 3, 1 / step, 10.0, 0.0, 640.0))
"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    client = NotebookClient(notebook, timeout=120, kernel_name="python3")
    client.execute(env=dict(os.environ, ROVE_BOOK_BUILD=""))
    (output,) = notebook.cells[0].outputs
    assert output.output_type == "display_data"
    assert base64.b64decode(output.data["image/png"])[:4] == b"\x89PNG"
    assert output.metadata["image/png"]["alt"] == "A curve."
