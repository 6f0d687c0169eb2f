"""circuits of a real model, SmolLM2: how long its scores take, and what they find."""

import time

import pytest
import torch

from rove_lab import RotaryEmbedding
from rove_lab.circuits import (
    copying_score,
    factored_ov,
    factored_qk,
    fold_rms_norm,
    k_composition,
    ov_cosine,
    ov_drift,
    ov_subspace_overlap,
    positional_scores,
    q_composition,
    qk_spectrum,
    v_composition,
)
from rove_lab.huggingface import load_smollm2


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
