r"""Self-attention as a module, and the cache it decodes with."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rove_lab.arguments import check_flag, check_size
from rove_lab.masking import Positions, attend, positions_of
from rove_lab.rotary import RotaryEmbedding, Rotation
from rove_lab.rotation import autocasting
from rove_lab.temperature import with_temperature

__all__ = ["KVCache", "RotarySelfAttention", "SharedRotations"]


class KVCache:
    r"""The rotated keys :math:`R_j k_j` and values :math:`R_j v_j` of one layer, with positions.

    Keys and values are rotated once, on entry; decoding rotates the new token only. Positions are
    kept apart from slots, so that entries may be dropped by slicing all three; a cache that is left
    empty counts from 0 again.

    Attributes:
        k: Rotated keys ``[batch, n_kv_heads, pos, d_head]``, ``None`` while empty.
        v: Values of the same shape, rotated under RoVE.
        positions: ``[pos]`` or ``[batch, pos]`` in tokens, on the CPU, int64 or float64.

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
        if self.positions is None or self.positions.shape[-1] == 0:
            return step
        return self.positions[..., -1:].cpu() + 1 + step

    def joined(self, k: Tensor, v: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the cache would hold with these rotated ``[batch, n_kv_heads, pos, d_head]`` added.

        The cache itself is left as it is: whoever calls assigns ``k``, ``v`` and ``positions`` once
        nothing can fail any more, so that a failed step can simply be tried again.

        Raises:
            ValueError: If shapes, dtype or device are not those of the cache, or the cache's own
                k, v and positions disagree.
        """
        # wide, since a narrow dtype would wrap or round at the next token
        wide = torch.float64 if positions.is_floating_point() else torch.int64
        positions = positions.cpu().to(wide, copy=True)  # the caller's may change in place
        if self.k is None or self.v is None or self.positions is None:
            return k, v, positions
        slots = self.positions.shape[-1]
        paired = self.positions.dim() == 1 or self.positions.shape[0] in (1, self.k.shape[0])
        if not (self.k.shape[-2] == self.v.shape[-2] == slots and paired):
            raise ValueError(
                f"expected the cache's k, v and positions to agree, got {list(self.k.shape)}, "
                f"{list(self.v.shape)} and {list(self.positions.shape)}: slice all three alike."
            )
        for name, held, new in (("k", self.k, k), ("v", self.v, v)):
            same = held.shape[:-2] == new.shape[:-2] and held.shape[-1] == new.shape[-1]
            if not same or held.dtype != new.dtype or held.device != new.device:
                raise ValueError(
                    f"expected {name} like the cache's, {list(held.shape)} {held.dtype} on "
                    f"{held.device} but for pos, got {list(new.shape)} {new.dtype} on "
                    f"{new.device}: give each layer and each batch a KVCache() of its own."
                )
        old, new = self.positions.cpu(), positions
        rows = torch.broadcast_shapes(old.shape[:-1], new.shape[:-1])  # one row for all, or each
        positions = torch.cat((old.expand(*rows, -1), new.expand(*rows, -1)), -1)
        return torch.cat((self.k, k), -2), torch.cat((self.v, v), -2), positions


class SharedRotations:
    r"""The rotations :math:`R_t` of one pass, made once for all layers that turn alike.

    A table is made on the CPU and copied to the device, which then waits: once a pass is enough.

    Args:
        n: Tokens of the pass.
        positions: ``[pos]`` or ``[batch, pos]`` in tokens; those after the cache's by default.
        cache: Of one layer, or ``None``.

    Attributes:
        positions: The positions, those that were missing filled in.

    Raises:
        TypeError: If positions are boolean, complex or half precision.
        ValueError: If there are not ``n`` positions.

    Example:
        >>> rotary, rotations = RotaryEmbedding(8), SharedRotations(5)
        >>> rotations.of(rotary, "cpu") is rotations.of(rotary, "cpu")
        True
    """

    def __init__(self, n: int, positions: Positions = None, cache: KVCache | None = None) -> None:
        if positions is None and cache is not None:
            positions = cache.next_positions(n)
        self.positions, _ = positions_of(n, n, positions, None)
        self._made: list[tuple[RotaryEmbedding, torch.device, Rotation]] = []

    def of(self, rotary: RotaryEmbedding, device: torch.device | str) -> Rotation:
        """The rotations of that very ``rotary``, with their tables on ``device``."""
        device = torch.device(device)
        for family, place, rotation in self._made:
            if family is rotary and place == device:
                return rotation
        self._made.append((rotary, device, rotary(self.positions, device=device)))
        return self._made[-1][-1]


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
        d_model, n_heads = check_size("d_model", d_model), check_size("n_heads", n_heads)
        n_kv_heads = n_heads if n_kv_heads is None else check_size("n_kv_heads", n_kv_heads)
        if n_heads % n_kv_heads:
            raise ValueError(
                f"expected n_heads divisible by n_kv_heads, got {n_heads} and {n_kv_heads}."
            )
        if d_head is None and d_model % n_heads:
            raise ValueError(
                f"expected d_model divisible by n_heads, got {d_model} and {n_heads}: pass d_head."
            )
        d_head = d_model // n_heads if d_head is None else check_size("d_head", d_head)
        self.rotary = RotaryEmbedding(d_head) if rotary is None else rotary
        self.value_rotary = self.rotary if value_rotary is None else value_rotary
        for name, family in (("rotary", self.rotary), ("value_rotary", self.value_rotary)):
            if not isinstance(family, RotaryEmbedding):
                raise TypeError(f"expected {name} to be a RotaryEmbedding, got {family!r}.")
            if family.d_head != d_head:
                raise ValueError(f"expected {name} with d_head={d_head}, got {family.d_head}.")
        if value_rotary is not None and not check_flag("rotate_values", rotate_values):
            raise ValueError(
                "expected no value_rotary with rotate_values=False (plain RoPE), got one: drop it."
            )
        self.rotate_values = check_flag("rotate_values", rotate_values)

        def weight(heads: int, fan_in: int, rows: int, columns: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(heads, rows, columns) * fan_in**-0.5)

        self.W_Q = weight(n_heads, d_model, d_model, d_head)
        self.W_K = weight(n_kv_heads, d_model, d_model, d_head)
        self.W_V = weight(n_kv_heads, d_model, d_model, d_head)
        self.W_O = weight(n_heads, n_heads * d_head, d_head, d_model)
        self.b_Q = (
            nn.Parameter(torch.zeros(n_heads, 1, d_head)) if check_flag("bias", bias) else None
        )
        self.b_K = nn.Parameter(torch.zeros(n_kv_heads, 1, d_head)) if bias else None
        self.b_O = nn.Parameter(torch.zeros(d_model)) if bias else None

    def forward(
        self,
        x: Tensor,
        *,
        positions: Positions = None,
        attn_mask: Tensor | None = None,
        cache: KVCache | None = None,
        rotations: SharedRotations | None = None,
    ) -> Tensor:
        r"""The attention's contribution to the residual stream.

        Args:
            x: ``[batch, pos, d_model]``.
            positions: ``[pos]`` or ``[batch, pos]`` in tokens; those after the cache's by default.
            attn_mask: Over all keys, the cache's included, as in SDPA.
            cache: Extended in place with the new rotated keys and values.
            rotations: Where layers share them, instead of ``positions``; made here by default.

        Returns:
            ``[batch, pos, d_model]``.

        Raises:
            TypeError: If dtypes do not fit, or ``cache`` is not a :class:`KVCache`.
            ValueError: If shapes, devices or the number of positions do not fit, or there are both
                positions and rotations; the cache is then as it was.

        Example:
            >>> layer, x, cache = RotarySelfAttention(16, 2), torch.randn(1, 5, 16), KVCache()
            >>> steps = torch.cat([layer(x[:, t : t + 1], cache=cache) for t in range(5)], 1)
            >>> torch.allclose(layer(x), steps, atol=1e-5)
            True
        """
        self._check(x, cache)
        if rotations is None:
            rotations = SharedRotations(x.shape[1], positions, cache)
        elif positions is not None:
            raise ValueError("expected positions or rotations, got both: rotations have their own.")
        positions = rotations.positions
        turn = rotations.of(self.rotary, x.device)
        q = turn.apply(self._heads(x, self.W_Q, self.b_Q))
        k = turn.apply(self._heads(x, self.W_K, self.b_K))
        v = self._heads(x, self.W_V, None)
        if self.rotate_values:
            value_turn = rotations.of(self.value_rotary, x.device)
            v = value_turn.apply(v)
        if cache is not None:
            k, v, positions = cache.joined(k, v, positions)
        q, scale = with_temperature(q, self.rotary)
        z = attend(q, k, v, attn_mask, True, scale)
        if cache is not None:
            cache.k, cache.v, cache.positions = k, v, positions
        if self.rotate_values:
            z = value_turn.undo(z)
        out = torch.einsum("bhqd,hdm->bqm", z, self.W_O)
        return out if self.b_O is None else out + self.b_O

    def _check(self, x: Tensor, cache: KVCache | None) -> None:
        if not isinstance(x, Tensor) or x.dim() != 3 or x.shape[-1] != self.W_Q.shape[1]:
            got = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"expected x [batch, pos, d_model={self.W_Q.shape[1]}], got {got}.")
        cast = x.is_floating_point() and autocasting(x)
        if x.dtype != self.W_Q.dtype and not cast:
            raise TypeError(
                f"expected x in the weights' dtype {self.W_Q.dtype}, got {x.dtype}: cast x, or the "
                "layer with layer.to(x.dtype)."
            )
        if x.device != self.W_Q.device:
            raise ValueError(
                f"expected x on the weights' device {self.W_Q.device}, got {x.device}: move one."
            )
        if cache is not None and not isinstance(cache, KVCache):
            raise TypeError(f"expected cache to be a KVCache, got {type(cache).__name__}.")

    @staticmethod
    def _heads(x: Tensor, W: Tensor, bias: Tensor | None) -> Tensor:
        projected = torch.einsum("bpm,hmd->bhpd", x, W)
        return projected if bias is None else projected + bias
