"""lens: bridges and Hugging Face models agree, RoVE off and on, in every situation."""

import pytest
from lens_models import CELLS, measured_error
from rove_models import ARCHITECTURES

# The softmax of all other bridges is float32, whatever the dtype.
IN_FLOAT64 = {"gpt_neox", "phi3"}


@pytest.mark.parametrize(("architecture", "situation", "rove"), CELLS)
def test_agrees(architecture, situation, rove, record_property):
    wide = architecture in IN_FLOAT64 and "padding" not in situation
    tolerance = 1e-12 if wide else 3e-5
    error = measured_error(architecture, situation, rove)
    route = "rove_hooks" if rove else "the bridge alone"
    told = {"route": route, "architecture": architecture, "situation": situation}
    for name, value in (told | {"error": error, "tolerance": tolerance}).items():
        record_property(name, value)  # for experiments/compatibility.py
    assert error < tolerance


@pytest.mark.parametrize("situation", ["cached decode", "left padding"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_rotation_left_out_would_be_seen(architecture, situation):
    assert measured_error(architecture, situation, planes=[]) > 1
