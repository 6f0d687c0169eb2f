r"""What may be folded into the weights: a norm's own weight; a value bias under RoPE alone."""

from __future__ import annotations

import torch
from torch import Tensor

from rove_lab.arguments import check_flag, check_floating
from rove_lab.head_weights import check_output, expand_heads, wide
from rove_lab.kernels import channel_frequencies
from rove_lab.rotary import RotaryEmbedding

__all__ = ["center_writing_weights", "fold_layer_norm", "fold_rms_norm", "fold_value_bias"]


def fold_rms_norm(W: Tensor, weight: Tensor) -> Tensor:
    r"""An RMSNorm's weight in the matrix that reads from it, :math:`\operatorname{diag}(g)\,W`.

    Exact: :math:`(g \odot x / \mathrm{rms}(x))\,W = (x / \mathrm{rms}(x))\,\operatorname{diag}(g)
    \,W`. Gemma's norms multiply by 1 + weight: pass ``1 + weight``. A norm after the projection (q
    and k norms of Qwen3, Gemma 3 or OLMo 2) or after attention (Gemma 2, OLMo 2) does not stand
    between the stream and these weights and cannot be folded here.
    Zhang and Sennrich (2019), arXiv:1910.07467, equation 4.

    Args:
        W: ``W_Q``, ``W_K`` or ``W_V`` ``[heads, d_model, d_head]``, or ``W_U``
            ``[d_model, d_vocab]``; for ``W_E`` ``[d_vocab, d_model]`` read by a first layer,
            ``fold_rms_norm(W_E.T, weight).T``.
        weight: g, ``[d_model]``.

    Returns:
        A new matrix of the same shape and dtype.

    Raises:
        TypeError: If one is not floating point.
        ValueError: If shapes or devices do not fit.

    Example:
        >>> fold_rms_norm(torch.ones(2, 3), torch.tensor([1.0, 2.0]))
        tensor([[1., 1., 1.],
                [2., 2., 2.]])
    """
    _check(W, weight=weight)
    return (wide(weight)[:, None] * wide(W)).to(W.dtype)


def fold_layer_norm(
    W: Tensor, weight: Tensor, bias: Tensor | None = None, b: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    r"""A LayerNorm's weight, bias and centring folded into the matrix that reads from it.

    Exact: with :math:`C = 1 - \frac{1}{d}\mathbf{1}\mathbf{1}^\top` and :math:`\sigma` the stream's
    spread, :math:`\mathrm{LN}(x)\,W + b = (x/\sigma)\,W' + b'`, where
    :math:`W' = C\operatorname{diag}(g)\,W` and :math:`b' = \beta W + b`. For ``W_V`` the new bias
    is a value bias: see :func:`fold_value_bias`. Ba et al. (2016), arXiv:1607.06450, equation 4.

    Args:
        W: ``W_Q``, ``W_K`` or ``W_V`` ``[heads, d_model, d_head]``, or ``W_U``
            ``[d_model, d_vocab]``.
        weight: g, ``[d_model]``.
        bias: β, ``[d_model]``, if the norm has one.
        b: The bias of ``W`` itself, ``[heads, d_head]`` or ``[d_vocab]``, if it has one.

    Returns:
        ``W'`` and ``b'``, in the shape and dtype of ``W`` and of its bias.

    Raises:
        TypeError: If one is not floating point.
        ValueError: If shapes or devices do not fit.

    Example:
        >>> W, b = fold_layer_norm(torch.eye(2), torch.ones(2), bias=torch.tensor([3.0, 4.0]))
        >>> W, b
        (tensor([[ 0.5000, -0.5000],
                [-0.5000,  0.5000]]), tensor([3., 4.]))
    """
    _check(W, weight=weight, bias=bias)
    shape = [*W.shape[:-2], W.shape[-1]]
    if b is not None and list(check_floating("b", b).shape) != shape:
        raise ValueError(f"expected b {shape}, the bias of W, got {list(b.shape)}.")
    scaled = wide(weight)[:, None] * wide(W)
    folded = scaled - scaled.mean(-2, keepdim=True)
    new = wide(torch.zeros_like(W[..., 0, :]) if b is None else b.to(W.device))
    if bias is not None:
        new = new + torch.einsum("m,...mc->...c", wide(bias), wide(W))
    return folded.to(W.dtype), new.to(W.dtype)


def center_writing_weights(W: Tensor) -> Tensor:
    r"""What a matrix writes, without its mean over the stream, which every LayerNorm takes away.

    :math:`W C`, for ``W_E`` and ``W_O`` (and ``b_O``) in a model whose every norm is a LayerNorm;
    not with RMSNorm, which sees the mean. Logits do not change. TransformerLens's option of this
    name.

    Args:
        W: ``[..., d_model]``.

    Returns:
        A new tensor of the same shape and dtype.

    Raises:
        TypeError: If it is not floating point.
        ValueError: If it has no axis.

    Example:
        >>> center_writing_weights(torch.tensor([[1.0, 3.0]]))
        tensor([[-1.,  1.]])
    """
    if check_floating("W", W).dim() == 0:
        raise ValueError("expected W [..., d_model], got a number: pass the matrix.")
    return (wide(W) - wide(W).mean(-1, keepdim=True)).to(W.dtype)


def fold_value_bias(
    b_V: Tensor,
    W_O: Tensor,
    rotary: RotaryEmbedding,
    b_O: Tensor | None = None,
    *,
    rotate_values: bool = True,
) -> Tensor:
    r"""A value bias as a bias of the output, :math:`b_O + \sum_h b_V^h W_O^h`, where that is exact.

    It is under RoPE, because a query's weights sum to 1, and under RoVE if the bias lies in
    channels that do not turn. Otherwise it adds :math:`\sum_j A_{ij} R_{j-i} b`, which depends on
    the pattern (:func:`value_bias_z`), and this refuses.

    Args:
        b_V: ``[n_kv_heads, d_head]``.
        W_O: ``[heads, d_head, d_model]``.
        rotary: The rotations of the values.
        b_O: ``[d_model]``, if there is one.
        rotate_values: ``False`` for a model with plain RoPE.

    Returns:
        The new ``b_O``, ``[d_model]``, in the dtype of ``W_O``.

    Raises:
        TypeError: If one is not floating point.
        ValueError: If shapes do not fit, or the bias has a part in a plane that turns.

    Example:
        >>> b_V, W_O, rotary = torch.ones(1, 2), torch.eye(2)[None], RotaryEmbedding(2)
        >>> fold_value_bias(b_V, W_O, rotary, rotate_values=False)
        tensor([1., 1.])
    """
    check_output(W_O, rotary)
    if check_floating("b_V", b_V).dim() != 2 or b_V.shape[-1] != rotary.d_head:
        raise ValueError(
            f"expected b_V [n_kv_heads, d_head={rotary.d_head}], got {list(b_V.shape)}: a torch "
            "Linear's bias needs .unflatten(0, (n_kv_heads, d_head))."
        )
    if b_O is not None and list(check_floating("b_O", b_O).shape) != [W_O.shape[-1]]:
        raise ValueError(f"expected b_O [d_model={W_O.shape[-1]}], got {list(b_O.shape)}.")
    turning = channel_frequencies(rotary).to(b_V.device) != 0
    if check_flag("rotate_values", rotate_values) and bool(b_V[:, turning].any()):
        raise ValueError(
            "expected a value bias that no plane turns, got one with entries in channels that "
            "rotate: under RoVE it adds sum_j A_ij R_(j-i) b, which no b_O equals; keep b_V, or "
            "compute value_bias_z(pattern, b_V, rotary)."
        )
    bias = expand_heads("b_V", wide(b_V), len(W_O))
    folded = torch.einsum("hd,hdm->m", bias, wide(W_O))
    return (folded if b_O is None else folded + wide(b_O)).to(W_O.dtype)


def _check(W: Tensor, **norm: Tensor | None) -> None:
    if check_floating("W", W).dim() < 2:
        raise ValueError(
            f"expected W [..., d_model, columns], got {list(W.shape)}: W_Q is "
            "[heads, d_model, d_head] and W_U [d_model, d_vocab]."
        )
    for name, x in norm.items():
        if x is None:
            continue
        if list(check_floating(name, x).shape) != [W.shape[-2]]:
            raise ValueError(
                f"expected {name} [d_model={W.shape[-2]}], got {list(x.shape)}: is W the "
                "transpose, as a torch Linear stores it?"
            )
        if x.device != W.device:
            raise ValueError(f"expected {name} on {W.device}, got it on {x.device}: move it there.")
