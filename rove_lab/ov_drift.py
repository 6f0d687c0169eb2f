r"""How a RoVE head's OV circuit turns away from the one at offset 0, overall and by plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rove_lab.arguments import check_size
from rove_lab.factored_circuits import each_core, one_thread
from rove_lab.head_circuits import factored_ov
from rove_lab.head_weights import wide
from rove_lab.rotary import RotaryEmbedding

__all__ = ["SubspaceOverlap", "ov_cosine", "ov_drift", "ov_subspace_overlap"]


def ov_drift(
    W_V: Tensor, W_O: Tensor, rotary: RotaryEmbedding, offsets: Tensor | Sequence[float]
) -> Tensor:
    r"""What is left of :math:`OV_0` at offset δ, plane by plane.

    The sum over planes is the projection :math:`\langle OV_\delta, OV_0\rangle_F / \lVert OV_0
    \rVert_F^2`, 1 at offset 0; plane m adds :math:`(\cos(\delta\omega_m)(H_{aa} + H_{bb}) +
    \sin(\delta\omega_m)(H_{ba} - H_{ab})) / \operatorname{tr} H` with :math:`H = W_O W_O^\top
    W_V^\top W_V` and a, b its channels. Follows from :math:`\psi_\delta = R_\delta W_V`,
    García-Castellanos et al. (2026), arXiv:2606.11275.

    Args:
        W_V: ``[n_kv_heads, d_model, d_head]``.
        W_O: ``[heads, d_head, d_model]``.
        rotary: The rotations :math:`R_\delta` of the values, as ``rotary.planes(...)`` for some.
        offsets: ``[n_offsets]`` in tokens, key minus query.

    Returns:
        ``[n_offsets, heads, rotary_dim / 2 + 1]``, no unit, plane 0 (the fastest) first, the
        unrotated channels last; at least float32; zeros for a head whose OV circuit is zero.

    Raises:
        TypeError: If weights are not floating point.
        ValueError: If shapes or devices do not fit.

    Example:
        >>> eye = torch.eye(3)[None]  # one plane turns, one channel does not
        >>> ov_drift(eye, eye, RotaryEmbedding(3, rotary_dim=2), [0, 1])[:, 0]
        tensor([[0.6667, 0.3333],
                [0.3602, 0.3333]])
    """
    circuit = factored_ov(W_V, W_O, rotary, offsets)
    out, back = wide(circuit.right), wide(circuit.left)
    H = out @ out.mT @ (back.mT @ back)  # [heads, d_head, d_head]
    channels = rotary.plane_channels.to(H.device)
    a, b = channels.unbind(-1)
    straight, quarter = H[:, a, a] + H[:, b, b], H[:, b, a] - H[:, a, b]  # [heads, plane]
    diagonal = H.diagonal(dim1=-2, dim2=-1)
    rest = diagonal.index_fill(-1, channels.flatten(), 0).sum(-1)
    # the core holds every plane's cosine and sine (its rows are those of R transposed)
    cos, sin = circuit.core[:, a, a], circuit.core[:, a, b]
    turning = cos[:, None] * straight + sin[:, None] * quarter
    left = torch.cat((turning, rest.expand(len(turning), -1)[..., None]), -1)
    total = diagonal.sum(-1)[:, None]
    drift = left / total.where(total > 0, 1)
    return drift.to(torch.promote_types(W_V.dtype, torch.float32))


def ov_cosine(
    W_V: Tensor, W_O: Tensor, rotary: RotaryEmbedding, offsets: Tensor | Sequence[float]
) -> Tensor:
    r"""The cosine of :math:`OV_\delta` and :math:`OV_0`, −1 to 1, in the Frobenius product.

    :math:`\langle OV_\delta, OV_0\rangle_F / (\lVert OV_\delta\rVert_F \lVert OV_0\rVert_F)`. It
    differs from the sum of :func:`ov_drift` because :math:`\lVert OV_\delta\rVert_F` changes too,
    where ``W_V`` and ``W_O`` prefer channels.

    Args:
        W_V: ``[n_kv_heads, d_model, d_head]``.
        W_O: ``[heads, d_head, d_model]``.
        rotary: The rotations :math:`R_\delta` of the values, as ``rotary.planes(...)`` for some.
        offsets: ``[n_offsets]`` in tokens, key minus query.

    Returns:
        ``[n_offsets, heads]``, no unit, at least float32; 0 where a circuit is zero.

    Raises:
        TypeError: If weights are not floating point.
        ValueError: If shapes or devices do not fit.

    Example:
        >>> eye = torch.eye(2)[None]
        >>> ov_cosine(eye, eye, RotaryEmbedding(2), [0, -1])
        tensor([[1.0000],
                [0.5403]])
    """
    turned, still = (factored_ov(W_V, W_O, rotary, where) for where in (offsets, [0]))
    size = turned.norm() * still.norm()
    cosine = turned.inner(still) / size.where(size > 0, 1)
    return cosine.to(torch.promote_types(W_V.dtype, torch.float32))


class SubspaceOverlap(NamedTuple):
    """What :func:`ov_subspace_overlap` gives: two overlaps, no unit.

    Args:
        reading: Of the directions read from the stream at the key, ``[n_offsets, heads]``.
        writing: Of those written to the stream at the query, ``[n_offsets, heads]``.

    Example:
        >>> SubspaceOverlap(reading=torch.ones(1, 2), writing=torch.zeros(1, 2)).writing
        tensor([[0., 0.]])
    """

    reading: Tensor
    writing: Tensor


def ov_subspace_overlap(
    W_V: Tensor, W_O: Tensor, rotary: RotaryEmbedding, offsets: Tensor | Sequence[float], k: int
) -> SubspaceOverlap:
    r"""Do the k strongest directions of :math:`OV_\delta` stay those of :math:`OV_0`?

    The mean of :math:`\cos^2\theta_i` over the k principal angles between the leading singular
    subspaces, :math:`\lVert U_0^\top U_\delta\rVert_F^2 / k`: 1 for the same subspace, about k /
    d_head for unrelated ones. All ``d_head`` directions together never change: at every offset a
    head reads from the columns of ``W_V`` and writes to the rows of ``W_O``; only what goes where
    turns. Björck and Golub (1973), doi:10.2307/2005662.

    Args:
        W_V: ``[n_kv_heads, d_model, d_head]``.
        W_O: ``[heads, d_head, d_model]``.
        rotary: The rotations :math:`R_\delta` of the values, as ``rotary.planes(...)`` for some.
        offsets: ``[n_offsets]`` in tokens, key minus query.
        k: Directions, 1 to ``d_head``; where the k-th and the next singular value are equal, which
            of their directions count is arbitrary.

    Returns:
        ``reading`` (left singular vectors, in the stream at the key) and ``writing`` (right ones,
        in the stream at the query), no unit, at least float32.

    Raises:
        TypeError: If weights are not floating point or ``k`` is no integer.
        ValueError: If shapes or devices do not fit, or there are no k directions.

    Example:
        >>> W_V, W_O = torch.tensor([[[2.0, 0], [0, 1]]]), torch.tensor([[[2.0, 0], [0, 1]]])
        >>> ov_subspace_overlap(W_V, W_O, RotaryEmbedding(2), [0, 1], k=1).reading
        tensor([[1.0000],
                [0.8130]])
    """
    turned, still = (factored_ov(W_V, W_O, rotary, where).reduced() for where in (offsets, [0]))
    if check_size("k", k) > (most := min(turned.shape[-2:])):
        raise ValueError(
            f"expected k of at most {most} directions, got {k}: a circuit has no more."
        )
    dtype = torch.promote_types(W_V.dtype, torch.float32)
    with one_thread():
        U_0, _, Vh_0 = torch.linalg.svd(still[0], full_matrices=False)

    def overlaps(M: Tensor) -> Tensor:
        U, _, Vh = torch.linalg.svd(M, full_matrices=False)
        reading = U_0[..., :k].mT @ U[..., :k]
        writing = Vh_0[..., :k, :] @ Vh[..., :k, :].mT
        return torch.stack([cosines.square().sum((-2, -1)) / k for cosines in (reading, writing)])

    with one_thread():
        reading, writing = each_core(overlaps, turned).to(dtype).unbind(1)
    return SubspaceOverlap(reading, writing)
