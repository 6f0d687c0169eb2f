"""Context-extension scalings against the papers' formulas."""

import dataclasses
import itertools
import math

import pytest
import torch
from references import (
    linear_frequencies,
    llama3_frequencies,
    ntk_frequencies,
    rope_frequencies,
    yarn_attention_factor,
    yarn_frequencies,
)
from samples import YARN_CASES

from rove_lab import LinearScaling, Llama3Scaling, NTKScaling, RotaryEmbedding, YarnScaling

SCALINGS = [
    LinearScaling(4.0),
    NTKScaling(4.0),
    YarnScaling(4.0, 4096),
    YarnScaling(16.0, 256, beta_fast=8.0, beta_slow=0.5, truncate=False),
    Llama3Scaling(8.0, 1.0, 4.0, 8192),
]


def close(actual, expected):
    return torch.allclose(actual, torch.tensor(expected, dtype=torch.float64), rtol=1e-13, atol=0)


def scaled(base, rotary_dim, scaling=None):
    return RotaryEmbedding(rotary_dim, base=base, scaling=scaling).inv_freq


@pytest.mark.parametrize("base", [100.0, 10000.0, 500000.0, 1e6])
@pytest.mark.parametrize("rotary_dim", [2, 6, 64, 128])
def test_frequencies_are_powers_of_the_base(base, rotary_dim):
    assert close(scaled(base, rotary_dim), rope_frequencies(rotary_dim, base))


def test_frequencies_are_in_radians_per_token_and_float64():
    inv_freq = scaled(10000.0, 4)
    assert inv_freq.dtype == torch.float64
    assert inv_freq.tolist() == [1.0, 0.01]


@pytest.mark.parametrize("factor", [1.0, 1.5, 8.0])
@pytest.mark.parametrize("rotary_dim", [4, 64])
def test_linear_and_ntk_follow_their_formulas(factor, rotary_dim):
    for base in (100.0, 10000.0):
        linear = scaled(base, rotary_dim, LinearScaling(factor))
        assert close(linear, linear_frequencies(rotary_dim, base, factor))
        ntk = scaled(base, rotary_dim, NTKScaling(factor))
        assert close(ntk, ntk_frequencies(rotary_dim, base, factor))


def test_ntk_keeps_the_fastest_plane_and_divides_the_slowest_by_the_factor():
    plain, ntk = scaled(10000.0, 64), scaled(10000.0, 64, NTKScaling(4.0))
    assert ntk[0] == plain[0]
    assert (plain[-1] / ntk[-1]).item() == pytest.approx(4.0, rel=1e-12)


@pytest.mark.parametrize("truncate", [True, False])
def test_fault_15_yarn_equals_the_paper(truncate):
    for base, rotary_dim, factor, n_ctx, (fast, slow), case_truncate in YARN_CASES:
        if case_truncate == truncate:
            yarn = YarnScaling(factor, n_ctx, fast, slow, truncate)
            expected = yarn_frequencies(rotary_dim, base, factor, n_ctx, fast, slow, truncate)
            assert close(scaled(base, rotary_dim, yarn), expected), (base, rotary_dim, yarn)


@pytest.mark.parametrize("truncate", [True, False])
def test_fault_15_yarn_keeps_fast_planes_and_interpolates_slow_ones(truncate):
    base, rotary_dim, n_ctx = 10000.0, 128, 4096
    plain = scaled(base, rotary_dim)
    ratio = plain / scaled(base, rotary_dim, YarnScaling(8.0, n_ctx, truncate=truncate))
    turns = n_ctx * plain / (2 * math.pi)
    # A plane beside the ramp's end may be rounded into it: leave the two there out.
    assert torch.allclose(ratio[turns > 1.2 * 32], torch.tensor(1.0).double())
    assert torch.allclose(ratio[turns < 1 / 1.2], torch.tensor(8.0).double())
    assert (ratio.diff() >= -1e-12).all()


@pytest.mark.parametrize("high", [4.0, 8.0])
@pytest.mark.parametrize("low", [0.5, 1.0])
def test_llama3_equals_the_published_code(low, high):
    for base, rotary_dim, factor, n_ctx in itertools.product(
        (10000.0, 500000.0), (64, 128), (1.0, 8.0, 32.0), (1024, 8192)
    ):
        actual = scaled(base, rotary_dim, Llama3Scaling(factor, low, high, n_ctx))
        assert close(actual, llama3_frequencies(rotary_dim, base, factor, low, high, n_ctx))


def test_yarn_attention_factor_is_the_papers():
    for factor in (1.0, 2.0, 4.0, 16.0):
        rotary = RotaryEmbedding(8, scaling=YarnScaling(factor, 1024))
        assert rotary.attention_factor == pytest.approx(yarn_attention_factor(factor), rel=1e-15)


def test_fault_15_explicit_attention_factor_of_one_is_kept():
    rotary = RotaryEmbedding(8, scaling=YarnScaling(16.0, 1024, attention_factor=1.0))
    assert rotary.attention_factor == 1.0


def test_only_yarn_has_a_temperature():
    for scaling in (None, LinearScaling(8.0), NTKScaling(8.0), Llama3Scaling(8.0, 1.0, 4.0, 64)):
        assert RotaryEmbedding(8, scaling=scaling).attention_factor == 1.0


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda s: type(s).__name__)
def test_fault_12_tables_do_not_depend_on_the_length(scaling):
    rotary = RotaryEmbedding(64, scaling=scaling)
    before = rotary(range(8)).cos
    rotary(range(100_000, 100_010))  # a dynamic scaling would change its base here, and stay so
    assert torch.equal(rotary(range(8)).cos, before)
    assert torch.equal(rotary(range(5000)).cos[:8], before)


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda s: type(s).__name__)
def test_frequencies_made_in_inference_mode_are_ordinary_tensors(scaling):
    with torch.inference_mode():
        rotary = RotaryEmbedding(64, scaling=scaling)
    assert not rotary.inv_freq.is_inference()
    assert not rotary.planes([0, 1]).inv_freq.is_inference()


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda s: type(s).__name__)
def test_scalings_are_values(scaling):
    assert scaling == dataclasses.replace(scaling)
    with pytest.raises(dataclasses.FrozenInstanceError):
        scaling.factor = 2.0


@pytest.mark.parametrize(
    "make",
    [
        LinearScaling,
        NTKScaling,
        lambda factor: YarnScaling(factor, 1024),
        lambda factor: Llama3Scaling(factor, 1.0, 4.0, 1024),
    ],
    ids=["linear", "ntk", "yarn", "llama3"],
)
@pytest.mark.parametrize("factor", [0.0, -2.0, math.nan, math.inf, "4", None, True, [4.0]])
def test_factor_must_be_a_positive_number(make, factor):
    with pytest.raises((ValueError, TypeError), match=r"factor.*got"):
        make(factor)


@pytest.mark.parametrize("make", [LinearScaling, NTKScaling, lambda s: YarnScaling(s, 64)])
def test_factor_below_one_says_what_a_factor_is(make):
    with pytest.raises(ValueError, match=r"factor >= 1 .*got 0\.25.*give 4\.0"):
        make(0.25)


@pytest.mark.parametrize("name", ["original_n_ctx", "beta_fast", "beta_slow", "attention_factor"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "8", True])
def test_yarn_numbers_must_be_positive(name, value):
    with pytest.raises((ValueError, TypeError), match=rf"expect.*YarnScaling.*{name}.*got"):
        YarnScaling(**{"factor": 4.0, "original_n_ctx": 1024, name: value})


@pytest.mark.parametrize("truncate", ["no", 0, None])
def test_yarn_truncate_must_be_a_bool(truncate):
    with pytest.raises((ValueError, TypeError), match=r"truncate.*got"):
        YarnScaling(4.0, 1024, truncate=truncate)


def test_fault_15_swapped_betas_are_refused():
    with pytest.raises(ValueError, match=r"beta_fast >= beta_slow, got .*swap"):
        YarnScaling(4.0, 1024, beta_fast=1.0, beta_slow=32.0)


def test_yarn_refuses_a_window_in_which_no_plane_turns_beta_slow_times():
    with pytest.raises(ValueError, match=r"above 2 pi beta_slow, got 6 and .*Lower beta_slow"):
        YarnScaling(4.0, 6)
    YarnScaling(4.0, 7)  # 7 > 2 pi: the fastest plane turns once


@pytest.mark.parametrize("name", ["low_freq_factor", "high_freq_factor", "original_n_ctx"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "8"])
def test_llama3_numbers_must_be_positive(name, value):
    good = {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_n_ctx": 8192,
    }
    with pytest.raises((ValueError, TypeError), match=rf"expect.*Llama3Scaling.*{name}.*got"):
        Llama3Scaling(**{**good, name: value})


def test_llama3_swapped_or_equal_ends_are_refused():
    for low, high in ((4.0, 1.0), (2.0, 2.0)):
        with pytest.raises(ValueError, match=r"low_freq_factor < high_freq_factor, got .*swap"):
            Llama3Scaling(8.0, low, high, 8192)


def test_ntk_needs_more_than_one_plane():
    with pytest.raises(ValueError, match=r"rotary_dim > 2, got 2"):
        RotaryEmbedding(2, scaling=NTKScaling(2.0))
    with pytest.raises(ValueError, match=r"rotary_dim > 2, got 2"):
        RotaryEmbedding(8, rotary_dim=2, scaling=NTKScaling(2.0))


@pytest.mark.parametrize("base", [1.0, 0.5])
def test_yarn_needs_planes_from_fast_to_slow(base):
    with pytest.raises(ValueError, match=r"base above 1, got"):
        RotaryEmbedding(8, base=base, scaling=YarnScaling(4.0, 1024))


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear", "factor": 2.0},
        "yarn",
        4.0,
        YarnScaling,
        LinearScaling,
        RotaryEmbedding(8),
        torch.ones(4),
    ],
    ids=["dict", "str", "float", "the class", "the class too", "a rotary", "frequencies"],
)
def test_scaling_of_another_kind_is_refused(scaling):
    with pytest.raises(TypeError, match=r"expected scaling .*got"):
        RotaryEmbedding(8, scaling=scaling)
