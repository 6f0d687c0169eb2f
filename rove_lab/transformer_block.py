r"""What a transformer repeats: attention and an MLP, each beside the residual stream."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from rove_lab.self_attention import RotarySelfAttention

__all__ = ["MLP", "Block", "norm"]


class MLP(nn.Module):
    r"""One hidden layer, :math:`W_{out}\,\mathrm{gelu}(W_{in} x)`, without biases.

    Args:
        d_model: Channels in and out.
        d_mlp: Hidden ones.

    Example:
        >>> MLP(4, 16)(torch.ones(1, 2, 4)).shape
        torch.Size([1, 2, 4])
    """

    def __init__(self, d_model: int, d_mlp: int) -> None:
        super().__init__()
        self.W_in = nn.Linear(d_model, d_mlp, bias=False)
        self.W_out = nn.Linear(d_mlp, d_model, bias=False)
        for layer in (self.W_in, self.W_out):
            nn.init.normal_(layer.weight, std=layer.in_features**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        """``[batch, pos, d_model]`` to the same."""
        out: Tensor = self.W_out(gelu(self.W_in(x)))
        return out


class Block(nn.Module):
    r"""Attention and an MLP, each adding to the residual stream what it makes of its norm.

    What writes into the stream is divided by :math:`\sqrt{2\,n_\text{layers}}` at the start.

    Args:
        attn: The attention.
        d_mlp: Width of the MLP.
        n_layers: Blocks of the model.
        rms_norm: RMSNorm, or else LayerNorm.

    Example:
        >>> Block(RotarySelfAttention(8, n_heads=2), 32)(torch.ones(1, 3, 8)).shape
        torch.Size([1, 3, 8])
    """

    def __init__(
        self, attn: RotarySelfAttention, d_mlp: int, n_layers: int = 1, rms_norm: bool = True
    ) -> None:
        super().__init__()
        d_model = attn.W_O.shape[-1]
        self.ln1, self.ln2 = norm(d_model, rms_norm), norm(d_model, rms_norm)
        self.attn = attn
        self.mlp = MLP(d_model, d_mlp)
        with torch.no_grad():  # what all layers together write stays of order one
            for weight in (self.attn.W_O, self.mlp.W_out.weight):
                weight /= (2 * n_layers) ** 0.5

    def forward(self, x: Tensor, **how: Any) -> Tensor:
        """``[batch, pos, d_model]`` to the same; ``how`` is the attention's."""
        x = x + self.attn(self.ln1(x), **how)
        out: Tensor = x + self.mlp(self.ln2(x))
        return out


def norm(d_model: int, rms_norm: bool = True) -> nn.Module:
    """A norm over channels, with weights and without biases.

    Args:
        d_model: Channels.
        rms_norm: RMSNorm, or else GPT-2's LayerNorm.

    Returns:
        The module.

    Example:
        >>> norm(2)(torch.tensor([3.0, -3.0])).detach()
        tensor([ 1.0000, -1.0000])
    """
    if rms_norm:
        return nn.RMSNorm(d_model, eps=1e-5)
    return nn.LayerNorm(d_model, eps=1e-5, bias=False)
