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
        apart = torch.compiler.is_compiling() and not angles.requires_grad
        cos, sin = (_cos_and_sin if apart else _rounded_once)(angles)
        self.cos, self.sin = cos.to(device), sin.to(device)
        self._cos_by_channel = self._by_channel(self.cos)

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
        self._check(x)
        if autocasting(x):  # there is nothing to cast, and it refuses to stack some half precisions
            with torch.autocast(x.device.type, enabled=False):
                return self._turn(x, sign)
        rest = self.d_head - 2 * self.cos.shape[-1]
        before, after = x, x
        if rest:
            split = [rest, self.d_head - rest] if self.trailing else [self.d_head - rest, rest]
            before, after = x.split(split, -1)
        turned = self._turned(after if self.trailing else before, sign)
        if rest == 0:
            return turned
        return torch.cat((before, turned) if self.trailing else (turned, after), -1)

    def _turned(self, x: Tensor, sign: int) -> Tensor:
        cos, sin, by_channel = self.cos, self.sin, self._cos_by_channel
        if x.dtype == torch.float64:
            cos, sin = self.angles.cos().to(x.device), self.angles.sin().to(x.device)
            by_channel = self._by_channel(cos)
        # a compiler fuses the expression, derives its backward, and refuses a `jvp`
        if torch.compiler.is_compiling() or cos.requires_grad:
            return _expression(x, cos, sin, sign, self.interleaved)
        return _recorded(x, by_channel, sin, sign, self.interleaved)

    def _by_channel(self, cos: Tensor) -> Tensor:
        _, axis = _planes(self.interleaved)
        return torch.stack((cos, cos), axis).flatten(-2)

    def _check(self, x: Tensor) -> None:
        how = "the rotation with rotary(positions, device=x.device)"
        check_tokens(x, self.cos.shape[:-1], self.d_head, self.cos.device, "positions", how)


def _rounded_once(angles: Tensor) -> tuple[Tensor, Tensor]:
    return angles.cos().float(), angles.sin().float()


# A compiler would fuse the tables into every rotation, and take each cosine once a head. What is an
# operator of its own is done once.
_cos_and_sin = torch.library.custom_op(
    "rove_lab::cos_and_sin", _rounded_once, mutates_args=(), schema="(Tensor x) -> (Tensor, Tensor)"
)
_cos_and_sin.register_fake(_rounded_once)


def _planes(interleaved: bool) -> tuple[tuple[int, int], int]:
    """How channels unflatten into planes, and the axis of a plane's two channels."""
    # which lie side by side, or half the rotated channels apart
    return ((-1, 2), -1) if interleaved else ((2, -1), -2)


def _expression(x: Tensor, cos: Tensor, sin: Tensor, sign: int, interleaved: bool) -> Tensor:
    """Every plane (a, b) turned to (a cos - b sin, b cos + a sin); the other way for sign -1."""
    pair, axis = _planes(interleaved)
    a, b = x.to(cos.dtype).unflatten(-1, pair).unbind(axis)
    sin = sign * sin
    # rounded before they are joined: a compiler writes what is joined to memory
    a, b = (a * cos - b * sin).to(x.dtype), (b * cos + a * sin).to(x.dtype)
    return torch.stack((a, b), axis).flatten(-2)


def _recorded(x: Tensor, cos: Tensor, sin: Tensor, sign: int, interleaved: bool) -> Tensor:
    if torch._C._are_functorch_transforms_active():
        # which derive and map the expression; inside a `jvp` of ours tangents of tangents are lost
        cos = _both_channels(cos, interleaved)[0]
        return _expression(x, cos, sin, sign, interleaved)
    # What nobody differentiates is not recorded: that costs as much as turning a few tokens does.
    if not (x.requires_grad and torch.is_grad_enabled()):
        return _Turned.forward(x, cos, sin, sign, interleaved)
    turned: Tensor = _Turned.apply(x, cos, sin, sign, interleaved)  # type: ignore[no-untyped-call]
    return turned


def _both_channels(x: Tensor, interleaved: bool) -> tuple[Tensor, Tensor]:
    # sliced, which torch.autograd.grad(..., is_grads_batched=True) can map, and unflatten it cannot
    half = x.shape[-1] // 2
    if interleaved:
        return x[..., ::2], x[..., 1::2]
    return x.narrow(-1, 0, half), x.narrow(-1, half, half)  # brackets want a device that is there


class _Turned(torch.autograd.Function):
    """The same step by step, with the opposite turn as its backward: the tables are all it keeps.

    Here a cosine stands for each channel, not for each plane.
    """

    @staticmethod
    def forward(x: Tensor, cos: Tensor, sin: Tensor, sign: int, interleaved: bool) -> Tensor:
        wide = x.to(cos.dtype)
        turned = wide * cos  # the one new tensor: to make another costs more than the arithmetic
        a, b = _both_channels(wide, interleaved)
        turned_a, turned_b = _both_channels(turned, interleaved)
        turned_a.addcmul_(b, sin, value=-sign)
        turned_b.addcmul_(a, sin, value=sign)
        return turned.to(x.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, cos, sin, *ctx.how = inputs
        ctx.save_for_backward(cos, sin)
        ctx.save_for_forward(x, cos, sin)  # forgotten at once where nothing goes forward

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        sign, interleaved = ctx.how
        return _recorded(grad, cos, sin, -sign, interleaved), None, None, None, None

    @staticmethod
    def jvp(
        ctx: Any, dx: Tensor | None, dcos: Tensor | None, dsin: Tensor | None, *_: None
    ) -> Tensor | None:
        x, cos, sin = ctx.saved_tensors
        tangent = None if dx is None else _recorded(dx, cos, sin, *ctx.how)
        if dcos is None or dsin is None:
            return tangent
        moved = _recorded(x, dcos, dsin, *ctx.how)  # the tables enter linearly too
        return moved if tangent is None else tangent + moved


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
    unread |= torch._C._are_functorch_transforms_active()  # or many at once, under vmap
    if positions.is_floating_point() and not unread and not positions.isfinite().all():
        raise ValueError("expected finite positions, got NaN or infinity.")
    return positions


def autocasting(x: Tensor) -> bool:
    """Whether autocast is on for the device of ``x``.

    Args:
        x: Any tensor.

    Returns:
        True inside ``torch.autocast`` for that device.

    Example:
        >>> autocasting(torch.zeros(1))
        False
    """
    # on meta there is none, and to ask raises; torch 2.6 cannot compile is_autocast_available
    return not x.is_meta and torch.is_autocast_enabled(x.device.type)
