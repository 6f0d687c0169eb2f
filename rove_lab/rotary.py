r"""The rotation family :math:`R_t`: one turn per plane, by an angle that grows with position."""

from __future__ import annotations

import copy
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rove_lab.arguments import check_flag, check_number, check_size
from rove_lab.hf_config import rotary_arguments
from rove_lab.rotation import Rotation, as_positions
from rove_lab.scaling import (
    LinearScaling,
    Llama3Scaling,
    NTKScaling,
    Scaling,
    YarnScaling,
    frequencies,
)

__all__ = [
    "LinearScaling",
    "Llama3Scaling",
    "NTKScaling",
    "RotaryEmbedding",
    "Rotation",
    "YarnScaling",
]


class RotaryEmbedding:
    r"""The rotations :math:`R_t` of a head, plane m turned counter-clockwise by :math:`t\omega_m`.

    :math:`R_t = \bigoplus_m \begin{pmatrix}\cos t\omega_m & -\sin t\omega_m\\ \sin t\omega_m &
    \cos t\omega_m\end{pmatrix}` with :math:`\omega_m = \text{base}^{-2m/\text{rotary\_dim}}`, so
    that :math:`R_i^{-1} R_j = R_{j-i}`. It holds no parameters and is not a module: nothing done
    to a model (``.to(bfloat16)``, meta device, autocast) can change it.
    Su et al. (2021), arXiv:2104.09864, equation 15.

    Args:
        d_head: Channels of a head.
        base: The base of the frequencies, finite and positive.
        rotary_dim: Number of rotated channels, even; ``None`` rotates all. The others pass through
            bit for bit.
        interleaved: ``False`` pairs channel m with m + rotary_dim / 2 (Llama, NeoX); ``True`` pairs
            neighbours (GPT-J).
        trailing: Rotate the last ``rotary_dim`` channels (DeepSeek) instead of the first.
        scaling: A context extension such as :class:`YarnScaling`.

    Attributes:
        inv_freq: Frequencies ``[rotary_dim / 2]``, float64, radians per token.
        attention_factor: What YaRN puts on the turning channels of q and of k (logits get its
            square); 1.0 otherwise.

    Raises:
        ValueError: If a size is odd, out of range or not positive, or the base is not.
        TypeError: If a size is not an integer or ``scaling`` is not a scaling.

    Example:
        >>> RotaryEmbedding(4, base=100.0).inv_freq
        tensor([1.0000, 0.1000], dtype=torch.float64)
    """

    def __init__(
        self,
        d_head: int,
        *,
        base: float = 10000.0,
        rotary_dim: int | None = None,
        interleaved: bool = False,
        trailing: bool = False,
        scaling: Scaling | None = None,
    ) -> None:
        self.d_head = check_size("d_head", d_head)
        self.rotary_dim = (
            self.d_head if rotary_dim is None else check_size("rotary_dim", rotary_dim)
        )
        if self.rotary_dim > self.d_head:
            raise ValueError(
                f"expected rotary_dim <= d_head, got rotary_dim={self.rotary_dim} and "
                f"d_head={self.d_head}: at most every channel can be rotated."
            )
        if self.rotary_dim % 2:
            raise ValueError(
                f"expected an even rotary_dim (channels turn in pairs), got {self.rotary_dim}"
                f"{' (= d_head)' if rotary_dim is None else ''}: pass an even rotary_dim."
            )
        self.base, self.scaling = check_number("base", base), scaling
        if self.base <= 0:
            raise ValueError(f"expected a finite positive base, got {base}: 10000.0 is usual.")
        if scaling is not None and (isinstance(scaling, type) or not isinstance(scaling, Scaling)):
            raise TypeError(
                "expected scaling to be None or a scaling such as YarnScaling(4.0, 4096), got "
                f"{scaling!r}; for a Hugging Face config use RotaryEmbedding.from_config."
            )
        self.interleaved = check_flag("interleaved", interleaved)
        self.trailing = check_flag("trailing", trailing)
        self.attention_factor = 1.0 if scaling is None else float(scaling.mscale)
        # a table made inside `torch.inference_mode()` must serve training too
        with torch.inference_mode(False):
            self.inv_freq = self._frequencies()

    @classmethod
    def from_config(cls, hf_config: Any, layer: int | None = None) -> RotaryEmbedding:
        r"""The :math:`R_t` that a Hugging Face model uses, read from its config.

        Args:
            hf_config: A ``transformers`` config with rotary positions.
            layer: Index of the layer, needed where the rotation differs by layer (Gemma 3).

        Returns:
            The embedding; its ``inv_freq`` equals Hugging Face's before their rounding to float32.

        Raises:
            ValueError: If the config has no rotary positions or a kind that cannot be honoured
                (``longrope``, ``dynamic``), or a layer is needed.

        Example:
            >>> from types import SimpleNamespace as Config
            >>> gptj = Config(model_type="gptj", n_embd=64, n_head=4, rotary_dim=8, n_layer=2)
            >>> RotaryEmbedding.from_config(gptj)
            RotaryEmbedding(16, base=10000.0, rotary_dim=8, interleaved=True)
        """
        return cls(**rotary_arguments(hf_config, layer))

    def _frequencies(self) -> Tensor:
        try:
            if self.scaling is None:
                inv_freq = frequencies(self.base, self.rotary_dim)
            else:
                inv_freq = self.scaling.inv_freq(self.base, self.rotary_dim)
            if inv_freq.isfinite().all():
                return inv_freq
        except OverflowError:
            pass
        raise ValueError(
            f"expected finite frequencies, got others from base={self.base} and "
            f"scaling={self.scaling}: choose less extreme numbers."
        )

    @property
    def plane_channels(self) -> Tensor:
        """The two channels that turn together in each plane, ``[rotary_dim / 2, 2]``, int64."""
        first = self.d_head - self.rotary_dim if self.trailing else 0
        channels = torch.arange(first, first + self.rotary_dim, device="cpu")
        return channels.reshape(-1, 2) if self.interleaved else channels.reshape(2, -1).T

    def planes(self, keep: Sequence[int] | slice | Tensor) -> RotaryEmbedding:
        r"""The same family with :math:`\omega_m = 0` for every plane m outside ``keep``.

        Args:
            keep: Indices of planes (0 turns fastest) or a slice; ``[]`` leaves :math:`R_t = I`.

        Returns:
            A new embedding; this one is unchanged.

        Raises:
            TypeError: If ``keep`` is neither indices nor a slice.
            ValueError: If an index is not one of the ``rotary_dim / 2`` planes.

        Example:
            >>> RotaryEmbedding(6, base=1000.0).planes([0]).inv_freq
            tensor([1., 0., 0.], dtype=torch.float64)
        """
        n = len(self.inv_freq)
        index = _plane_indices(keep, n)
        kept = copy.copy(self)
        with torch.inference_mode(False):
            mask = torch.zeros(n, dtype=torch.float64, device="cpu")
            mask[index] = 1.0
            kept.inv_freq = self.inv_freq * mask
        return kept

    def __call__(self, positions: Tensor | Sequence[float], *, device: Any = None) -> Rotation:
        r"""The rotations :math:`R_t` for the positions t of a sequence.

        Angles are taken in float64 on the CPU and rounded once to float32 tables, so that a
        device without float64 loses nothing.

        Args:
            positions: ``[pos]`` or ``[batch, pos]`` in tokens: integers or reals of either sign.
            device: Where the tables go; ``None`` means where ``positions`` lies.

        Returns:
            A :class:`Rotation` for tensors ``[..., heads, pos, d_head]``.

        Raises:
            TypeError: If positions are boolean, complex or half precision.
            ValueError: If positions have another number of axes, or are not finite.

        Example:
            >>> import math, torch
            >>> x = torch.tensor([[[1.0, 0.0]]])  # one head, one token, one plane
            >>> RotaryEmbedding(2)([math.pi / 2]).apply(x).round(decimals=4)
            tensor([[[0., 1.]]])
        """
        positions = as_positions(positions)
        if positions.dim() not in (1, 2):
            raise ValueError(
                "expected positions [pos] or [batch, pos], got shape "
                f"{list(positions.shape)}: for a sequence of n tokens pass torch.arange(n)."
            )
        device = torch.device(positions.device if device is None else device)
        if positions.is_meta and device.type != "meta":
            raise ValueError(f"expected positions with values for {device}, got them on meta.")
        home = "meta" if positions.is_meta else "cpu"
        with torch.inference_mode(False):
            # first home, then to float64: a device without float64 cannot do both in one copy
            angles = positions.to(home).to(torch.float64)[..., None] * self.inv_freq.to(home)
            if positions.dim() == 2:
                angles = angles.unsqueeze(-3)  # [batch, 1, pos, plane]: the same for every head
            return Rotation(angles, self.d_head, self.interleaved, self.trailing, device)

    def matrix(
        self, offsets: Tensor | Sequence[float] | float, *, dtype: torch.dtype = torch.float64
    ) -> Tensor:
        r"""The matrices :math:`R_\delta`, acting on columns.

        Args:
            offsets: Offsets :math:`\delta` in tokens, any shape.
            dtype: Of the result; the angles are float64 in any case.

        Returns:
            ``offsets.shape + [d_head, d_head]``.

        Raises:
            TypeError: If offsets are boolean, complex or half precision, or ``dtype`` is not a
                floating-point one.

        Example:
            >>> RotaryEmbedding(2).matrix(0)
            tensor([[1., 0.],
                    [0., 1.]], dtype=torch.float64)
        """
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise TypeError(f"expected a floating-point dtype, got {dtype}: as torch.float32.")
        offsets = as_positions(offsets)
        home = "meta" if offsets.is_meta else "cpu"
        flat = offsets.reshape(-1).to(home)
        eye = torch.eye(self.d_head, dtype=torch.float64, device=home)
        columns = self(flat).apply(eye[:, None].expand(-1, len(flat), -1))  # [d_head, n, d_head]
        matrices = columns.permute(1, 2, 0).reshape(*offsets.shape, *eye.shape)
        return matrices.to(dtype).to(offsets.device)

    def __repr__(self) -> str:
        parts = [str(self.d_head), f"base={self.base}"]
        if self.rotary_dim != self.d_head:
            parts.append(f"rotary_dim={self.rotary_dim}")
        parts += [f"{name}=True" for name in ("interleaved", "trailing") if getattr(self, name)]
        if self.scaling is not None:
            parts.append(f"scaling={self.scaling}")
        turning = self.inv_freq.nonzero().flatten().tolist()
        planes = "" if len(turning) == len(self.inv_freq) else f".planes({turning})"
        return f"RotaryEmbedding({', '.join(parts)}){planes}"


def check_rotary(rotary: object) -> None:
    """Refuses what is not a :class:`RotaryEmbedding`, a :class:`Rotation` for one.

    Args:
        rotary: What was given.

    Raises:
        TypeError: If it is something else.

    Example:
        >>> check_rotary(RotaryEmbedding(8))
    """
    if not isinstance(rotary, RotaryEmbedding):
        raise TypeError(
            f"expected a RotaryEmbedding, got {type(rotary).__name__}: pass the family itself, as "
            "RotaryEmbedding(d_head); positions are an argument of their own."
        )


def _plane_indices(keep: Sequence[int] | slice | Tensor, n: int) -> list[int]:
    def index(plane: object) -> int:
        if isinstance(plane, bool) or (isinstance(plane, Tensor) and plane.dtype == torch.bool):
            raise TypeError("a boolean is not an index")
        return operator.index(plane)  # type: ignore[arg-type]

    try:
        if isinstance(keep, slice):
            return list(range(n))[keep]
        planes = [index(plane) for plane in (keep.tolist() if hasattr(keep, "tolist") else keep)]
    except TypeError as error:
        raise TypeError(
            f"expected planes as integer indices or a slice, got {keep!r}: one plane is [m]; a "
            "boolean mask becomes indices by mask.nonzero().flatten()."
        ) from error
    for plane in planes:
        if not -n <= plane < n:
            raise ValueError(
                f"expected planes among 0..{n - 1} (rotary_dim / 2 = {n}), got plane {plane}."
            )
    return planes
