"""retrofit: RoVE equals the float64 reference in every architecture and situation."""

import pytest
import torch
from rove_models import ARCHITECTURES
from rove_reference import reference_logits
from rove_situations import CELLS, POSITIONS, TOKENS, measured_error

from rove_lab.huggingface import enable_rove

# Norms and eager attention round to float32 inside, whatever the model's dtype.
TOLERANCE = dict.fromkeys([situation for _, situation in CELLS], 1e-5)
TOLERANCE |= {"gradients": 1e-6, "gradient checkpointing": 1e-6, "bfloat16": 0.3}
COMPILED = {"llama", "gpt_neox"}  # in every run; the others take a minute each


def marked(architecture, situation):
    patient = situation == "torch.compile" and architecture not in COMPILED
    return pytest.param(architecture, situation, marks=[pytest.mark.slow] * patient)


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")  # torch's own
@pytest.mark.parametrize(("architecture", "situation"), [marked(*cell) for cell in CELLS])
def test_equals_the_reference(architecture, situation, record_property):
    error = measured_error(architecture, situation)
    told = {"route": "enable_rove", "architecture": architecture, "situation": situation}
    for name, value in (told | {"error": error, "tolerance": TOLERANCE[situation]}).items():
        record_property(name, value)  # for experiments/compatibility.py
    assert error < TOLERANCE[situation]


@pytest.mark.parametrize(
    ("architecture", "situation"), [cell for cell in CELLS if cell[1] != "torch.compile"]
)
def test_a_rotation_left_out_would_be_seen(architecture, situation):
    missing = measured_error(architecture, situation, planes=[])
    assert missing > (0.05 if "grad" in situation else 1.5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    ("layers", "planes"),
    [([0], None), ([-1, 1], None), (slice(1), [1]), (None, slice(1, None)), ([0, 2], [0])],
)
def test_turns_the_layers_and_planes_that_are_asked_for(architecture, layers, planes):
    model = ARCHITECTURES[architecture]()
    with enable_rove(model, layers, planes) as rove, torch.no_grad():
        found = model(TOKENS).logits
    these = {"layers": rove.layers, "planes": rove.planes and tuple(rove.planes)}
    expected = reference_logits(model, TOKENS, POSITIONS, **these)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert (found - reference_logits(model, TOKENS, POSITIONS)).abs().max() > 0.1


def test_is_exact_in_inference_mode():
    model = ARCHITECTURES["llama"]()
    expected = reference_logits(model, TOKENS, POSITIONS)
    with enable_rove(model), torch.inference_mode():
        given = {"position_ids": POSITIONS.clone(), "attention_mask": torch.ones_like(TOKENS)}
        for logits in (model(TOKENS).logits, model(TOKENS, **given).logits):
            torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)


def test_is_as_good_under_autocast_as_in_half_precision():
    model = ARCHITECTURES["llama"](dtype=torch.float32)
    expected = reference_logits(model, TOKENS, POSITIONS)
    with enable_rove(model), torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert (model(TOKENS).logits - expected).abs().max() < TOLERANCE["bfloat16"]
