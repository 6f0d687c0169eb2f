r"""Self-attention as a module, and the cache it decodes with."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rove_lab.masking import attend
from rove_lab.rotary import RotaryEmbedding

__all__ = ["KVCache", "RotarySelfAttention"]


class KVCache:
    r"""The rotated keys :math:`R_j k_j` and values :math:`R_j v_j` of one layer, with positions.

    Keys and values are rotated once, on entry; decoding rotates the new token only. Positions are
    kept apart from slots, so that entries may be dropped by slicing all three.

    Attributes:
        k: Rotated keys ``[batch, n_kv_heads, pos, d_head]``, ``None`` while empty.
        v: Values of the same shape, rotated under RoVE.
        positions: ``[pos]`` or ``[batch, pos]``, in tokens.

    Example:
        >>> cache, layer = KVCache(), RotarySelfAttention(16, 2)
        >>> _ = layer(torch.zeros(1, 3, 16), cache=cache)
        >>> cache.k.shape, cache.next_positions(2)
        (torch.Size([1, 2, 3, 8]), tensor([3, 4]))
    """

    def __init__(self) -> None:
        self.k: Tensor | None = None
        self.v: Tensor | None = None
        self.positions: Tensor | None = None

    def next_positions(self, n: int) -> Tensor:
        """The ``n`` positions after the last one held, ``[pos]`` or ``[batch, pos]`` in tokens."""
        step = torch.arange(n, device="cpu")
        if self.positions is None:
            return step
        return self.positions[..., -1:] + 1 + step.to(self.positions.device)

    def append(self, k: Tensor, v: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Adds rotated ``[batch, n_kv_heads, pos, d_head]`` tensors and returns all there are."""
        if self.k is not None and self.v is not None and self.positions is not None:
            if self.k.shape[0] != k.shape[0]:
                raise ValueError(
                    f"expected the cache's batch of {self.k.shape[0]}, got {k.shape[0]}: "
                    "use a fresh KVCache() for another batch."
                )
            k, v = torch.cat((self.k, k), -2), torch.cat((self.v, v), -2)
            old, new = self.positions.to(positions.device), positions
            if old.dim() != new.dim():  # one row for all meets one row each
                rows = max(old, new, key=Tensor.dim).shape[0]
                old, new = old.expand(rows, -1), new.expand(rows, -1)
            positions = torch.cat((old, new), -1)
        self.k, self.v, self.positions = k, v, positions
        return k, v


class RotarySelfAttention(nn.Module):
    r"""Causal self-attention, RoVE by default: :math:`\sum_j A_{ij} x_j W_V R_{j-i}^\top W_O`.

    Weights follow TransformerLens, acting on row vectors. There is never a value bias: under RoVE
    it would not be a constant. García-Castellanos et al. (2026), arXiv:2606.11275.

    Args:
        d_model: Width of the residual stream.
        n_heads: Query heads.
        n_kv_heads: Key and value heads, a divisor of ``n_heads``; ``n_heads`` by default.
        d_head: Channels of a head; ``d_model // n_heads`` by default.
        rotary: The rotations; ``RotaryEmbedding(d_head)`` by default.
        rotate_values: ``False`` gives plain RoPE.
        value_rotary: The values' rotations if they differ, as ``rotary.planes(...)``.
        bias: Adds ``b_Q``, ``b_K`` and ``b_O``.

    Attributes:
        W_Q: ``[n_heads, d_model, d_head]``.
        W_K: ``[n_kv_heads, d_model, d_head]``, and ``W_V`` alike.
        W_O: ``[n_heads, d_head, d_model]``.

    Raises:
        ValueError: If the sizes do not divide, or a rotation has another ``d_head``.

    Example:
        >>> layer = RotarySelfAttention(d_model=32, n_heads=4, n_kv_heads=2)
        >>> layer(torch.randn(1, 5, 32)).shape
        torch.Size([1, 5, 32])
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_kv_heads: int | None = None,
        d_head: int | None = None,
        rotary: RotaryEmbedding | None = None,
        rotate_values: bool = True,
        value_rotary: RotaryEmbedding | None = None,
        bias: bool = False,
    ) -> None:
        super().__init__()
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        if min(d_model, n_heads, n_kv_heads) < 1 or n_heads % n_kv_heads:
            raise ValueError(
                "expected n_heads divisible by n_kv_heads, all sizes positive, got "
                f"d_model={d_model}, n_heads={n_heads}, n_kv_heads={n_kv_heads}."
            )
        if d_head is None and d_model % n_heads:
            raise ValueError(
                f"expected d_model divisible by n_heads, got {d_model} and {n_heads}: pass d_head."
            )
        d_head = d_model // n_heads if d_head is None else d_head
        self.rotary = RotaryEmbedding(d_head) if rotary is None else rotary
        self.value_rotary = self.rotary if value_rotary is None else value_rotary
        for name, family in (("rotary", self.rotary), ("value_rotary", self.value_rotary)):
            if family.d_head != d_head:
                raise ValueError(f"expected {name} with d_head={d_head}, got {family.d_head}.")
        if value_rotary is not None and not rotate_values:
            raise ValueError(
                "expected no value_rotary with rotate_values=False (plain RoPE), got one: drop it."
            )
        self.rotate_values = rotate_values

        def weight(heads: int, fan_in: int, rows: int, columns: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(heads, rows, columns) * fan_in**-0.5)

        self.W_Q = weight(n_heads, d_model, d_model, d_head)
        self.W_K = weight(n_kv_heads, d_model, d_model, d_head)
        self.W_V = weight(n_kv_heads, d_model, d_model, d_head)
        self.W_O = weight(n_heads, n_heads * d_head, d_head, d_model)
        self.b_Q = nn.Parameter(torch.zeros(n_heads, 1, d_head)) if bias else None
        self.b_K = nn.Parameter(torch.zeros(n_kv_heads, 1, d_head)) if bias else None
        self.b_O = nn.Parameter(torch.zeros(d_model)) if bias else None

    def forward(
        self,
        x: Tensor,
        *,
        positions: Tensor | None = None,
        attn_mask: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        r"""The attention's contribution to the residual stream.

        Args:
            x: ``[batch, pos, d_model]``.
            positions: ``[pos]`` or ``[batch, pos]`` in tokens; those after the cache's by default.
            attn_mask: Over all keys, the cache's included, as in SDPA.
            cache: Extended in place with the new rotated keys and values.

        Returns:
            ``[batch, pos, d_model]``.

        Raises:
            ValueError: If shapes or the number of positions do not fit.
        """
        if x.dim() != 3 or x.shape[-1] != self.W_Q.shape[1]:
            raise ValueError(
                f"expected x [batch, pos, d_model={self.W_Q.shape[1]}], got {list(x.shape)}."
            )
        if positions is None:
            positions = (
                torch.arange(x.shape[1]) if cache is None else cache.next_positions(x.shape[1])
            )
        turn = self.rotary(positions, device=x.device)
        q = turn.apply(self._heads(x, self.W_Q, self.b_Q))
        k = turn.apply(self._heads(x, self.W_K, self.b_K))
        v = self._heads(x, self.W_V, None)
        if self.rotate_values:
            value_turn = self.value_rotary(positions, device=x.device)
            v = value_turn.apply(v)
        if cache is not None:
            k, v = cache.append(k, v, positions)
        scale = q.shape[-1] ** -0.5 * self.rotary.attention_factor**2
        z = attend(q, k, v, attn_mask, True, scale)
        if self.rotate_values:
            z = value_turn.undo(z)
        out = torch.einsum("bhqd,hdm->bqm", z, self.W_O)
        return out if self.b_O is None else out + self.b_O

    @staticmethod
    def _heads(x: Tensor, W: Tensor, bias: Tensor | None) -> Tensor:
        projected = torch.einsum("bpm,hmd->bhpd", x, W)
        return projected if bias is None else projected + bias
