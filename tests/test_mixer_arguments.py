"""What mixers refuse: every error says what was expected, what came and what to do."""

import pytest
import torch

from rove_lab import (
    BlockToeplitzMixer,
    GatedBlockToeplitzMixer,
    RotaryEmbedding,
    RotaryMixer,
    rope_mixer,
    rove_mixer,
)

D_IN = 5


class TestFactors:
    """Patterns, weights and kernels."""

    A, W_V, rotary = torch.eye(4), torch.ones(D_IN, 2), RotaryEmbedding(2)
    kernels = torch.ones(7, D_IN, 2)

    def makers(self, A=A, W=W_V, kernels=kernels):
        return {
            "rope": lambda: rope_mixer(A, W),
            "rove": lambda: rove_mixer(A, W, self.rotary),
            "gated": lambda: GatedBlockToeplitzMixer(A, kernels),
        }

    @pytest.mark.parametrize("kind", ["rope", "rove", "gated"])
    def test_pattern_of_several_heads(self, kind):
        with pytest.raises(ValueError, match=r"pattern with 2 .*got \[1, 4, 4\].*one head"):
            self.makers(A=self.A[None])[kind]()

    @pytest.mark.parametrize("kind", ["rope", "rove"])
    @pytest.mark.parametrize("W", [W_V[None], W_V[0]], ids=["heads", "a row"])
    def test_weight_of_other_axes(self, kind, W):
        with pytest.raises(ValueError, match=r"with 2 .*got \[.*one head"):
            self.makers(W=W)[kind]()

    @pytest.mark.parametrize("kernels", [kernels[:, None], kernels[0]], ids=["heads", "one"])
    def test_kernels_of_other_axes(self, kernels):
        with pytest.raises(ValueError, match=r"kernels with 3 .*got \[.*one head"):
            GatedBlockToeplitzMixer(self.A, kernels)
        with pytest.raises(ValueError, match=r"kernels with 3 .*got \[.*one head"):
            BlockToeplitzMixer(kernels)

    @pytest.mark.parametrize("kind", ["rope", "rove"])
    def test_nothing_in_it(self, kind):
        with pytest.raises(ValueError, match=r"pattern with 2 non-empty axes, got \[0, 0\]"):
            self.makers(A=self.A[:0, :0])[kind]()
        with pytest.raises(ValueError, match=r"2 non-empty axes, got \[0, 2\]"):
            self.makers(W=self.W_V[:0])[kind]()

    @pytest.mark.parametrize("count", [4, 6, 8, 1])
    def test_number_of_gated_kernels(self, count):
        with pytest.raises(ValueError, match=rf"key_pos - 1 = 7 kernels.*got {count}: .*arange"):
            GatedBlockToeplitzMixer(self.A, torch.ones(count, D_IN, 2))

    @pytest.mark.parametrize("count", [2, 8])
    def test_an_even_number_of_kernels(self, count):
        with pytest.raises(ValueError, match=rf"expected an odd number .* 2n - 1 .*got {count}"):
            BlockToeplitzMixer(torch.ones(count, D_IN, 2))

    def test_no_kernels(self):
        with pytest.raises(ValueError, match=r"non-empty axes, got \[0, 5, 2\]"):
            BlockToeplitzMixer(self.kernels[:0])

    @pytest.mark.parametrize("kind", ["rope", "rove", "gated"])
    def test_dtypes_that_differ(self, kind):
        message = r"one dtype, got pattern torch.float64 and .* torch.float32: cast"
        with pytest.raises(TypeError, match=message):
            self.makers(A=self.A.double())[kind]()

    @pytest.mark.parametrize("kind", ["rope", "rove", "gated"])
    @pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
    def test_a_pattern_that_is_not_real(self, kind, dtype):
        with pytest.raises(TypeError, match=rf"pattern to be a floating-point .*got {dtype}"):
            self.makers(A=self.A.to(dtype))[kind]()

    @pytest.mark.parametrize("kind", ["rope", "rove", "gated"])
    def test_devices_that_differ(self, kind):
        with pytest.raises(ValueError, match=r"one device, got pattern on meta and .* cpu: move"):
            self.makers(A=self.A.to("meta"))[kind]()

    @pytest.mark.parametrize("kind", ["rope", "rove", "gated"])
    def test_lists(self, kind):
        with pytest.raises(TypeError, match=r"expected pattern .*tensor, got list"):
            self.makers(A=self.A.tolist())[kind]()
        with pytest.raises(TypeError, match=r"expected \w+ .*tensor, got list"):
            self.makers(W=self.W_V.tolist(), kernels=self.kernels.tolist())[kind]()
        with pytest.raises(TypeError, match=r"expected kernels .*tensor, got list"):
            BlockToeplitzMixer(self.kernels.tolist())

    def test_a_transposed_weight(self):
        with pytest.raises(ValueError, match=r"d_head=2\], got .*2, 5\].*transpose"):
            rove_mixer(self.A, self.W_V.T, self.rotary)

    def test_another_d_head(self):
        with pytest.raises(ValueError, match=r"d_head=8\], got .*5, 2\]"):
            rove_mixer(self.A, self.W_V, RotaryEmbedding(8))

    def test_a_rotary_that_is_none(self):
        with pytest.raises(TypeError, match=r"expected .*RotaryEmbedding, got None"):
            rove_mixer(self.A, self.W_V, None)

    @pytest.mark.parametrize("name", ["positions", "key_positions"])
    @pytest.mark.parametrize("make", [rove_mixer, RotaryMixer])
    class TestPositions:
        """Of the queries and of the keys alike, through the function and the class."""

        def call(self, make, name, where, n=4):
            other = "key_positions" if name == "positions" else "positions"
            return make(
                torch.eye(4),
                torch.ones(D_IN, 2),
                RotaryEmbedding(2),
                **{name: where, other: torch.arange(n)},
            )

        @pytest.mark.parametrize("length", [1, 3, 5])
        def test_another_length(self, make, name, length):
            with pytest.raises(ValueError, match=rf"{name}.* 4.*got .*{length}.*"):
                self.call(make, name, torch.arange(length))

        def test_a_single_number(self, make, name):
            with pytest.raises(ValueError, match=rf"expected {name} .*got .*\[\]"):
                self.call(make, name, 3)

        def test_a_batch(self, make, name):
            with pytest.raises(ValueError, match=r"positions \[pos\] of one sequence, got"):
                self.call(make, name, torch.arange(4)[None])

        def test_words(self, make, name):
            with pytest.raises(TypeError, match=r"expected .*numbers, got"):
                self.call(make, name, ["a", "b", "c", "d"])

        @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.bool])
        def test_too_coarse(self, make, name, dtype):
            with pytest.raises(TypeError, match=rf"integer, float32 or float64 .*got {dtype}"):
                self.call(make, name, torch.zeros(4, dtype=dtype))

        @pytest.mark.parametrize("value", [float("nan"), float("inf")])
        def test_not_finite(self, make, name, value):
            with pytest.raises(ValueError, match=r"expected finite .*got NaN or infinity"):
                self.call(make, name, [0, 1, 2, value])

        def test_without_values(self, make, name):
            with pytest.raises(ValueError, match=r"expected .*got .*meta"):
                self.call(make, name, torch.arange(4, device="meta"))

    def test_more_queries_than_keys_must_say_where_they_stand(self):
        with pytest.raises(ValueError, match=r"got 5 queries and 4 keys.*pass `positions`"):
            rove_mixer(torch.ones(5, 4), self.W_V, self.rotary)

    def test_key_positions_of_another_length_are_named(self):
        """They fill in the queries' too, but the caller never passed those."""
        with pytest.raises(ValueError, match=r"expected key_positions .*4.*got .*5"):
            rove_mixer(self.A, self.W_V, self.rotary, key_positions=torch.arange(5))


def test_positions_changed_in_place_afterwards_leave_the_mixer_alone():
    at = torch.arange(3).double()
    mixer = rove_mixer(torch.rand(3, 3), torch.rand(4, 2), RotaryEmbedding(2), positions=at)
    before = mixer.to_dense()
    at[0] = 100.0
    assert torch.equal(mixer.to_dense(), before)
