"""Faults of rotary attention that were reported in public: what turns, and by which position.

Each test is named after a fault and asks four surfaces (`rotary_surfaces`) for the right behaviour
of its whole kind. Layout is in `test_public_faults_layouts.py`; precision, scaling and compilers
are in `test_public_faults_numerics.py`. A number means the same fault in every name in `tests`.
"""

import pytest
import torch
from rotary_surfaces import GAPS, ROWS, N, differ, each_surface
from rove_models import ARCHITECTURES, LAYERS, small_model
from rove_reference import reference_logits
from rove_situations import POSITIONS, TOKENS

from rove_lab import RotaryEmbedding
from rove_lab.hf_config import rotary_arguments
from rove_lab.hf_scaling import REFUSED_KINDS
from rove_lab.lens import bridge_from_huggingface, rove_hooks
from rove_lab.retrofit import enable_rove

with_and_without_yarn = pytest.mark.parametrize("yarn", [False, True], ids=["plain", "YaRN"])


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


@each_surface
@with_and_without_yarn
def test_fault_01_values_rotated_and_never_rotated_back(surface, yarn):
    made = surface(yarn=yarn)
    x = made.draw(N)
    expected = made.reference(x)
    assert differ(made.run(x), expected) < made.tolerance
    for shift in (17, -4, 0.5, 300):
        moved = made.run(x, torch.arange(N) + shift)
        assert differ(moved, expected) < made.tolerance
    assert differ(surface(yarn=yarn, rotate_values=False).run(x), expected) > 0.1


@each_surface
def test_fault_02_yarns_temperature_on_values(surface):
    """The reference puts it on logits alone; a token that is alone gets its own value back."""
    made, plain = surface(yarn=True), surface(yarn=True, rotate_values=False)
    x = made.draw(N)
    assert differ(made.run(x), made.reference(x)) < made.tolerance
    alone = made.draw(1)
    assert differ(made.run(alone, [1000]), plain.run(alone)) < made.tolerance
    cache, unturned = made.new_cache(), plain.new_cache()
    made.run(x, cache=cache)
    plain.run(x, cache=unturned)
    kept = made.held_values(cache).norm(dim=-1) / plain.held_values(unturned).norm(dim=-1)
    assert (kept - 1).abs().max() < 1e-6


@each_surface
@with_and_without_yarn
def test_fault_03_values_turned_by_another_base_or_scaling_than_keys(surface, yarn):
    """The reference has one rotation for all; its base is not the usual one."""
    made = surface(yarn=yarn)
    x = made.draw(N)
    for positions in (GAPS, ROWS):
        assert differ(made.run(x, positions), made.reference(x, positions)) < made.tolerance


def test_fault_03_bases_that_differ_by_layer():
    model = ARCHITECTURES["gemma3_text"]()
    expected = reference_logits(model, TOKENS, POSITIONS)
    bases = [rotary_arguments(model.config, layer)["base"] for layer in range(3)]
    assert bases == [300.0, 9000.0, 300.0]
    with enable_rove(model):
        assert differ(model(TOKENS).logits, expected) < 1e-4


def nested_yarn(**more):
    """Gemma 3 whose layers that see everything are stretched by an untruncated ramp."""
    full = {"rope_type": "yarn", "rope_theta": 9000.0, "factor": 4.0, "beta_fast": 4.0}
    full |= {"original_max_position_embeddings": 64, **more}
    sliding = {"rope_type": "default", "rope_theta": 300.0}
    return {"full_attention": full, "sliding_attention": sliding}


def test_fault_03_a_model_that_does_not_turn_as_its_config_says():
    """transformers 5.24 does not read `truncate` inside a layer type: keys would turn by another
    ramp than the values."""
    how = {"layer_types": LAYERS, "query_pre_attn_scalar": 24, "max_position_embeddings": 256}
    model = small_model("gemma3_text", rope_parameters=nested_yarn(truncate=False), **how)
    with pytest.raises(ValueError, match="full_attention_inv_freq to hold the frequencies that"):
        enable_rove(model)
    with pytest.raises(ValueError, match="full_attention_inv_freq to hold the frequencies that"):
        rove_hooks(bridge_from_huggingface(model))
    enable_rove(model, layers=[0, 2]).remove()
    beside = nested_yarn() | {"truncate": False}
    enable_rove(small_model("gemma3_text", rope_parameters=beside, **how)).remove()
    changed = ARCHITECTURES["llama"]()
    changed.config.rope_parameters["rope_theta"] = 10_000.0
    with pytest.raises(ValueError, match=r"values would turn otherwise than queries and keys"):
        enable_rove(changed)


@each_surface
@with_and_without_yarn
def test_fault_09_one_row_of_positions_for_a_left_padded_batch(surface, yarn):
    """Each sequence by itself is the reference; the batch has one of them padded by two."""
    made = surface(yarn=yarn)
    x = made.draw(N)
    padding = torch.ones(2, N, dtype=torch.bool)
    padding[0, :2] = False
    positions = (padding.long().cumsum(-1) - 1).clamp(min=0)
    alone = made.reference(x[:1, 2:]), made.reference(x[1:])
    for given in (positions, None):  # RoVE knows differences alone: 0, 1, 2... will do as well
        found = made.run(x, given, padding)
        assert differ(found[:1, 2:], alone[0]) < made.tolerance
        assert differ(found[1:], alone[1]) < made.tolerance
    cache = made.new_cache()  # and decoding goes on from each row's own position
    pieces = [
        made.run(x[:, a:b], positions[:, a:b], padding[:, :b], cache)
        for a, b in ((0, 4), (4, 5), (5, 6))
    ]
    found = torch.cat(pieces, 1)
    assert differ(found[:1, 2:], alone[0]) < made.tolerance
    assert differ(found[1:], alone[1]) < made.tolerance


@each_surface
@pytest.mark.parametrize("chunks", [(1,) * 6, (4, 1, 1), (1, 3, 2), (2, 4)], ids=str)
def test_fault_10_causality_counted_from_the_top_left(surface, chunks):
    """Queries fewer than keys: the last one sees every key, those before it one fewer each."""
    made = surface()
    x = made.draw(N)
    expected, cache = made.reference(x), made.new_cache()
    found = torch.cat([made.run(piece, cache=cache) for piece in x.split(chunks, 1)], 1)
    assert differ(found, expected) < made.tolerance


@each_surface
def test_fault_11_an_evicted_cache_counts_slots_or_turns_keys_again(surface):
    """Two tokens are dropped; the last query is then the reference's that may not see them."""
    made = surface()
    x, cache = made.draw(N), made.new_cache()
    made.run(x[:, :5], GAPS[:5], cache=cache)
    before = made.held_values(cache).clone()
    made.evict(cache, [0, 3, 4])
    assert torch.equal(made.held_values(cache), before[..., [0, 3, 4], :])
    last = made.run(x[:, 5:], GAPS[5:], cache=cache)
    assert torch.equal(made.held_values(cache)[..., :3, :], before[..., [0, 3, 4], :])
    mask = torch.ones(N, N, dtype=torch.bool)
    mask[5, [1, 2]] = False
    assert differ(last, made.reference(x, GAPS, mask)[:, 5:]) < made.tolerance
    assert differ(last, made.reference(x, GAPS)[:, 5:]) > 0.01


@each_surface
def test_fault_12_tables_that_change_with_the_length_under_a_cache(surface):
    """Far beyond the 64 tokens of the ramp: what was said of early tokens stays as it was."""
    made = surface(yarn=True)
    x = made.draw(70, batch=1)
    whole, cache = made.run(x), made.new_cache()
    assert differ(made.run(x[:, :5]), whole[:, :5]) < made.tolerance
    steps = [made.run(piece, cache=cache) for piece in x.split((60, 3, 1, 1, 5), 1)]
    assert differ(torch.cat(steps, 1), whole) < made.tolerance
    again = made.run(x[:, :5])
    assert differ(again, made.reference(x[:, :5])) < made.tolerance


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_fault_12_scalings_that_follow_the_length_are_refused(kind):
    assert kind in REFUSED_KINDS
    parameters = {"rope_type": kind, "rope_theta": 500.0, "factor": 4.0}
    if kind == "longrope":
        parameters |= {"short_factor": [1.0] * 12, "long_factor": [2.0] * 12}
        parameters["original_max_position_embeddings"] = 64
    model = small_model("llama", rope_parameters=parameters)
    with pytest.raises(ValueError, match=f"cannot honour the rope_type '{kind}' of llama"):
        enable_rove(model)
    with pytest.raises(ValueError, match=f"cannot honour the rope_type '{kind}' of llama"):
        RotaryEmbedding.from_config(model.config)


@each_surface
def test_fault_13_positions_ignored_or_too_few(surface):
    made = surface()
    x = made.draw(N)
    expected = made.reference(x, ROWS)
    assert differ(made.run(x, ROWS), expected) < made.tolerance
    assert differ(made.reference(x), expected) > 0.1
    for wrong in ([[0]] * 2, [list(range(N - 1))] * 2, [list(range(N + 1))] * 2, [ROWS[0]] * 3):
        with pytest.raises(ValueError, match="expected"):
            made.run(x, torch.tensor(wrong))


@each_surface
def test_fault_14_negative_and_fractional_positions_after_a_cache_warmed_up(surface):
    made = surface()
    x = made.draw(N)
    positions = [[-3.5, -2.0, 0.25, 7.5, 7.75, -1e3], [0.0, 1.0, 2.0, 3.0, 4.0, 5.5]]
    expected = made.reference(x, positions)
    assert differ(made.run(x, positions), expected) < 10 * made.tolerance
    cache = made.new_cache()
    made.run(made.draw(4), cache=made.new_cache())  # a warm one beside it leaves nothing behind
    pieces = [
        made.run(x[:, a:b], torch.tensor(positions)[:, a:b], cache=cache)
        for a, b in ((0, 3), (3, 5), (5, 6))
    ]
    assert differ(torch.cat(pieces, 1), expected) < 10 * made.tolerance
