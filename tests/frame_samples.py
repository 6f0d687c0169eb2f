"""Frames of every kind for a test: where tokens are, their frames, and the matrices of these."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from references import plane_channels, rope_frequencies
from references_frames import copies, direct_sum, rotary_matrix, se2, se3

from rove_lab import RotaryEmbedding
from rove_lab.frames import AxialRotary, Poses, SideBySide


@dataclass(frozen=True)
class Places:
    """Where tokens are, in every group at once; a kind of frame reads what it needs."""

    shifts: torch.Tensor  # [batch, pos, 3]: position, row, column
    planar: torch.Tensor  # [batch, pos, 3, 3]
    spatial: torch.Tensor  # [batch, pos, 4, 4]

    def moved(self, by):
        """All of them by the same element h of each group: from g to h g."""
        return Places(self.shifts + by.shifts, by.planar @ self.planar, by.spatial @ self.spatial)

    def at(self, b, i):
        """The numbers of one token: its shifts, its planar and its spatial pose."""
        return self.shifts[b, i].tolist(), self.planar[b, i], self.spatial[b, i]

    def select(self, tokens):
        return Places(self.shifts[:, tokens], self.planar[:, tokens], self.spatial[:, tokens])


def places(batch, pos, seed=0, spread=2.0):
    """Anywhere, turned anyhow."""
    generator = torch.Generator().manual_seed(seed)
    numbers = spread * torch.randn(batch, pos, 12, generator=generator, dtype=torch.float64)
    planar = [[se2(*n[3:6].tolist()) for n in row] for row in numbers]
    spatial = [[se3(n[6:9].tolist(), n[9:].tolist()) for n in row] for row in numbers]
    stacked = [torch.stack([torch.stack(row) for row in group]) for group in (planar, spatial)]
    return Places(numbers[..., :3], *stacked)


@dataclass(frozen=True)
class Kind:
    """A kind of frame: the frames of places, and the dense matrix of one of them."""

    name: str
    d_head: int
    frame: Callable
    matrix: Callable

    def matrices(self, of):
        """[batch][pos] matrices, [d_head, d_head] each."""
        batch, pos = of.shifts.shape[:2]
        return [[self.matrix(*of.at(b, i)) for i in range(pos)] for b in range(batch)]

    def __str__(self):
        return self.name


def line_matrix(shifts, planar, spatial):
    return rotary_matrix(shifts[0], rope_frequencies(8), plane_channels(12, 8), 12)


def grid_matrix(shifts, planar, spatial):
    pairs, axis = plane_channels(12), rope_frequencies(6)
    by_row = rotary_matrix(shifts[1], axis, pairs[:3], 12)
    return by_row @ rotary_matrix(shifts[2], axis, pairs[3:], 12)


def plane_matrix(shifts, planar, spatial):
    return copies(planar, 12)


def space_matrix(shifts, planar, spatial):
    return copies(spatial, 12)


def beside_matrix(*place):
    parts = [matrix(*place) for matrix in (space_matrix, grid_matrix, plane_matrix)]
    return direct_sum(*parts, torch.eye(4, dtype=torch.float64))


def grid(of):
    return AxialRotary(12)(rows=of.shifts[..., 1], columns=of.shifts[..., 2])


def beside(of):
    return SideBySide(Poses(of.spatial, 12), grid(of), Poses(of.planar, 12), d_head=40)


def line(of):
    return RotaryEmbedding(12, rotary_dim=8)(of.shifts[..., 0])


KINDS = [
    Kind("a line, SO(2)", 12, line, line_matrix),
    Kind("rows and columns, SO(2)", 12, grid, grid_matrix),
    Kind("the plane, SE(2)", 12, lambda of: Poses(of.planar, 12), plane_matrix),
    Kind("space, SE(3)", 12, lambda of: Poses(of.spatial, 12), space_matrix),
    Kind("side by side", 40, beside, beside_matrix),
]
