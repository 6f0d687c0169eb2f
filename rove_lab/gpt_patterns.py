r"""Where a GPT looks: the attention pattern of every head, from one forward pass."""

from __future__ import annotations

import torch
from torch import Tensor

from rove_lab.model import GPT
from rove_lab.open_attention import open_attention

__all__ = ["gpt_patterns"]


@torch.no_grad()
def gpt_patterns(model: GPT, tokens: Tensor) -> Tensor:
    r"""The patterns :math:`A_{ij}` of every layer and head while a model reads tokens.

    The model itself attends by a kernel that keeps no pattern; here every layer attends in the open
    (:func:`rove_lab.open_attention.open_attention`). Values have no part in it, rotated
    or not, but in what the next layer reads. Su et al. (2021), arXiv:2104.09864, equation 16.

    Args:
        model: The model.
        tokens: ``[batch, pos]``, on the model's device.

    Returns:
        ``[n_layers, batch, n_heads, query_pos, key_pos]``.

    Raises:
        TypeError: If it is another model, or tokens are not integers.
        ValueError: If tokens are not ``[batch, pos]``.

    Example:
        >>> from rove_lab.model import GPTConfig
        >>> gpt_patterns(GPT(GPTConfig()), torch.tensor([[82, 111, 86, 69]])).shape
        torch.Size([2, 1, 4, 4, 4])
    """
    if not isinstance(model, GPT):
        raise TypeError(
            f"expected a rove_lab.model.GPT, got {type(model).__name__}: rove_lab.lens shows the "
            "patterns of other models."
        )
    with open_attention(model) as patterns:
        model(tokens)
    return torch.stack(patterns)
