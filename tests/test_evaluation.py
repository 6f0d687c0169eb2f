"""Scores on sequences that no training draws."""

import itertools

import pytest
import torch
from hf_models import small_config
from transformers import AutoModelForCausalLM

from rove_lab.evaluation import held_out_scores, loss_by_position
from rove_lab.filters import Filter
from rove_lab.messenger import MessengerConfig
from rove_lab.model import GPT, GPTConfig
from rove_lab.tasks import DistanceRecall


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


def test_what_has_no_loss_by_position_is_refused():
    model = GPT(GPTConfig(d_model=16, n_layers=1, n_heads=2))
    with pytest.raises(TypeError, match="expected tokens to be a tensor of integers, got list"):
        loss_by_position(model, [[1, 2]])
    with pytest.raises(TypeError, match=r"got torch\.float32"):
        loss_by_position(model, torch.ones(1, 2))
    for shape in ([3], [1, 1], [0, 4]):
        with pytest.raises(ValueError, match=r"expected tokens \[batch, pos\] with two positions"):
            loss_by_position(model, torch.zeros(shape, dtype=torch.long))
