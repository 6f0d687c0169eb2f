"""A figure in a page: the same numbers, in words too, and nothing that could run by itself."""

import base64
import json
import re
import sys
from pathlib import Path

import pytest
import torch

from rove_lab.figures import Slider, heatmaps, lines

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "book" / "_ext"))

import plotly_pages

AXES = {"x_axis": "column", "y_axis": "row"}


def page_of(figure) -> tuple[str, dict]:
    given = json.loads(figure.to_json())
    html = plotly_pages.figure_html(given)
    assert given == json.loads(figure.to_json()), "a notebook's output is not ours to change"
    return html, json.loads(re.search(r'<script type="application/json">(.*?)</script>', html)[1])


def unpacked(z: dict, step: float) -> torch.Tensor:
    codes = torch.frombuffer(bytearray(base64.b64decode(z["codes"])), dtype=torch.int8)
    values = codes.double() * step
    values[codes == -128] = torch.nan
    return values.reshape(-1, z["columns"])


def test_a_small_figure_keeps_its_digits_and_loses_its_template():
    html, spec = page_of(lines([0, 1], {"RoPE": [0.25, 0.5]}, **AXES, alt='Half & "half".'))
    assert spec["data"][0]["y"] == [0.25, 0.5]
    assert "template" not in spec["layout"]
    assert spec["scale"] is None
    assert 'role="figure" aria-label="Half &amp; &quot;half&quot;."' in html
    assert "<noscript><p>This figure needs JavaScript. What it shows: Half &amp;" in html


def test_no_label_can_end_the_script_element():
    html, spec = page_of(lines([0, 1], {"</script><b>": [0, 1]}, **AXES, alt="One curve."))
    assert html.count("</script>") == 1
    assert spec["data"][0]["name"] == "</script><b>"


def test_many_heatmaps_are_packed_to_eight_bits():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(20, 64, 64, generator=generator, dtype=torch.float64)
    values[3, 5, 7] = torch.nan
    slider = Slider("offset δ", range(-19, 1), start=0)
    figure = heatmaps({"W": values[0], "psi": values}, slider=slider, **AXES, alt="Two panels.")
    html, spec = page_of(figure)
    assert len(html) < 140_000
    still, moving = (unpacked(trace["z"], spec["scale"]) for trace in spec["data"])
    limit = values.nan_to_num().abs().max().item()
    assert torch.allclose(still, values[0], atol=limit / 250, rtol=5e-3)
    assert torch.allclose(moving, values[-1], atol=limit / 250, rtol=5e-3)
    frame = unpacked(spec["frames"][3]["data"][0]["z"], spec["scale"])
    assert torch.allclose(frame, values[3], atol=limit / 250, rtol=5e-3, equal_nan=True)
    assert frame[5, 7].isnan()


def test_the_largest_value_keeps_a_code_of_its_own_sign():
    values = torch.zeros(65, 64, dtype=torch.float64)
    values[0, 0], values[0, 1] = 0.777, -0.777
    _, spec = page_of(heatmaps({"a": values}, **AXES, alt="Two cells."))
    decoded = unpacked(spec["data"][0]["z"], spec["scale"])
    assert decoded[0, 0].item() == pytest.approx(0.777, rel=1e-4)
    assert decoded[0, 1].item() == pytest.approx(-0.777, rel=1e-4)
    assert decoded[1:].abs().max() == 0


def test_many_zeros_are_packed_too():
    _, spec = page_of(heatmaps({"a": torch.zeros(65, 64)}, **AXES, alt="Nothing."))
    assert unpacked(spec["data"][0]["z"], spec["scale"]).abs().max() == 0


def test_a_figure_without_words_stops_the_build():
    figure = json.loads(lines([0, 1], {"a": [0, 1]}, **AXES, alt="One curve.").to_json())
    figure["layout"]["meta"] = None
    with pytest.raises(ValueError, match=r"no alt text; draw it with rove_lab\.figures"):
        plotly_pages.figure_html(figure)
