"""What rotations and attention are, written out once: slow, in float64, and obviously right.

Everything here is plain Python over numbers, one position and one plane at a time, from the
formulas of the papers. Nothing is imported from `rove_lab`: the tests hold its fast paths
against these.
"""

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

# --- frequencies, in radians per token; plane m of rotary_dim / 2 ------------------------------


def rope_frequencies(rotary_dim, base=10000.0):
    """omega_m = base^(-2m / rotary_dim) (Su et al. 2021, arXiv:2104.09864, section 3.2.2)."""
    return [base ** (-2 * m / rotary_dim) for m in range(rotary_dim // 2)]


def linear_frequencies(rotary_dim, base, factor):
    """Position interpolation: t / factor turns as far as t did (Chen et al. 2023)."""
    return [omega / factor for omega in rope_frequencies(rotary_dim, base)]


def ntk_frequencies(rotary_dim, base, factor):
    """The fixed NTK-aware base change: base * factor^(rd / (rd - 2))."""
    return rope_frequencies(rotary_dim, base * factor ** (rotary_dim / (rotary_dim - 2)))


def yarn_plane(turns, rotary_dim, base, n_ctx):
    """The (real) plane index m that turns `turns` times in `n_ctx` tokens.

    n_ctx * base^(-2m / rotary_dim) = 2 pi turns, solved for m.
    """
    return rotary_dim * math.log(n_ctx / (2 * math.pi * turns)) / (2 * math.log(base))


def yarn_frequencies(
    rotary_dim, base, factor, original_n_ctx, beta_fast=32.0, beta_slow=1.0, truncate=True
):
    """NTK-by-parts (Peng et al. 2023, arXiv:2309.00071, section 3.2, and the authors' code).

    Planes that turn more than beta_fast times in the original context stay; those that turn less
    than beta_slow times are interpolated; between, a ramp that is linear in the plane's index.
    """
    first = yarn_plane(beta_fast, rotary_dim, base, original_n_ctx)
    last = yarn_plane(beta_slow, rotary_dim, base, original_n_ctx)
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, rotary_dim - 1)
    if first == last:
        last += 0.001  # the authors' guard against a division by zero
    frequencies = []
    for m, omega in enumerate(rope_frequencies(rotary_dim, base)):
        interpolated = min(max((m - first) / (last - first), 0.0), 1.0)
        frequencies.append(interpolated * omega / factor + (1 - interpolated) * omega)
    return frequencies


def yarn_attention_factor(factor):
    """sqrt(1/t) = 0.1 ln(s) + 1 (Peng et al. 2023, equation 22): logits get its square."""
    return 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0


def llama3_frequencies(rotary_dim, base, factor, low_freq_factor, high_freq_factor, original_n_ctx):
    """Llama 3.1's scaling: keep short wavelengths, divide long ones, blend between."""
    frequencies = []
    for omega in rope_frequencies(rotary_dim, base):
        turns = original_n_ctx / (2 * math.pi / omega)
        if turns > high_freq_factor:
            frequencies.append(omega)
        elif turns < low_freq_factor:
            frequencies.append(omega / factor)
        else:
            kept = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor)
            frequencies.append((1 - kept) * omega / factor + kept * omega)
    return frequencies


# --- rotations ------------------------------------------------------------------------------


def plane_channels(d_head, rotary_dim=None, interleaved=False, trailing=False):
    """The pair of channels (x, y) that each plane turns."""
    rotary_dim = d_head if rotary_dim is None else rotary_dim
    first = d_head - rotary_dim if trailing else 0
    planes = range(rotary_dim // 2)
    if interleaved:
        return [(first + 2 * m, first + 2 * m + 1) for m in planes]
    return [(first + m, first + m + rotary_dim // 2) for m in planes]


@dataclass
class ReferenceRotary:
    """The rotation family R_t of one layer: which channels pair up and how fast they turn."""

    d_head: int
    frequencies: list
    channels: list
    temperature: float = 1.0  # what the logits' part in these channels is multiplied by

    def turn(self, vector, t):
        """R_t times a vector of d_head numbers: each pair (x, y) by [[c, -s], [s, c]]."""
        turned = list(vector)
        for omega, (a, b) in zip(self.frequencies, self.channels, strict=True):
            cos, sin = math.cos(t * omega), math.sin(t * omega)
            x, y = vector[a], vector[b]
            turned[a] = cos * x - sin * y
            turned[b] = sin * x + cos * y
        return turned

    def score(self, query, key):
        """The product of two vectors that are turned, a channel after the other.

        Hugging Face multiplies cosines and sines, of queries and keys, by the temperature's root.
        """
        turning = {channel for pair in self.channels for channel in pair}
        factors = [self.temperature if c in turning else 1.0 for c in range(self.d_head)]
        return math.fsum(f * a * b for f, a, b in zip(factors, query, key, strict=True))

    def matrix(self, t):
        """R_t as a float64 matrix: its column c is R_t times the c-th unit vector."""
        columns = []
        for c in range(self.d_head):
            columns.append(self.turn([float(c == other) for other in range(self.d_head)], t))
        return torch.tensor(columns, dtype=torch.float64).T


def reference_rotary(
    d_head,
    *,
    base=10000.0,
    rotary_dim=None,
    interleaved=False,
    trailing=False,
    frequencies=None,
    temperature=1.0,
):
    """A `ReferenceRotary` with RoPE's frequencies, or with `frequencies` in their place."""
    if frequencies is None:
        frequencies = rope_frequencies(rotary_dim or d_head, base)
    channels = plane_channels(d_head, rotary_dim, interleaved, trailing)
    return ReferenceRotary(d_head, frequencies, channels, temperature)


def reference_rotate(x, positions, rotary, sign=1):
    """R_{sign t} x_t for x [batch, heads, pos, d_head] and positions [batch][pos]; float64."""
    rotated = torch.zeros(x.shape, dtype=torch.float64)
    for b, h, t in itertools.product(*map(range, x.shape[:3])):
        turned = rotary.turn(x[b, h, t].double().tolist(), sign * positions[b][t])
        rotated[b, h, t] = torch.tensor(turned, dtype=torch.float64)
    return rotated


# --- attention ------------------------------------------------------------------------------


def may_attend(i, j, q_len, k_len, is_causal):
    """Causality by index, aligned bottom-right: the last query sees every key."""
    return not is_causal or j - i <= k_len - q_len


def softmax(scores):
    """The softmax of a list of numbers; -inf has no weight, and all -inf gives all zeros."""
    top = max(scores, default=-math.inf)
    if top == -math.inf:
        return [0.0 for _ in scores]
    weights = [math.exp(score - top) for score in scores]
    return [weight / sum(weights) for weight in weights]


def reference_pattern(
    q, k, rotary, positions, key_positions, *, attn_mask=None, is_causal=True, scale=None
):
    """softmax_j(scale * q_i . R_{p_j - p_i} k_j + mask_ij), [batch, heads, q, k]; see `score`.

    q is [batch, heads, q, d_head], k [batch, kv_heads, k, d_head] (query head h reads KV head
    h // (heads / kv_heads)); positions are nested lists, [batch][q] and [batch][k].
    """
    n_batch, n_heads, q_len, d_head = q.shape
    k_len = k.shape[2]
    group = n_heads // k.shape[1]
    scale = 1 / math.sqrt(d_head) if scale is None else scale
    if attn_mask is not None:
        attn_mask = attn_mask.expand(n_batch, n_heads, q_len, k_len)
    pattern = torch.zeros(n_batch, n_heads, q_len, k_len, dtype=torch.float64)
    for b, h, i in itertools.product(range(n_batch), range(n_heads), range(q_len)):
        query = q[b, h, i].double().tolist()
        scores = []
        for j in range(k_len):
            key = k[b, h // group, j].double().tolist()
            turned = rotary.turn(key, key_positions[b][j] - positions[b][i])
            score = scale * rotary.score(query, turned)
            if not may_attend(i, j, q_len, k_len, is_causal):
                score = -math.inf
            if attn_mask is not None:
                entry = attn_mask[b, h, i, j].item()
                if isinstance(entry, bool):
                    score = score if entry else -math.inf
                else:
                    score += entry
            scores.append(score)
        pattern[b, h, i] = torch.tensor(softmax(scores), dtype=torch.float64)
    return pattern


def reference_attention(
    q, k, v, rotary, positions, key_positions, *, value_rotary=None, **how
) -> Tensor:
    """sum_j A_ij R_{p_j - p_i} v_j, [batch, heads, q, v's d_head], in float64.

    This is RoVE where `value_rotary` is a `ReferenceRotary`, and RoPE (R = 1) where it is None.
    """
    pattern = reference_pattern(q, k, rotary, positions, key_positions, **how)
    n_batch, n_heads, q_len, k_len = pattern.shape
    group = n_heads // v.shape[1]
    z = torch.zeros(n_batch, n_heads, q_len, v.shape[-1], dtype=torch.float64)
    for b, h, i, j in itertools.product(*map(range, (n_batch, n_heads, q_len, k_len))):
        value = v[b, h // group, j].double().tolist()
        if value_rotary is not None:
            value = value_rotary.turn(value, key_positions[b][j] - positions[b][i])
        z[b, h, i] += pattern[b, h, i, j] * torch.tensor(value, dtype=torch.float64)
    return z
