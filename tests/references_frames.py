"""Attention in frames, matrix by matrix: dense float64 matrices, one query and one key at a time.

Matrices are built entry by entry from their formulas, and inverted by elimination. Nothing is
imported from `rove_lab`: the tests hold its fast paths against these.
"""

import itertools
import math

import torch
from references import softmax


def so2(angle):
    """A turn of the plane, counter-clockwise."""
    cos, sin = math.cos(angle), math.sin(angle)
    return torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float64)


def se2(x, y, heading):
    """Turn by the heading, then shift: on (u, w) with u in the plane."""
    pose = torch.eye(3, dtype=torch.float64)
    pose[:2, :2] = so2(heading)
    pose[:2, 2] = torch.tensor([x, y], dtype=torch.float64)
    return pose


def se3(shift, angles):
    """Turn about x, then y, then z, then shift: on (u, w) with u in space."""
    pose = torch.eye(4, dtype=torch.float64)
    for axis, angle in enumerate(angles):
        turn = torch.eye(4, dtype=torch.float64)
        a, b = (axis + 1) % 3, (axis + 2) % 3
        turn[a, a] = turn[b, b] = math.cos(angle)
        turn[b, a], turn[a, b] = math.sin(angle), -math.sin(angle)
        pose = turn @ pose
    pose[:3, 3] = torch.tensor(shift, dtype=torch.float64)
    return pose


def direct_sum(*blocks):
    """Blocks along the diagonal."""
    return torch.block_diag(*blocks)


def copies(block, d_head):
    """The same block as often as it fits."""
    return direct_sum(*[block] * (d_head // len(block)))


def rotary_matrix(t, frequencies, pairs, d_head):
    """One turn by t times its frequency for each pair of channels; the others stay."""
    matrix = torch.eye(d_head, dtype=torch.float64)
    for omega, (a, b) in zip(frequencies, pairs, strict=True):
        matrix[[[a], [b]], [[a, b]]] = so2(t * omega)
    return matrix


def reference_frame_attention(
    q, k, v, query_rho, key_rho, *, rotate_values=True, allowed=None, scale=None
):
    """sum_j A_ij rho(g_i)^-1 rho(g_j) v_j, with A from q_i . rho(g_i)^-1 rho(g_j) k_j.

    q is [batch, heads, q, d], k and v [batch, kv_heads, k, d]; the matrices are nested lists,
    [batch][q] and [batch][k]; `allowed` is a function of i and j.
    """
    z = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=torch.float64)
    group = q.shape[1] // k.shape[1]
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    for b, h, i in itertools.product(*map(range, q.shape[:3])):
        relative = [torch.linalg.inv(query_rho[b][i]) @ rho for rho in key_rho[b]]
        scores = [
            scale * (q[b, h, i] @ rho @ k[b, h // group, j]).item()
            if allowed is None or allowed(i, j)
            else -math.inf
            for j, rho in enumerate(relative)
        ]
        for j, weight in enumerate(softmax(scores)):
            value = v[b, h // group, j]
            z[b, h, i] += weight * (relative[j] @ value if rotate_values else value)
    return z
