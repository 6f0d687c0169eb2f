"""The defining sum of RoVE, against a plain loop, against attention and against the mixers."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from references_mixers import Layout, convolution, softmax_pattern

from rove_lab import (
    GatedBlockToeplitzMixer,
    RotaryEmbedding,
    attention_pattern,
    attentive_convolution,
    offset_kernels,
    rope_attention,
    rove_attention,
    rove_mixer,
)

HEADS, D_IN, D_OUT = 3, 5, 6
SHAPES = [(7, 7), (3, 7), (7, 3), (1, 5), (5, 1), (1, 1)]


def tensors(q_len, k_len, batch=(), seed=0, dtype=torch.float64):
    torch.manual_seed(seed)
    pattern = torch.randn(*batch, HEADS, q_len, k_len, dtype=dtype).softmax(-1)
    x = torch.randn(*batch, k_len, D_IN, dtype=dtype)
    kernels = torch.randn(q_len + k_len - 1, HEADS, D_IN, D_OUT, dtype=dtype)
    return pattern, x, kernels


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_it_is_the_defining_sum(shape, batch):
    pattern, x, kernels = tensors(*shape, batch)
    y = attentive_convolution(pattern, x, kernels)
    assert y.shape == (*batch, HEADS, shape[0], D_OUT)
    for index in itertools.product(*map(range, batch)):
        for h in range(HEADS):
            expected = convolution(pattern[(*index, h)], x[index], kernels[:, h])
            torch.testing.assert_close(y[(*index, h)], expected, rtol=0, atol=1e-12)


def test_leading_axes_may_be_on_the_pattern_alone_or_on_x_alone():
    pattern, x, kernels = tensors(4, 4, (2, 3))
    for A, inputs in ((pattern, x[0, 0]), (pattern[0, 0], x)):
        whole = attentive_convolution(
            A.expand(2, 3, HEADS, 4, 4), inputs.expand(2, 3, 4, D_IN), kernels
        )
        torch.testing.assert_close(
            attentive_convolution(A, inputs, kernels), whole, rtol=0, atol=1e-13
        )


def test_empty_batch():
    pattern, x, kernels = tensors(4, 4, (2,))
    assert attentive_convolution(pattern[:0], x[:0], kernels).shape == (0, HEADS, 4, D_OUT)


@pytest.mark.parametrize(
    "layout",
    [
        Layout(6),
        Layout(6, interleaved=True),
        Layout(6, rotary_dim=4, base=100.0, trailing=True),
        Layout(6, keep=(1,)),
    ],
    ids=repr,
)
@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("shape", [(7, 7), (3, 7)])
def test_with_rotated_kernels_it_is_rove_attention(layout, is_causal, shape):
    """Offsets are by position: the queries are the last of the keys, so delta = j - i - (k - q)."""
    q_len, k_len = shape
    torch.manual_seed(0)
    q = torch.randn(2, HEADS, q_len, 6, dtype=torch.float64)
    k = torch.randn(2, HEADS, k_len, 6, dtype=torch.float64)
    x = torch.randn(2, k_len, D_IN, dtype=torch.float64)
    W_V = torch.randn(HEADS, D_IN, 6, dtype=torch.float64)
    rotary = layout.build(RotaryEmbedding)
    v = torch.einsum("bnd,hde->bhne", x, W_V)
    z = rove_attention(q, k, v, rotary, is_causal=is_causal)

    pattern = attention_pattern(q, k, rotary, is_causal=is_causal)
    offsets = torch.arange(-(q_len - 1), k_len) - (k_len - q_len)
    kernels = offset_kernels(W_V, rotary, offsets)
    y = attentive_convolution(pattern, x, kernels)
    torch.testing.assert_close(y, z, rtol=0, atol=1e-12)

    for b, h in itertools.product(range(2), range(HEADS)):
        positions = list(range(k_len - q_len, k_len)), list(range(k_len))
        slow = softmax_pattern(q[b, h], k[b, h], layout, *positions, is_causal)
        torch.testing.assert_close(pattern[b, h], slow, rtol=0, atol=1e-12)
        torch.testing.assert_close(
            y[b, h], convolution(slow, x[b], kernels[:, h]), rtol=0, atol=1e-12
        )
        # the third form: the mixer, as a matrix and as a product that never builds it
        mixer = rove_mixer(pattern[b, h], W_V[h], rotary, positions=positions[0])
        dense = mixer.to_dense() @ x[b].flatten()
        torch.testing.assert_close(dense.view(q_len, 6), z[b, h], rtol=0, atol=1e-12)
        torch.testing.assert_close(mixer @ x[b], z[b, h], rtol=0, atol=1e-12)


def test_one_kernel_for_every_offset_is_ordinary_attention():
    torch.manual_seed(0)
    rotary = RotaryEmbedding(6)
    q, k = torch.randn(2, 2, HEADS, 7, 6, dtype=torch.float64)
    x = torch.randn(2, 7, D_IN, dtype=torch.float64)
    W_V = torch.randn(HEADS, D_IN, 6, dtype=torch.float64)
    y = attentive_convolution(attention_pattern(q, k, rotary), x, W_V.expand(13, -1, -1, -1))
    v = torch.einsum("bnd,hde->bhne", x, W_V)
    torch.testing.assert_close(y, rope_attention(q, k, v, rotary), rtol=0, atol=1e-12)
    # and kernels of a rotation that turns nothing are such kernels
    still = offset_kernels(W_V, rotary.planes([]), range(-6, 7))
    torch.testing.assert_close(still, W_V.expand(13, -1, -1, -1), rtol=0, atol=0)


def test_a_constant_pattern_is_torch_conv1d():
    """The same sum as torch's convolution over the tokens, padded by zeros on both sides."""
    _, x, kernels = tensors(7, 7, (2,))
    weight = kernels[:, 0].permute(2, 1, 0)  # [d_out, d_in, offsets]
    expected = F.conv1d(x.mT, weight, padding=6).mT / 7
    pattern = torch.full((1, 7, 7), 1 / 7, dtype=torch.float64)
    y = attentive_convolution(pattern, x, kernels[:, :1])[:, 0]
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-12)


def test_each_offset_has_its_kernel():
    """A pattern with one entry picks out x_j psi_{j-i}, wherever it stands."""
    _, x, kernels = tensors(4, 6)
    for i, j in itertools.product(range(4), range(6)):
        pattern = torch.zeros(HEADS, 4, 6, dtype=torch.float64)
        pattern[1, i, j] = 2.0
        y = attentive_convolution(pattern, x, kernels)
        torch.testing.assert_close(y[1, i], 2 * x[j] @ kernels[j - i + 3, 1], rtol=0, atol=1e-13)
        y[1, i] = 0
        assert not y.any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_dtype_stays_and_the_error_is_its_rounding(dtype):
    pattern, x, kernels = tensors(6, 6, (2,), dtype=dtype)
    y = attentive_convolution(pattern, x, kernels)
    assert y.dtype == dtype
    exact = attentive_convolution(pattern.double(), x.double(), kernels.double())
    error = (y.double() - exact).abs().max()
    assert error <= 4 * torch.finfo(dtype).eps * exact.abs().max()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_long_sum_does_not_stall_in_half_precision(dtype):
    """1024 messages of 1/1024 sum to 1: a running bfloat16 sum would stop at 1/4."""
    n = 1024
    pattern = torch.full((1, n, n), 1 / n, dtype=dtype)
    kernels = torch.ones(2 * n - 1, 1, 1, 1, dtype=dtype)
    y = attentive_convolution(pattern, torch.ones(n, 1, dtype=dtype), kernels)
    assert (y.float() - 1).abs().max() <= 0.01
    mixer = GatedBlockToeplitzMixer(pattern[0], kernels[:, 0])
    assert ((mixer @ torch.ones(n, 1, dtype=dtype)).float() - 1).abs().max() <= 0.01


def test_gradients_reach_pattern_inputs_and_kernels():
    pattern, x, kernels = tensors(3, 4, (2,))
    for tensor in (pattern, x, kernels):
        tensor.requires_grad_()
    assert torch.autograd.gradcheck(attentive_convolution, (pattern, x, kernels))


def test_inputs_are_left_alone():
    pattern, x, kernels = tensors(3, 4)
    before = [t.clone() for t in (pattern, x, kernels)]
    attentive_convolution(pattern, x, kernels).zero_()
    for old, new in zip(before, (pattern, x, kernels), strict=True):
        assert torch.equal(old, new)


class TestBadInput:
    """Every error says what was expected, what came and what to do."""

    pattern, x, kernels = tensors(4, 4, (2,))

    @pytest.mark.parametrize("count", [6, 8, 1, 0])
    def test_number_of_kernels(self, count):
        kernels = self.kernels[:1].expand(count, -1, -1, -1)
        with pytest.raises(ValueError, match=rf"\+ key_pos - 1 = 7 kernels.*got {count}: use"):
            attentive_convolution(self.pattern, self.x, kernels)

    def test_heads_of_the_kernels(self):
        with pytest.raises(ValueError, match=r"expected kernels of 3 heads.*got 2: use"):
            attentive_convolution(self.pattern, self.x, self.kernels[:, :2])

    def test_heads_and_offsets_swapped(self):
        with pytest.raises(ValueError, match=r"expected .*kernels.*got"):
            attentive_convolution(self.pattern, self.x, self.kernels.transpose(0, 1))

    def test_kernels_of_one_head_without_its_axis(self):
        with pytest.raises(ValueError, match=r"\[offsets, heads, d_in, d_out\].*\[7, 5, 6\]"):
            attentive_convolution(self.pattern, self.x, self.kernels[:, 0])

    def test_transposed_kernels(self):
        with pytest.raises(ValueError, match=r"expected x \[..., 4, 6\] .*got \[2, 4, 5\]"):
            attentive_convolution(self.pattern, self.x, self.kernels.mT)

    def test_pattern_of_one_head_without_its_axis(self):
        with pytest.raises(ValueError, match=r"\[..., heads, query_pos, key_pos\].*\[4, 4\]"):
            attentive_convolution(self.pattern[0, 0], self.x, self.kernels)

    def test_flattened_x(self):
        with pytest.raises(ValueError, match=r"x \[..., key_pos, d_in\].*got .*\[20\]"):
            attentive_convolution(self.pattern[0], self.x[0].flatten(), self.kernels)
        with pytest.raises(ValueError, match=r"expected x \[..., 4, 5\] .*got \[2, 20\]"):
            attentive_convolution(self.pattern, self.x.flatten(1), self.kernels)

    def test_x_of_another_length(self):
        with pytest.raises(ValueError, match=r"expected x \[..., 4, 5\] .*got \[2, 3, 5\]"):
            attentive_convolution(self.pattern, self.x[:, :3], self.kernels)

    def test_tokens_and_channels_swapped(self):
        with pytest.raises(ValueError, match=r"expected x \[..., 4, 5\] .*got \[2, 5, 4\]"):
            attentive_convolution(self.pattern, self.x.mT, self.kernels)

    def test_batches_that_differ(self):
        x = self.x[:1].expand(3, -1, -1)
        with pytest.raises(ValueError, match=r"same leading axes.*got \[2, 3, 4, 4\] and"):
            attentive_convolution(self.pattern, x, self.kernels)

    @pytest.mark.parametrize("batch", [1, HEADS])
    def test_x_with_a_heads_axis(self, batch):
        """Broadcasting would pair the batch of the pattern with the heads of x."""
        pattern = self.pattern[:1].expand(batch, -1, -1, -1)
        x = self.x[0].expand(batch, HEADS, -1, -1)
        with pytest.raises(ValueError, match=r"same leading axes.*got .*no heads axis"):
            attentive_convolution(pattern, x, self.kernels)

    def test_no_tokens(self):
        with pytest.raises(ValueError, match=r"expected .*got"):
            attentive_convolution(self.pattern[..., :0, :], self.x, self.kernels[:3])

    @pytest.mark.parametrize("name", ["pattern", "x", "kernels"])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64])
    def test_dtypes_that_differ(self, name, dtype):
        arguments = {"pattern": self.pattern, "x": self.x, "kernels": self.kernels}
        arguments[name] = arguments[name].to(dtype)
        with pytest.raises(
            TypeError,
            match=rf"(one dtype|tensor), got .*{dtype}.*: (cast|convert)",
        ):
            attentive_convolution(**arguments)

    def test_integers_throughout(self):
        with pytest.raises(TypeError, match=r"x to be a floating-point tensor, got torch.int64"):
            attentive_convolution(self.pattern.long(), self.x.long(), self.kernels.long())

    @pytest.mark.parametrize("name", ["pattern", "x", "kernels"])
    def test_devices_that_differ(self, name):
        arguments = {"pattern": self.pattern, "x": self.x, "kernels": self.kernels}
        arguments[name] = arguments[name].to("meta")
        with pytest.raises(ValueError, match=r"expected .* on (cpu|meta), got .* on (cpu|meta).*:"):
            attentive_convolution(**arguments)

    @pytest.mark.parametrize("name", ["pattern", "x", "kernels"])
    def test_not_a_tensor(self, name):
        arguments = {"pattern": self.pattern, "x": self.x, "kernels": self.kernels}
        arguments[name] = arguments[name].tolist()
        with pytest.raises(TypeError, match=rf"expected .*{name}.*tensor.*got.*list"):
            attentive_convolution(**arguments)
