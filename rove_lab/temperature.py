r"""YaRN's temperature: the factor m² on the part of a logit that turns."""

from __future__ import annotations

import torch
from torch import Tensor

from rove_lab.arguments import check_number
from rove_lab.rotary import RotaryEmbedding

__all__ = ["with_temperature"]


def with_temperature(
    q: Tensor, rotary: RotaryEmbedding, scale: float | None = None
) -> tuple[Tensor, float]:
    r"""Queries and a scale for which the logits are :math:`s\,(m^2\,q_R^\top k_R + q_0^\top k_0)`.

    R are the channels that turn, 0 the others, m is ``rotary.attention_factor``. Hugging Face
    multiplies cosines and sines by m, and so reaches the turning channels of both q and k. Here no
    rotation stretches anything: where every channel turns the scale carries m², at no cost, and
    otherwise the turning channels of q do. Peng et al. (2023), arXiv:2309.00071, equation 21,
    whose models turn every channel.

    Args:
        q: Queries ``[..., d_head]``, rotated or not: it makes no difference.
        rotary: The rotations of queries and keys.
        scale: Factor s of the logits, 1/√d_head by default.

    Returns:
        The queries, of the same shape and dtype, and the scale to multiply the logits by.

    Raises:
        TypeError: If ``scale`` is not a number.
        ValueError: If q has another ``d_head``, or ``scale`` is not finite.

    Example:
        >>> from rove_lab import YarnScaling
        >>> yarn = YarnScaling(4.0, 64, attention_factor=2.0)
        >>> with_temperature(torch.ones(4), RotaryEmbedding(4, rotary_dim=2, scaling=yarn))
        (tensor([4., 4., 1., 1.]), 0.5)
    """
    if q.shape[-1] != rotary.d_head:
        raise ValueError(
            f"expected q and k with the rotation's d_head={rotary.d_head}, got {q.shape[-1]}: use "
            f"RotaryEmbedding({q.shape[-1]})."
        )
    scale = rotary.d_head**-0.5 if scale is None else check_number("scale", scale)
    factor = rotary.attention_factor**2
    still = rotary.d_head - rotary.rotary_dim
    if still == 0 or factor == 1:
        return q, scale * factor
    channel = torch.arange(rotary.d_head, device=q.device)
    turning = channel >= still if rotary.trailing else channel < rotary.rotary_dim
    return torch.where(turning, q * factor, q), scale
