"""Losses, perplexities and scores: of the definition, on a lab GPT and on a Hugging Face model."""

import itertools
import math
from contextlib import contextmanager

import hypothesis
import pytest
import torch
from hf_models import small_config
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from rove_lab import evaluation
from rove_lab.evaluation import (
    accuracy_by_length,
    held_out_scores,
    loss_by_position,
    perplexity_by_length,
    position_groups,
)
from rove_lab.filters import Filter
from rove_lab.messenger import MessengerConfig
from rove_lab.model import GPT, GPTConfig
from rove_lab.tasks import DistanceRecall, OrderedPair


def test_the_scores_are_the_task_s_on_a_seed_out_of_reach_of_training():
    task = DistanceRecall(3, 3, 6)
    torch.manual_seed(0)
    model = MessengerConfig(task.d_in, task.d_out, 8, 1, 8).build()
    inputs, targets = next(task.batches(64, seed=2**32 - 1))
    assert held_out_scores(model, task, 64) == task.scores(model(inputs), targets)
    largest = 2 * (2**30 - 1) + 1  # the data's seed for the largest seed a TrainConfig takes
    assert not torch.equal(inputs, next(task.batches(64, seed=largest))[0])


def test_a_perfect_model_scores_perfectly():
    task = Filter(torch.eye(2)[None], n_ctx=3)

    class Same(torch.nn.Linear):
        def forward(self, x):
            return x

    assert held_out_scores(Same(1, 1), task) == {"relative error": 0.0}


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_loss_by_position_is_that_of_the_definition_for_a_gpt_and_a_hugging_face_model(dtype):
    torch.manual_seed(0)
    gpt = GPT(GPTConfig(d_vocab=11, d_model=16, n_layers=1, n_heads=2)).to(dtype)
    llama = AutoModelForCausalLM.from_config(small_config("llama", vocab_size=11)).to(dtype).eval()
    tokens = torch.randint(11, (3, 7))
    for model, logits in (
        (gpt, gpt(tokens)),
        (llama, llama(tokens).logits),
    ):
        losses = loss_by_position(model, tokens)
        assert losses.shape == (3, 6)
        assert losses.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        for b, t in itertools.product(range(3), range(6)):
            said = logits[b, t].double()
            by_hand = said.exp().sum().log() - said[tokens[b, t + 1]]
            tolerance = (
                1e-9 if dtype == torch.float64 else 0.05
            )  # a batch of three rounds otherwise
            assert abs(losses[b, t] - by_hand) < tolerance


def test_the_loss_by_position_needs_no_gradient_and_reads_bytes():
    model = GPT(GPTConfig(d_model=16, n_layers=1, n_heads=2))
    losses = loss_by_position(model, torch.tensor([[82, 111, 86, 69]], dtype=torch.uint8))
    assert not losses.requires_grad
    assert losses.isfinite().all()


@pytest.mark.parametrize("n", [1, 2, 3, 16, 20])
def test_every_position_is_in_one_group_by_how_many_were_read_before(n):
    found = position_groups(n)
    assert [t for at in found.values() for t in range(n)[at]] == list(range(n))
    for name, at in found.items():
        first, _, last = name.partition(" to ")
        assert (int(first), int(last or first)) == (at.start + 1, at.stop)
        assert at.stop in (2 * at.start or 1, n)


@pytest.mark.parametrize(("n", "error"), [(0, ValueError), (2.0, TypeError)])
def test_groups_of_no_positions_are_refused(n, error):
    with pytest.raises(error, match="expected n to be"):
        position_groups(n)


def test_what_has_no_loss_by_position_is_refused():
    model = GPT(GPTConfig(d_model=16, n_layers=1, n_heads=2))
    with pytest.raises(TypeError, match="expected tokens to be a tensor of integers, got list"):
        loss_by_position(model, [[1, 2]])
    with pytest.raises(TypeError, match=r"got torch\.float32"):
        loss_by_position(model, torch.ones(1, 2))
    for shape in ([3], [1, 1], [0, 4]):
        with pytest.raises(ValueError, match=r"expected tokens \[batch, pos\] with two positions"):
            loss_by_position(model, torch.zeros(shape, dtype=torch.long))


# Perplexity by length


def gpt(d_vocab=11, **changes):
    torch.manual_seed(0)
    sizes = {"d_model": 16, "n_layers": 1, "n_heads": 2, "n_ctx": 16} | changes
    return GPT(GPTConfig(d_vocab=d_vocab, **sizes)).double()


def llama(vocab_size=11):
    torch.manual_seed(0)
    config = small_config("llama", vocab_size=vocab_size, num_hidden_layers=2)
    return AutoModelForCausalLM.from_config(config).double().eval()


each_model = pytest.mark.parametrize("make", [gpt, llama], ids=["lab GPT", "Hugging Face"])


def text(*shape, high=11):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(1))


def slow_perplexity(model, texts, length, lengths):
    """Token by token: a target is scored by a pass over what its window holds before it."""
    losses = []
    for sequence in texts:
        n = len(sequence) // max(lengths) * max(lengths)
        for t in range(n):
            if any(t % each == 0 for each in lengths):
                continue
            output = model(sequence[None, t // length * length : t])
            said = getattr(output, "logits", output)[0, -1].tolist()
            z = sum(math.exp(logit) for logit in said)
            losses.append(math.log(z) - said[sequence[t]])
    return math.exp(sum(losses) / len(losses))


@each_model
@pytest.mark.parametrize("lengths", [[8, 4, 16], [2, 3, 6], [5]], ids=str)
def test_the_perplexity_at_each_length_is_that_of_the_definition(make, lengths):
    model, texts = make(), text(2, 37)
    found = perplexity_by_length(model, texts, lengths)
    assert list(found) == lengths
    with torch.no_grad():
        for length in lengths:
            expected = slow_perplexity(model, texts, length, lengths)
            assert found[length] == pytest.approx(expected, rel=1e-9), length


def test_one_text_is_a_batch_of_one_and_its_end_is_not_read():
    model, texts = gpt(), text(1, 35)
    found = perplexity_by_length(model, texts[0], [4, 16])
    assert found == perplexity_by_length(model, texts, [4, 16])
    assert found == perplexity_by_length(model, texts[:, :32].to(torch.uint8), [4, 16])


class Unigram(torch.nn.Module):
    """Says the same whatever came before, and notes how much it was given at once."""

    def __init__(self, logits):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.tensor(logits, dtype=torch.float64))
        self.read = []

    def forward(self, tokens):
        self.read.append(tuple(tokens.shape))
        return self.logits.expand(*tokens.shape, -1)


@hypothesis.given(
    logits=st.lists(st.floats(-3, 3), min_size=5, max_size=5),
    shortest=st.integers(2, 4),
    times=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    seed=st.integers(0, 99),
)
def test_who_does_not_read_has_one_perplexity_at_every_length(logits, shortest, times, seed):
    """The same targets at every length: for otherwise their means would differ."""
    longest = shortest * math.prod(times)
    lengths = [shortest * math.prod(times[:n]) for n in range(len(times) + 1)]
    texts = torch.randint(5, (2, 2 * longest + 1), generator=torch.Generator().manual_seed(seed))
    found = perplexity_by_length(Unigram(logits), texts, lengths)
    for each in found.values():
        assert each == pytest.approx(found[longest], rel=1e-12)


def test_who_guesses_has_the_vocabulary_as_perplexity():
    found = perplexity_by_length(Unigram([0.0] * 7), text(64, high=7), [4, 32])
    assert list(found.values()) == pytest.approx([7.0, 7.0], rel=1e-12)


def test_no_more_than_the_longest_window_is_read_at_once():
    model = Unigram([0.0] * 11)
    perplexity_by_length(model, text(3, 70), [4, 8, 32])
    assert set(model.read) == {(8, 4), (4, 8), (1, 32)}
    assert len(model.read) == 3 * 6  # three lengths, six spans


@each_model
def test_the_loss_is_the_same_taken_in_pieces(make, monkeypatch):
    model, texts = make(), text(2, 32)
    whole = perplexity_by_length(model, texts, [8, 16]), loss_by_position(model, texts)
    monkeypatch.setattr(evaluation, "_ROWS", 5)
    assert perplexity_by_length(model, texts, [8, 16]) == pytest.approx(whole[0], rel=1e-12)
    torch.testing.assert_close(loss_by_position(model, texts), whole[1], rtol=1e-12, atol=0)


def test_half_precision_is_summed_in_more():
    texts = text(1, 512)
    narrow = perplexity_by_length(gpt().bfloat16(), texts, [64, 512])
    assert narrow == pytest.approx(perplexity_by_length(gpt(), texts, [64, 512]), rel=0.02)


def noting(log):
    """An extension that only notes for which length it was on, and when."""

    @contextmanager
    def at(length):
        log.append(("on", length))
        yield
        log.append(("off", length))

    return at


def test_an_extension_is_on_while_its_length_is_read():
    log, model = [], gpt()
    model.register_forward_pre_hook(lambda *_: log.append("read"))
    perplexity_by_length(model, text(1, 16), [8, 16], extension=noting(log))
    assert log == [("on", 8), "read", ("off", 8), ("on", 16), "read", ("off", 16)]
    log.clear()
    model = gpt(32)
    model.register_forward_pre_hook(lambda *_: log.append("read"))
    accuracy_by_length(
        model, OrderedPair(), [8], n_sequences=4, batch_size=2, extension=noting(log)
    )
    assert log == [("on", 8), "read", "read", ("off", 8)]


@pytest.mark.parametrize(
    ("tokens", "lengths", "error", "words"),
    [
        (text(1, 32), [4, 6, 16], ValueError, r"that divide the longest, 16, got \[6\]"),
        (text(1, 32), [1, 16], ValueError, r"lengths of 2 or more .*got \[1\]"),
        (text(1, 32), [0, 16], ValueError, "a length to be positive, got 0"),
        (text(1, 32), [4.0], TypeError, "a length to be an integer"),
        (text(1, 32), [], ValueError, "at least one length, got none"),
        (text(1, 32), 16, TypeError, r"expected lengths as integers, got 16: one length is \[n\]"),
        (text(1, 15), [4, 16], ValueError, r"16 positions or more, .*got \[1, 15\]"),
        (text(1, 1, 16), [4], ValueError, r"tokens \[pos\] or \[batch, pos\]"),
        (text(0, 16), [4], ValueError, r"tokens \[pos\] or \[batch, pos\]"),
        (torch.tensor(3), [4], ValueError, r"tokens \[pos\] or \[batch, pos\]"),
        (torch.ones(16), [4], TypeError, r"tensor of integers, got torch\.float32"),
        (torch.full((16,), 11), [4], ValueError, "from 0 to 10, the model's vocabulary, got 11"),
        (torch.full((16,), -1), [4], ValueError, "got -1 to -1: are they of another tokenizer"),
    ],
)
@each_model
def test_what_has_no_perplexity_by_length_is_refused(make, tokens, lengths, error, words):
    with pytest.raises(error, match=words):
        perplexity_by_length(make(), tokens, lengths)


# Accuracy by length


class ReadsBack(torch.nn.Linear):
    """Knows the last two symbols."""

    def forward(self, tokens):
        one = torch.nn.functional.one_hot(tokens.roll(1, 1), 16)
        return torch.cat((one, torch.nn.functional.one_hot(tokens.roll(2, 1), 16)), -1).double()


def test_a_perfect_reader_is_right_at_every_length():
    found = accuracy_by_length(ReadsBack(1, 1), OrderedPair(), [8, 16, 40], n_sequences=32)
    assert found == {8: 1.0, 16: 1.0, 40: 1.0}


@each_model
def test_the_accuracy_is_the_mean_of_the_task_s_own_over_batches_no_training_draws(make):
    task = OrderedPair(n_symbols=4)
    model = make(8)  # 4 symbols, and logits of two questions
    found = accuracy_by_length(model, task, [20, 5], n_sequences=12, batch_size=4)
    assert list(found) == [20, 5]
    for length in found:
        batches = task.at_length(length).batches(4, seed=2**32 - 1)
        with torch.no_grad():
            outputs = [
                (getattr(said := model(tokens), "logits", said), answers)
                for tokens, answers in itertools.islice(batches, 3)
            ]
        by_batch = [task.scores(output, answers)["both"] for output, answers in outputs]
        assert found[length] == pytest.approx(sum(by_batch) / 3, abs=1e-12)
    assert held_out_scores(model, task, 8)["both"] <= 1  # and the scores at the task's own length


def test_signals_have_their_error_at_each_length():
    model = MessengerConfig(1, 1, 8, 1, 4).build()
    found = accuracy_by_length(model, Filter.edge(), [8, 32], n_sequences=64)
    assert all(error > 0 for error in found.values())


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"n_sequences": 33}, ValueError, "divisible by batch_size, got 33 and 32"),
        ({"n_sequences": 0}, ValueError, "n_sequences to be positive"),
        ({"batch_size": 1.5}, TypeError, "batch_size to be an integer"),
        ({"lengths": []}, ValueError, "at least one length"),
        ({"lengths": "8"}, TypeError, "lengths as integers, got '8'"),
        ({"lengths": [2]}, ValueError, "n_ctx of 3 or more, got 2"),
        ({"model": gpt(11)}, ValueError, "from 0 to 10, the model's vocabulary, got 0 to 15"),
        ({"model": llama(11)}, ValueError, "from 0 to 10, the model's vocabulary, got 0 to 15"),
    ],
)
def test_accuracies_that_mean_nothing_are_refused(arguments, error, words):
    given = {"model": gpt(32), "task": OrderedPair(), "lengths": [8]} | arguments
    with pytest.raises(error, match=words):
        accuracy_by_length(**given)


def test_scores_of_a_task_beyond_the_vocabulary_are_refused():
    with pytest.raises(ValueError, match="the model's vocabulary, got 0 to 15"):
        held_out_scores(gpt(11), OrderedPair())
