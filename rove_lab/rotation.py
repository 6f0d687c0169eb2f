r"""One set of rotations, ready to turn tensors: :math:`x_t \mapsto R_t x_t` and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rove_lab.arguments import check_floating

__all__ = ["Rotation"]


class Rotation:
    r"""The rotations of a set of positions: :math:`x_t \mapsto R_t x_t` and back.

    Made by calling a :class:`RotaryEmbedding`. Tensors are ``[..., heads, pos, d_head]``; positions
    ``[batch, pos]`` pair with the batch axis just before the heads. The arithmetic is at least
    float32 (float64 for float64 input), the result has the input's dtype.

    Args:
        angles: :math:`t\omega_m` in radians, float64, ``[pos, plane]`` or
            ``[batch, 1, pos, plane]``.
        d_head: Channels of a head.
        interleaved: Whether a plane pairs neighbouring channels.
        trailing: Whether the last channels turn rather than the first.
        device: Where the float32 tables lie.

    Example:
        >>> from rove_lab import RotaryEmbedding
        >>> rotation = RotaryEmbedding(8)(range(5))
        >>> x = torch.randn(2, 5, 8)
        >>> torch.allclose(rotation.undo(rotation.apply(x)), x, atol=1e-6)
        True
    """

    def __init__(
        self, angles: Tensor, d_head: int, interleaved: bool, trailing: bool, device: Any
    ) -> None:
        self.angles, self.d_head = angles, d_head
        self.interleaved, self.trailing = interleaved, trailing
        self.cos = angles.cos().float().to(device)
        self.sin = angles.sin().float().to(device)
        self._channels = self._by_channel(self.cos, self.sin)

    def apply(self, x: Tensor) -> Tensor:
        r"""From each token's own frame to the common one, :math:`R_t x_t`.

        Args:
            x: ``[..., heads, pos, d_head]``.

        Returns:
            The rotated tensor, of the same shape and dtype.

        Raises:
            TypeError: If ``x`` is not a floating-point tensor.
            ValueError: If the shape or the device of ``x`` does not fit.

        Example:
            >>> from rove_lab import RotaryEmbedding
            >>> RotaryEmbedding(2)([0, 1]).apply(torch.ones(1, 2, 2)).norm(dim=-1)
            tensor([[1.4142, 1.4142]])
        """
        return self._turn(x, 1)

    def undo(self, x: Tensor) -> Tensor:
        r"""From the common frame back to each token's own, :math:`R_t^{-1} x_t`.

        Args:
            x: ``[..., heads, pos, d_head]``.

        Returns:
            The tensor rotated back, of the same shape and dtype.

        Raises:
            TypeError: If ``x`` is not a floating-point tensor.
            ValueError: If the shape or the device of ``x`` does not fit.

        Example:
            >>> from rove_lab import RotaryEmbedding
            >>> RotaryEmbedding(2)([0, 1]).undo(torch.ones(1, 2, 2)).norm(dim=-1)
            tensor([[1.4142, 1.4142]])
        """
        return self._turn(x, -1)

    def dual(self, x: Tensor) -> Tensor:
        r"""How a covector moves, :math:`R_t^{-\top} x_t`; for rotations the same as :meth:`apply`.

        Args:
            x: ``[..., heads, pos, d_head]``.

        Returns:
            The rotated tensor, of the same shape and dtype.

        Raises:
            TypeError: If ``x`` is not a floating-point tensor.
            ValueError: If the shape or the device of ``x`` does not fit.

        Example:
            >>> from rove_lab import RotaryEmbedding
            >>> rotation, x = RotaryEmbedding(2)([0, 1]), torch.ones(1, 2, 2)
            >>> torch.equal(rotation.dual(x), rotation.apply(x))
            True
        """
        return self.apply(x)

    def _turn(self, x: Tensor, sign: int) -> Tensor:
        cos, sin = self._tables(x)
        rotary_dim = cos.shape[-1]
        rest = self.d_head - rotary_dim
        before, after = x, x
        if rest:
            split = [rest, rotary_dim] if self.trailing else [rotary_dim, rest]
            before, after = x.split(split, -1)
        turning = (after if self.trailing else before).to(cos.dtype)
        # (a, b) to (a cos - b sin, b cos + a sin), on whole heads: half of one is slow to walk
        pair, axis = self._planes
        a, b = turning.unflatten(-1, pair).unbind(axis)
        partner = torch.stack((b, a), axis).flatten(-2)
        turned = (turning * cos + partner * (sign * sin)).to(x.dtype)
        if rest == 0:
            return turned
        return torch.cat((before, turned) if self.trailing else (turned, after), -1)

    @property
    def _planes(self) -> tuple[tuple[int, int], int]:
        # a plane's two channels lie side by side, or half the rotated channels apart
        return ((-1, 2), -1) if self.interleaved else ((2, -1), -2)

    def _by_channel(self, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """The tables of the planes as factors of each channel and of its partner."""
        _, axis = self._planes
        return (
            torch.stack((cos, cos), axis).flatten(-2),
            torch.stack((-sin, sin), axis).flatten(-2),
        )

    def _tables(self, x: Tensor) -> tuple[Tensor, Tensor]:
        how = "the rotation with rotary(positions, device=x.device)"
        check_tokens(x, self.cos.shape[:-1], self.d_head, self.cos.device, "positions", how)
        if x.dtype == torch.float64:
            cos, sin = self.angles.cos().to(x.device), self.angles.sin().to(x.device)
            return self._by_channel(cos, sin)
        return self._channels


def check_tokens(
    x: Tensor, tokens: Sequence[int], d_head: int, device: torch.device, what: str, how: str
) -> None:
    """Whether ``x`` fits the ``[pos]`` or ``[batch, 1, pos]`` tokens of some frames."""
    check_floating("x", x)
    n, batch = tokens[-1], tokens[:-2]
    if x.dim() < 2 or x.shape[-1] != d_head or x.shape[-2] != n:
        raise ValueError(
            f"expected [..., heads, pos, d_head] with pos={n} (the number of {what}) and "
            f"d_head={d_head}, got {list(x.shape)}: are the heads and pos axes swapped?"
        )
    if batch and (x.dim() < 4 or batch[0] not in (1, x.shape[-4])):
        raise ValueError(
            f"expected [..., batch, heads, pos, d_head] with batch={batch[0]} for {what} "
            f"[batch, pos], got {list(x.shape)}."
        )
    if x.device != device:
        raise ValueError(f"expected x on {device}, got {x.device}: make {how}.")


def as_positions(positions: Tensor | Sequence[float] | float) -> Tensor:
    """Positions or offsets as a tensor of integers or reals, checked."""
    if isinstance(positions, (list, tuple)) and any(isinstance(t, Tensor) for t in positions):
        positions = torch.stack([torch.as_tensor(t) for t in positions])
    if not isinstance(positions, Tensor):
        try:
            given = torch.as_tensor(positions, device="cpu")
            if given.is_floating_point() and not hasattr(positions, "dtype"):
                given = torch.as_tensor(positions, dtype=torch.float64, device="cpu")
            positions = given
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(
                f"expected positions as a tensor or numbers, got {positions!r}: for a sequence of "
                "n tokens pass torch.arange(n)."
            ) from error
    if positions.dtype in (torch.bool, torch.float16, torch.bfloat16) or positions.is_complex():
        raise TypeError(
            f"expected integer, float32 or float64 positions, got {positions.dtype}: half "
            "precision cannot tell tokens apart beyond a few hundred; use torch.int64."
        )
    unread = torch.compiler.is_compiling() or positions.is_meta  # no values to look at
    if positions.is_floating_point() and not unread and not positions.isfinite().all():
        raise ValueError("expected finite positions, got NaN or infinity.")
    return positions
