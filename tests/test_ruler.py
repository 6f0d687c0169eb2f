"""Prompts in words, answered by a program that reads the text, with a tokenizer of bytes."""

import re
from collections import Counter
from itertools import islice
from random import Random

import pytest
import torch

from rove_lab import prompts, ruler
from rove_lab.pretrained import load_smollm2
from rove_lab.ruler import common_words_prompt, needle_prompt, variable_prompt

SEEDS = range(20)


def encode(text):
    return list(text.encode())


def codes_of(text):
    """The answer, from the sentences with codes and the places in the question."""
    codes = re.findall(r"The (\w+) has the code (\d+)\.", text)
    question = text[text.rindex("In the order of the text") :]
    asked = re.findall(r"of the (?!text)(\w+)", question)
    return ", ".join(code for place in asked for one, code in codes if one == place)


def variables_of(text):
    """The answer, from running the assignments."""
    memory = {}
    for name, assigned in re.findall(r"VAR (\w+) = (?:VAR )?(\w+)\.", text):
        memory[name] = memory.get(assigned, assigned)
    (value,) = re.findall(r"have the value (\d+)", text)
    return ", ".join(name for name, number in memory.items() if number == value)


def common_words_of(text):
    """The answer, from counting."""
    words = re.search(r"list of words: (.*?)\.", text)[1].split(", ")
    counts = Counter(words)
    n = int(re.search(r"The (\d+) most common", text)[1])
    least = sorted(counts.values())[-n]
    return ", ".join(word for word, count in counts.items() if count >= least)


CASES = [
    (needle_prompt, codes_of, {}),
    (needle_prompt, codes_of, {"n_keys": 1}),
    (needle_prompt, codes_of, {"n_keys": 5, "n_values": 3, "n_queries": 3}),
    (variable_prompt, variables_of, {}),
    (variable_prompt, variables_of, {"n_chains": 4, "n_hops": 1}),
    (common_words_prompt, common_words_of, {}),
    (common_words_prompt, common_words_of, {"n_common": 5, "common_times": 4, "other_times": 3}),
]


@pytest.mark.parametrize(("make", "reader", "sizes"), CASES)
@pytest.mark.parametrize("n_tokens", [1200, 4000])
def test_the_answer_is_what_the_text_says(make, reader, sizes, n_tokens):
    for seed in SEEDS:
        prompt = make(encode, n_tokens, seed, **sizes)
        assert reader(prompt.text) == prompt.answer
        assert bytes(prompt.tokens.tolist()).decode() == prompt.text
        assert bytes(prompt.answer_tokens.tolist()).decode() == " " + prompt.answer
        length = len(prompt.tokens) + len(prompt.answer_tokens)
        assert n_tokens - 60 < length <= n_tokens


@pytest.mark.parametrize(("make", "reader", "sizes"), CASES)
def test_a_prompt_follows_from_its_seed(make, reader, sizes):
    one, same, other = (make(encode, 1200, seed, **sizes) for seed in (1, 1, 2))
    assert one.text == same.text
    assert torch.equal(one.tokens, same.tokens)
    assert torch.equal(one.answer_tokens, same.answer_tokens)
    assert one.answer != other.answer


@pytest.mark.parametrize("make", [needle_prompt, variable_prompt])
def test_the_same_facts_at_every_length(make):
    assert len({make(encode, n_tokens, 3).answer for n_tokens in (1000, 3000, 9000)}) == 1


def test_a_code_stands_once_and_is_that_of_one_place():
    for seed in SEEDS:
        text = needle_prompt(encode, 2000, seed, n_keys=6, n_values=2).text
        codes = re.findall(r"\d+", text)
        assert len(codes) == len(set(codes)) == 12
        places = Counter(re.findall(r"The (\w+) has the code", text))
        assert set(places.values()) == {2}
        asked = re.findall(r"of the (?!text)(\w+)", text[text.rindex("In the order") :])
        assert set(asked) < set(places)


def test_a_variable_is_assigned_once_and_used_once_but_the_last_of_its_chain():
    for seed in SEEDS:
        text = variable_prompt(encode, 2000, seed, n_chains=3, n_hops=2).text
        times = Counter(re.findall(r"VAR (\w+)", text))
        assert Counter(times.values()) == {2: 6, 1: 3}
        numbers = Counter(re.findall(r"\d+", text))
        assert sorted(numbers.values()) == [1, 1, 2]  # that of the question once more


def test_words_come_exactly_as_often_as_they_should():
    for seed in SEEDS:
        text = common_words_prompt(encode, 3000, seed).text
        words = re.search(r"list of words: (.*?)\.", text)[1].split(", ")
        times = Counter(Counter(words).values())
        assert times[10] == 3
        assert set(times) == {2, 10}
        assert all(text.count(word) == words.count(word) for word in words)


def test_the_asked_code_is_at_every_depth():
    thirds = Counter()
    for seed in range(200):
        prompt = needle_prompt(encode, 2500, seed)
        thirds[3 * prompt.text.index(prompt.answer) // len(prompt.text)] += 1
    assert min(thirds[third] for third in range(3)) > 40


def test_other_sentences_say_nothing_of_what_is_asked():
    filler = " ".join(prompts._FILLER)
    assert not re.search(r"\d|VAR|code|variable|=", filler)
    assert not set(re.findall(r"\w+", filler.lower())) & set(ruler._PLACES)
    assert len(set(ruler._PLACES)) == len(ruler._PLACES) == 40
    assert all(sentence.endswith(".") and sentence.count(".") == 1 for sentence in prompts._FILLER)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (
            lambda: needle_prompt(encode, 900, 0, n_keys=41),
            ValueError,
            "n_keys <= 40, got 1 and 41",
        ),
        (lambda: needle_prompt(encode, 900, 0, n_queries=5), ValueError, "got 5 and 4"),
        (lambda: needle_prompt(encode, 900, 0, n_values=0), ValueError, "n_values to be positive"),
        (lambda: needle_prompt(encode, 900, 0.5), TypeError, "expected seed to be an integer"),
        (lambda: needle_prompt(encode, 90, 0), ValueError, r"n_tokens of 2\d\d or more for 4 sent"),
        (lambda: variable_prompt(encode, 900, 0, n_hops=0), ValueError, "n_hops to be positive"),
        (lambda: variable_prompt(encode, 900, 0, n_chains=1.0), TypeError, "n_chains to be an int"),
        (lambda: variable_prompt(encode, 90, 0), ValueError, "or more for 8 sentences and the"),
        (lambda: variable_prompt(encode, 900, "a"), TypeError, "expected seed to be an integer"),
        (
            lambda: common_words_prompt(encode, 900, 0, other_times=10),
            ValueError,
            "expected other_times < common_times, got 10 and 10",
        ),
        (
            lambda: common_words_prompt(encode, 300, 0),
            ValueError,
            "or more for the list with one other word, got 300",
        ),
        (lambda: common_words_prompt(encode, 900, None), TypeError, "expected seed to be an int"),
        (lambda: common_words_prompt(encode, 900, 0, n_common=0), ValueError, "n_common to be pos"),
    ],
)
def test_bad_sizes_are_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_words_that_run_out_are_told():
    assert len(list(islice(ruler._new_words(Random(0), "ab", 2), 4))) == 4
    with pytest.raises(ValueError, match="expected fewer than 4 different words"):
        list(ruler._new_words(Random(0), "ab", 2))


@pytest.mark.slow
def test_with_the_tokenizer_of_a_real_model():
    _, tokenizer = load_smollm2()

    def real(text):
        return tokenizer.encode(text, add_special_tokens=False)

    for make, reader, sizes in CASES:
        for n_tokens in (800, 8000):
            prompt = make(real, n_tokens, 0, **sizes)
            length = len(prompt.tokens) + len(prompt.answer_tokens)
            assert n_tokens - 40 < length <= n_tokens
            assert tokenizer.decode(prompt.tokens) == prompt.text
            assert tokenizer.decode(prompt.answer_tokens) == " " + prompt.answer
            assert reader(prompt.text) == prompt.answer
    with pytest.raises(TypeError, match="expected encode to give a list of integers, got BatchEnc"):
        needle_prompt(tokenizer, 800, 0)
