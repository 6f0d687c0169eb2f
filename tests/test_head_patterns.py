"""head_patterns: previous-token and induction scores, against loops over the tokens."""

import pytest
import references_circuits as reference
import torch
from hypothesis import given
from hypothesis import strategies as st

from rove_lab.circuits import induction_score, previous_token_score


def random_pattern(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(*shape, generator=generator, dtype=torch.float64)
    causal = torch.ones(shape[-2:], dtype=torch.bool).tril(shape[-1] - shape[-2])
    return logits.masked_fill(~causal, -torch.inf).softmax(-1)


repeating = st.lists(st.integers(0, 4), min_size=2, max_size=12).filter(
    lambda tokens: len(set(tokens)) < len(tokens)
)


@given(repeating, st.integers(0, 2**31))
def test_both_scores_are_counted_pair_by_pair(tokens, seed):
    pattern = random_pattern(2, 3, len(tokens), len(tokens), seed=seed)
    induction = induction_score(pattern, torch.tensor(tokens))
    previous = previous_token_score(pattern)
    assert induction.shape == previous.shape == (2, 3)
    for b in range(2):
        for h in range(3):
            rows = pattern[b, h].tolist()
            assert previous[b, h].item() == pytest.approx(reference.previous_token(rows))
            assert induction[b, h].item() == pytest.approx(reference.induction(rows, tokens))


def test_sequences_are_scored_each_by_its_own_tokens():
    tokens = torch.tensor([[1, 2, 3, 1, 2], [4, 4, 4, 0, 4]])
    pattern = random_pattern(2, 3, 5, 5)
    found = induction_score(pattern, tokens)
    for b in range(2):
        assert torch.equal(found[b], induction_score(pattern[b], tokens[b]))
        expected = reference.induction(pattern[b, 1].tolist(), tokens[b].tolist())
        assert found[b, 1].item() == pytest.approx(expected)


def test_the_latest_occurrence_counts():
    """a b a c a: the last a looks at c, which followed the second a, not at b."""
    pattern = torch.zeros(1, 5, 5)
    pattern[0, 2, 1] = 1.0  # the second a looks at b
    pattern[0, 4, 3] = 0.5
    pattern[0, 4, 1] = 0.5
    assert induction_score(pattern, torch.tensor([0, 1, 0, 2, 0])).tolist() == [0.75]


def test_in_a_run_what_followed_is_the_token_itself():
    assert induction_score(torch.eye(3)[None], torch.tensor([7, 7, 7])).tolist() == [1.0]


def test_a_perfect_induction_head_on_a_repeated_block():
    n = 6
    tokens = torch.arange(n).repeat(2)
    pattern = torch.zeros(1, 2 * n, 2 * n)
    pattern[0, torch.arange(n, 2 * n), torch.arange(1, n + 1)] = 1.0
    assert induction_score(pattern, tokens).tolist() == [1.0]
    assert previous_token_score(pattern).tolist() == [0.0]


def test_the_last_queries_of_a_decoding_step():
    tokens = [3, 1, 3, 2, 1, 3]
    pattern = random_pattern(2, 2, 6)
    found, previous = induction_score(pattern, torch.tensor(tokens)), previous_token_score(pattern)
    for h in range(2):
        rows = pattern[h].tolist()
        assert found[h].item() == pytest.approx(reference.induction(rows, tokens, 4))
        assert previous[h].item() == pytest.approx((rows[0][3] + rows[1][4]) / 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_means_are_taken_in_at_least_float32(dtype):
    n = 2048  # a sum of this many ones stalls in half precision
    pattern = torch.eye(n, dtype=dtype).roll(-1, 1)[None]
    score = previous_token_score(pattern)
    assert score.dtype == torch.promote_types(dtype, torch.float32)
    assert score.tolist() == [1.0]
    tokens = torch.zeros(n, dtype=torch.int32)
    score = induction_score(torch.eye(n, dtype=dtype)[None], tokens)
    assert score.dtype == torch.promote_types(dtype, torch.float32)
    assert score.tolist() == [1.0]


GOOD = random_pattern(2, 4, 4)


@pytest.mark.parametrize(
    "score", [previous_token_score, lambda p: induction_score(p, torch.ones(4).long())]
)
class TestBadPattern:
    def test_a_single_head(self, score):
        with pytest.raises(ValueError, match=r"expected pattern .*got \[4, 4\].*pattern\[None\]"):
            score(GOOD[0])

    def test_more_queries_than_keys(self, score):
        with pytest.raises(ValueError, match=r"at most as many queries as keys, got \[2, 4, 3\]"):
            score(GOOD[..., :3])

    @pytest.mark.parametrize("shape", [(2, 0, 4), (2, 0, 0)])
    def test_no_tokens(self, score, shape):
        with pytest.raises(ValueError, match="expected pattern"):
            score(torch.ones(shape))

    def test_no_numbers(self, score):
        with pytest.raises(TypeError, match="expected pattern to be a floating-point tensor"):
            score(GOOD > 0)


def test_the_first_token_alone_has_none_before_it():
    with pytest.raises(ValueError, match=r"pattern of two tokens or more, got \[2, 1, 1\]"):
        previous_token_score(GOOD[:, :1, :1])


@pytest.mark.parametrize(
    "tokens",
    [torch.ones(3).long(), torch.ones(2, 4).long(), torch.tensor(1), torch.ones(1, 2, 4).long()],
)
def test_tokens_that_are_not_the_keys(tokens):
    with pytest.raises(ValueError, match=r"expected tokens \[4\], one for each key"):
        induction_score(GOOD, tokens)


def test_tokens_that_are_no_ids():
    with pytest.raises(
        TypeError, match=r"expected tokens to be a tensor of integers, got torch\.fl"
    ):
        induction_score(GOOD, torch.ones(4))
    with pytest.raises(TypeError, match="expected tokens to be a tensor of integers, got list"):
        induction_score(GOOD, [1, 1, 1, 1])


@pytest.mark.parametrize(
    ("pattern", "tokens"),
    [
        (GOOD, [0, 1, 2, 3]),
        (GOOD[:, 3:], [0, 0, 1, 2]),  # the repeat is not among the queries
        (GOOD[None].expand(2, -1, -1, -1), [[0, 0, 1, 2], [0, 1, 2, 3]]),
    ],
)
def test_tokens_without_a_repeat(pattern, tokens):
    with pytest.raises(ValueError, match="expected a repeated token among the queries of every"):
        induction_score(pattern, torch.tensor(tokens))
