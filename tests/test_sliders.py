"""A slider tells its stops apart, and says what is missing."""

import subprocess
import sys

import pytest
import torch

from rove_lab.sliders import Slider


def test_a_slider_takes_numbers_tensors_and_words():
    assert Slider("δ", torch.tensor([-1, 0])).labels == ("−1", "0")
    assert Slider("ω", [0.1, 1.0]).labels == ("0.1", "1")
    assert Slider("method", ["RoPE", "RoVE"], start="RoVE").first == 1


@pytest.mark.parametrize(
    ("stops", "start", "message"),
    [
        ([], None, "two stops or more"),
        ([1], None, "two stops or more"),
        ([1.0000001, 1.0], None, "read differently"),
        ([0, 1], 2, "start=2 is none of the stops"),
    ],
)
def test_a_slider_refuses_stops_that_cannot_be_told_apart(stops, start, message):
    with pytest.raises(ValueError, match=message):
        Slider("δ", stops, start=start)


def test_without_plotly_the_error_says_what_to_install():
    program = "import sys; sys.modules['plotly'] = None; import rove_lab.figures"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert "ImportError: the figures are drawn with plotly, which is missing" in run.stderr
    assert 'pip install "rove-lab[figures]"' in run.stderr
