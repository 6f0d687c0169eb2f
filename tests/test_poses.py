"""`Poses` and `planar_poses`: rigid motions on homogeneous vectors, and what is none."""

import math

import pytest
import torch
from frame_samples import places
from references_frames import copies, se2, se3
from samples import normal

from rove_lab.frames import Poses, frame_attention, planar_poses

SPATIAL = places(1, 5, seed=4).spatial[0]
PLANAR = places(1, 5, seed=4).planar[0]


def moves(poses):
    return poses.apply, poses.undo, poses.dual


@pytest.mark.parametrize("matrices", [SPATIAL, PLANAR], ids=["space", "plane"])
def test_every_block_of_channels_moves_by_the_matrix(matrices):
    x = normal(2, 5, 24)
    poses = Poses(matrices, 24)
    for t, matrix in enumerate(matrices):
        rho = copies(matrix, 24)
        for move, dense in zip(
            moves(poses), (rho, torch.linalg.inv(rho), torch.linalg.inv(rho).T), strict=True
        ):
            expected = x[:, t] @ dense.T
            torch.testing.assert_close(move(x)[:, t], expected, rtol=0, atol=1e-12)


def test_a_point_is_shifted_and_a_direction_is_not():
    pose = planar_poses(x=[10.0], y=[-2.0], heading=[math.pi / 2], d_head=3)
    point, direction = torch.tensor([[[1.0, 0.0, 1.0]]]), torch.tensor([[[1.0, 0.0, 0.0]]])
    assert torch.allclose(pose.apply(point), torch.tensor([[[10.0, -1.0, 1.0]]]), atol=1e-6)
    assert torch.allclose(pose.apply(direction), torch.tensor([[[0.0, 1.0, 0.0]]]), atol=1e-6)


def test_the_dual_keeps_products():
    q, k, poses = normal(2, 5, 12, seed=1), normal(2, 5, 12, seed=2), Poses(SPATIAL, 12)
    kept = (poses.dual(q) * poses.apply(k)).sum(-1)
    torch.testing.assert_close(kept, (q * k).sum(-1), rtol=0, atol=1e-12)
    assert not torch.allclose((poses.apply(q) * poses.apply(k)).sum(-1), kept, atol=1e-2)


def test_planar_poses_are_those_of_places_and_headings():
    x, y, heading = [0.0, 3.0], [1.0, -2.0], [0.3, 4.0]
    poses = planar_poses(x=x, y=y, heading=heading, d_head=6)
    expected = torch.stack([se2(*pose) for pose in zip(x, y, heading, strict=True)])
    torch.testing.assert_close(poses.matrices, expected, rtol=0, atol=1e-15)
    batch = planar_poses(
        x=torch.tensor([x, y]),
        y=torch.tensor([y, x]),
        heading=torch.tensor([heading] * 2),
        d_head=6,
    )
    assert batch.matrices.shape == (2, 2, 3, 3)


def test_places_and_headings_take_their_names():
    with pytest.raises(TypeError, match="positional"):
        planar_poses([0.0], [0.0], [0.0], 3)


def test_a_batch_has_poses_of_its_own():
    x, many = normal(2, 3, 5, 8), places(2, 5, seed=6).spatial
    both = Poses(many, 8)
    for b in range(2):
        alone = Poses(many[b], 8)
        for move, single in zip(moves(both), moves(alone), strict=True):
            assert torch.equal(move(x)[b], single(x[b]))


def test_gradients_flow_to_the_poses_too():
    matrices = SPATIAL[:2].clone().requires_grad_()
    x = normal(1, 2, 4)
    for name in ("apply", "undo", "dual"):
        (gradient,) = torch.autograd.grad(getattr(Poses(matrices, 4), name)(x).sum(), matrices)
        assert gradient.abs().sum() > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_arithmetic_is_float32_and_the_dtype_the_inputs(dtype):
    x = normal(2, 5, 8, dtype=torch.float32).to(dtype)
    poses = Poses(SPATIAL, 8)
    for move in moves(poses):
        assert move(x).dtype == dtype
        assert torch.equal(move(x), move(x.float()).to(dtype))


def test_poses_in_float32_are_taken_as_they_are():
    poses = Poses(SPATIAL.float(), 8)
    assert poses.matrices.dtype == torch.float64
    assert torch.equal(poses.matrices, SPATIAL.float().double())


def test_far_from_the_origin_precision_is_lost_as_the_docstring_says():
    """The same scene at the origin and 10,000 units away: float64 keeps it, float32 does not."""
    q, k, v = (normal(1, 1, 5, 12, seed=seed) for seed in (1, 2, 3))
    away = torch.eye(4, dtype=torch.float64)
    away[:3, 3] = 10_000.0
    near, far = Poses(SPATIAL, 12), Poses(away @ SPATIAL, 12)
    z = frame_attention(q, k, v, near, near)
    torch.testing.assert_close(frame_attention(q, k, v, far, far), z, rtol=0, atol=1e-6)
    rounded = [x.float() for x in (q, k, v)]
    error = (frame_attention(*rounded, far, far).double() - z).abs().max()
    assert error > 1e-3
    assert (frame_attention(*rounded, near, near).double() - z).abs().max() < 1e-5


def test_poses_are_those_of_the_tensor_as_it_was():
    given, x = SPATIAL.clone(), normal(1, 5, 8)
    poses = Poses(given, 8)
    before = [move(x) for move in moves(poses)]
    given[:, :3, 3] += 5.0
    for move, still in zip(moves(poses), before, strict=True):
        assert torch.equal(move(x), still)
    assert torch.equal(poses.matrices, SPATIAL)


def test_poses_made_without_gradients_have_none():
    matrices = SPATIAL.clone().requires_grad_()
    with torch.no_grad():
        poses = Poses(matrices, 8)
    for move in moves(poses):
        assert not move(normal(1, 5, 8)).requires_grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_poses_made_in_inference_mode_serve_training(dtype):
    with torch.inference_mode():
        made = (
            Poses(SPATIAL.clone(), 24),
            planar_poses(x=range(5), y=range(5), heading=range(5), d_head=24),
        )
        given = SPATIAL.clone()
    for poses in (*made, Poses(given, 24)):
        for move in moves(poses):
            x = normal(1, 5, 24, dtype=dtype).requires_grad_()
            move(x).sum().backward()
            assert x.grad.abs().sum() > 0


def test_tables_may_lie_elsewhere():
    for poses in (Poses(SPATIAL, 8, device="meta"), Poses(SPATIAL.to("meta"), 8)):
        assert poses.apply(torch.ones(1, 5, 8, device="meta")).device.type == "meta"


def test_what_has_no_values_has_none_elsewhere():
    with pytest.raises(ValueError, match="poses with values for cpu, got them on meta: leave out"):
        Poses(SPATIAL.to("meta"), 8, device="cpu")
    here, nowhere = torch.zeros(2), torch.zeros(2, device="meta")
    for x, y in ((here, nowhere), (nowhere, here)):
        with pytest.raises(ValueError, match=rf"all on meta, got them on {x.device}, {y.device}, "):
            planar_poses(x=x, y=y, heading=here, d_head=3)


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape", [(4, 4), (5, 4, 3), (5, 3, 4), (5, 2, 2), (5, 5, 5), (1, 1, 5, 4, 4), ()]
)
def test_poses_are_square_matrices_of_the_plane_or_of_space(shape):
    with pytest.raises(ValueError, match=r"poses \[pos, 4, 4\].*camera-to-world"):
        Poses(torch.zeros(shape), 12)


def test_poses_are_tensors_precise_enough():
    with pytest.raises(TypeError, match="poses to be a floating-point tensor, got list"):
        Poses([[1.0]], 4)
    with pytest.raises(TypeError, match=r"float32 or float64, got torch\.bfloat16"):
        Poses(SPATIAL.bfloat16(), 4)


@pytest.mark.parametrize(("matrices", "d_head"), [(SPATIAL, 6), (PLANAR, 8), (SPATIAL, 3)])
def test_channels_come_in_whole_blocks(matrices, d_head):
    with pytest.raises(ValueError, match=rf"multiple of {matrices.shape[-1]} .*got {d_head}: "):
        Poses(matrices, d_head)


def test_the_last_row_is_that_of_a_motion():
    with pytest.raises(ValueError, match=r"last row 0 0 0 1, got \[.*camera-to-world.*transpose"):
        Poses(SPATIAL.mT, 4)
    projective = PLANAR.clone()
    projective[3, 2, 2] = 2.0
    with pytest.raises(ValueError, match=r"last row 0 0 1, got \[0\.0, 0\.0, 2\.0\]"):
        Poses(projective, 3)


def test_scales_and_intrinsics_are_refused():
    scaled = SPATIAL.clone()
    scaled[:, :3, :3] *= 1.01
    with pytest.raises(ValueError, match=r"off by 0\.02 from orthogonal: a camera-to-world pose"):
        Poses(scaled, 4)


def test_rotations_may_be_rounded_a_little():
    slightly, too_far = SPATIAL.clone(), SPATIAL.clone()
    slightly[:, :3, :3] *= 1 + 2e-5
    too_far[:, :3, :3] *= 1 + 1e-4
    assert Poses(slightly, 4).d_head == 4
    with pytest.raises(ValueError, match=r"off by 0\.0002 from orthogonal"):
        Poses(too_far, 4)
    slightly[0, 3, 0], too_far[0] = 5e-5, SPATIAL[0]
    assert Poses(slightly, 4).d_head == 4
    too_far[:, :3, :3], too_far[0, 3, 0] = SPATIAL[:, :3, :3], 2e-4
    with pytest.raises(ValueError, match=r"last row 0 0 0 1, got \[0\.0002, 0"):
        Poses(too_far, 4)


def test_reflections_are_refused():
    mirrored = (
        se3([0.0, 0.0, 0.0], [0.1, 0.2, 0.3]) @ torch.diag(torch.tensor([1.0, 1, -1, 1])).double()
    )
    with pytest.raises(ValueError, match=r"determinant 1, got a reflection: a camera-to-world"):
        Poses(mirrored[None], 4)


def test_numbers_are_finite():
    broken = SPATIAL.clone()
    broken[0, 0, 3] = math.inf
    with pytest.raises(ValueError, match="finite poses, got NaN or infinity"):
        Poses(broken, 4)


def test_every_token_has_a_place_and_a_heading():
    with pytest.raises(ValueError, match=r"same tokens, got \[2\], \[2\] and \[1\]"):
        planar_poses(x=[0.0, 1.0], y=[0.0, 1.0], heading=[0.0], d_head=3)
    with pytest.raises(ValueError, match=r"same tokens, got \[\], \[\] and \[\]"):
        planar_poses(x=0.0, y=0.0, heading=0.0, d_head=3)
    with pytest.raises(TypeError, match="integer, float32 or float64"):
        planar_poses(x=torch.ones(1).half(), y=[0.0], heading=[0.0], d_head=3)


def test_tensors_fit_the_poses():
    poses = Poses(places(2, 5, seed=6).spatial, 8)
    with pytest.raises(ValueError, match=r"pos=5 \(the number of poses\) and d_head=8, got"):
        poses.apply(torch.ones(2, 1, 4, 8))
    with pytest.raises(ValueError, match=r"batch=2 for poses \[batch, pos\]"):
        poses.apply(torch.ones(3, 1, 5, 8))
    with pytest.raises(
        ValueError, match=r"expected x on cpu, got meta: make the poses with device"
    ):
        poses.undo(torch.ones(2, 1, 5, 8, device="meta"))
    with pytest.raises(TypeError, match="expected x to be a floating-point tensor"):
        poses.dual(torch.ones(2, 1, 5, 8, dtype=torch.int64))
