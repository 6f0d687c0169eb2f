"""Sequences as they come: empty, padded, packed, evicted, decoded in chunks."""

import pytest
import torch
from samples import inputs

from rove_lab import RotaryEmbedding, attention_pattern, rope_attention, rove_attention


@pytest.mark.parametrize("attention", [rope_attention, rove_attention])
@pytest.mark.parametrize(("batch", "q_len", "k_len"), [(0, 4, 4), (2, 0, 4), (2, 0, 0), (2, 3, 0)])
def test_empty_batches_queries_and_keys(attention, batch, q_len, k_len):
    q, k, v = (x.requires_grad_() for x in inputs(q_len, k_len, batch=batch))
    for is_causal in (True, False):
        z = attention(q, k, v, RotaryEmbedding(8), positions=range(q_len), is_causal=is_causal)
        assert z.shape == (batch, 4, q_len, 8)
        assert (z == 0).all()  # without a key there is nothing to attend to
        z.sum().backward()
        assert q.grad.shape == q.shape
    pattern = attention_pattern(q, k, RotaryEmbedding(8), positions=range(q_len))
    assert pattern.shape == (batch, 4, q_len, k_len)


def test_fault_11_keys_and_values_move_together_and_position_is_not_the_slot():
    """After eviction the tokens that are left keep their true positions, values as well as keys."""
    q, k, v = inputs(1, 6)
    keep, rotary = [0, 1, 4, 5], RotaryEmbedding(8)  # two tokens were evicted
    evicted = torch.tensor([1, 1, 0, 0, 1, 1]).bool()
    expected = rove_attention(q, k, v, rotary, attn_mask=evicted)
    z = rove_attention(
        q, k[:, :, keep], v[:, :, keep], rotary, positions=[5], key_positions=[0, 1, 4, 5]
    )
    assert torch.allclose(z, expected, atol=1e-12)


def test_fault_09_a_left_padded_batch_equals_its_rows_alone():
    q, k, v = inputs(6, 6)
    positions = torch.tensor([[0, 1, 2, 3, 4, 5], [0, 0, 0, 0, 1, 2]])
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1]]).bool()[:, None, None, :]
    for attention in (rope_attention, rove_attention):
        rotary = RotaryEmbedding(8)
        z = attention(q, k, v, rotary, positions=positions, attn_mask=mask)
        assert torch.allclose(z[0], attention(q[0], k[0], v[0], rotary), atol=1e-12)
        alone = attention(q[1, :, 3:], k[1, :, 3:], v[1, :, 3:], rotary)
        assert torch.allclose(z[1, :, 3:], alone, atol=1e-12)
        assert (z[1, :, :3] == 0).all()  # the padding itself may attend to nothing


def test_packed_documents_equal_separate_runs():
    q, k, v = inputs(9, 9)
    lengths, rotary = [4, 2, 3], RotaryEmbedding(8)
    document = torch.tensor([d for d, n in enumerate(lengths) for _ in range(n)])
    mask = document[:, None] == document[None, :]
    restarted = torch.cat([torch.arange(n) for n in lengths])
    for attention in (rope_attention, rove_attention):
        z = attention(q, k, v, rotary, positions=restarted, attn_mask=mask)
        for part in (slice(0, 4), slice(4, 6), slice(6, 9)):
            alone = attention(q[:, :, part], k[:, :, part], v[:, :, part], rotary)
            assert torch.allclose(z[:, :, part], alone, atol=1e-12)
        not_restarted = attention(q, k, v, rotary, attn_mask=mask)  # only offsets count
        assert torch.allclose(z, not_restarted, atol=1e-9)


@pytest.mark.parametrize("chunks", [[7], [1] * 7, [3, 1, 2, 1], [1, 6], [4, 0, 3]], ids=str)
def test_decoding_in_any_chunks_equals_the_full_pass(chunks):
    """Rotated keys and values are cached: each chunk's queries see all the keys so far."""
    q, k, v = inputs(7, 7)
    rotary = RotaryEmbedding(8)
    for attention in (rope_attention, rove_attention):
        whole, steps, end = attention(q, k, v, rotary), [], 0
        for n in chunks:
            start, end = end, end + n
            queries = q[:, :, start:end]
            by_default = attention(queries, k[:, :, :end], v[:, :, :end], rotary)
            steps.append(by_default)
            where = {"positions": range(start, end), "key_positions": range(end)}
            given = attention(queries, k[:, :, :end], v[:, :, :end], rotary, **where)
            assert torch.allclose(given, by_default, atol=1e-12)
        assert torch.allclose(torch.cat(steps, 2), whole, atol=1e-12)
