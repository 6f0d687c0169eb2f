"""The same operation under another name: GTA's frames."""

import torch
from samples import normal

from rove_lab import RotaryEmbedding, rove_attention


def test_gta_on_positions_is_rove():
    """Miyato et al. 2024 (arXiv:2310.10375): queries, keys, values in frames, the output back.

    Their formula holds for any group. Here the group is the shifts of a position, and the frame of
    a shift by t is R_t; all is written out with dense matrices.
    """
    rotary = RotaryEmbedding(8)
    q, k, v = (normal(6, 8, seed=seed) for seed in (1, 2, 3))
    frames = rotary.matrix(torch.arange(6))  # rho(g_i), [6, 8, 8]
    turned = [torch.einsum("ioc,ic->io", frames, x) for x in (q, k, v)]
    scores = turned[0] @ turned[1].T / 8**0.5
    causal = torch.ones(6, 6).triu(1).bool()
    mixed = scores.masked_fill(causal, -torch.inf).softmax(-1) @ turned[2]
    z = torch.linalg.solve(frames, mixed[..., None])[..., 0]
    ours = rove_attention(q[None], k[None], v[None], rotary)[0]
    assert torch.allclose(ours, z, atol=1e-12)
