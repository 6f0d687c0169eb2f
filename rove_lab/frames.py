r"""Attention in frames: what tokens send is written in frames of their own, and read in others."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from rove_lab.arguments import check_flag, check_floating, check_number, check_size
from rove_lab.axial import AxialRotary
from rove_lab.masking import attend, check_heads
from rove_lab.poses import Poses, planar_poses
from rove_lab.rotation import autocasting
from rove_lab.shared_kv import shared_kv_attention

__all__ = [
    "AxialRotary",
    "Frame",
    "Poses",
    "SideBySide",
    "frame_attention",
    "planar_poses",
    "shared_kv_attention",
]


@runtime_checkable
class Frame(Protocol):
    r"""The frames of a set of tokens: :math:`\rho(g_t)` takes what t says to a common frame.

    :math:`g_t` maps from the token to the world, as a camera-to-world pose does, and :math:`\rho`
    is linear. :class:`rove_lab.Rotation` is one; anything with these three methods is. Tensors are
    ``[..., heads, pos, d_head]`` and keep their shape and dtype.
    Miyato et al. (2024), arXiv:2310.10375, section 3.
    """

    def apply(self, x: Tensor) -> Tensor:
        r"""From each token's own frame to the common one, :math:`\rho(g_t)\,x_t`."""

    def undo(self, x: Tensor) -> Tensor:
        r"""From the common frame back to each token's own, :math:`\rho(g_t)^{-1} x_t`."""

    def dual(self, x: Tensor) -> Tensor:
        r"""How a covector moves, :math:`\rho(g_t)^{-\top} x_t`; ``apply`` if orthogonal."""


def frame_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    query_frame: Frame,
    key_frame: Frame,
    *,
    rotate_values: bool = True,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    r"""Attention in frames, :math:`z_i = \sum_j A_{ij}\,\rho(g_i)^{-1}\rho(g_j)\,v_j`.

    The scores are :math:`s\,q_i^\top \rho(g_i)^{-1}\rho(g_j)\,k_j`. Both are computed one token at
    a time, :math:`(\rho(g_i)^{-\top} q_i)^\top \rho(g_j) k_j` and :math:`\rho(g_i)^{-1} \sum_j
    A_{ij} \rho(g_j) v_j`, around an attention kernel that is untouched. Only :math:`g_i^{-1} g_j`
    matters: moving all tokens by one h, from :math:`g` to :math:`h g`, changes nothing. With
    rotations as frames this is RoVE. Miyato et al. (2024), arXiv:2310.10375, section 3.

    Args:
        q: Queries ``[..., heads, query_pos, d_head]``.
        k: Keys ``[..., n_kv_heads, key_pos, d_head]``.
        v: Values ``[..., n_kv_heads, key_pos, d_v]``; their d_v is d_head if they have frames.
        query_frame: The frames of the queries.
        key_frame: The frames of the keys and values.
        rotate_values: ``False`` leaves the values as they are, :math:`z_i = \sum_j A_{ij} v_j`, as
            RoPE does: what is sent is then each sender's own view, mixed as if it were one frame.
        attn_mask: Boolean (True = may attend) or additive, as in SDPA.
        is_causal: By index, aligned bottom-right; combines with ``attn_mask``.
        scale: Factor s of the logits, 1/√d_head by default; YaRN's temperature is not added, pass
            ``q`` and ``scale`` as ``with_temperature(q, rotary)`` of ``rove_lab.temperature`` gives
            them.

    Returns:
        ``[..., heads, query_pos, d_v]``; zeros for a query that may attend to nothing.

    Raises:
        TypeError: If dtypes do not fit, or a frame is none, or changes a dtype.
        ValueError: If shapes, lengths or devices do not fit, or a frame changes a shape.

    Example:
        >>> from rove_lab import RotaryEmbedding, rove_attention
        >>> (q, k, v), here = torch.randn(3, 1, 2, 5, 8), RotaryEmbedding(8)(range(5))
        >>> z = rove_attention(q, k, v, RotaryEmbedding(8), is_causal=False)
        >>> torch.allclose(frame_attention(q, k, v, here, here), z, atol=1e-6)
        True
    """
    check_heads(q, k, v)
    for name, frame in (("query_frame", query_frame), ("key_frame", key_frame)):
        _check_frame(name, frame)
    if check_flag("rotate_values", rotate_values) and v.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"expected v with the keys' d_head={k.shape[-1]}, whose frames it shares, got "
            f"{v.shape[-1]}: for values without frames pass rotate_values=False."
        )
    scale = q.shape[-1] ** -0.5 if scale is None else check_number("scale", scale)
    q, k = _moved(query_frame, "dual", q), _moved(key_frame, "apply", k)
    if not rotate_values:
        return attend(q, k, v, attn_mask, is_causal, scale)
    z = attend(q, k, _moved(key_frame, "apply", v), attn_mask, is_causal, scale)
    return _moved(query_frame, "undo", z)


class SideBySide:
    r"""Several frames, each on channels of its own, :math:`\rho = \rho_1 \oplus \rho_2 \oplus I`.

    The first frame has the first channels, the second the next; what is left passes through bit
    for bit. So GTA gives a patch of a view its camera's pose and the rotations of its row and
    column. Miyato et al. (2024), arXiv:2310.10375, section 3.

    Args:
        *frames: Frames of the same tokens, each with a ``d_head``.
        d_head: Channels of a head, at least those of the frames; ``None`` leaves none over.

    Attributes:
        frames: The frames.
        d_head: Channels of a head.

    Raises:
        TypeError: If one is no frame, or does not say how many channels it has.
        ValueError: If there are no frames, or more channels than ``d_head`` in them.

    Example:
        >>> pose = planar_poses(x=[0.0, 1.0], y=[0.0, 0.0], heading=[0.0, 0.0], d_head=6)
        >>> patch = AxialRotary(4)(rows=[0, 1], columns=[2, 2])
        >>> SideBySide(pose, patch, d_head=12).apply(torch.ones(1, 2, 12)).shape
        torch.Size([1, 2, 12])
    """

    def __init__(self, *frames: Frame, d_head: int | None = None) -> None:
        if not frames:
            raise ValueError("expected one frame or more, got none: pass them one by one.")
        for frame in frames:
            _check_frame("each frame", frame)
            width = getattr(frame, "d_head", None)
            if isinstance(width, bool) or not isinstance(width, int):
                raise TypeError(
                    f"expected frames with an integer d_head, got {type(frame).__name__} without: "
                    "side by side, a frame has to say how many channels it moves."
                )
            check_size("a frame's d_head", width)
        self.frames = frames
        self._widths = [int(frame.d_head) for frame in frames]  # type: ignore[attr-defined]
        moved = sum(self._widths)
        self.d_head = moved if d_head is None else check_size("d_head", d_head)
        if moved > self.d_head:
            raise ValueError(
                f"expected frames of at most d_head={self.d_head} channels, got "
                f"{' + '.join(map(str, self._widths))} = {moved}: make one smaller."
            )
        if moved < self.d_head:
            self._widths.append(self.d_head - moved)

    def apply(self, x: Tensor) -> Tensor:
        r"""From each token's own frame to the common one, :math:`\rho(g_t)\,x_t`.

        Args:
            x: ``[..., heads, pos, d_head]``.

        Returns:
            The moved tensor, of the same shape and dtype.
        """
        return self._join(x, "apply")

    def undo(self, x: Tensor) -> Tensor:
        r"""From the common frame back to each token's own, :math:`\rho(g_t)^{-1} x_t`.

        Args:
            x: ``[..., heads, pos, d_head]``.

        Returns:
            The tensor moved back, of the same shape and dtype.
        """
        return self._join(x, "undo")

    def dual(self, x: Tensor) -> Tensor:
        r"""How a covector moves, :math:`\rho(g_t)^{-\top} x_t`.

        Args:
            x: ``[..., heads, pos, d_head]``.

        Returns:
            The moved tensor, of the same shape and dtype.
        """
        return self._join(x, "dual")

    def _join(self, x: Tensor, move: str) -> Tensor:
        check_floating("x", x)
        if x.dim() < 2 or x.shape[-1] != self.d_head:
            raise ValueError(
                f"expected [..., heads, pos, d_head] with d_head={self.d_head}, got "
                f"{list(x.shape)}: SideBySide(..., d_head=...) lets more channels pass through."
            )
        parts = list(x.split(self._widths, -1))
        for index, frame in enumerate(self.frames):
            parts[index] = _moved(frame, move, parts[index])
        return torch.cat(parts, -1)


def _moved(frame: Frame, move: str, x: Tensor) -> Tensor:
    """What a frame makes of ``x``: a user's own may broadcast, cut or cast, and must not."""
    moved: object = getattr(frame, move)(x)
    if not isinstance(moved, Tensor) or moved.shape != x.shape:
        got = list(moved.shape) if isinstance(moved, Tensor) else type(moved).__name__
        raise ValueError(
            f"expected {type(frame).__name__}.{move} to keep the shape {list(x.shape)} of "
            f"[..., heads, pos, d_head], got {got}: a frame moves every token in its place."
        )
    if moved.dtype != x.dtype and not autocasting(x):
        raise TypeError(
            f"expected {type(frame).__name__}.{move} to keep the dtype {x.dtype}, got "
            f"{moved.dtype}: return its result with .to(x.dtype)."
        )
    return moved


def _check_frame(name: str, frame: object) -> None:
    if isinstance(frame, type) or not isinstance(frame, Frame):
        got = frame.__name__ if isinstance(frame, type) else type(frame).__name__
        raise TypeError(
            f"expected {name} to have apply, undo and dual, got {got}: a family of rotations "
            "becomes frames by its positions, as rotary(positions)."
        )
