"""head_weights: what shapes the heads' weights have, and whom a KV head serves."""

from types import SimpleNamespace

import pytest
import torch

from rove_lab import RotaryEmbedding
from rove_lab.head_weights import (
    as_offsets,
    check_embedding,
    check_output,
    check_projection,
    expand_heads,
    wide,
)

ROTARY = RotaryEmbedding(4)


def test_what_fits_passes():
    check_projection("W_Q", torch.ones(2, 6, 4), ROTARY)
    check_output(torch.ones(2, 4, 6), ROTARY)
    check_output(torch.ones(2, 4, 6), ROTARY, 6)
    check_embedding("W_E", torch.ones(9, 6), 6, -1)
    check_embedding("W_U", torch.ones(6, 9), 6, 0)


@pytest.mark.parametrize(
    ("W", "words"),
    [
        (torch.ones(2, 4, 6), r"expected W_Q \[heads, d_model, d_head=4\], got \[2, 4, 6\]"),
        (torch.ones(6, 4), r"expected W_Q .*got \[6, 4\].*W_Q\[None\]"),
        (torch.ones(2, 0, 4), r"expected W_Q .*got \[2, 0, 4\]"),
    ],
)
def test_a_projection_that_does_not_fit(W, words):
    with pytest.raises(ValueError, match=words):
        check_projection("W_Q", W, ROTARY)


@pytest.mark.parametrize(
    ("W", "d_model", "words"),
    [
        (torch.ones(2, 6, 4), None, r"W_O \[heads, d_head=4, d_model\], got \[2, 6, 4\]"),
        (torch.ones(4, 6), None, r"expected W_O .*got \[4, 6\].*unflatten"),
        (torch.ones(2, 4, 0), None, r"expected W_O .*got \[2, 4, 0\]"),
        (torch.ones(2, 4, 6), 7, r"expected W_O .*d_model=7\], got \[2, 4, 6\]"),
    ],
)
def test_output_weights_that_do_not_fit(W, d_model, words):
    with pytest.raises(ValueError, match=words):
        check_output(W, ROTARY, d_model)


def test_embeddings_that_do_not_fit():
    with pytest.raises(ValueError, match=r"W_E \[d_vocab, d_model=6\], got \[6, 9\].*W_E\.T"):
        check_embedding("W_E", torch.ones(6, 9), 6, -1)
    with pytest.raises(ValueError, match=r"W_U \[d_model=6, d_vocab\], got \[9, 6\].*W_U\.T"):
        check_embedding("W_U", torch.ones(9, 6), 6, 0)
    with pytest.raises(ValueError, match=r"expected W_U .*got \[6\]"):
        check_embedding("W_U", torch.ones(6), 6, 0)


def test_types_that_do_not_fit():
    for check in (
        lambda: check_projection("W_K", [1.0], ROTARY),
        lambda: check_output(torch.ones(2, 4, 6, dtype=torch.int64), ROTARY),
        lambda: check_embedding("W_E", None, 6, -1),
    ):
        with pytest.raises(TypeError, match=r"expected W_[KOE] to be a floating-point tensor"):
            check()
    for check in (
        lambda: check_projection("W_K", torch.ones(2, 6, 4), 4),
        lambda: check_output(torch.ones(2, 4, 6), 4),
    ):
        with pytest.raises(TypeError, match="expected a RotaryEmbedding, got int"):
            check()


def test_a_kv_head_serves_a_group_of_neighbours():
    W = torch.arange(3.0)[:, None]
    assert expand_heads("W_V", W, 6)[:, 0].tolist() == [0, 0, 1, 1, 2, 2]
    assert expand_heads("W_V", W, 3) is W


@pytest.mark.parametrize(("n_kv_heads", "n_heads"), [(3, 4), (4, 2), (0, 4)])
def test_heads_that_cannot_be_grouped(n_kv_heads, n_heads):
    words = rf"expected the query heads to be a multiple of .*got {n_heads} and {n_kv_heads} in W_V"
    with pytest.raises(ValueError, match=words):
        expand_heads("W_V", torch.ones(n_kv_heads, 2), n_heads)


def test_offsets_are_one_axis_of_finite_numbers():
    assert as_offsets([0.5, -1.0]).tolist() == [0.5, -1.0]
    with pytest.raises(ValueError, match=r"expected offsets \[n_offsets\], got \[\]: flatten"):
        as_offsets(torch.tensor(3))
    with pytest.raises(ValueError, match=r"expected finite"):
        as_offsets([float("nan")])
    with pytest.raises(TypeError, match=r"expected integer, float32 or float64"):
        as_offsets(torch.zeros(2, dtype=torch.bfloat16))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_wide_is_float64(dtype):
    assert wide(torch.ones(2, dtype=dtype)).dtype == torch.float64


def test_wide_is_float32_where_there_is_no_float64():
    on_mps = SimpleNamespace(
        device=torch.device("mps"), to=lambda dtype: torch.ones(1, dtype=dtype)
    )
    assert wide(on_mps).dtype == torch.float32
