"""Prompts: as long as there is room for, and facts in their order at every depth."""

from random import Random

import pytest
import torch

from rove_lab.prompts import hide_facts, longest_prompt

FACTS = ["A is 7.", "B is 8.", "C is 9."]


def encode(text):
    return list(text.encode())


def split(prompt):
    """The sentences of a text whose question has no full stop."""
    return [sentence + "." for sentence in prompt.text.split(". ")[:-1]]


@pytest.mark.parametrize("n_tokens", [60, 100, 333, 5000])
def test_it_is_as_long_as_there_is_room_for(n_tokens):
    prompt = hide_facts(encode, n_tokens, Random(0), FACTS, "What is A? It is", " 7")
    both = [*prompt.tokens.tolist(), *prompt.answer_tokens.tolist()]
    assert n_tokens - 50 < len(both) <= n_tokens  # the longest sentence has fewer than 50 bytes
    assert bytes(both).decode() == prompt.text + " 7"
    assert prompt.tokens.dtype == prompt.answer_tokens.dtype == torch.int64
    assert prompt.answer == "7"


def test_one_more_would_be_too_much():
    for n_tokens in range(4, 60):
        prompt = longest_prompt(encode, n_tokens, lambda n: ("xyz" * n + "?", " b"), "it")
        assert prompt.text == "xyz" * ((n_tokens - 3) // 3) + "?"


def test_facts_keep_their_order_and_come_once():
    for seed in range(50):
        prompt = hide_facts(encode, 600, Random(seed), FACTS, "What is A? It is", " 7")
        assert [sentence for sentence in split(prompt) if sentence in FACTS] == FACTS


def test_a_fact_is_at_every_depth_as_often():
    counts = [0] * 5
    for seed in range(1000):
        sentences = split(hide_facts(encode, 999, Random(seed), FACTS[:1], "What is A? Its", " 7"))
        counts[5 * sentences.index(FACTS[0]) // len(sentences)] += 1
    assert min(counts) > 150
    assert max(counts) < 250


def test_the_same_depths_at_every_length():
    """Relative to the text: the facts do not move as more is filled in around them."""
    near, far = (
        hide_facts(encode, n, Random(3), FACTS, "What is A? It is", " 7") for n in (1000, 50_000)
    )
    for fact in FACTS:
        places = [split(one).index(fact) / len(split(one)) for one in (near, far)]
        assert places[0] == pytest.approx(places[1], abs=0.1)


def test_what_does_not_fit_is_refused_with_the_number_that_would():
    words = "expected n_tokens of 42 or more for 3 sentences and the question, got 41"
    with pytest.raises(ValueError, match=words):
        hide_facts(encode, 41, Random(0), FACTS, "What is A? It is", " 7")
    assert "7" in hide_facts(encode, 42, Random(0), FACTS, "What is A? It is", " 7").answer
    with pytest.raises(ValueError, match="expected n_tokens to be positive, got 0"):
        hide_facts(encode, 0, Random(0), FACTS, "What is A? It is", " 7")


def test_a_tokenizer_that_joins_the_answer_with_the_text_is_refused():
    def pairs(text):
        return [hash(text[i : i + 2]) for i in range(0, len(text), 2)]

    with pytest.raises(ValueError, match="starts a new token at the space before the answer"):
        longest_prompt(pairs, 9, lambda n: ("ab" * n + "?", " b"), "it")


@pytest.mark.parametrize("wrong", [str, lambda text: {"input_ids": [1]}, lambda text: [1.5]])
def test_what_does_not_give_tokens_is_refused(wrong):
    with pytest.raises(TypeError, match="expected encode to give a list of integers, got"):
        hide_facts(wrong, 500, Random(0), FACTS, "What is A? It is", " 7")


def test_filling_that_takes_no_tokens_comes_to_an_end():
    assert longest_prompt(lambda text: [1], 5, lambda n: ("a" * n, " b"), "it").answer == "b"
