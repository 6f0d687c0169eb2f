"""lens_scores: every head scored as its pattern passes, against the patterns themselves."""

import pytest
import torch
from rove_models import ARCHITECTURES
from torch.testing import assert_close
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

from rove_lab.head_patterns import induction_score, previous_token_score
from rove_lab.huggingface import load_smollm2
from rove_lab.lens import (
    HeadScores,
    bridge_from_huggingface,
    head_scores,
    rove_hooks,
    strongest_heads,
)

TOKENS = torch.tensor([[3, 4, 5, 6, 3, 4, 5, 6], [9, 8, 7, 9, 8, 7, 3, 3]])


@pytest.fixture(scope="module")
def llama():
    return bridge_from_huggingface(ARCHITECTURES["llama"]())


def test_scores_are_those_of_the_patterns(llama):
    with torch.no_grad():
        _, cache = llama.run_with_cache(TOKENS)
    patterns = [cache[f"blocks.{layer}.attn.hook_pattern"] for layer in range(3)]
    scores = head_scores(llama, TOKENS)
    before = torch.stack([previous_token_score(pattern).mean(0) for pattern in patterns])
    again = torch.stack([induction_score(pattern, TOKENS).mean(0) for pattern in patterns])
    assert_close(scores.previous_token, before)
    assert_close(scores.induction, again)
    one = head_scores(llama, TOKENS[0].to(torch.int32))
    assert_close(one.induction[0], induction_score(patterns[0], TOKENS)[0])


def test_scores_see_rove_when_it_is_on(llama):
    with llama.hooks(fwd_hooks=rove_hooks(llama)):
        turned = head_scores(llama, TOKENS)
    plain = head_scores(llama, TOKENS)
    assert_close(turned.induction[0], plain.induction[0])  # the first layer's pattern comes before
    assert (turned.induction[1:] - plain.induction[1:]).abs().max() > 1e-3


def test_says_which_heads_are_strongest(llama):
    scores = torch.tensor([[0.1, 0.9, 0.3], [0.5, 0.25, 0.75]])
    assert strongest_heads(scores, 2) == [("L0H1", pytest.approx(0.9)), ("L1H2", 0.75)]
    table = HeadScores(scores, 1 - scores)
    assert repr(table).splitlines()[0].startswith("previous token   L0H1 0.900   L1H2 0.750")
    assert "<td>L0H0 <small>0.900</small></td>" in table._repr_html_()


def test_refuses_tokens_that_do_not_fit(llama):
    with pytest.raises(TypeError, match="expected tokens to be a tensor of integers, got str"):
        head_scores(llama, "the cat")
    with pytest.raises(TypeError, match=r"a tensor of integers, got torch\.float32"):
        head_scores(llama, TOKENS.float())
    with pytest.raises(
        ValueError, match=r"expected tokens \[batch, pos\] or \[pos\], .* got \[0\]"
    ):
        head_scores(llama, TOKENS[0, :0])
    with pytest.raises(ValueError, match="expected tokens from 0 to 63, got 3 to 64: are they of"):
        head_scores(llama, torch.tensor([3, 64, 3]))
    with pytest.raises(
        ValueError, match="expected tokens on cpu, where the bridge is, got them on"
    ):
        head_scores(llama, TOKENS.to("meta"))
    with pytest.raises(ValueError, match="expected a repeated token"):
        head_scores(llama, torch.arange(5))
    with pytest.raises(TypeError, match="expected a TransformerBridge, got str"):
        head_scores("gpt2", TOKENS)


def test_patterns_of_gptj_can_be_read_and_an_edit_that_comes_too_late_is_not_silent():
    model = ARCHITECTURES["gptj"]()
    bridge = bridge_from_huggingface(model)
    with torch.no_grad():
        model.set_attn_implementation("eager")
        patterns = model(TOKENS, output_attentions=True).attentions
        expected = torch.stack([previous_token_score(pattern).mean(0) for pattern in patterns])
        assert_close(head_scores(bridge, TOKENS).previous_token, expected)
        edit = ("blocks.0.attn.hook_pattern", lambda pattern, hook: 0 * pattern)
        with pytest.warns(UserWarning, match="The edit is discarded"):
            assert torch.equal(bridge.run_with_hooks(TOKENS, fwd_hooks=[edit]), bridge(TOKENS))


def test_refuses_a_bridge_that_shows_no_patterns():
    model = ARCHITECTURES["gptj"]()  # with sdpa, as TransformerLens itself would take it
    bridge = build_bridge_from_module(model, type(model).__name__, hf_config=model.config)
    with pytest.raises(ValueError, match=r"expected blocks\.0\.attn\.hook_pattern to fire, and it"):
        head_scores(bridge, TOKENS)


@pytest.mark.slow
def test_the_heads_of_smollm2_are_found():
    bridge = bridge_from_huggingface(*load_smollm2())
    generator = torch.Generator().manual_seed(0)
    block = torch.randint(1000, 40_000, (4, 50), generator=generator)
    scores = head_scores(bridge, torch.cat((torch.ones(4, 1, dtype=torch.int64), block, block), 1))
    assert [head for head, _ in strongest_heads(scores.previous_token, 2)] == ["L16H0", "L11H1"]
    assert [head for head, _ in strongest_heads(scores.induction, 2)] == ["L18H6", "L17H3"]
    assert scores.previous_token[16, 0] > 0.85
    assert scores.induction[18, 6] > 0.8
