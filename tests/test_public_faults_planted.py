"""The public faults planted in the library, one at a time: the tests named after them fail.

On the layer in every run, on the other surfaces in `make test-all`.
"""

import pytest
import test_public_faults as turning
import test_public_faults_layouts as layouts
import test_public_faults_numerics as numerics
import torch
from rotary_surfaces import SURFACES

from rove_lab import RotaryEmbedding, YarnScaling, masking
from rove_lab.rotation import Rotation

START, MADE, TURN = Rotation.__init__, RotaryEmbedding.__call__, Rotation._turn
FAMILY, RAMP, MASK = RotaryEmbedding.__init__, YarnScaling.inv_freq, masking.attention_mask


def tables(change):
    """Rotations whose float32 tables are changed."""

    def start(self, *arguments):
        START(self, *arguments)
        self.cos, self.sin = change(self.cos), change(self.sin)
        self._cos_by_channel = self._by_channel(self.cos)

    return Rotation, "__init__", start


def positions(change):
    """Rotations for positions that are changed."""

    def made(self, given, *, device=None):
        return MADE(self, change(torch.as_tensor(given)), device=device)

    return RotaryEmbedding, "__call__", made


def turned(change):
    """Rotations whose turning is changed: of a tensor, and what else the rotation knows."""
    return Rotation, "_turn", change


def with_temperature(self, given, *, device=None):
    rotation = MADE(self, given, device=device)
    rotation.gain = self.attention_factor
    return rotation


def other_slice(self, *arguments, **how):
    FAMILY(self, *arguments, **how | {"trailing": not how.get("trailing", False)})


def top_left(attn_mask, is_causal, q, k, dtype):
    mask = MASK(attn_mask, False, q, k, dtype)
    causal = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
    if not is_causal or mask is None:
        return causal if is_causal else mask
    return mask & causal if mask.dtype == torch.bool else mask.masked_fill(~causal, -torch.inf)


def swapped_betas(self, base, rotary_dim):
    other = object.__new__(YarnScaling)
    ends = {"beta_fast": self.beta_slow, "beta_slow": self.beta_fast}
    vars(other).update(vars(self) | ends)
    return RAMP(other, base, rotary_dim)


def along_heads(self, x, sign):
    if x.shape[-3] != x.shape[-2]:
        return TURN(self, x, sign)
    return TURN(self, x.transpose(-3, -2), sign).transpose(-3, -2)


def in_place(self, x, sign):
    out = TURN(self, x, sign)
    x.data.copy_(out)
    return out


def by_complex_numbers(self, x, sign):
    torch.complex(x.float(), x.float())
    return TURN(self, x, sign)


def counted(given):
    return torch.arange(given.shape[-1]).expand(given.shape)


def of_the_first_row(given):
    return given[:1].expand_as(given) if given.dim() == 2 else given


# What is planted, and the test that must see it.
PLANTED = {
    "01 never turned back": (
        [(Rotation, "undo", lambda self, x: x)],
        lambda surface: turning.test_fault_01_values_rotated_and_never_rotated_back(surface, False),
    ),
    "02 temperature on values": (
        [
            (RotaryEmbedding, "__call__", with_temperature),
            turned(lambda self, x, sign: TURN(self, x, sign) * self.gain),
        ],
        turning.test_fault_02_yarns_temperature_on_values,
    ),
    "06 tables in half precision": (
        [tables(lambda table: table.half().float())],
        lambda surface: numerics.test_fault_06_tables_or_positions_in_half_precision(
            surface, torch.float32
        ),
    ),
    "06 positions in half precision": (
        [positions(lambda given: given.bfloat16().float())],
        lambda surface: numerics.test_fault_06_tables_or_positions_in_half_precision(
            surface, torch.bfloat16
        ),
    ),
    "08 positions in half precision": (
        [positions(lambda given: given.bfloat16().float())],
        numerics.test_fault_08_a_phase_error_reaches_the_output_linearly,
    ),
    "09 one row for all": (
        [positions(of_the_first_row)],
        lambda surface: turning.test_fault_09_one_row_of_positions_for_a_left_padded_batch(
            surface, False
        ),
    ),
    "11 slots for positions": (
        [positions(counted)],
        turning.test_fault_11_an_evicted_cache_counts_slots_or_turns_keys_again,
    ),
    "12 a table that follows the length": (
        [positions(lambda given: given / (1 + given.shape[-1] / 64))],
        turning.test_fault_12_tables_that_change_with_the_length_under_a_cache,
    ),
    "13 positions ignored": (
        [positions(counted)],
        turning.test_fault_13_positions_ignored_or_too_few,
    ),
    "14 no sign": (
        [positions(torch.abs)],
        turning.test_fault_14_negative_and_fractional_positions_after_a_cache_warmed_up,
    ),
    "14 no fraction": (
        [positions(lambda given: given.floor())],
        turning.test_fault_14_negative_and_fractional_positions_after_a_cache_warmed_up,
    ),
    "15 betas swapped": (
        [(YarnScaling, "inv_freq", swapped_betas)],
        numerics.test_fault_15_yarns_ramp_is_the_papers,
    ),
    "17 along the head axis": (
        [turned(along_heads)],
        lambda surface: layouts.test_fault_17_rotated_along_the_head_axis(surface, 2, 4),
    ),
    "18 in place": (
        [turned(in_place)],
        numerics.test_fault_18_gradients_corrupted_by_a_rotation_in_place,
    ),
    "20 complex numbers": (
        [turned(by_complex_numbers)],
        numerics.test_fault_20_complex_operations_that_a_compiler_cannot_take,
    ),
    "04 the other slice": (
        [(RotaryEmbedding, "__init__", other_slice)],
        lambda surface: layouts.test_fault_04_the_wrong_slice_of_channels_rotated(
            surface, False, False
        ),
    ),
    "10 from the top left": (
        [(masking, "attention_mask", top_left)],
        lambda surface: turning.test_fault_10_causality_counted_from_the_top_left(
            surface, (4, 1, 1)
        ),
    ),
}
# Whose slices or masks are not ours to get wrong.
NOT_OURS = {
    "04 the other slice": ("GPT", "Hugging Face"),
    "10 from the top left": ("Hugging Face",),
}
CELLS = [
    pytest.param(fault, name, marks=[pytest.mark.slow] * (name != "layer"), id=f"{fault}, {name}")
    for fault in PLANTED
    for name in SURFACES
    if name not in NOT_OURS.get(fault, ())
]


@pytest.mark.parametrize(("fault", "name"), CELLS)
def test_a_planted_fault_is_seen(fault, name, monkeypatch):
    planted, test = PLANTED[fault]
    # A ramp that is not the model's own table is refused before any test could see it.
    errors = (AssertionError, ValueError) if name == "Hugging Face" else AssertionError
    with torch.set_grad_enabled(fault[:2] in ("18", "20")):
        with monkeypatch.context() as library:
            for patch in planted:
                library.setattr(*patch)
            with pytest.raises(errors):
                test(SURFACES[name])
        test(SURFACES[name])
