"""Scores on sequences that no training draws."""

import torch

from rove_lab.evaluation import held_out_scores
from rove_lab.filters import Filter
from rove_lab.messenger import MessengerConfig
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
