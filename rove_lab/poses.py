r"""Poses as frames: turned and shifted axes in the plane, SE(2), or in space, SE(3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rove_lab.arguments import check_floating, check_size
from rove_lab.rotation import as_positions, check_tokens

__all__ = ["Poses", "planar_poses"]

_TOLERANCE = 1e-4  # of a rotation's entries: matrices are often stored in float32, or as text


class Poses:
    r"""The poses of a set of tokens, on homogeneous vectors: :math:`(u, w) \mapsto (Cu + tw, w)`.

    A pose turns by C and shifts by t. Channels come in blocks of 3, for the plane, or of 4, for
    space: a vector u and one number w, with 1 for a point and 0 for a direction; every block of a
    head moves alike, :math:`\rho(g) = I \otimes \begin{pmatrix} C & t\\ 0 & 1\end{pmatrix}`.
    ``undo`` uses the inverse in closed form, :math:`(C^\top, -C^\top t)`, and ``dual`` its
    transpose. Miyato et al. (2024), arXiv:2310.10375, section 3.

    The arithmetic is at least float32 (float64 for float64 input), the result has the input's
    dtype. Unlike a rotation's, its error grows with :math:`|t|`: a common shift that is added here
    is taken away after the attention. As only relative poses matter, put the origin among the
    tokens, and choose a unit in which they are a few units apart; bfloat16 needs it most.

    Args:
        matrices: From token to world, ``[pos, 3, 3]`` or ``[pos, 4, 4]``, or with a batch axis
            before; float32 or float64. Camera extrinsics mostly map from world to camera: pass
            their inverse, ``torch.linalg.inv(extrinsics)``.
        d_head: Channels of a head, a multiple of 3 in the plane and of 4 in space.
        device: Where the tables will be used; by default where the matrices are.

    Attributes:
        matrices: The poses, float64.
        d_head: Channels of a head.

    Raises:
        TypeError: If the matrices are not a float32 or float64 tensor.
        ValueError: If a matrix is not a rigid motion, or a shape does not fit.

    Example:
        >>> camera_to_world = torch.eye(4).repeat(3, 1, 1)  # three cameras at the origin
        >>> Poses(camera_to_world, d_head=8).apply(torch.ones(1, 3, 8)).shape
        torch.Size([1, 3, 8])
    """

    def __init__(self, matrices: Tensor, d_head: int, *, device: Any = None) -> None:
        check_floating("poses", matrices)
        if matrices.dtype in (torch.float16, torch.bfloat16):
            raise TypeError(
                f"expected poses in float32 or float64, got {matrices.dtype}: half precision "
                "cannot tell places apart beyond a few hundred steps."
            )
        size = matrices.shape[-1] if matrices.dim() else 0
        if matrices.dim() not in (3, 4) or size not in (3, 4) or matrices.shape[-2] != size:
            raise ValueError(
                "expected poses [pos, 4, 4] or [batch, pos, 4, 4], or 3 by 3 in the plane, got "
                f"{list(matrices.shape)}: each a camera-to-world matrix with last row 0 ... 0 1."
            )
        self.d_head = check_size("d_head", d_head)
        if self.d_head % size:
            raise ValueError(
                f"expected d_head to be a multiple of {size} (homogeneous vectors of {size} "
                f"channels), got {d_head}: let the others pass through with SideBySide."
            )
        device = torch.device(matrices.device if device is None else device)
        if matrices.is_meta and device.type != "meta":
            raise ValueError(
                f"expected poses with values for {device}, got them on meta: leave out the device, "
                "or make the matrices where there are values."
            )
        # first home, then to float64: a device without float64 cannot do both in one copy
        home = "meta" if matrices.is_meta else "cpu"
        grad = torch.is_grad_enabled()  # leaving inference mode would turn gradients on
        with torch.inference_mode(False), torch.set_grad_enabled(grad):
            # a copy: what is done to the tensor later must not reach one table of three
            exact = matrices.to(home).to(torch.float64, copy=True)
            if not (torch.compiler.is_compiling() or matrices.is_meta):  # no values to look at
                _check_rigid(exact)
            self.matrices = exact
            inverse = _inverse(exact)
            if exact.dim() == 4:  # [batch, 1, pos, ...]: the same for every head
                exact, inverse = exact.unsqueeze(1), inverse.unsqueeze(1)
            self._exact = {"apply": exact, "undo": inverse, "dual": inverse.mT}
            self._rounded = {name: rho.float().to(device) for name, rho in self._exact.items()}

    def apply(self, x: Tensor) -> Tensor:
        r"""From each token's own frame to the world, :math:`(u, w) \mapsto (Cu + tw, w)`.

        Args:
            x: ``[..., heads, pos, d_head]``.

        Returns:
            The moved tensor, of the same shape and dtype.

        Raises:
            TypeError: If ``x`` is not a floating-point tensor.
            ValueError: If the shape or the device of ``x`` does not fit.

        Example:
            >>> east = planar_poses(x=[5.0], y=[0.0], heading=[0.0], d_head=3)
            >>> east.apply(torch.tensor([[[1.0, 2.0, 1.0]]]))
            tensor([[[6., 2., 1.]]])
        """
        return self._move(x, "apply")

    def undo(self, x: Tensor) -> Tensor:
        r"""From the world to each token's own frame, :math:`(u, w) \mapsto (C^\top (u - tw), w)`.

        Args:
            x: ``[..., heads, pos, d_head]``.

        Returns:
            The tensor moved back, of the same shape and dtype.

        Raises:
            TypeError: If ``x`` is not a floating-point tensor.
            ValueError: If the shape or the device of ``x`` does not fit.

        Example:
            >>> east = planar_poses(x=[5.0], y=[0.0], heading=[0.0], d_head=3)
            >>> east.undo(torch.tensor([[[6.0, 2.0, 1.0]]]))
            tensor([[[1., 2., 1.]]])
        """
        return self._move(x, "undo")

    def dual(self, x: Tensor) -> Tensor:
        r"""How a covector moves, :math:`(u, w) \mapsto (Cu, w - t^\top C u)`.

        It keeps products: ``dual(q)`` times ``apply(k)`` is q times k at equal poses.

        Args:
            x: ``[..., heads, pos, d_head]``.

        Returns:
            The moved tensor, of the same shape and dtype.

        Raises:
            TypeError: If ``x`` is not a floating-point tensor.
            ValueError: If the shape or the device of ``x`` does not fit.

        Example:
            >>> east = planar_poses(x=[5.0], y=[0.0], heading=[0.0], d_head=3)
            >>> east.dual(torch.tensor([[[1.0, 2.0, 1.0]]]))
            tensor([[[ 1.,  2., -4.]]])
        """
        return self._move(x, "dual")

    def _move(self, x: Tensor, name: str) -> Tensor:
        exact, rounded = self._exact[name], self._rounded[name]
        how = "the poses with device=x.device"
        check_tokens(x, exact.shape[:-2], self.d_head, rounded.device, "poses", how)
        table = exact.to(x.device) if x.dtype == torch.float64 else rounded
        size = table.shape[-1]
        numbers = x.unflatten(-1, (-1, size)).to(table.dtype).unbind(-1)
        # number by number: no matrix product, whose precision autocast and TF32 would lower
        rows = []
        for row in table.unsqueeze(-3).unbind(-2):  # [..., pos, 1, size]
            moved = row[..., 0] * numbers[0]
            for c in range(1, size):
                moved = torch.addcmul(moved, row[..., c], numbers[c])
            rows.append(moved)
        return torch.stack(rows, -1).flatten(-2).to(x.dtype)


def planar_poses(
    *,
    x: Tensor | Sequence[float],
    y: Tensor | Sequence[float],
    heading: Tensor | Sequence[float],
    d_head: int,
    device: Any = None,
) -> Poses:
    r"""Poses in the plane, SE(2), from places and headings.

    :math:`g = \begin{pmatrix} \cos\theta & -\sin\theta & x\\ \sin\theta & \cos\theta & y\\
    0 & 0 & 1 \end{pmatrix}` for a token at (x, y) whose first axis points along :math:`\theta`.

    Args:
        x: ``[pos]`` or ``[batch, pos]``, in any unit.
        y: The same for the other axis.
        heading: Angles :math:`\theta` in radians, counter-clockwise from the x axis.
        d_head: Channels of a head, a multiple of 3.
        device: Where the tables will be used; by default where ``x`` is.

    Returns:
        The poses, which are frames.

    Raises:
        TypeError: If a coordinate is boolean, complex or half precision.
        ValueError: If shapes differ or do not fit, or a number is not finite.

    Example:
        >>> facing_north = planar_poses(x=[2.0], y=[1.0], heading=[torch.pi / 2], d_head=3)
        >>> facing_north.apply(torch.tensor([[[1.0, 0.0, 1.0]]])).round(decimals=4)
        tensor([[[2., 2., 1.]]])
    """
    given = [as_positions(axis) for axis in (x, y, heading)]
    shapes = [list(axis.shape) for axis in given]
    if shapes[1:] != shapes[:-1] or len(shapes[0]) not in (1, 2):
        raise ValueError(
            "expected x, y and heading each [pos] or [batch, pos] for the same tokens, got "
            f"{shapes[0]}, {shapes[1]} and {shapes[2]}: a shared heading is heading.expand_as(x)."
        )
    if len({axis.is_meta for axis in given}) > 1:
        raise ValueError(
            "expected x, y and heading all with values or all on meta, got them on "
            f"{', '.join(str(axis.device) for axis in given)}: make them in one place."
        )
    device = torch.device(given[0].device if device is None else device)
    home = "meta" if given[0].is_meta else "cpu"
    east, north, angle = (axis.to(home).to(torch.float64) for axis in given)
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    entries = (cos, -sin, east, sin, cos, north, zero, zero, zero + 1)
    matrices = torch.stack(entries, -1).unflatten(-1, (3, 3))
    return Poses(matrices, d_head, device=device)


def _inverse(matrices: Tensor) -> Tensor:
    back = matrices[..., :-1, :-1].mT
    inverse = torch.cat((back, -(back @ matrices[..., :-1, -1:])), -1)
    return torch.cat((inverse, matrices[..., -1:, :]), -2)


def _check_rigid(matrices: Tensor) -> None:
    if not matrices.isfinite().all():
        raise ValueError("expected finite poses, got NaN or infinity.")
    turn, last = matrices[..., :-1, :-1], matrices[..., -1, :]
    size = matrices.shape[-1]
    if (last - torch.eye(size, dtype=last.dtype)[-1]).abs().gt(_TOLERANCE).any():
        raise ValueError(
            f"expected poses with last row {'0 ' * (size - 1)}1, got {_worst(last)}: a "
            "camera-to-world matrix acts on columns; transpose one that acts on rows."
        )
    gram = turn @ turn.mT - torch.eye(size - 1, dtype=turn.dtype)
    if gram.abs().gt(_TOLERANCE).any():
        raise ValueError(
            "expected poses whose upper left block is a rotation, got one off by "
            f"{gram.abs().max():.2g} from orthogonal: a camera-to-world pose has no scale and no "
            "intrinsics; divide these out first."
        )
    if (torch.linalg.det(turn) < 0).any():
        raise ValueError(
            "expected rotations of determinant 1, got a reflection: a camera-to-world pose keeps "
            "handedness; flip an axis of a left-handed world for all poses alike, on both sides."
        )


def _worst(rows: Tensor) -> str:
    ideal = torch.eye(rows.shape[-1], dtype=rows.dtype)[-1]
    flat = rows.reshape(-1, rows.shape[-1])
    return str([round(n, 4) for n in flat[(flat - ideal).abs().sum(-1).argmax()].tolist()])
