"""hf_scaling: the context extension in a config. Parity with transformers is in test_hf_config."""

from types import SimpleNamespace

import pytest
from references import yarn_attention_factor

from rove_lab import LinearScaling, Llama3Scaling, YarnScaling
from rove_lab.hf_scaling import scaling_of

CONFIG = SimpleNamespace(model_type="llama", max_position_embeddings=512)
LOW_AND_HIGH = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, None),
        ({"rope_type": "default", "factor": 1}, None),
        ({"type": "linear", "factor": 2.0}, LinearScaling(2.0)),
        ({"rope_type": "linear", "type": "default", "factor": 2.0}, LinearScaling(2.0)),
        ({"rope_type": "llama3", "factor": 8.0} | LOW_AND_HIGH, Llama3Scaling(8.0, 1.0, 4.0, 512)),
        ({"rope_type": "yarn", "factor": 4.0}, YarnScaling(4.0, 512)),
        (
            {"rope_type": "yarn", "original_max_position_embeddings": 64},  # stretched to all 512
            YarnScaling(8.0, 64),
        ),
    ],
)
def test_reads_each_kind(parameters, expected):
    assert scaling_of(CONFIG, parameters) == expected


def test_yarns_factor_follows_from_deepseeks_two_numbers():
    both = {"rope_type": "yarn", "factor": 4.0, "mscale": 2.0, "mscale_all_dim": 1.0}
    of_two = 2 * (yarn_attention_factor(4.0) - 1) + 1
    expected = pytest.approx(of_two / yarn_attention_factor(4.0))
    assert scaling_of(CONFIG, both).attention_factor == expected
    assert scaling_of(CONFIG, both | {"attention_factor": 1.0}).attention_factor == 1.0


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"rope_type": "linear"}, "expected 'factor' in the rope_parameters of type 'linear'"),
        ({"factor": 2.0}, "expected a rope_type beside the factor"),
        (
            {"rope_type": "dynamic", "factor": 2.0},
            "'dynamic' of llama: its base follows the length",
        ),
        ({"rope_type": "new"}, "'new' of llama: it is not a kind that rove_lab knows"),
        ({"rope_type": "yarn", "long_factor": [1.0]}, "'longrope' of llama"),
    ],
)
def test_refuses_what_it_cannot_honour(parameters, words):
    with pytest.raises(ValueError, match=words):
        scaling_of(CONFIG, parameters)
