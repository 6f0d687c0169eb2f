"""Faults of rotary attention that were reported in public: which channels turn, along which axis.

As in `test_public_faults.py`, each test is named after a fault and asks the four surfaces.
"""

import pytest
import torch
from rotary_surfaces import (
    BASE,
    D_HEAD,
    GAPS,
    ROWS,
    SURFACES,
    HuggingFace,
    Layer,
    N,
    differ,
    each_surface,
)
from rove_models import rope, small_model

from rove_lab import RotaryEmbedding, RotarySelfAttention, convert_layout
from rove_lab.model import GPTConfig
from rove_lab.retrofit import enable_rove


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


@pytest.mark.parametrize("surface", [SURFACES["functions"], Layer], ids=["functions", "layer"])
@pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "interleaved"])
@pytest.mark.parametrize("trailing", [False, True], ids=["leading", "trailing"])
def test_fault_04_the_wrong_slice_of_channels_rotated(surface, interleaved, trailing):
    layout = {"rotary_dim": 4, "trailing": trailing, "interleaved": interleaved}
    made, plain = surface(**layout), surface(**layout, rotate_values=False)
    x = made.draw(N)
    assert differ(made.run(x, GAPS), made.reference(x, GAPS)) < made.tolerance
    still = slice(0, 4) if trailing else slice(4, 8)
    assert_same_channels(made, plain, x, list(range(8))[still])


@each_surface
def test_fault_04_channels_of_planes_that_stand_still(surface):
    made, plain = surface(planes=(0, 2)), surface(rotate_values=False)
    x = made.draw(N)
    assert differ(made.run(x, GAPS), made.reference(x, GAPS)) < made.tolerance
    turning = {channel for m in (0, 2) for channel in made.turns.channels[m]}
    assert_same_channels(made, plain, x, sorted(set(range(made.turns.d_head)) - turning))


@pytest.mark.parametrize("architecture", ["phi", "gpt_neox", "gptj"])
def test_fault_04_partial_rotary_of_hugging_face(architecture):
    made = HuggingFace(architecture=architecture)
    plain = HuggingFace(architecture=architecture, rotate_values=False)
    x = made.draw(N)
    assert differ(made.run(x, GAPS), made.reference(x, GAPS)) < made.tolerance
    turning = {channel for plane in made.turns.channels for channel in plane}
    assert_same_channels(made, plain, x, sorted(set(range(made.turns.d_head)) - turning))


def assert_same_channels(made, plain, x, still):
    """Bit for bit in the first layer's cache; all others move."""
    cache, unturned = made.new_cache(), plain.new_cache()
    made.run(x, GAPS, cache=cache)
    plain.run(x, GAPS, cache=unturned)
    turned, straight = made.held_values(cache), plain.held_values(unturned)
    assert torch.equal(turned[..., still], straight[..., still])
    moving = [c for c in range(turned.shape[-1]) if c not in still]
    assert (turned - straight)[..., 1:, moving].abs().amax((0, 1, 2)).min() > 1e-3


WEIGHTS = ("W_Q", "W_K", "W_V", "W_O")


@pytest.mark.parametrize("name", ["functions", "layer", "GPT"])
def test_fault_05_only_queries_and_keys_converted_to_the_other_layout(name):
    """All four weights move, columns of W_V and rows of W_O too; three alone change the output."""
    made = SURFACES[name]()
    x = made.draw(N)
    expected = made.reference(x)
    assert differ(made.run(x), expected) < made.tolerance
    layers = [b.attn for b in made.model.blocks] if name == "GPT" else [made.model]
    before = [[getattr(layer, W).data for W in WEIGHTS] for layer in layers]
    for left in (None, *WEIGHTS):
        for layer, old in zip(layers, before, strict=True):
            halves = RotaryEmbedding(D_HEAD, base=BASE)
            *moved, layer.rotary = convert_layout(*old, halves)
            layer.value_rotary = None if name == "functions" else layer.rotary
            for W, weight, kept in zip(WEIGHTS, moved, old, strict=True):
                getattr(layer, W).data = kept if left == W else weight
        error = differ(made.run(x), expected)
        assert error < made.tolerance if left is None else error > 0.05


def test_fault_05_weights_moved_between_models_of_two_layouts():
    """Llama's halves in Cohere's attention, which turns neighbours, RoVE on in both."""
    llama, cohere = (small_model(kind, head_dim=16, **rope()) for kind in ("llama", "cohere"))
    x = torch.randn(2, N, 64, generator=torch.Generator().manual_seed(0)).double()

    def output(model):
        places, attention = torch.tensor(ROWS), model.model.layers[0].self_attn
        tables = model.model.rotary_emb(x, position_ids=places)
        given = {"position_embeddings": tables, "position_ids": places, "attention_mask": None}
        with enable_rove(model):
            return attention(x, **given)[0]

    def projections(model):
        attention = model.model.layers[0].self_attn
        return [getattr(attention, f"{name}_proj").weight for name in "qkvo"]

    *qkv, o = projections(llama)
    weights = [weight.unflatten(0, (-1, 16)).mT for weight in qkv]
    weights.append(o.T.unflatten(0, (-1, 16)))
    *moved, there = convert_layout(*weights, RotaryEmbedding.from_config(llama.config))
    assert repr(there) == repr(RotaryEmbedding.from_config(cohere.config))
    expected = output(llama)
    for left in (None, 0, 1, 2, 3):
        chosen = [weights[i] if left == i else W for i, W in enumerate(moved)]
        rows_of = [W.mT.flatten(0, 1) for W in chosen[:3]] + [chosen[3].flatten(0, 1).T]
        for theirs, ours in zip(projections(cohere), rows_of, strict=True):
            theirs.copy_(ours)
        error = differ(output(cohere), expected)
        assert error < 1e-5 if left is None else error > 0.05


@pytest.mark.parametrize(
    "make",
    [
        lambda: RotaryEmbedding(7),
        lambda: RotaryEmbedding(8, rotary_dim=5),
        lambda: RotarySelfAttention(21, 3),
        lambda: GPTConfig(d_model=21, n_heads=3),
        lambda: RotaryEmbedding.from_config(odd_phi().config),
        lambda: enable_rove(odd_phi()),
    ],
    ids=["d_head", "rotary_dim", "layer", "GPT", "config", "Hugging Face"],
)
def test_fault_16_an_odd_rotary_dim_crashes_late(make):
    with pytest.raises(ValueError, match=r"expected an even rotary_dim .* got [57]"):
        make()


def odd_phi():
    return small_model("phi", **rope(partial_rotary_factor=5 / 16))


@each_surface
@pytest.mark.parametrize(("batch", "n"), [(2, 4), (4, 4), (2, 2), (1, 2)], ids=str)
def test_fault_17_rotated_along_the_head_axis(surface, batch, n):
    """As many tokens as heads, or KV heads, or sequences: a swap would give no error of shape."""
    made = surface()
    x = made.draw(n, batch)
    positions = torch.tensor([[0, 3, 4, 90], [7, 8, 50, 51], [-5, 0, 1, 2], [9, 8, 7, 6]])
    positions = positions[:batch, :n]
    assert differ(made.run(x, positions), made.reference(x, positions)) < made.tolerance
