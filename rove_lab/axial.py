r"""Rotations of a plane of patches: half of the planes turn with the row, half with the column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rove_lab.arguments import check_flag, check_size
from rove_lab.rotary import RotaryEmbedding
from rove_lab.rotation import Rotation, as_positions

__all__ = ["AxialRotary"]


class AxialRotary:
    r"""Rotations in two dimensions, :math:`R_{r,c} = R_r \oplus R_c` for a row r and a column c.

    Each axis has the frequencies of a rotary embedding of half the channels, :math:`\omega_m =
    \text{base}^{-4m/d_\text{head}}`; the first half of the planes turns with the row. So
    :math:`R_{r,c}^{-1} R_{r',c'}` depends on the two offsets alone. With ``interleaved=False`` it
    is what Qwen2-VL's vision tower does (Wang et al. 2024, arXiv:2409.12191, section 2.1); Heo et
    al. (2024), arXiv:2403.13298, compare bases for images and take 100.

    Args:
        d_head: Channels of a head, a multiple of 4.
        base: The base of the frequencies of both axes, finite and positive.
        interleaved: ``False`` pairs channel m with m + d_head / 2; ``True`` pairs neighbours.

    Attributes:
        inv_freq: Frequencies of one axis, ``[d_head / 4]``, float64, radians per row or column.

    Raises:
        TypeError: If ``d_head`` is not an integer, or ``base`` not a number.
        ValueError: If ``d_head`` is not a multiple of 4, or the base is not positive.

    Example:
        >>> patches = AxialRotary(8)(rows=[0, 0, 1, 1], columns=[0, 1, 0, 1])
        >>> patches.apply(torch.ones(1, 4, 8)).shape
        torch.Size([1, 4, 8])
    """

    def __init__(self, d_head: int, *, base: float = 10000.0, interleaved: bool = False) -> None:
        self.d_head = check_size("d_head", d_head)
        if self.d_head % 4:
            raise ValueError(
                f"expected d_head to be a multiple of 4 (two planes, one for each axis), got "
                f"{d_head}: let the others pass through with SideBySide(..., d_head={d_head})."
            )
        self.interleaved = check_flag("interleaved", interleaved)
        self._axis = RotaryEmbedding(self.d_head // 2, base=base)
        self.inv_freq = self._axis.inv_freq

    def __call__(
        self,
        *,
        rows: Tensor | Sequence[float],
        columns: Tensor | Sequence[float],
        device: Any = None,
    ) -> Rotation:
        r"""The rotations :math:`R_{r,c}` of patches, or of any points with two coordinates.

        Args:
            rows: ``[pos]`` or ``[batch, pos]``, integers or reals, in rows.
            columns: The same for the columns.
            device: Where the tables will be used; by default where the rows are.

        Returns:
            The rotations, which are frames: they have ``apply``, ``undo`` and ``dual``.

        Raises:
            TypeError: If coordinates are boolean, complex or half precision.
            ValueError: If rows and columns differ in shape, or are not finite.

        Example:
            >>> AxialRotary(4)(rows=[0, 2], columns=[5, 7]).angles
            tensor([[0., 5.],
                    [2., 7.]], dtype=torch.float64)
        """
        rows, columns = as_positions(rows), as_positions(columns)
        if rows.shape != columns.shape:
            raise ValueError(
                f"expected a row and a column for each patch, got {list(rows.shape)} rows and "
                f"{list(columns.shape)} columns: for a grid of h by w patches, row by row, "
                "rows=torch.arange(h).repeat_interleave(w), columns=torch.arange(w).repeat(h)."
            )
        if rows.is_meta != columns.is_meta:
            raise ValueError(
                "expected rows and columns both with values or both on meta, got them on "
                f"{rows.device} and {columns.device}: make them in one place."
            )
        device = torch.device(rows.device if device is None else device)
        by_row, by_column = (self._axis(axis, device=device) for axis in (rows, columns))
        with torch.inference_mode(False):  # as a rotary embedding's, they must serve training too
            angles = torch.cat((by_row.angles, by_column.angles), -1)
            return Rotation(angles, self.d_head, self.interleaved, False, device)

    def __repr__(self) -> str:
        interleaved = ", interleaved=True" if self.interleaved else ""
        return f"AxialRotary({self.d_head}, base={self._axis.base}{interleaved})"
