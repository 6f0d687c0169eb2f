"""shared_kv against the attention layers of DeepSeek-V4 as transformers has them."""

import math

import pytest
import torch
from deepseek_layers import D_MODEL, WINDOW, Layer, config_of
from samples import normal, window_of
from transformers import DynamicCache

from rove_lab.frames import shared_kv_attention


@pytest.mark.parametrize(("seed", "n", "start"), [(0, 4, 0), (1, 13, 5), (2, 21, 150)])
def test_a_sliding_window_layer_of_deepseek_v4_is_ours(seed, n, start):
    """Window, sinks, partial trailing rotation: what its heads say, and its whole output."""
    layer = Layer(config_of(), seed)
    x = normal(3, n, D_MODEL, dtype=torch.float32, seed=seed)
    positions = torch.arange(n) + start + torch.tensor([[0], [17], [40]])
    output = layer.run(x, positions)
    z = layer.ours(x, positions)
    assert layer.said.abs().max() > 1
    torch.testing.assert_close(z, layer.said, rtol=0, atol=1e-5)
    torch.testing.assert_close(layer.projected(z), output, rtol=0, atol=1e-5)
    for without in ({"sinks": None}, {"undo": False}, {"attn_mask": None}):
        if n > WINDOW or "attn_mask" not in without:
            other = layer.ours(x, positions, **without)
            assert (other - layer.said).abs().max() > 0.1, without


def test_far_into_a_text_the_difference_is_that_of_their_float32_angles(monkeypatch):
    """Half a million tokens in, transformers' angles are rounded; with ours its layer agrees."""
    layer, n = Layer(config_of(), seed=5), 9
    x = normal(1, n, D_MODEL, dtype=torch.float32, seed=5)
    positions = torch.arange(n)[None] + 500_000
    layer.run(x, positions)
    assert (layer.ours(x, positions) - layer.said).abs().max() > 1e-5
    exact = layer.rotary(positions)
    tables = exact.cos[:, 0], exact.sin[:, 0]
    monkeypatch.setattr(layer, "embedding", lambda *_, **__: tables)
    layer.run(x, positions)
    torch.testing.assert_close(layer.ours(x, positions), layer.said, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["compressed_sparse_attention", "heavily_compressed_attention"])
def test_the_layers_with_compressed_entries_are_ours_too(kind):
    """An entry is a latent that stands where its tokens begin; which are seen is theirs to say."""
    n = 27
    layer = Layer(config_of(kind), seed=3)
    x = normal(2, n, D_MODEL, dtype=torch.float32, seed=3)
    output = layer.run(x, torch.arange(n).expand(2, -1))
    rotated, bias = layer.entries
    starts = torch.arange(rotated.shape[2]) * layer.theirs.compressor.compress_rate
    assert len(starts) >= 4
    q, kv = layer.queries_and_latents(x)
    window = torch.zeros(n, n).masked_fill(~window_of(n, WINDOW), -math.inf)
    z = shared_kv_attention(
        q,
        torch.cat((kv, layer.rotary(starts).undo(rotated)), 2),
        layer.rotary,
        positions=range(n),
        key_positions=torch.cat((torch.arange(n), starts)),
        sinks=layer.theirs.sinks.detach(),
        attn_mask=torch.cat((window.expand(2, 1, n, n), bias), -1),
        is_causal=False,
    )
    torch.testing.assert_close(z, layer.said, rtol=0, atol=1e-5)
    torch.testing.assert_close(layer.projected(z), output, rtol=0, atol=1e-5)
    assert (z - layer.ours(x, range(n))).abs().max() > 0.1, "the entries are heard"


def test_decoding_with_their_cache_says_what_ours_says_at_once():
    layer, n = Layer(config_of(), seed=4), 12
    x = normal(1, n, D_MODEL, dtype=torch.float32, seed=4)
    z = layer.ours(x, range(n))
    cache = DynamicCache(config=layer.config)
    for t in range(n):
        layer.run(x[:, t : t + 1], torch.tensor([[t]]), cache)
        torch.testing.assert_close(layer.said[..., 0, :], z[..., t, :], rtol=0, atol=1e-5)
    held = cache.layers[0].keys  # rotated latents
    _, kv = layer.queries_and_latents(x)
    last = torch.arange(n - held.shape[-2], n)
    torch.testing.assert_close(held, layer.rotary(last).apply(kv[:, :, last]), rtol=0, atol=1e-5)
