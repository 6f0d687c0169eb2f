"""The numbered equations of chapter 14, each in a test of its name, in every kind of frame."""

import pytest
import torch
from frame_samples import KINDS, places
from references_frames import reference_frame_attention, rotary_matrix, se2
from samples import inputs, normal

from rove_lab.frames import AxialRotary, frame_attention, planar_poses

QUERIES, KEYS, BY = places(2, 3, seed=1), places(2, 5, seed=2), places(1, 1, seed=3)

each_kind = pytest.mark.parametrize("kind", KINDS, ids=str)


def tensors(kind):
    return inputs(3, 5, d_head=kind.d_head)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@each_kind
def test_eq_frames(kind):
    q, k, v = tensors(kind)
    expected = reference_frame_attention(q, k, v, kind.matrices(QUERIES), kind.matrices(KEYS))
    close(frame_attention(q, k, v, kind.frame(QUERIES), kind.frame(KEYS)), expected)


@each_kind
def test_eq_moved(kind):
    """Of the matrices: (rho(h) rho(g_i))^-1 rho(h) rho(g_j), and rho(h g) is rho(h) rho(g)."""
    h, g, other = (kind.matrix(*of.at(0, 0)) for of in (BY, QUERIES, KEYS))
    relative = torch.linalg.inv(g) @ other
    close(torch.linalg.inv(h @ g) @ (h @ other), relative)
    close(kind.matrix(*QUERIES.moved(BY).at(0, 0)), h @ g)


@each_kind
def test_prop_relative_frames(kind):
    q, k, v = tensors(kind)
    z = frame_attention(q, k, v, kind.frame(QUERIES), kind.frame(KEYS))
    here, there = kind.frame(QUERIES.moved(BY)), kind.frame(KEYS.moved(BY))
    close(frame_attention(q, k, v, here, there), z)


@each_kind
def test_eq_by_token(kind):
    """The kernel in the middle is given what the frames moved, and knows of no frames."""
    q, k, v = tensors(kind)
    here, there = kind.frame(QUERIES), kind.frame(KEYS)
    k, v = (there.apply(x).repeat_interleave(2, 1) for x in (k, v))
    kernel = torch.nn.functional.scaled_dot_product_attention
    close(
        here.undo(kernel(here.dual(q), k, v)),
        frame_attention(q, *tensors(kind)[1:], here, there),
    )


def test_eq_axial():
    axial = AxialRotary(8, interleaved=True)
    x, omega = normal(1, 1, 8), [1.0, 10000**-0.5]

    def by_hand(r, c):  # planes (0, 1) and (2, 3) turn with the row, the others with the column
        by_row = rotary_matrix(r, omega, [(0, 1), (2, 3)], 8)
        return by_row @ rotary_matrix(c, omega, [(4, 5), (6, 7)], 8)

    close(axial(rows=[3], columns=[5]).apply(x)[0, 0], by_hand(3, 5) @ x[0, 0])
    relative = torch.linalg.inv(by_hand(3, 5)) @ by_hand(2, 9)
    close(relative, by_hand(-1, 4))
    said = axial(rows=[2], columns=[9]).apply(x)
    close(axial(rows=[3], columns=[5]).undo(said)[0, 0], relative @ x[0, 0])


def planar(x, y, heading):
    return planar_poses(x=[x], y=[y], heading=[heading], d_head=3)


def test_eq_pose():
    u, w = normal(2), 0.7
    C, t = se2(0, 0, 0.9)[:2, :2], torch.tensor([2.0, -1.0], dtype=torch.float64)
    given = torch.cat((u, torch.tensor([w], dtype=torch.float64)))
    moved = planar(2.0, -1.0, 0.9).apply(given[None, None])[0, 0]
    close(moved[:2], C @ u + t * w)
    close(moved, se2(2.0, -1.0, 0.9) @ given)
    assert moved[2] == w


def test_eq_dual():
    q, k = normal(3, seed=4), normal(3, seed=5)
    pose, matrix = planar(2.0, -1.0, 0.9), se2(2.0, -1.0, 0.9)
    C, t = matrix[:2, :2], matrix[:2, 2]
    moved = pose.dual(q[None, None])[0, 0]
    close(moved, torch.linalg.inv(matrix).T @ q)
    close(moved, torch.cat((C @ q[:2], (q[2] - t @ C @ q[:2])[None])))
    close(moved @ pose.apply(k[None, None])[0, 0], q @ k)
    turn = planar(0.0, 0.0, 0.9)
    assert torch.equal(turn.dual(q[None, None]), turn.apply(q[None, None]))
