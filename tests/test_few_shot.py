"""Few-shot scores: each choice scored alone by hand, and readers whose scores are known."""

import math
from dataclasses import replace

import pytest
import tokenizers
import torch
from hf_models import small_config
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from rove_lab.few_shot import centred_accuracy, few_shot_scores, suite_score
from rove_lab.few_shot_tasks import SUITE, Copying, Majority, NearestNeighbour, OneLetter
from rove_lab.model import GPT, GPTConfig

BYTES = GPTConfig(d_model=16, n_layers=1, n_heads=2)


def gpt(**changes):
    torch.manual_seed(0)
    return GPT(replace(BYTES, **changes)).double()


def llama(vocab_size=256):
    torch.manual_seed(0)
    config = small_config("llama", vocab_size=vocab_size, num_hidden_layers=2)
    return AutoModelForCausalLM.from_config(config).double().eval()


def a_tokenizer(joins=True, **special):
    """Letters, and where it `joins` a letter with the space or colon before it."""
    signs = [*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789: \n"]
    vocabulary = {sign: i for i, sign in enumerate([*signs, "<s>", "</s>"])}
    merges = []
    if joins:
        merges = [(" ", "a"), (" ", "Q"), (":", " "), (":", " Q")]
        for first, second in merges:
            vocabulary[first + second] = len(vocabulary)
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges))
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


class Reader(torch.nn.Module):
    """A model of bytes whose next token is as likely as `prefers` says, from the text before it."""

    def __init__(self, prefers):
        super().__init__()
        self.prefers, self.read = prefers, []
        self.nothing = torch.nn.Parameter(torch.zeros(1))

    def forward(self, tokens):
        self.read.append(tuple(tokens.shape))
        logits = torch.zeros(*tokens.shape, 256)
        for b, row in enumerate(tokens.tolist()):
            for t in range(len(row)):
                liked = self.prefers(bytes(row[: t + 1]).decode())
                if liked is not None:
                    logits[b, t, ord(liked)] = 9.0
        return logits


def knows(tasks, k_shots, seed=0, n=32):
    """The right label after every prompt of these questions."""
    right = {}
    for task in tasks:
        for k in k_shots:
            for question in task.questions(n, k, seed):
                right[question.prompt + " "] = question.choices[question.answer][1]
    return right.get


# Who is known


def test_a_perfect_reader_has_one_and_the_suite_s_score_is_one():
    tasks = [replace(task) for task in SUITE]
    # a prompt without examples may be asked twice with two answers: nobody can know
    scores = few_shot_scores(Reader(knows(tasks, [6])), [6], tasks=tasks, n_questions=32)
    assert scores == {task.name: {6: 1.0} for task in tasks}
    assert suite_score(scores) == {6: 1.0}


def test_who_finds_all_alike_has_exactly_zero():
    scores = few_shot_scores(Reader(lambda _: None), [0, 3], n_questions=20)
    assert [*scores] == [task.name for task in SUITE]
    for of_task in scores.values():
        assert of_task == {0: pytest.approx(0, abs=1e-12), 3: pytest.approx(0, abs=1e-12)}


def test_who_always_says_what_is_wrong_is_below_zero():
    task = Copying(4)
    wrong = {}
    for question in task.questions(32, 4, 0):
        wrong[question.prompt + " "] = question.choices[question.answer - 1][1]
    scores = few_shot_scores(Reader(wrong.get), [4], tasks=[task], n_questions=32)
    assert scores == {"copying": {4: pytest.approx(-1 / 3)}}


def test_who_copies_copies_and_no_more():
    """The label that stood after the same input, found in the text: the reader of one task."""

    def copy(text):
        *lines, last = text.split("\n")
        before = dict(line.split(": ") for line in lines if ": " in line)
        return before.get(last[:-2]) if last.endswith(": ") else None

    tasks = [Copying(), NearestNeighbour()]  # whose question is an example, and never is one
    scores = few_shot_scores(Reader(copy), [1, 8], tasks=tasks, n_questions=32)
    assert scores["copying"] == {1: 1.0, 8: 1.0}
    assert scores["nearest neighbour"] == {1: 0.0, 8: 0.0}


# What is scored


def by_hand(model, tokenizer, task, k, n, seed=0):
    """Each choice read alone, whole; the mean log-probability of what it does not share."""
    right = 0
    for question in task.questions(n, k, seed):
        encoded = []
        for choice in question.choices:
            text = question.prompt + choice
            encoded.append(tokenizer.encode(text) if tokenizer else list(text.encode()))
        shared = 0
        while len({ids[shared] for ids in encoded}) == 1:
            shared += 1
        means = []
        for ids in encoded:
            output = model(torch.tensor([ids]))
            logits = getattr(output, "logits", output)[0]
            losses = []
            for t in range(shared, len(ids)):
                said = logits[t - 1].double().tolist()
                losses.append(said[ids[t]] - math.log(sum(map(math.exp, said))))
            means.append(sum(losses) / len(losses))
        best = max(means)
        assert sorted(means)[-2] < best - 1e-9  # no draw, so that one choice is the answer
        right += means.index(best) == question.answer
    return (right / n - task.chance) / (1 - task.chance)


@pytest.mark.parametrize("k", [0, 3])
@pytest.mark.parametrize(
    ("model", "tokenizer"),
    [
        pytest.param(gpt(), None, id="lab GPT, bytes"),
        pytest.param(llama(), None, id="Hugging Face, bytes"),
        pytest.param(llama(), a_tokenizer(), id="Hugging Face, joined tokens"),
        pytest.param(gpt(), a_tokenizer(joins=False), id="lab GPT, letters"),
    ],
)
def test_scores_are_those_of_the_definition(model, tokenizer, k):
    tasks = [Copying(26), OneLetter()]
    found = few_shot_scores(
        model, [k], tasks=tasks, n_questions=10, seed=3, tokenizer=tokenizer, batch_size=5
    )
    with torch.no_grad():
        for task in tasks:
            expected = by_hand(model, tokenizer, task, k, 10, seed=3)
            assert found[task.name][k] == pytest.approx(expected, abs=1e-12)


def test_a_label_may_be_joined_with_what_stands_before_it():
    tokenizer = a_tokenizer()
    joined = [tokenizer.encode(f"a b:{choice}") for choice in (" Q", " R")]
    assert [len(ids) for ids in joined] == [4, 5]  # ": Q" is one token, ": R" are two
    assert joined[0][:3] == joined[1][:3]


def test_a_sign_of_the_end_is_not_read_and_one_of_the_beginning_is():
    plain = a_tokenizer(bos_token="<s>", eos_token="</s>")
    marked = a_tokenizer(bos_token="<s>", eos_token="</s>")
    marked.backend_tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 65), ("</s>", 66)]
    )
    text = "a b: Q"
    begin, end = marked.convert_tokens_to_ids(["<s>", "</s>"])
    assert marked.encode(text) == [begin, *plain.encode(text), end]
    model = gpt()
    read = []
    model.register_forward_pre_hook(lambda _, given: read.append(given[0].clone()))
    few_shot_scores(model, [1], tasks=[Copying()], n_questions=4, tokenizer=marked)
    assert all((tokens[:, 0] == begin).all() for tokens in read)
    assert not any((tokens == end).any() for tokens in read)


def test_a_tokenizer_of_another_library_will_do():
    ours = a_tokenizer()
    given = {"tasks": [Copying()], "n_questions": 8}
    plain = few_shot_scores(gpt(), [2], tokenizer=ours, **given)
    assert few_shot_scores(gpt(), [2], tokenizer=ours.backend_tokenizer, **given) == plain


def test_prompts_are_read_once_and_few_at_a_time():
    model = Reader(lambda _: None)
    few_shot_scores(model, [2], tasks=[Copying(4)], n_questions=10, batch_size=4)
    assert [rows for rows, _ in model.read] == [4, 4, 2]


def test_scores_follow_from_the_seed_and_not_from_the_batches():
    model = gpt()
    scores = few_shot_scores(model, [0, 4], n_questions=24, seed=1)
    assert scores == few_shot_scores(model, [0, 4], n_questions=24, seed=1, batch_size=7)
    assert scores != few_shot_scores(model, [0, 4], n_questions=24, seed=2)
    assert list(scores["majority"]) == [0, 4]


# The arithmetic


def test_centred_accuracies():
    assert centred_accuracy(0.25, 0.25) == 0
    assert centred_accuracy(1.0, 0.25) == 1
    assert centred_accuracy(0.0, 0.5) == -1
    assert centred_accuracy(0.7, 0.0) == 0.7


def test_the_suite_s_score_is_the_mean_over_tasks():
    scores = {"a": {0: 0.0, 4: 1.0}, "b": {0: -0.5, 4: 0.5}, "c": {0: 0.5, 4: 0.0}}
    assert suite_score(scores) == {0: 0.0, 4: 0.5}


# What is refused


@pytest.mark.parametrize(
    ("accuracy", "chance", "error", "words"),
    [
        (1.1, 0.5, ValueError, "an accuracy from 0 to 1, got 1.1"),
        (-0.1, 0.5, ValueError, "an accuracy from 0 to 1, got -0.1"),
        (0.5, 1.0, ValueError, "a chance from 0 to less than 1, got 1.0"),
        (0.5, -0.1, ValueError, "a chance from 0 to less than 1, got -0.1"),
        ("1", 0.5, TypeError, "accuracy to be a number"),
    ],
)
def test_shares_that_are_none_are_refused(accuracy, chance, error, words):
    with pytest.raises(error, match=words):
        centred_accuracy(accuracy, chance)


def test_tasks_of_different_k_have_no_score_together():
    for scores in ({}, {"a": {1: 0.0}, "b": {2: 0.0}}):
        with pytest.raises(ValueError, match="tasks with the same k each, got"):
            suite_score(scores)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"k_shots": []}, ValueError, r"one k or more and tasks with a name each, got \[\]"),
        ({"k_shots": [-1]}, ValueError, "k from 0 to 512 for one letter, got -1"),
        ({"k_shots": [1.0]}, TypeError, "k to be an integer"),
        ({"tasks": []}, ValueError, "tasks with a name each"),
        ({"tasks": [Majority(3), Majority(5)]}, ValueError, r"got \[1\] and \['majority', 'majori"),
        ({"n_questions": 0}, ValueError, "n_questions to be positive"),
        ({"batch_size": 0}, ValueError, "batch_size to be positive"),
        ({"model": gpt(d_vocab=64)}, ValueError, "from 0 to 63, the model's vocabulary"),
        ({"model": llama(64)}, ValueError, "from 0 to 63, the model's vocabulary"),
        ({"model": gpt(d_vocab=600)}, ValueError, "a tokenizer for a vocabulary of 600, got None"),
        ({"model": llama(600)}, ValueError, "a tokenizer for a vocabulary of 600, got None"),
    ],
)
def test_what_cannot_be_scored_is_refused(arguments, error, words):
    given = {"model": gpt(), "k_shots": [1], "n_questions": 2} | arguments
    with pytest.raises(error, match=words):
        few_shot_scores(given.pop("model"), given.pop("k_shots"), **given)


def test_a_tokenizer_that_takes_labels_for_one_another_is_refused():
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0, ":": 1}, unk_token="?"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    blind = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?")
    with pytest.raises(ValueError, match=r"tells .* apart after it, got"):
        few_shot_scores(gpt(), [1], n_questions=2, tokenizer=blind)


def test_a_model_that_has_diverged_is_refused():
    model = gpt()
    with torch.no_grad():
        model.ln_final.weight.fill_(math.nan)
    with pytest.raises(ValueError, match="got NaN: the model has diverged"):
        few_shot_scores(model, [1], n_questions=2)
