"""circuits: QK and OV at every offset, against loops, TransformerLens, and the attention itself."""

import time

import pytest
import references_circuits as reference
import torch
from hf_models import small_config
from hypothesis import given
from hypothesis import strategies as st
from references_mixers import LAYOUTS, Layout
from samples import HEADS, attention_weights, normal
from transformer_lens import FactoredMatrix
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module
from transformers import AutoModelForCausalLM

from rove_lab import RotaryEmbedding, attention_pattern, offset_kernels, rove_attention
from rove_lab.circuits import (
    copying_score,
    factored_ov,
    factored_qk,
    fold_rms_norm,
    k_composition,
    ov_circuit,
    ov_cosine,
    ov_drift,
    ov_subspace_overlap,
    positional_scores,
    q_composition,
    qk_circuit,
    qk_spectrum,
    v_composition,
)

OFFSETS = [0, -1, 3, -17.25]

each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=repr)


def assert_close(actual, expected, atol=1e-11):
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


@each_layout
def test_circuits_at_every_offset(layout):
    W_Q, W_K, W_V, W_O = attention_weights(layout)
    rotary = layout.build(RotaryEmbedding)
    qk, ov = qk_circuit(W_Q, W_K, rotary, OFFSETS), ov_circuit(W_V, W_O, rotary, OFFSETS)
    for n, delta in enumerate(OFFSETS):
        assert_close(qk[n], reference.qk(W_Q, W_K, layout, delta))
        assert_close(ov[n], reference.ov(W_V, W_O, layout, delta))


@each_layout
def test_offset_zero_is_transformer_lenss(layout):
    W_Q, W_K, W_V, W_O = attention_weights(layout)
    rotary = layout.build(RotaryEmbedding)
    group = HEADS // len(W_K)
    QK = FactoredMatrix(W_Q, W_K.repeat_interleave(group, 0).mT)
    OV = FactoredMatrix(W_V.repeat_interleave(group, 0), W_O)
    assert_close(qk_circuit(W_Q, W_K, rotary, [0])[0], QK.AB, atol=1e-13)
    assert_close(ov_circuit(W_V, W_O, rotary, [0])[0], OV.AB, atol=1e-13)
    factored = factored_ov(W_V, W_O, rotary, [0])
    assert_close(factored.norm()[0], OV.norm())
    assert_close(factored.eigenvalues().sum(-1)[0], OV.eigenvalues.sum(-1))


@pytest.mark.parametrize("n_kv_heads", [4, 2])
def test_offset_zero_is_that_of_a_transformer_lens_bridge(n_kv_heads):
    """Its weights, as TransformerLens takes them out of a Llama, and its own OV and QK."""
    config = small_config("llama", num_key_value_heads=n_kv_heads, num_hidden_layers=2)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float64)
    bridge = build_bridge_from_module(model, "LlamaForCausalLM", hf_config=config)
    rotary = RotaryEmbedding.from_config(config)
    for layer in range(2):
        W_Q, W_K, W_V, W_O = (
            weights[layer].detach() for weights in (bridge.W_Q, bridge.W_K, bridge.W_V, bridge.W_O)
        )
        assert len(W_V) == n_kv_heads
        assert_close(qk_circuit(W_Q, W_K, rotary, [0])[0], bridge.QK.AB[layer].detach())
        assert_close(ov_circuit(W_V, W_O, rotary, [0])[0], bridge.OV.AB[layer].detach())


def test_plain_rope_sends_the_same_from_everywhere():
    _, _, W_V, W_O = attention_weights(LAYOUTS[0])
    rotary = LAYOUTS[0].build(RotaryEmbedding)
    rope = ov_circuit(W_V, W_O, rotary, OFFSETS, rotate_values=False)
    assert torch.equal(rope, rope[:1].expand_as(rope))
    assert_close(rope[0], ov_circuit(W_V, W_O, rotary, [0])[0])
    assert not torch.allclose(ov_circuit(W_V, W_O, rotary, [-1])[0], rope[0])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_circuits_keep_the_dtype_of_the_weights(dtype):
    W_Q, W_K, W_V, W_O = (W.to(dtype) for W in attention_weights(LAYOUTS[0]))
    rotary = LAYOUTS[0].build(RotaryEmbedding)
    qk, ov = qk_circuit(W_Q, W_K, rotary, [-2]), ov_circuit(W_V, W_O, rotary, [-2])
    assert qk.dtype == ov.dtype == dtype
    # one rounding of the result: half a unit in the last place, of entries that are below 32
    atol = 16 * torch.finfo(dtype).eps if dtype != torch.float64 else 1e-12
    assert_close(qk[0].double(), reference.qk(W_Q, W_K, LAYOUTS[0], -2), atol)
    assert_close(ov[0].double(), reference.ov(W_V, W_O, LAYOUTS[0], -2), atol)


@each_layout
def test_the_circuits_are_what_attention_does(layout):
    """One head, one layer: softmax of x QK x^T, then the sum of A x OV, is rove_attention."""
    n, x = 5, normal(5, 5)
    W_Q, W_K, W_V, W_O = attention_weights(layout)
    rotary = layout.build(RotaryEmbedding)
    offsets = list(range(1 - n, n))
    qk, ov = qk_circuit(W_Q, W_K, rotary, offsets), ov_circuit(W_V, W_O, rotary, offsets)
    scores = torch.full((HEADS, n, n), -torch.inf, dtype=torch.float64)
    for i in range(n):
        for j in range(i + 1):
            scores[:, i, j] = x[i] @ qk[j - i + n - 1] @ x[j] / layout.d_head**0.5
    pattern = scores.softmax(-1)
    assert_close(pattern, attention_pattern(x @ W_Q, x @ W_K, rotary))
    out = torch.zeros(n, 5, dtype=torch.float64)
    for h in range(HEADS):
        for i in range(n):
            for j in range(i + 1):
                out[i] += pattern[h, i, j] * (x[j] @ ov[j - i + n - 1, h])
    z = rove_attention(x @ W_Q, x @ W_K, x @ W_V, rotary)
    assert_close(out, torch.einsum("hid,hdm->im", z, W_O))


layouts = st.sampled_from(LAYOUTS)
offsets = st.floats(-1e3, 1e3)


@given(layouts, offsets, offsets)
def test_offsets_add(layout, delta, epsilon):
    """A message that travels delta and then epsilon, with nothing in between, travels the sum."""
    _, _, W_V, W_O = attention_weights(layout)
    rotary = layout.build(RotaryEmbedding)
    (moved,) = offset_kernels(W_V, rotary, [delta])
    both = ov_circuit(W_V, W_O, rotary, [delta + epsilon])
    assert_close(ov_circuit(moved, W_O, rotary, [epsilon]), both, atol=1e-9)


@given(layouts, offsets)
def test_the_other_way_round_queries_and_keys_change_places(layout, delta):
    W_Q, W_K, _, _ = attention_weights(layout)
    W_Q = W_Q[: len(W_K)]
    rotary = layout.build(RotaryEmbedding)
    back = qk_circuit(W_K, W_Q, rotary, [-delta]).mT
    assert_close(qk_circuit(W_Q, W_K, rotary, [delta]), back)


@given(layouts, offsets)
def test_the_way_back_is_the_transpose_where_w_o_is(layout, delta):
    _, _, W_V, _ = attention_weights(layout)
    rotary = layout.build(RotaryEmbedding)
    assert_close(
        ov_circuit(W_V, W_V.mT, rotary, [-delta]), ov_circuit(W_V, W_V.mT, rotary, [delta]).mT
    )


@given(layouts, offsets, offsets)
def test_a_turn_of_both_weights_is_not_seen(layout, delta, turn):
    """W_V R^T and R W_O make the same circuits: rotations commute."""
    _, _, W_V, W_O = attention_weights(layout)
    rotary = layout.build(RotaryEmbedding)
    (turned,) = offset_kernels(W_V, rotary, [turn])
    (answer,) = offset_kernels(W_O.mT, rotary, [turn]).mT
    expected = ov_circuit(W_V, W_O, rotary, [delta])
    assert_close(ov_circuit(turned, answer, rotary, [delta]), expected, atol=1e-10)


def test_planes_that_do_not_turn_make_no_difference():
    layout = Layout(6)
    W_Q, W_K, W_V, W_O = attention_weights(layout)
    still = RotaryEmbedding(6).planes([])
    moving = ov_circuit(W_V, W_O, still, OFFSETS)
    assert_close(moving, ov_circuit(W_V, W_O, still, OFFSETS, rotate_values=False))
    qk = qk_circuit(W_Q, W_K, still, OFFSETS)
    assert torch.equal(qk, qk[:1].expand_as(qk))


def test_nothing_larger_than_allowed_is_built():
    W_Q, W_K, W_V, W_O = attention_weights(LAYOUTS[0])
    rotary = LAYOUTS[0].build(RotaryEmbedding)
    with pytest.raises(ValueError, match=r"at most max_bytes=100 bytes, got \(1, 4, 5, 5\) = 800"):
        qk_circuit(W_Q, W_K, rotary, [0], max_bytes=100)
    with pytest.raises(ValueError, match=r"at most max_bytes=100 bytes, got \(1, 4, 5, 5\) = 800"):
        ov_circuit(W_V, W_O, rotary, [0], max_bytes=100)


def smollm2_weights(model):
    """W_Q, W_K, W_V, W_O of all layers on one axis, and W_E, W_U; every norm's weight folded in."""
    config = model.config
    W: dict = {name: [] for name in "qkvo"}
    for layer in model.model.layers:
        norm = layer.input_layernorm.weight.detach()
        for name in "qkv":
            rows = getattr(layer.self_attn, f"{name}_proj").weight.detach()
            split = rows.unflatten(0, (-1, config.head_dim)).mT
            W[name].append(fold_rms_norm(split, norm))
        W["o"].append(layer.self_attn.o_proj.weight.detach().T.unflatten(0, (-1, config.head_dim)))
    W_E = model.model.embed_tokens.weight.detach()
    W_U = fold_rms_norm(model.lm_head.weight.detach().T, model.model.norm.weight.detach())
    return [torch.cat(W[name]) for name in "qkvo"], W_E, W_U


@pytest.fixture(scope="module")
def smollm2():
    """Its weights, and its rotation: 270 heads, d_model 576, 49,152 tokens."""
    from rove_lab.huggingface import load_smollm2

    model, _ = load_smollm2()
    return *smollm2_weights(model), RotaryEmbedding.from_config(model.config)


@pytest.mark.slow
def test_every_score_of_smollm2_at_64_offsets_takes_less_than_a_minute(smollm2):
    """On one core, since CPU seconds do not depend on what else runs."""
    (W_Q, W_K, W_V, W_O), W_E, W_U, rotary = smollm2
    offsets = torch.arange(-63, 1)
    mean = W_E.mean(0, keepdim=True)
    middle = 135  # heads of layers 0..14 write, those of layers 15..29 read
    ov = factored_ov(W_V[: middle // 3], W_O[:middle], rotary, offsets)
    qk = factored_qk(W_Q[middle:], W_K[middle // 3 :], rotary, [0])
    later_ov = factored_ov(W_V[middle // 3 :], W_O[middle:], rotary, [0])
    scores = {
        "copying_score": lambda: copying_score(W_E, W_V, W_O, W_U, rotary, offsets),
        "ov_drift": lambda: ov_drift(W_V, W_O, rotary, offsets),
        "ov_cosine": lambda: ov_cosine(W_V, W_O, rotary, offsets),
        "ov_subspace_overlap": lambda: ov_subspace_overlap(W_V, W_O, rotary, offsets, 8).writing,
        "positional_scores": lambda: positional_scores(mean @ W_Q, mean @ W_K, rotary, offsets),
        "qk_spectrum": lambda: qk_spectrum(W_Q, W_K, rotary),
        "q_composition": lambda: q_composition(ov, qk),
        "k_composition": lambda: k_composition(ov, qk),
        "v_composition": lambda: v_composition(ov, later_ov),
    }
    for name, compute in scores.items():
        wall, cpu = time.perf_counter(), time.process_time()
        score = compute()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(f"{name}: {list(score.shape)} in {wall:.1f} s, {cpu:.1f} CPU s")
        assert score.isfinite().all()
        assert cpu < 60, name


@pytest.mark.slow
@pytest.mark.parametrize(("layer", "head"), [(17, 3), (18, 6)])
def test_smollm2s_induction_heads_read_what_its_previous_token_head_writes(smollm2, layer, head):
    """K-composition from weights alone names L16H0, which previous_token_score names, too."""
    (W_Q, W_K, W_V, W_O), _, _, rotary = smollm2
    earlier, h = 9 * layer, 9 * layer + head
    ov = factored_ov(W_V[: earlier // 3], W_O[:earlier], rotary, [0], rotate_values=False)
    qk = factored_qk(W_Q[[h]], W_K[[h // 3]], rotary, [0])
    score = k_composition(ov, qk).flatten()
    assert 9 * 16 + 0 in score.topk(2).indices
    assert score[9 * 16 + 0] > 3 * score.median()
