r"""The smallest model that carries messages: attention and a linear read-out, little else."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.functional import gelu, one_hot

from rove_lab.arguments import check_flag, check_number, check_size
from rove_lab.rotary import RotaryEmbedding
from rove_lab.self_attention import RotarySelfAttention

__all__ = ["Messenger", "MessengerConfig"]


@dataclass(frozen=True)
class MessengerConfig:
    """The sizes of a :class:`Messenger`; RoPE and RoVE differ in ``rotate_values`` alone.

    Args:
        d_in: Symbols of the alphabet, or channels of a real input.
        d_out: Channels of the read-out.
        d_model: Width between read-in and read-out.
        n_heads: Heads of a layer.
        d_head: Channels of a head, even.
        n_layers: Attention layers.
        d_mlp: Width of the MLP after each attention; 0 for none.
        residual: Whether attention adds to its input; without, all that is read is the message.
        base: Of the rotary frequencies.
        bias_std: Spread of the read-in's initial bias. At 1 a query sees positions as strongly as
            symbols, which tasks about places want; at 0 symbols alone.
        rotate_values: ``True`` is RoVE, ``False`` RoPE.

    Raises:
        TypeError: If a size is not an integer or a flag not a bool.
        ValueError: If a size is not positive, or ``bias_std`` is negative.

    Example:
        >>> rope = MessengerConfig(d_in=16, d_out=32, rotate_values=False)
        >>> sum(p.numel() for p in rope.build().parameters())
        19552
    """

    d_in: int
    d_out: int
    d_model: int = 64
    n_heads: int = 1
    d_head: int = 64
    n_layers: int = 1
    d_mlp: int = 0
    residual: bool = False
    base: float = 100.0
    bias_std: float = 0.0
    rotate_values: bool = True

    def __post_init__(self) -> None:
        for name in ("d_in", "d_out", "d_model", "n_heads", "d_head", "n_layers"):
            check_size(name, getattr(self, name))
        if self.d_mlp != 0:
            check_size("d_mlp", self.d_mlp)
        if check_number("bias_std", self.bias_std) < 0:
            raise ValueError(f"expected bias_std of 0 or more, got {self.bias_std}.")
        check_flag("residual", self.residual)
        check_flag("rotate_values", self.rotate_values)
        RotaryEmbedding(self.d_head, base=self.base)  # refuses what it cannot rotate

    def build(self) -> Messenger:
        """A new model with random weights, drawn from torch's global generator."""
        return Messenger(self)


class MLP(nn.Module):
    r"""One hidden layer that adds to its input: :math:`x + W_{out}\,\mathrm{gelu}(W_{in} x)`.

    Args:
        d_model: Channels in and out.
        d_mlp: Hidden width.

    Example:
        >>> import torch
        >>> MLP(8, 32)(torch.zeros(1, 3, 8)).shape
        torch.Size([1, 3, 8])
    """

    def __init__(self, d_model: int, d_mlp: int) -> None:
        super().__init__()
        self.W_in, self.W_out = nn.Linear(d_model, d_mlp), nn.Linear(d_mlp, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """``[batch, pos, d_model]`` to the same."""
        out: Tensor = x + self.W_out(gelu(self.W_in(x)))
        return out


class Messenger(nn.Module):
    r"""Read in, attend, read out: with one layer, :math:`W_U \sum_j A_{ij} \psi_{j-i} x_j`.

    Under RoPE :math:`\psi_\delta` is the same at every offset. There is no normalisation, and in
    the plain case no residual path: what the read-out sees is what one head sent.

    Args:
        config: The sizes.

    Raises:
        TypeError: If ``config`` is not a :class:`MessengerConfig`.

    Example:
        >>> import torch
        >>> model = Messenger(MessengerConfig(d_in=16, d_out=32))
        >>> model(torch.tensor([[3, 1, 2]])).shape
        torch.Size([1, 3, 32])
    """

    def __init__(self, config: MessengerConfig) -> None:
        super().__init__()
        if not isinstance(config, MessengerConfig):
            raise TypeError(f"expected a MessengerConfig, got {type(config).__name__}.")
        self.config = config
        c = config
        self.W_E = nn.Linear(c.d_in, c.d_model)
        self.W_U = nn.Linear(c.d_model, c.d_out)
        rotary = RotaryEmbedding(c.d_head, base=c.base)
        self.attention = nn.ModuleList(
            RotarySelfAttention(
                c.d_model, c.n_heads, None, c.d_head, rotary, rotate_values=c.rotate_values
            )
            for _ in range(c.n_layers)
        )
        self.mlp = nn.ModuleList(
            MLP(c.d_model, c.d_mlp) if c.d_mlp else nn.Identity() for _ in range(c.n_layers)
        )
        nn.init.normal_(self.W_E.weight)
        nn.init.normal_(self.W_E.bias, std=c.bias_std)

    def forward(self, x: Tensor) -> Tensor:
        """The read-out ``[batch, pos, d_out]``.

        Args:
            x: Tokens ``[batch, pos]``, or real inputs ``[batch, pos, d_in]``.

        Returns:
            ``[batch, pos, d_out]``.

        Raises:
            ValueError: If real inputs have another number of channels.
        """
        if not x.is_floating_point():
            x = one_hot(x, self.config.d_in).to(self.W_E.weight.dtype)
        if x.dim() != 3 or x.shape[-1] != self.config.d_in:
            raise ValueError(
                f"expected tokens [batch, pos] or inputs [batch, pos, d_in={self.config.d_in}], "
                f"got {list(x.shape)}."
            )
        x = self.W_E(x)
        for attention, mlp in zip(self.attention, self.mlp, strict=True):
            sent = attention(x)
            x = mlp(x + sent if self.config.residual else sent)
        out: Tensor = self.W_U(x)
        return out
