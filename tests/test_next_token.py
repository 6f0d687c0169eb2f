"""What a text of any tokens asks: the loss, the scores, the reader who is blind to the past."""

import math

import pytest
import torch

from rove_lab.next_token import NextToken


class FourTokens(NextToken):
    """Tokens 0 to 3, of which the last never occurs."""

    d_in, n_ctx = 4, 3

    @property
    def counts(self):
        return torch.tensor([2, 1, 1, 0])

    def at_length(self, n_ctx):
        return self

    def batches(self, batch_size, seed):
        while True:
            tokens = torch.tensor([0, 1, 0, 2]).expand(batch_size, -1)
            yield tokens[:, :-1], tokens[:, 1:]


def test_a_blind_reader_pays_the_entropy_of_single_tokens():
    text = FourTokens()
    by_hand = -sum(share * math.log(share) for share in (0.5, 0.25, 0.25))
    assert text.blind == text.blind_loss == pytest.approx(by_hand)
    logits = torch.tensor([0.5, 0.25, 0.25, 0.0]).log().expand(4, 3, -1)
    assert text.loss(logits[:1], torch.tensor([[0, 1, 2]])).isfinite()
    asked = torch.tensor([[0, 0, 1], [2, 0, 0], [1, 2, 0], [0, 1, 2]])  # as often as they occur
    assert text.loss(logits, asked).item() == pytest.approx(by_hand)


def test_scores_are_those_of_the_definition_with_the_headline_last():
    text, generator = FourTokens(), torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, 4, generator=generator)
    targets = torch.tensor([[0, 1, 2], [3, 3, 0]])
    by_hand, right = 0.0, 0
    for row, wanted in zip(logits.double().flatten(0, 1), targets.flatten(), strict=True):
        by_hand -= math.log(row[wanted].exp() / row.exp().sum()) / 6
        right += int(row.argmax() == wanted)
    scores = text.scores(logits, targets)
    assert list(scores) == ["accuracy", "nats per token"]
    assert scores["accuracy"] == right / 6
    assert scores["nats per token"] == pytest.approx(by_hand, rel=1e-6)
    assert text.loss(logits.bfloat16(), targets).dtype == torch.float32
    assert text.d_out == 4


def test_what_is_not_asked_is_left_out():
    text, logits = FourTokens(), torch.eye(4)[None, :3]
    some = text.scores(logits, torch.tensor([[0, -100, 1]]))
    assert some == text.scores(logits[:, ::2], torch.tensor([[0, 1]]))
    assert some["accuracy"] == 0.5
