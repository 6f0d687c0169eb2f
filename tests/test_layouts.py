"""Halves and interleaved: weights that move so that attention does not change."""

import pytest
import torch

from rove_lab import (
    RotaryEmbedding,
    RotarySelfAttention,
    YarnScaling,
    channel_permutation,
    convert_layout,
    rove_attention,
)

D_MODEL, HEADS, KV_HEADS, D_HEAD = 16, 4, 2, 8
ROTARIES = {
    "halves": RotaryEmbedding(D_HEAD),
    "interleaved": RotaryEmbedding(D_HEAD, interleaved=True),
    "partial": RotaryEmbedding(D_HEAD, rotary_dim=6, base=500.0),
    "partial interleaved": RotaryEmbedding(D_HEAD, rotary_dim=6, interleaved=True),
    "trailing": RotaryEmbedding(D_HEAD, rotary_dim=4, trailing=True),
    "trailing interleaved": RotaryEmbedding(D_HEAD, rotary_dim=4, trailing=True, interleaved=True),
    "planes": RotaryEmbedding(D_HEAD, base=100.0).planes([0, 3]),
    "yarn": RotaryEmbedding(D_HEAD, scaling=YarnScaling(4.0, original_n_ctx=32)),
}
WEIGHTS = ("W_Q", "W_K", "W_V", "W_O")


@pytest.fixture(params=ROTARIES)
def rotary(request) -> RotaryEmbedding:
    return ROTARIES[request.param]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def layer_with(rotary, weights=None, rotate_values=True):
    layer = RotarySelfAttention(
        D_MODEL, HEADS, KV_HEADS, D_HEAD, rotary=rotary, rotate_values=rotate_values
    ).double()
    if weights is not None:
        for name, weight in zip(WEIGHTS, weights, strict=True):
            getattr(layer, name).data = weight
    return layer


def weights_of(layer):
    return [getattr(layer, name).detach() for name in WEIGHTS]


X = torch.randn(2, 9, D_MODEL, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("rotate_values", [True, False], ids=["RoVE", "RoPE"])
def test_the_converted_layer_gives_the_same_output(rotary, rotate_values):
    layer = layer_with(rotary, rotate_values=rotate_values)
    *weights, other = convert_layout(*weights_of(layer), rotary)
    assert other.interleaved is not rotary.interleaved
    converted = layer_with(other, weights, rotate_values)
    torch.testing.assert_close(converted(X), layer(X), rtol=0, atol=1e-12)


def test_everything_but_the_layout_stays(rotary):
    *_, other = convert_layout(*weights_of(layer_with(rotary)), rotary)
    assert (other.d_head, other.rotary_dim, other.trailing, other.attention_factor) == (
        rotary.d_head,
        rotary.rotary_dim,
        rotary.trailing,
        rotary.attention_factor,
    )
    assert torch.equal(other.inv_freq, rotary.inv_freq)
    assert isinstance(rotary.interleaved, bool)


def test_the_embedding_passed_in_is_unchanged(rotary):
    before = vars(rotary).copy()
    convert_layout(*weights_of(layer_with(rotary)), rotary)
    channel_permutation(rotary)
    assert vars(rotary) == before


def test_there_and_back_is_the_identity(rotary):
    weights = weights_of(layer_with(rotary))
    *moved, other = convert_layout(*weights, rotary)
    *back, same = convert_layout(*moved, other)
    for old, new in zip(weights, back, strict=True):
        assert torch.equal(old, new)
    assert same.interleaved is rotary.interleaved
    assert any(not torch.equal(old, new) for old, new in zip(weights, moved, strict=True))


def test_weights_are_copies(rotary):
    weights = weights_of(layer_with(rotary))
    *moved, _ = convert_layout(*weights, rotary)
    before = [weight.clone() for weight in weights]
    for weight in moved:
        weight.zero_()
    assert all(map(torch.equal, before, weights))


def test_moving_only_queries_and_keys_breaks_rove_and_not_rope(rotary):
    """What checkpoint converters do (transformers #25199): enough for RoPE alone."""
    layer = layer_with(rotary)
    W_Q, W_K, W_V, W_O = weights_of(layer)
    moved_Q, moved_K, _, _, other = convert_layout(W_Q, W_K, W_V, W_O, rotary)
    half_moved = (moved_Q, moved_K, W_V, W_O)
    rope = layer_with(rotary, weights_of(layer), rotate_values=False)
    torch.testing.assert_close(
        layer_with(other, half_moved, rotate_values=False)(X), rope(X), rtol=0, atol=1e-12
    )
    error = layer_with(other, half_moved)(X) - layer(X)
    assert error.norm() > 0.05 * layer(X).norm()


@pytest.mark.parametrize("left", WEIGHTS)
def test_each_of_the_four_must_move(rotary, left):
    layer = layer_with(rotary)
    *moved, other = convert_layout(*weights_of(layer), rotary)
    kept = [
        old if name == left else new
        for name, old, new in zip(WEIGHTS, weights_of(layer), moved, strict=True)
    ]
    error = layer_with(other, kept)(X) - layer(X)
    assert error.norm() > 1e-3 * layer(X).norm()


def test_value_planes_go_with_their_weights():
    """Values that turn in some planes only: the same planes of the converted embedding."""
    rotary = RotaryEmbedding(D_HEAD, base=100.0)
    q, k, v = torch.randn(3, 1, HEADS, 9, D_HEAD, dtype=torch.float64)
    expected = rove_attention(q, k, v, rotary, value_rotary=rotary.planes([1, 2]))
    eye = torch.eye(D_HEAD, dtype=torch.float64)[None]
    *_, other = convert_layout(eye, eye, eye, eye, rotary)
    order = channel_permutation(rotary)
    q, k, v = (x[..., order] for x in (q, k, v))
    moved = rove_attention(q, k, v, other, value_rotary=other.planes([1, 2]))
    torch.testing.assert_close(moved, expected[..., order], rtol=0, atol=1e-12)


def test_the_permutation_moves_biases_and_cached_tensors(rotary):
    """R'_t x' is (R_t x)' for whatever has channels."""
    *_, other = convert_layout(*weights_of(layer_with(rotary)), rotary)
    x = torch.randn(3, 5, D_HEAD, dtype=torch.float64)
    order = channel_permutation(rotary)
    assert order.dtype == torch.int64
    assert sorted(order.tolist()) == list(range(D_HEAD))
    turned = rotary(range(5)).apply(x)
    assert torch.equal(other(range(5)).apply(x[..., order]), turned[..., order])

    layer = RotarySelfAttention(D_MODEL, HEADS, KV_HEADS, D_HEAD, rotary=rotary, bias=True)
    layer = layer.double()
    for bias in (layer.b_Q, layer.b_K, layer.b_O):
        torch.nn.init.normal_(bias)
    expected = layer(X)
    *weights, layer.rotary = convert_layout(*weights_of(layer), rotary)
    layer.value_rotary = layer.rotary
    for name, weight in zip(WEIGHTS, weights, strict=True):
        getattr(layer, name).data = weight
    assert (layer(X) - expected).norm() > 1e-3 * expected.norm()  # the biases have not moved yet
    layer.b_Q.data, layer.b_K.data = layer.b_Q[..., order], layer.b_K[..., order]
    torch.testing.assert_close(layer(X), expected, rtol=0, atol=1e-12)


def test_it_is_the_permutation_of_llamas_conversion():
    """The reshape and transpose by which Llama's interleaved weights became halves."""

    def permute(w, n_heads, dim1, dim2):
        return w.view(n_heads, dim1 // n_heads // 2, 2, dim2).transpose(1, 2).reshape(dim1, dim2)

    linear = torch.randn(HEADS * D_HEAD, D_MODEL)  # a Linear's weight, [out, in]
    expected = permute(linear, HEADS, HEADS * D_HEAD, D_MODEL)

    def per_head(w):
        return w.view(HEADS, D_HEAD, D_MODEL).mT

    W = per_head(linear)
    rotary = RotaryEmbedding(D_HEAD, interleaved=True)
    W_Q, _, _, _, halves = convert_layout(W, W, W, W.mT, rotary)
    assert torch.equal(W_Q, per_head(expected))
    assert not halves.interleaved


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_weights_keep_dtype_and_gradients(dtype):
    W = torch.randn(2, D_MODEL, D_HEAD, dtype=dtype, requires_grad=True)
    W_O = torch.randn(2, D_HEAD, D_MODEL, dtype=dtype)
    W_Q, *_ = convert_layout(W, W, W, W_O, RotaryEmbedding(D_HEAD))
    assert W_Q.dtype == dtype
    W_Q.sum().backward()
    assert torch.equal(W.grad, torch.ones_like(W))


def test_weights_without_values():
    W = torch.zeros(2, D_MODEL, D_HEAD, device="meta")
    *moved, _ = convert_layout(W, W, W, W.mT, RotaryEmbedding(D_HEAD))
    assert [weight.shape for weight in moved] == [W.shape] * 3 + [W.mT.shape]


class TestBadInput:
    """Every error says what was expected, what came and what to do."""

    rotary = RotaryEmbedding(D_HEAD)
    good = (
        torch.ones(HEADS, D_MODEL, D_HEAD),
        torch.ones(KV_HEADS, D_MODEL, D_HEAD),
        torch.ones(KV_HEADS, D_MODEL, D_HEAD),
        torch.ones(HEADS, D_HEAD, D_MODEL),
    )

    def call(self, name, change):
        weights = dict(zip(WEIGHTS, self.good, strict=True))
        weights[name] = change(weights[name])
        return convert_layout(**weights, rotary=self.rotary)

    @pytest.mark.parametrize("name", WEIGHTS)
    def test_transposed(self, name):
        shape = r"\[heads, d_head, d_model\]" if name == "W_O" else r"\[heads, d_model, d_head\]"
        with pytest.raises(ValueError, match=rf"expected {name} {shape} with d_head=8, got .*: a"):
            self.call(name, lambda W: W.mT)

    @pytest.mark.parametrize("name", WEIGHTS)
    def test_one_head_without_its_axis_or_all_heads_in_one(self, name):
        for change in (lambda W: W[0], lambda W: W.flatten(0, 1), lambda W: W[None]):
            with pytest.raises(ValueError, match=rf"expected {name} \[heads, .*got \["):
                self.call(name, change)

    @pytest.mark.parametrize("name", WEIGHTS)
    def test_another_d_model(self, name):
        with pytest.raises(ValueError, match=r"expected W_[KVO] .*d_model of W_Q.*got"):
            self.call(name, lambda W: W[..., :5] if name == "W_O" else W[:, :5])

    @pytest.mark.parametrize("name", WEIGHTS)
    def test_heads_that_do_not_belong_together(self, name):
        with pytest.raises(ValueError, match=r"W_Q and W_O of the same heads.*got .*: pass"):
            self.call(name, lambda W: W[:1].expand(3, -1, -1))

    def test_heads_not_divisible_by_kv_heads(self):
        W_Q, W_K, W_V, W_O = self.good
        W_K, W_V = (W[:1].expand(3, -1, -1) for W in (W_K, W_V))
        with pytest.raises(ValueError, match=r"n_kv_heads dividing them, got .*: pass"):
            convert_layout(W_Q, W_K, W_V, W_O, self.rotary)

    @pytest.mark.parametrize("name", WEIGHTS)
    def test_dtypes_and_devices_that_differ(self, name):
        with pytest.raises(ValueError, match=r"expected W_[KVO] with the dtype.*got .*: \w"):
            self.call(name, lambda W: W.double())
        with pytest.raises(ValueError, match=r"expected W_[KVO] with the dtype.*got .*: \w"):
            self.call(name, lambda W: W.to("meta"))

    @pytest.mark.parametrize("name", WEIGHTS)
    def test_not_a_floating_tensor(self, name):
        for change, got in ((lambda W: None, "NoneType"), (lambda W: W.long(), "torch.int64")):
            with pytest.raises(TypeError, match=rf"expected {name} to be a floating.*got {got}"):
                self.call(name, change)

    def test_a_rotary_that_is_none(self):
        with pytest.raises(TypeError, match=r"expected .*RotaryEmbedding, got None"):
            convert_layout(*self.good, None)
        with pytest.raises(TypeError, match=r"expected .*RotaryEmbedding, got None"):
            channel_permutation(None)
