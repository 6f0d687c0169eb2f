"""Curricula: each stage's own batches in turn, then the goal's."""

from itertools import islice

import pytest
import torch

from rove_lab.associative_recall import AssociativeRecall
from rove_lab.curriculum import Curriculum
from rove_lab.evaluation import held_out_scores
from rove_lab.filters import Filter
from rove_lab.induction import Induction
from rove_lab.model import GPT, GPTConfig
from rove_lab.needles import Needles
from rove_lab.training import TrainConfig, train

SHORT, GOAL = Induction(n_ctx=32), Needles(n_values=2, n_keys=4)
CURRICULUM = Curriculum(stages=((SHORT, 3), (GOAL.at_length(32), 2)), goal=GOAL)


def test_stages_come_in_turn_and_the_goal_stays():
    drawn = islice(CURRICULUM.batches(4, seed=7), 9)
    for task, n in ((SHORT, 3), (GOAL.at_length(32), 2), (GOAL, 4)):
        for batch in islice(task.batches(4, seed=7), n):
            assert all(map(torch.equal, batch, next(drawn)))
    assert next(drawn, None) is None


def test_it_can_be_taken_up_again_in_the_middle_of_a_stage():
    whole = list(islice(CURRICULUM.batches(4, seed=7), 8))
    for start in range(8):
        again = next(islice(CURRICULUM.batches(4, seed=7), start, None))
        assert all(map(torch.equal, whole[start], again))


def test_a_model_is_scored_on_the_goal_not_on_the_first_stage():
    model = GPT(GPTConfig(d_vocab=GOAL.d_in, d_model=8, n_heads=2, n_layers=1)).eval()
    of_goal = held_out_scores(model, GOAL, 32)
    assert held_out_scores(model, CURRICULUM, 32) == of_goal
    assert held_out_scores(model, SHORT, 32) != of_goal


def test_it_is_its_goal_in_all_else():
    for name in ("d_in", "d_out", "n_ctx", "blind", "blind_loss"):
        assert getattr(CURRICULUM, name) == getattr(GOAL, name)
    assert CURRICULUM.at_length(512) == GOAL.at_length(512)
    targets = next(GOAL.batches(4, seed=0))[1]
    output = torch.randn(*targets.shape, GOAL.d_out, generator=torch.Generator().manual_seed(0))
    assert CURRICULUM.scores(output, targets) == GOAL.scores(output, targets)
    assert CURRICULUM.loss(output, targets) == GOAL.loss(output, targets)


def test_stages_may_come_as_a_list_and_are_kept_as_they_were():
    stages = [(SHORT, 3)]
    curriculum = Curriculum(stages=stages, goal=GOAL)
    stages.clear()
    assert curriculum.stages == ((SHORT, 3),)
    assert hash(curriculum) == hash(Curriculum(stages=((SHORT, 3),), goal=GOAL))


@pytest.mark.parametrize(
    ("stages", "error", "words"),
    [
        ((), ValueError, "expected one stage or more before the goal, got none"),
        ((SHORT,), TypeError, "expected stages as pairs .task, batches., got Induction"),
        (((SHORT, 0),), ValueError, "expected batches of a stage to be positive, got 0"),
        (((SHORT, 0.5),), TypeError, "expected batches of a stage to be an integer, got 0.5"),
        (((Filter.edge(), 5),), TypeError, "expected tasks with token answers, got Filter"),
        (
            ((Induction(n_symbols=8), 5),),
            ValueError,
            "expected one alphabet, got n_symbols=8 in Induction and 16 in the goal",
        ),
    ],
)
def test_bad_stages_are_refused(stages, error, words):
    with pytest.raises(error, match=words):
        Curriculum(stages=stages, goal=GOAL)


def test_a_goal_of_another_kind_is_refused():
    with pytest.raises(TypeError, match="expected tasks with token answers, got Filter"):
        Curriculum(stages=((SHORT, 3),), goal=Filter.edge())


@pytest.mark.slow
def test_associative_recall_is_learned_soon_after_induction():
    """A GPT of two layers that answers one in five after 1000 steps without it."""
    goal = AssociativeRecall()
    task = Curriculum(stages=((Induction(), 600),), goal=goal)
    config = GPTConfig(d_vocab=task.d_in, n_ctx=64, d_model=64, n_layers=2, n_heads=2)
    how = TrainConfig(steps=700, batch_size=32, learning_rate=3e-3)
    run = train(config, how, task, progress=False)
    assert held_out_scores(run.model, goal)["accuracy"] > 0.9
