"""`frame_attention` in frames of every kind, against dense matrices; RoPE and RoVE as cases."""

import pytest
import torch
from frame_samples import KINDS, places
from hypothesis import given, settings
from hypothesis import strategies as st
from references_frames import reference_frame_attention
from samples import inputs, normal
from torch.nn.functional import pad

from rove_lab import RotaryEmbedding, YarnScaling, attention_pattern, rope_attention, rove_attention
from rove_lab.frames import (
    AxialRotary,
    Frame,
    Poses,
    SideBySide,
    frame_attention,
    planar_poses,
)
from rove_lab.temperature import with_temperature

EVERY_KIND = pytest.mark.parametrize("kind", KINDS, ids=str)
QUERIES, KEYS = places(2, 3, seed=1), places(2, 5, seed=2)


def tensors(kind, q_len=3, k_len=5, **how):
    return inputs(q_len, k_len, d_head=kind.d_head, **how)


def close(a, b, atol=1e-11):
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


# --- against dense matrices --------------------------------------------------------------------


@EVERY_KIND
@pytest.mark.parametrize("rotate_values", [True, False])
def test_gta_in_frames_of_any_group_equals_the_matrices(kind, rotate_values):
    """Miyato et al. 2024 (arXiv:2310.10375), with two query heads on each KV head."""
    q, k, v = tensors(kind)
    expected = reference_frame_attention(
        q, k, v, kind.matrices(QUERIES), kind.matrices(KEYS), rotate_values=rotate_values
    )
    z = frame_attention(q, k, v, kind.frame(QUERIES), kind.frame(KEYS), rotate_values=rotate_values)
    close(z, expected)


@EVERY_KIND
def test_masks_and_causality_are_those_of_attention(kind):
    q, k, v = tensors(kind)
    frames = kind.frame(QUERIES), kind.frame(KEYS)
    matrices = kind.matrices(QUERIES), kind.matrices(KEYS)
    mask = torch.tensor([[1, 0, 1, 1, 1], [0, 0, 0, 0, 0], [1, 1, 0, 1, 1]]).bool()
    expected = reference_frame_attention(
        q, k, v, *matrices, allowed=lambda i, j: bool(mask[i, j]) and j - i <= 2, scale=0.3
    )
    z = frame_attention(q, k, v, *frames, attn_mask=mask, is_causal=True, scale=0.3)
    close(z, expected)
    assert (z[:, :, 1] == 0).all()  # it may attend to nothing
    assert (z[:, :, 0] != 0).any()
    bias = torch.where(mask, 0.0, -torch.inf).double()
    close(frame_attention(q, k, v, *frames, attn_mask=bias, is_causal=True, scale=0.3), expected)


@EVERY_KIND
def test_one_set_of_places_serves_a_whole_batch(kind):
    q, k, v = tensors(kind, batch=1)
    one = places(1, 3, seed=1), places(1, 5, seed=2)
    expected = frame_attention(q, k, v, kind.frame(one[0]), kind.frame(one[1]))
    many = [x.expand(4, -1, -1, -1) for x in (q, k, v)]
    close(
        frame_attention(*many, kind.frame(one[0]), kind.frame(one[1])),
        expected.expand(4, -1, -1, -1),
    )


@EVERY_KIND
def test_apply_undo_and_dual_are_the_matrix_its_inverse_and_its_inverse_transposed(kind):
    x, frame = normal(2, 2, 5, kind.d_head), kind.frame(KEYS)
    rho = torch.stack([torch.stack(row) for row in kind.matrices(KEYS)])[:, None]
    for move, matrix in (
        (frame.apply, rho),
        (frame.undo, torch.linalg.inv(rho)),
        (frame.dual, torch.linalg.inv(rho).mT),
    ):
        close(move(x), (matrix @ x[..., None])[..., 0])


# --- what holds in every frame -----------------------------------------------------------------


@EVERY_KIND
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), rotate_values=st.booleans())
def test_moving_all_tokens_alike_changes_nothing(kind, seed, rotate_values):
    q, k, v = tensors(kind)
    by = places(1, 1, seed=seed)
    here, there = QUERIES.moved(by), KEYS.moved(by)
    how = {"rotate_values": rotate_values}
    still = frame_attention(q, k, v, kind.frame(QUERIES), kind.frame(KEYS), **how)
    close(frame_attention(q, k, v, kind.frame(here), kind.frame(there), **how), still, 1e-10)
    elsewhere = frame_attention(q, k, v, kind.frame(QUERIES), kind.frame(there), **how)
    assert not torch.allclose(elsewhere, still, atol=1e-3)  # the keys alone do matter


@EVERY_KIND
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_a_message_depends_on_the_relative_frame_alone(kind, seed):
    """With one key the output is its message: two pairs of tokens, equally placed to each other."""
    q, k, v = tensors(kind, 1, 1)
    i, j, by = (places(1, 1, seed=s) for s in (seed, seed + 1, seed + 2))
    message = frame_attention(q, k, v, kind.frame(i), kind.frame(j))
    again = frame_attention(q, k, v, kind.frame(i.moved(by)), kind.frame(j.moved(by)))
    close(again, message, 1e-10)
    relative = torch.linalg.inv(kind.matrix(*i.at(0, 0))) @ kind.matrix(*j.at(0, 0))
    close(message, v.repeat_interleave(2, 1) @ relative.T, 1e-10)
    own = frame_attention(q, k, v, kind.frame(j), kind.frame(j))
    close(own, v.repeat_interleave(2, 1), 1e-10)  # in the sender's own frame it is what it said


@EVERY_KIND
def test_values_without_frames_are_mixed_as_they_are(kind):
    """Still unchanged by a move of all tokens, and blind to the frames but for the weights."""
    q, k, v = tensors(kind, 1, 1)
    here, there = places(2, 1, seed=1), places(2, 1, seed=2)
    z = frame_attention(q, k, v, kind.frame(here), kind.frame(there), rotate_values=False)
    close(z, v.repeat_interleave(2, 1))


@EVERY_KIND
def test_gradients_flow_to_queries_keys_and_values(kind):
    q, k, v = (x.requires_grad_() for x in tensors(kind, 2, 2, n_heads=1, n_kv_heads=1, batch=1))
    here = places(1, 2, seed=3)

    def attention(q, k, v):
        return frame_attention(q, k, v, kind.frame(here), kind.frame(here), is_causal=True)

    assert torch.autograd.gradcheck(attention, (q, k, v), fast_mode=True)


@EVERY_KIND
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.3), (torch.float64, 1e-12)]
)
def test_the_result_has_the_inputs_dtype(kind, dtype, tolerance):
    near = places(2, 3, seed=1, spread=0.5), places(2, 5, seed=2, spread=0.5)
    q, k, v = tensors(kind)
    expected = frame_attention(q, k, v, kind.frame(near[0]), kind.frame(near[1]))
    rounded = [x.to(dtype) for x in (q, k, v)]
    z = frame_attention(*rounded, kind.frame(near[0]), kind.frame(near[1]))
    assert z.dtype == dtype
    close(z.double(), expected, tolerance)


@EVERY_KIND
def test_autocast_does_not_lower_the_arithmetic_of_a_frame(kind):
    x, frame = normal(2, 2, 5, kind.d_head, dtype=torch.float32), kind.frame(KEYS)
    expected = [move(x) for move in (frame.apply, frame.undo, frame.dual)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for move, plain in zip((frame.apply, frame.undo, frame.dual), expected, strict=True):
            assert torch.equal(move(x), plain)


def test_poses_and_attention_compile_to_one_graph():
    q, k, v = inputs(d_head=12)
    x = normal(2, 4)

    def attention(q, k, v, x):
        frame = planar_poses(x=x, y=x, heading=x, d_head=12)
        return frame_attention(q, k, v, frame, frame)

    compiled = torch.compile(attention, backend="eager", fullgraph=True)
    close(compiled(q, k, v, x), attention(q, k, v, x), 1e-14)


# --- RoPE and RoVE -----------------------------------------------------------------------------


YARN = RotaryEmbedding(8, scaling=YarnScaling(4.0, 16))
PART = RotaryEmbedding(8, rotary_dim=4, scaling=YarnScaling(4.0, 16))


@pytest.mark.parametrize("rotary", [RotaryEmbedding(8, rotary_dim=6, interleaved=True), YARN, PART])
@pytest.mark.parametrize("is_causal", [True, False])
def test_rotations_as_frames_are_rope_and_rove(rotary, is_causal):
    q, k, v = inputs(3, 5)
    here, there = rotary([4, 7, 9]), rotary([0, 2, 4, 7, 9])
    where = {"positions": torch.tensor([4, 7, 9]), "key_positions": torch.tensor([0, 2, 4, 7, 9])}
    hot, scale = with_temperature(q, rotary)
    for rotate_values, attention in ((True, rove_attention), (False, rope_attention)):
        z = frame_attention(
            hot, k, v, here, there, rotate_values=rotate_values, is_causal=is_causal, scale=scale
        )
        close(z, attention(q, k, v, rotary, is_causal=is_causal, **where), 1e-13)


def test_yarns_temperature_is_the_callers_to_add():
    q, k, v = inputs()
    here = YARN(range(4))
    assert YARN.attention_factor > 1.1
    plain = frame_attention(q, k, v, here, here, is_causal=True)
    with_yarn = rove_attention(q, k, v, YARN)
    assert not torch.allclose(plain, with_yarn, atol=1e-3)


def test_the_pattern_is_that_of_rotary_attention():
    q, k, v = inputs(n_kv_heads=4)
    rotary = RotaryEmbedding(8)
    pattern = attention_pattern(q, k, rotary, is_causal=False)
    here = rotary(range(4))
    close(frame_attention(q, k, v, here, here, rotate_values=False), pattern @ v, 1e-13)


def test_values_without_frames_may_have_channels_of_their_own():
    q, k, _ = inputs()
    v, here = normal(2, 2, 4, 6), RotaryEmbedding(8)(range(4))
    z = frame_attention(q, k, v, here, here, rotate_values=False)
    assert z.shape == (2, 4, 4, 6)
    close(z, rope_attention(q, k, v, RotaryEmbedding(8), is_causal=False), 1e-13)


# --- anything with apply, undo and dual --------------------------------------------------------


class Stretched:
    """A frame of a user's own: every token's axes have a length of their own."""

    def __init__(self, lengths):
        self.lengths = torch.tensor(lengths, dtype=torch.float64)[:, None]

    def apply(self, x):
        return x * self.lengths

    def undo(self, x):
        return x / self.lengths

    dual = undo


def test_a_frame_is_anything_with_apply_undo_and_dual():
    lengths = [1.0, 2.0, 0.5, 3.0]
    mine = Stretched(lengths)
    assert isinstance(mine, Frame)
    assert all(isinstance(kind.frame(KEYS), Frame) for kind in KINDS)
    q, k, v = inputs()
    matrices = [[length * torch.eye(8, dtype=torch.float64) for length in lengths]] * 2
    close(
        frame_attention(q, k, v, mine, mine), reference_frame_attention(q, k, v, matrices, matrices)
    )


def test_what_no_frame_moves_passes_through_bit_for_bit():
    x = normal(2, 3, 9, dtype=torch.float32)
    x[0, 0, :] = 1e-40  # a denormal: even multiplying by one may flush it to zero
    poses = planar_poses(x=[1.0, 2.0, 3.0], y=[0.0] * 3, heading=[0.1] * 3, d_head=3)
    frame = SideBySide(poses, RotaryEmbedding(4)(range(3)), d_head=9)
    for move in (frame.apply, frame.undo, frame.dual):
        assert torch.equal(move(x)[..., 7:], x[..., 7:])
        assert not torch.equal(move(x)[..., :7], x[..., :7])


def test_side_by_side_stands_side_by_side():
    x = normal(2, 3, 14)
    pose = planar_poses(x=[1.0, 2.0, 3.0], y=[0.0] * 3, heading=[0.1] * 3, d_head=6)
    rotation = RotaryEmbedding(4)(range(3))
    nested = SideBySide(SideBySide(pose, rotation), rotation)
    assert nested.d_head == 14
    assert torch.equal(nested.apply(x), SideBySide(pose, rotation, rotation).apply(x))
    close(nested.undo(nested.apply(x)), x, 1e-14)


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["query_frame", "key_frame"])
@pytest.mark.parametrize("frame", [RotaryEmbedding(8), None, Poses, Frame, AxialRotary(8)])
def test_a_family_of_rotations_is_no_frame(which, frame):
    q, k, v = inputs()
    here = RotaryEmbedding(8)(range(4))
    frames = (frame, here) if which == "query_frame" else (here, frame)
    with pytest.raises(TypeError, match=rf"expected {which} to have apply, undo and dual, got \w+"):
        frame_attention(q, k, v, *frames)


def test_values_in_frames_have_the_keys_channels():
    q, k, v = inputs()
    here = RotaryEmbedding(8)(range(4))
    with pytest.raises(ValueError, match=r"keys' d_head=8.*got 6: .*rotate_values=False"):
        frame_attention(q, k, v[..., :6], here, here)


def test_flags_and_numbers_are_what_they_seem():
    q, k, v = inputs()
    here = RotaryEmbedding(8)(range(4))
    with pytest.raises(TypeError, match="rotate_values to be True or False, got 1"):
        frame_attention(q, k, v, here, here, rotate_values=1)
    with pytest.raises(TypeError, match="is_causal to be True or False, got None"):
        frame_attention(q, k, v, here, here, is_causal=None)
    with pytest.raises(ValueError, match="finite scale, got nan"):
        frame_attention(q, k, v, here, here, scale=float("nan"))
    with pytest.raises(TypeError, match=r"one dtype, got q .* and k"):
        frame_attention(q, k.float(), v, here, here)


def test_frames_fit_their_tokens():
    q, k, v = inputs(3, 5)
    rotary = RotaryEmbedding(8)
    with pytest.raises(ValueError, match=r"pos=5 \(the number of positions\)"):
        frame_attention(q, k, v, rotary(range(5)), rotary(range(5)))
    with pytest.raises(ValueError, match=r"pos=3 \(the number of positions\)"):
        frame_attention(q, k, v, rotary(range(3)), rotary(range(3)))


class Careless:
    """A frame of a user's own whose one move, whatever it is, does too much."""

    d_head = 4

    def __init__(self, name, move):
        for each in ("apply", "undo", "dual"):
            setattr(self, each, move if each == name else lambda x: x)


@pytest.mark.parametrize("name", ["apply", "undo", "dual"])
@pytest.mark.parametrize(
    ("move", "got"),
    [
        (lambda x: x[..., :-1], r"\[2, 3, 3\]"),
        (lambda x: x.expand(5, *x.shape), r"\[5, 2, 3, 4\]"),
        (lambda x: x.transpose(0, 1), r"\[3, 2, 4\]"),
        (lambda x: None, "NoneType"),
    ],
    ids=["cut", "broadcast", "swapped", "nothing"],
)
def test_a_frame_that_changes_a_shape_is_refused(name, move, got):
    frame = Careless(name, move)
    x = normal(2, 3, 4)
    expected = (
        rf"expected Careless\.{name} to keep the shape \[2, 3, 4\] .*got {got}: a frame moves"
    )
    with pytest.raises(ValueError, match=expected):
        frame_attention(x, x, x, frame, frame)
    with pytest.raises(ValueError, match=expected):
        getattr(SideBySide(frame, d_head=6), name)(pad(x, (0, 2)))


@pytest.mark.parametrize("name", ["apply", "undo", "dual"])
def test_a_frame_that_changes_a_dtype_is_refused(name):
    frame = Careless(name, lambda x: x * torch.ones(3, 1, dtype=torch.float64))
    x = normal(2, 3, 4, dtype=torch.float32)
    expected = rf"Careless\.{name} to keep the dtype torch\.float32, got torch\.float64: return"
    with pytest.raises(TypeError, match=expected):
        frame_attention(x, x, x, frame, frame)
    with pytest.raises(TypeError, match=expected):
        getattr(SideBySide(frame), name)(x)


def test_under_autocast_a_users_frame_may_multiply_matrices():
    class Turned:
        def apply(self, x):
            return torch.einsum("pab,...pb->...pa", torch.eye(4).expand(3, 4, 4), x)

        undo = dual = apply

    x = normal(1, 2, 3, 4, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert frame_attention(x, x, x, Turned(), Turned()).dtype == torch.bfloat16


@pytest.mark.parametrize("width", [0, -2, True])
def test_side_by_side_a_frame_has_a_channel_or_more(width):
    frame = Careless("apply", lambda x: x)
    frame.d_head = width
    with pytest.raises((TypeError, ValueError), match=r"expected (a frame's d_head|frames with)"):
        SideBySide(frame, d_head=4)


def test_side_by_side_says_what_it_needs():
    rotation = RotaryEmbedding(8)(range(4))
    with pytest.raises(ValueError, match="one frame or more, got none"):
        SideBySide(d_head=4)
    with pytest.raises(
        TypeError, match=r"each frame to have apply.*got RotaryEmbedding.*positions"
    ):
        SideBySide(RotaryEmbedding(8))
    with pytest.raises(TypeError, match=r"integer d_head, got Stretched without"):
        SideBySide(Stretched([1.0]))
    with pytest.raises(ValueError, match=r"at most d_head=12 channels, got 8 \+ 8 = 16"):
        SideBySide(rotation, rotation, d_head=12)
    with pytest.raises(ValueError, match=r"d_head=8, got \[1, 4, 6\].*SideBySide\(\.\.\., d_head"):
        SideBySide(rotation).apply(torch.ones(1, 4, 6))
    with pytest.raises(TypeError, match="floating-point tensor"):
        SideBySide(rotation).apply([1.0])
