r"""How a rotary embedding is stretched beyond the length it was trained on.

Every scaling here is a fixed map from a base to frequencies. None looks at the length of the
sequence: a table that changed under a cache would leave old keys and values turned by one angle
and read by another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from rove_lab.arguments import check_flag, check_number

__all__ = [
    "LinearScaling",
    "Llama3Scaling",
    "NTKScaling",
    "Scaling",
    "YarnScaling",
    "frequencies",
    "yarn_mscale",
]


@runtime_checkable
class Scaling(Protocol):
    """What a context extension must offer: frequencies, and the factor YaRN puts on q and k."""

    @property
    def mscale(self) -> float:
        """The factor put on the turning channels of q and of k; logits get its square."""
        ...

    def inv_freq(self, base: float, rotary_dim: int) -> Tensor:
        """Frequencies ``[rotary_dim / 2]``, float64, in radians per token."""
        ...


def frequencies(base: float, rotary_dim: int) -> Tensor:
    r"""The frequencies of the rotary planes, :math:`\omega_m = \text{base}^{-2m/d}`.

    Su et al. (2021), arXiv:2104.09864, equation 15.

    Args:
        base: The base, finite and positive.
        rotary_dim: Number of rotated channels, even.

    Returns:
        Tensor of shape ``[rotary_dim / 2]``, float64, in radians per token.

    Example:
        >>> frequencies(100.0, 4)
        tensor([1.0000, 0.1000], dtype=torch.float64)
    """
    exponent = torch.arange(0, rotary_dim, 2, dtype=torch.float64, device="cpu") / rotary_dim
    return torch.pow(float(base), -exponent)


@dataclass(frozen=True)
class LinearScaling:
    r"""Position interpolation, :math:`\omega_m / s`: every plane turns :math:`s` times slower.

    Chen et al. (2023), arXiv:2306.15595, equation 4.

    Args:
        factor: The extension :math:`s \ge 1`.

    Raises:
        ValueError: If ``factor`` is not a finite number of at least 1.

    Example:
        >>> LinearScaling(2.0).inv_freq(100.0, 4)
        tensor([0.5000, 0.0500], dtype=torch.float64)
    """

    factor: float

    def __post_init__(self) -> None:
        _check_factor(self)

    @property
    def mscale(self) -> float:
        """Always 1, since interpolation leaves the logits alone."""
        return 1.0

    def inv_freq(self, base: float, rotary_dim: int) -> Tensor:
        """Scaled frequencies, ``[rotary_dim / 2]`` in radians per token."""
        return frequencies(base, rotary_dim) / self.factor


@dataclass(frozen=True)
class NTKScaling:
    r"""NTK-aware change of base, :math:`\text{base}\cdot s^{d/(d-2)}`.

    The fastest plane keeps its frequency and the slowest is divided by exactly :math:`s`. The
    factor is fixed; the *dynamic* variant, whose base follows the length, is not offered.
    bloc97 (2023); see Peng et al. (2023), arXiv:2309.00071, section 3.1.

    Args:
        factor: The extension :math:`s \ge 1`.

    Raises:
        ValueError: If ``factor`` is not a finite number of at least 1, or ``rotary_dim`` is 2.

    Example:
        >>> NTKScaling(4.0).inv_freq(100.0, 4)
        tensor([1.0000, 0.0250], dtype=torch.float64)
    """

    factor: float

    def __post_init__(self) -> None:
        _check_factor(self)

    @property
    def mscale(self) -> float:
        """Always 1, since a change of base leaves the logits alone."""
        return 1.0

    def inv_freq(self, base: float, rotary_dim: int) -> Tensor:
        """Frequencies of the changed base, ``[rotary_dim / 2]`` in radians per token.

        Raises:
            ValueError: If ``rotary_dim`` is 2: the exponent would be infinite.
        """
        if rotary_dim <= 2:
            raise ValueError(
                f"NTKScaling expects rotary_dim > 2, got {rotary_dim}: its exponent is "
                "rotary_dim / (rotary_dim - 2). Use LinearScaling for a single plane."
            )
        return frequencies(base * self.factor ** (rotary_dim / (rotary_dim - 2)), rotary_dim)


@dataclass(frozen=True)
class YarnScaling:
    r"""YaRN: fast planes are kept, slow planes interpolated, a ramp between.

    :math:`\omega'_m = (1-\gamma_m)\,\omega_m/s + \gamma_m\,\omega_m`, where :math:`\gamma` falls
    from 1 for planes that turn more than ``beta_fast`` times within ``original_n_ctx`` tokens to 0
    for those that turn less than ``beta_slow`` times. Logits are multiplied by the square of
    :math:`m = 0.1\ln s + 1`; a rotation never is. Where some channels do not turn (partial rotary),
    the turning channels' part of a logit is multiplied and the rest is not, as in Hugging Face's
    models. The ends of the ramp are clamped as in Hugging Face's ``yarn``, so with a base so small
    that every plane is fast all are interpolated.
    Peng et al. (2023), arXiv:2309.00071, equations 17 to 22.

    Args:
        factor: The extension :math:`s \ge 1`.
        original_n_ctx: Tokens the model was trained on.
        beta_fast: Turns within ``original_n_ctx`` above which a plane is kept. The default suits
            windows of thousands of tokens; a window of a few hundred wants 2 to 8.
        beta_slow: Turns below which a plane is fully interpolated.
        truncate: Round the ends of the ramp outward to whole planes, as Llama does and gpt-oss
            does not.
        attention_factor: The factor :math:`m` itself; ``None`` computes it from ``factor``.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> YarnScaling(4.0, 64, beta_fast=2).inv_freq(100.0, 6)
        tensor([1.0000, 0.2154, 0.0116], dtype=torch.float64)
    """

    factor: float
    original_n_ctx: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float | None = None

    def __post_init__(self) -> None:
        _check_factor(self)
        _check_positive(self, "original_n_ctx", "beta_fast", "beta_slow")
        if self.attention_factor is not None:
            _check_positive(self, "attention_factor")
        if self.beta_fast < self.beta_slow:
            raise ValueError(
                f"YarnScaling expects beta_fast >= beta_slow, got beta_fast={self.beta_fast} and "
                f"beta_slow={self.beta_slow}: swap them (fast planes turn more often)."
            )
        check_flag("YarnScaling's truncate", self.truncate)
        if self.original_n_ctx <= 2 * math.pi * self.beta_slow:
            raise ValueError(
                f"YarnScaling expects original_n_ctx above 2 pi beta_slow, got "
                f"{self.original_n_ctx} and beta_slow={self.beta_slow}: no plane turns that often "
                "in so short a window. Lower beta_slow."
            )

    @property
    def mscale(self) -> float:
        """The factor that Hugging Face puts on cos and sin; logits get its square."""
        if self.attention_factor is not None:
            return float(self.attention_factor)
        return yarn_mscale(self.factor)

    def inv_freq(self, base: float, rotary_dim: int) -> Tensor:
        """Ramped frequencies, ``[rotary_dim / 2]`` in radians per token.

        Raises:
            ValueError: If the base is not above 1.
        """
        if base <= 1:
            raise ValueError(
                f"YarnScaling expects a base above 1, got {base}: its ramp runs over planes "
                "ordered from fast to slow. Give RotaryEmbedding a larger base."
            )

        def plane(turns: float) -> float:  # the (real) index of the plane that turns this often
            window = self.original_n_ctx / (2 * math.pi * turns)
            return rotary_dim * math.log(window) / (2 * math.log(base))

        low, high = plane(self.beta_fast), plane(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, rotary_dim - 1)
        if low == high:
            high += 0.001  # a step instead of a ramp, as in the reference implementation
        omega = frequencies(base, rotary_dim)
        index = torch.arange(rotary_dim // 2, dtype=torch.float64, device="cpu")
        keep = 1 - ((index - low) / (high - low)).clamp(0, 1)
        return (1 - keep) * omega / self.factor + keep * omega


def yarn_mscale(factor: float, mscale: float = 1.0) -> float:
    r"""YaRN's factor on q and on k, :math:`m = 0.1\,c\ln s + 1`.

    Peng et al. (2023), arXiv:2309.00071, equation 22, where :math:`c = 1`; DeepSeek's configs give
    two other c and divide.

    Args:
        factor: The extension :math:`s`; at 1 or below nothing is scaled.
        mscale: The weight c of the logarithm.

    Returns:
        The factor, without unit.

    Example:
        >>> round(yarn_mscale(4.0), 4)
        1.1386
    """
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


@dataclass(frozen=True)
class Llama3Scaling:
    r"""Llama 3.1's ramp over wavelengths, :math:`(1-\gamma_m)\,\omega_m/s + \gamma_m\,\omega_m`.

    With :math:`t_m` the turns of plane m within ``original_n_ctx`` tokens,
    :math:`\gamma_m = (t_m - \text{low})/(\text{high} - \text{low})` clamped to [0, 1].
    Grattafiori et al. (2024), arXiv:2407.21783; the formula is that of Meta's released code.

    Args:
        factor: The extension :math:`s \ge 1`.
        low_freq_factor: Turns below which a plane is fully interpolated.
        high_freq_factor: Turns above which a plane is kept.
        original_n_ctx: Tokens the model was trained on.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> Llama3Scaling(8.0, 1.0, 4.0, 64).inv_freq(100.0, 4)
        tensor([1.0000, 0.0130], dtype=torch.float64)
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_n_ctx: int

    def __post_init__(self) -> None:
        _check_factor(self)
        _check_positive(self, "low_freq_factor", "high_freq_factor", "original_n_ctx")
        if self.low_freq_factor >= self.high_freq_factor:
            raise ValueError(
                "Llama3Scaling expects low_freq_factor < high_freq_factor, got "
                f"{self.low_freq_factor} and {self.high_freq_factor}: swap them."
            )

    @property
    def mscale(self) -> float:
        """Always 1, since the ramp leaves the logits alone."""
        return 1.0

    def inv_freq(self, base: float, rotary_dim: int) -> Tensor:
        """Ramped frequencies, ``[rotary_dim / 2]`` in radians per token."""
        omega = frequencies(base, rotary_dim)
        turns = self.original_n_ctx * omega / (2 * math.pi)
        width = self.high_freq_factor - self.low_freq_factor
        keep = ((turns - self.low_freq_factor) / width).clamp(0, 1)
        return (1 - keep) * omega / self.factor + keep * omega


def _check_factor(scaling: LinearScaling | NTKScaling | YarnScaling | Llama3Scaling) -> None:
    _check_positive(scaling, "factor")
    if scaling.factor < 1:
        raise ValueError(
            f"{type(scaling).__name__} expects factor >= 1 (how many times longer), got "
            f"{scaling.factor}: for four times the context give 4.0."
        )


def _check_positive(scaling: object, *names: str) -> None:
    for name in names:
        number = check_number(f"{type(scaling).__name__}'s {name}", getattr(scaling, name))
        if number <= 0:
            raise ValueError(
                f"expected {type(scaling).__name__}'s {name} to be positive, got {number}."
            )
