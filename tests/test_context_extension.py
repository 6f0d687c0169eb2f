"""YaRN in a trained model: what it computes, what it leaves, which beta_fast it gets."""

import math
from dataclasses import replace

import pytest
import torch
from gpt_neox import LIKE_GPT_NEOX, gpt_neox_of
from references import yarn_attention_factor, yarn_frequencies
from references_gpt import by_definition
from rove_models import ARCHITECTURES, small_model
from test_model import tokens_of

from rove_lab.context_extension import BetaFast, choose_beta_fast, yarn, yarn_by_length
from rove_lab.evaluation import accuracy_by_length, loss_by_position, perplexity_by_length
from rove_lab.huggingface import enable_rove
from rove_lab.model import GPT, GPTConfig
from rove_lab.rotary import YarnScaling
from rove_lab.tasks import OrderedPair

WINDOW = 64
# A base so small that all three parts of the ramp have planes: kept, between, interpolated.
SMALL = GPTConfig(
    d_vocab=31, n_ctx=WINDOW, d_model=24, n_layers=2, n_heads=2, d_head=12, base=100.0
)
CONFIGS = {
    "RoVE": SMALL,
    "RoPE": replace(SMALL, rotate_values=False),
    "two planes": replace(SMALL, value_planes=(0, 3)),
}
each_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def logits_of(model, tokens):
    with torch.no_grad():
        output = model(tokens)
        return getattr(output, "logits", output).clone()


# What it computes


@each_config
def test_a_gpt_under_yarn_is_that_of_the_equations(config):
    model, tokens = config.build().double(), tokens_of(n=9)
    stretched = yarn_frequencies(12, 100.0, 4.0, WINDOW, beta_fast=4.0)
    plain = [100.0 ** (-m / 6) for m in range(6)]
    changes = [a / b for a, b in zip(stretched, plain, strict=True)]
    assert changes[0] == 1
    assert changes[-1] == pytest.approx(1 / 4)
    assert any(1 / 3 < change < 1 for change in changes)
    expected = by_definition(model, tokens, stretched, yarn_attention_factor(4.0) ** 2)
    with yarn(model, 4.0, beta_fast=4.0) as on:
        torch.testing.assert_close(logits_of(model, tokens), expected, atol=1e-11, rtol=0)
    assert on == YarnScaling(4.0, WINDOW, beta_fast=4.0)
    assert (expected - logits_of(model, tokens)).abs().max() > 0.01


def test_values_are_turned_and_never_scaled():
    """One token attends to itself alone: under a scaled value its output would be another."""
    model, tokens = SMALL.build().double(), tokens_of(n=1)
    plain = logits_of(model, tokens)
    with yarn(model, 16.0, beta_fast=4.0):
        torch.testing.assert_close(logits_of(model, tokens), plain, atol=1e-13, rtol=0)


@pytest.mark.parametrize("rotate_values", [False, True], ids=["RoPE", "RoVE"])
@pytest.mark.parametrize("first", ["yarn", "RoVE"])
def test_it_is_hugging_faces_own_yarn(rotate_values, first):
    config = replace(LIKE_GPT_NEOX, n_ctx=WINDOW)
    ours, tokens = config.build().double(), tokens_of(n=100)
    theirs = gpt_neox_of(ours)
    plain = logits_of(theirs, tokens)
    if rotate_values:
        rove = replace(config, rotate_values=True).build().double()
        rove.load_state_dict(ours.state_dict())
        ours = rove
    before = logits_of(ours, tokens)
    handle = enable_rove(theirs) if rotate_values and first == "RoVE" else None
    with yarn(theirs, 2.0, beta_fast=2.0, n_ctx=WINDOW), yarn(ours, 2.0, beta_fast=2.0):
        if rotate_values and handle is None:
            handle = enable_rove(theirs)
        # Hugging Face takes its angles in float32.
        torch.testing.assert_close(
            logits_of(ours, tokens), logits_of(theirs, tokens), atol=2e-5, rtol=0
        )
        assert (logits_of(ours, tokens) - before).abs().max() > 0.01
    # left with the values still turning: by the plain frequencies again
    torch.testing.assert_close(before, logits_of(theirs, tokens), atol=2e-5, rtol=0)
    if handle is not None:
        handle.remove()
    assert torch.equal(logits_of(theirs, tokens), plain)


@pytest.mark.parametrize("planes", [None, [0, 2]])
def test_the_planes_that_enable_rove_turns_stay_the_same(planes):
    tokens = tokens_of(n=40)
    before, after = (ARCHITECTURES["llama"]() for _ in range(2))
    with enable_rove(before, planes=planes), yarn(before, 4.0, beta_fast=4.0, n_ctx=WINDOW):
        one = logits_of(before, tokens)
    with yarn(after, 4.0, beta_fast=4.0, n_ctx=WINDOW), enable_rove(after, planes=planes):
        other = logits_of(after, tokens)
    yarned = small_model(
        "llama",
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        yarn={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": WINDOW}
        | {"beta_fast": 4.0},
    )
    with enable_rove(yarned, planes=planes):
        built_so = logits_of(yarned, tokens)
    assert torch.equal(one, other)
    assert torch.equal(one, built_so)


def test_a_handle_that_was_removed_follows_nothing():
    model = ARCHITECTURES["llama"]()
    handle = enable_rove(model)
    handle.remove()
    handle.follow_config()
    model.rove = handle  # as one who keeps it there would
    tokens = tokens_of(n=20)
    plain = logits_of(model, tokens)
    with yarn(model, 4.0, beta_fast=4.0):
        pass
    assert torch.equal(logits_of(model, tokens), plain)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(SMALL.build, id="lab GPT"),
        pytest.param(ARCHITECTURES["llama"], id="llama", marks=pytest.mark.slow),
    ],
)
def test_a_model_that_was_compiled_before_is_stretched_and_comes_back(make):
    torch._dynamo.reset()
    model, tokens = make(), tokens_of(n=20)
    compiled = torch.compile(model, backend="eager")
    plain = logits_of(compiled, tokens)
    with yarn(compiled, 4.0, beta_fast=4.0, n_ctx=WINDOW):
        stretched = logits_of(compiled, tokens)
        torch.testing.assert_close(stretched, logits_of(model, tokens), atol=1e-5, rtol=1e-5)
    assert (stretched - plain).abs().max() > 0.01
    assert torch.equal(logits_of(compiled, tokens), plain)
    torch._dynamo.reset()


# What it leaves


class Interrupted(Exception):
    pass


MODELS = {"lab GPT": SMALL.build, "two planes": CONFIGS["two planes"].build} | {
    kind: ARCHITECTURES[kind] for kind in ("llama", "gpt_neox", "phi3", "gemma3_text")
}
each_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)


@each_model
def test_the_model_is_exactly_what_it_was(make):
    model, tokens = make(), tokens_of(n=30)
    plain, config = logits_of(model, tokens), repr(model.config)
    modules = dict(model.named_modules())
    state = {name: vars(module).copy() for name, module in modules.items()}
    with yarn(model, 4.0, beta_fast=4.0, n_ctx=WINDOW):
        assert (logits_of(model, tokens) - plain).abs().max() > 0.01

    def interrupted():
        with yarn(model, 2.0, beta_fast=2.0, n_ctx=WINDOW):
            logits_of(model, tokens)
            raise Interrupted

    with pytest.raises(Interrupted):
        interrupted()
    assert torch.equal(logits_of(model, tokens), plain)
    assert repr(model.config) == config
    assert dict(model.named_modules()) == modules
    for name, module in model.named_modules():
        now = vars(module)
        assert now.keys() == state[name].keys()
        assert all(now[key] is value for key, value in state[name].items() if key[0] != "_"), name


@each_model
def test_yarn_in_yarn_is_refused_and_changes_nothing(make):
    model, tokens = make(), tokens_of(n=30)
    plain = logits_of(model, tokens)
    with yarn(model, 4.0, beta_fast=4.0, n_ctx=WINDOW):
        stretched = logits_of(model, tokens)
        with (
            pytest.raises(ValueError, match=r"not scaled yet, got (yarn|YarnScaling)"),
            yarn(model, 2.0, beta_fast=4.0, n_ctx=WINDOW),
        ):
            pass
        assert torch.equal(logits_of(model, tokens), stretched)
    assert torch.equal(logits_of(model, tokens), plain)


# By length


@pytest.mark.parametrize("make", [SMALL.build, ARCHITECTURES["llama"]], ids=["lab GPT", "llama"])
def test_each_length_gets_the_factor_it_needs(make):
    model, text = make().double(), tokens_of(1, 4 * WINDOW)
    lengths = [WINDOW // 2, WINDOW, 2 * WINDOW, 4 * WINDOW]
    plain = perplexity_by_length(model, text, lengths)
    extension = yarn_by_length(model, beta_fast=4.0, n_ctx=WINDOW)
    found = perplexity_by_length(model, text, lengths, extension=extension)
    for length in lengths:
        if length <= WINDOW:
            assert found[length] == plain[length]
            continue
        with yarn(model, length / WINDOW, beta_fast=4.0, n_ctx=WINDOW):
            alone = perplexity_by_length(model, text, lengths)[length]
        assert found[length] == alone != plain[length]
    assert perplexity_by_length(model, text, lengths) == plain


def test_a_task_is_asked_at_each_length_under_yarn():
    task, model = OrderedPair(), GPT(replace(SMALL, d_vocab=32))
    extension = yarn_by_length(model, beta_fast=4.0)
    found = accuracy_by_length(
        model, task, [16, 128], n_sequences=4, batch_size=4, extension=extension
    )
    with yarn(model, 2.0, beta_fast=4.0):
        assert (
            found[128] == accuracy_by_length(model, task, [128], n_sequences=4, batch_size=4)[128]
        )


# Choosing beta_fast


@pytest.mark.parametrize("make", [SMALL.build, ARCHITECTURES["llama"]], ids=["lab GPT", "llama"])
def test_the_beta_fast_with_the_lowest_loss_beyond_the_window_is_chosen(make):
    model, text = make().double(), tokens_of(2, 300)
    length, candidates = 2 * WINDOW, (1.0, 2, 8.0)
    chosen = choose_beta_fast(model, text, length, candidates=candidates, n_ctx=WINDOW)
    windows = [row[start : start + length] for row in text for start in (0, length)]
    for beta_fast in candidates:
        losses = []
        with yarn(model, 2.0, beta_fast=beta_fast, n_ctx=WINDOW):
            for window in windows:
                said = logits_of(model, window[None])[0]
                losses += [
                    (said[t - 1].exp().sum().log() - said[t - 1, window[t]]).item()
                    for t in range(WINDOW + 1, length)  # more than WINDOW tokens before it
                ]
        expected = sum(losses) / len(losses)
        assert chosen.losses[beta_fast] == pytest.approx(expected, rel=1e-9), beta_fast
    assert len({*chosen.losses.values()}) == 3
    assert chosen.losses[chosen.beta_fast] == min(chosen.losses.values())
    assert list(chosen.losses) == [1.0, 2.0, 8.0]


def test_of_equals_the_first_is_chosen_and_what_is_no_number_never():
    model, text = SMALL.build(), tokens_of(1, 128)[0]
    same = choose_beta_fast(model, text, 128, candidates=[1e6, 1e7])  # every plane interpolated
    assert same == BetaFast(1e6, {1e6: same.losses[1e6], 1e7: same.losses[1e6]})
    assert choose_beta_fast(model, text, 128).losses.keys() == {2.0, 4.0, 8.0, 16.0, 32.0}
    with torch.no_grad():
        model.ln_final.weight.fill_(math.nan)
    with pytest.raises(ValueError, match="a finite loss under some beta_fast, got"):
        choose_beta_fast(model, text, 128)


def test_the_loss_within_the_window_has_no_say():
    model, text = SMALL.build().double(), tokens_of(1, 128)
    chosen = choose_beta_fast(model, text, 128, candidates=[4.0])
    with yarn(model, 2.0, beta_fast=4.0):
        by_position = loss_by_position(model, text)[0]
    assert chosen.losses[4.0] == pytest.approx(by_position[WINDOW:].mean().item(), rel=1e-12)
    assert chosen.losses[4.0] != pytest.approx(by_position.mean().item(), rel=1e-4)


# What is refused


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"factor": 0.5}, ValueError, "factor >= 1"),
        ({"factor": "4"}, TypeError, "factor to be a number"),
        ({"beta_fast": 0.5}, ValueError, "beta_fast >= beta_slow"),
        ({"n_ctx": 0}, ValueError, "n_ctx to be positive"),
        ({"n_ctx": 6}, ValueError, "original_n_ctx above 2 pi"),
        ({"n_ctx": 64.0}, TypeError, "n_ctx to be an integer"),
        ({"model": torch.nn.Linear(1, 1)}, TypeError, "a GPT or a Hugging Face causal LM, got Lin"),
        ({"model": "gpt2"}, TypeError, "a GPT or a Hugging Face causal LM, got str"),
    ],
)
def test_what_cannot_be_stretched_is_refused(arguments, error, words):
    given = {"model": SMALL.build(), "factor": 4.0, "beta_fast": 4.0} | arguments
    with pytest.raises(error, match=words), yarn(**given):
        pass
    if "factor" not in arguments:
        del given["factor"]
        with pytest.raises(error, match=words):
            yarn_by_length(**given)


def test_a_bridge_is_named_and_a_missing_window_asked_for():
    model = SMALL.build()
    bridge = torch.nn.Module()
    bridge.original_model, bridge.config = model, model.config
    with pytest.raises(TypeError, match="got a bridge of TransformerLens"):
        yarn_by_length(bridge, beta_fast=4.0)
    bare = torch.nn.Module()
    bare.config = type("Config", (), {})()
    with pytest.raises(
        ValueError, match=r"expected max_position_embeddings .*got none: pass n_ctx"
    ):
        yarn_by_length(bare, beta_fast=4.0)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"length": WINDOW + 1}, ValueError, "beyond the trained window, 66 or more, got 65"),
        ({"length": 129}, ValueError, r"129 positions or more, the length, got \[1, 128\]"),
        ({"length": 128.0}, TypeError, "length to be an integer"),
        ({"tokens": torch.zeros(0, 128).long()}, ValueError, r"got \[0, 128\]"),
        ({"tokens": torch.zeros(128)}, TypeError, "tensor of integers"),
        ({"tokens": torch.full((128,), 31)}, ValueError, "the model's vocabulary, got 31 to 31"),
        ({"candidates": []}, ValueError, "at least one candidate for beta_fast, got none"),
        ({"candidates": ["4"]}, TypeError, "beta_fast to be a number"),
    ],
)
def test_choices_that_mean_nothing_are_refused(arguments, error, words):
    given = {"model": SMALL.build(), "tokens": tokens_of(1, 128), "length": 128} | arguments
    with pytest.raises(error, match=words):
        choose_beta_fast(**given)
