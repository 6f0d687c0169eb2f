r"""What a QK circuit makes of the offset alone, and which planes it makes it with."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from rove_lab.arguments import check_floating, check_number
from rove_lab.factored_circuits import FactoredCircuit
from rove_lab.head_circuits import value_core
from rove_lab.head_weights import check_projection, expand_heads, wide
from rove_lab.masking import check_heads
from rove_lab.rotary import RotaryEmbedding, check_rotary
from rove_lab.temperature import with_temperature

__all__ = ["fast_share", "positional_scores", "qk_spectrum"]


def positional_scores(
    q: Tensor,
    k: Tensor,
    rotary: RotaryEmbedding,
    offsets: Tensor | Sequence[float],
    *,
    weights: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    r"""The mean score at every offset, :math:`s\,E[q]^\top R_\delta\,E[k]`.

    The head's positional curve, the average over a query and a key drawn independently: what it
    prefers before it has read anything. Exact, since a score is linear in each. With embeddings,
    ``q`` is ``W_E @ W_Q``; with a model, what its hooks give before the rotation (biases, q and k
    norms included). Follows from Su et al. (2021), arXiv:2104.09864, equation 16.

    Args:
        q: Queries before their rotation ``[..., heads, pos, d_head]``.
        k: Keys before theirs ``[..., n_kv_heads, pos, d_head]``.
        rotary: The rotations :math:`R_\delta`.
        offsets: ``[n_offsets]`` in tokens, key minus query.
        weights: How often each of the ``pos`` tokens occurs, ``[pos]``, counts or probabilities;
            all alike by default.
        scale: Factor s of the scores, 1/√d_head by default; YaRN's temperature comes on top.

    Returns:
        ``[n_offsets, heads]``, in nats, at least float32.

    Raises:
        TypeError: If dtypes do not fit.
        ValueError: If shapes do not fit, there are no tokens, or a weight is negative.

    Example:
        >>> q = k = torch.ones(1, 5, 2)
        >>> positional_scores(q, k, RotaryEmbedding(2), [0, -1], scale=0.5)
        tensor([[1.0000],
                [0.5403]])
    """
    check_rotary(rotary)
    check_heads(q, k)
    mean_q, mean_k = _mean("q", q, weights), expand_heads("k", _mean("k", k, weights), q.shape[-3])
    mean_q, scale = with_temperature(mean_q, rotary, scale)
    core = value_core(rotary, offsets, q, True).mT
    curve = torch.einsum("hc,ncd,hd->nh", mean_q, core, mean_k) * scale
    return curve.to(torch.promote_types(q.dtype, torch.float32))


def qk_spectrum(W_Q: Tensor, W_K: Tensor, rotary: RotaryEmbedding) -> Tensor:
    r"""The share of each plane in a head's scores, :math:`e_m / \sum_m e_m`.

    :math:`e_m = \tfrac12\lVert W_Q P_m\rVert_F^2\,\lVert W_K P_m\rVert_F^2` for a plane,
    :math:`\lVert W_Q P_{rest} W_K^\top\rVert_F^2` for the unrotated channels: over all offsets the
    mean of :math:`\lVert QK_\delta\rVert_F^2`, the variance of the score of white inputs, is
    :math:`\sum_m e_m` if the planes turn at different speeds. YaRN's temperature is in the scores,
    and so in the shares where some channels do not turn: ``with_temperature`` is applied to
    W_Q first. How models use their planes: Barbero et al. (2024), arXiv:2410.06205.

    Args:
        W_Q: ``[heads, d_model, d_head]``.
        W_K: ``[n_kv_heads, d_model, d_head]``.
        rotary: The rotations whose planes are meant, whether they turn or not.

    Returns:
        ``[heads, rotary_dim / 2 + 1]``, plane 0 (the fastest) first, the unrotated channels last;
        at least float32; a row sums to 1, or to 0 for a head that scores nothing.

    Raises:
        TypeError: If weights are not floating point.
        ValueError: If shapes or devices do not fit.

    Example:
        >>> qk_spectrum(torch.eye(4)[None], torch.eye(4)[None], RotaryEmbedding(4, rotary_dim=2))
        tensor([[0.5000, 0.5000]])
    """
    check_projection("W_Q", W_Q, rotary)
    check_projection("W_K", W_K, rotary)
    keys = expand_heads("W_K", W_K, len(W_Q))
    channels = rotary.plane_channels.to(W_Q.device)
    kept = wide(torch.ones(rotary.d_head, device=W_Q.device)).index_fill(0, channels.flatten(), 0)
    queries, _ = with_temperature(wide(W_Q), rotary)  # a scale is in no share
    rest = FactoredCircuit(queries, kept.diag()[None], keys.mT)
    energy_q, energy_k = (wide(W).square().sum(-2)[:, channels].sum(-1) for W in (queries, keys))
    shares = torch.cat((energy_q * energy_k / 2, rest.inner(rest).mT), -1)
    total = shares.sum(-1, keepdim=True)
    shares = shares / total.where(total > 0, 1)
    return shares.to(torch.promote_types(W_Q.dtype, torch.float32))


def fast_share(spectrum: Tensor, rotary: RotaryEmbedding, n_ctx: float) -> Tensor:
    r"""The part of a spectrum in fast planes, which turn once or more in a context.

    :math:`\sum_m s_m` over :math:`n_{ctx}\,\omega_m \ge 2\pi`; the rest is slow, the unrotated
    channels included. YaRN draws the same line: Peng et al. (2023), arXiv:2309.00071, section 3.2.

    Args:
        spectrum: ``[..., rotary_dim / 2 + 1]``, from :func:`qk_spectrum`, :func:`kernel_spectrum`
            or :func:`ov_drift`.
        rotary: The rotations that it was made with.
        n_ctx: Length of the context, in tokens.

    Returns:
        ``[...]``, no unit.

    Raises:
        TypeError: If the spectrum is not floating point.
        ValueError: If it has another number of planes, or ``n_ctx`` is not positive.

    Example:
        >>> fast_share(torch.tensor([0.5, 0.2, 0.3]), RotaryEmbedding(4, base=100.0), n_ctx=7)
        tensor(0.5000)
    """
    check_floating("spectrum", spectrum)
    check_rotary(rotary)
    entries = len(rotary.inv_freq) + 1
    if spectrum.dim() == 0 or spectrum.shape[-1] != entries:
        raise ValueError(
            f"expected spectrum [..., rotary_dim / 2 + 1 = {entries}], got {list(spectrum.shape)}: "
            "pass the rotation that it was made with."
        )
    if check_number("n_ctx", n_ctx) <= 0:
        raise ValueError(f"expected n_ctx to be positive, got {n_ctx}: it is a length in tokens.")
    fast = rotary.inv_freq * n_ctx >= 2 * math.pi
    return spectrum[..., :-1][..., fast.to(spectrum.device)].sum(-1)


def _mean(name: str, x: Tensor, weights: Tensor | None) -> Tensor:
    """The mean over tokens and leading axes, ``[heads, d_head]``."""
    if x.numel() == 0:
        raise ValueError(f"expected {name} of one token or more, got {list(x.shape)}.")
    if weights is None:
        mean = wide(x).mean(-2)
    else:
        check_floating("weights", weights)
        if list(weights.shape) != [x.shape[-2]]:
            raise ValueError(
                f"expected weights [pos={x.shape[-2]}], one for each token of {name}, got "
                f"{list(weights.shape)}."
            )
        share = wide(weights.to(x.device))
        if (
            not bool((share >= 0).all())
            or not math.isfinite(total := share.sum().item())
            or total == 0
        ):
            raise ValueError(
                "expected weights that are finite, not negative and not all zero, got others: pass "
                "counts or probabilities."
            )
        mean = torch.einsum("...pd,p->...d", wide(x), share / total)
    return mean.flatten(0, -3).mean(0) if mean.dim() > 2 else mean
