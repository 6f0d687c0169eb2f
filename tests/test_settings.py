"""Settings of a budget, changed by name as a command line gives them."""

from dataclasses import dataclass, field

import pytest

from rove_lab.settings import changed
from rove_lab.train_config import TrainConfig


@dataclass(frozen=True)
class Budget:
    training: TrainConfig = field(default_factory=TrainConfig)
    rows: dict = field(default_factory=lambda: {"1 head, MLP": {"d_mlp": 256}, 512: 3})
    planes: tuple[int, ...] | None = None
    lengths: tuple[int, ...] = (1, 2)
    words: str = "as it is"


def test_only_what_is_named_changes_and_the_budget_stays():
    budget = Budget()
    settings = ["training.steps=4", "rows.1 head, MLP.d_mlp=8", "rows.512=1", 'words="a=b"']
    new = changed(budget, settings)
    assert new.training == TrainConfig(steps=4)
    assert new.rows == {"1 head, MLP": {"d_mlp": 8}, 512: 1}
    assert new.words == "a=b"
    assert budget == Budget()
    assert changed(budget, []) is budget


def test_a_value_becomes_what_stood_there():
    new = changed(Budget(), ["lengths=[4]", "training.learning_rate=1", "planes=[0, 1]"])
    assert new.lengths == (4,)
    assert isinstance(new.training.learning_rate, float)
    assert new.planes == [0, 1]


@pytest.mark.parametrize("setting", ["training.steps", "training.steps=", "steps=four", ""])
def test_a_setting_without_a_value_is_refused(setting):
    with pytest.raises(ValueError, match=r"expected a setting and its value, such as training\."):
        changed(Budget(), [setting])


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("trainings.steps=4", "among training, rows, planes, lengths, words, got 'trainings'"),
        ("words.steps=4", "among none, got 'steps'"),
        ("rows.256=4", "among 1 head, MLP, 512, got '256'"),
    ],
)
def test_a_name_that_is_not_there_is_refused(setting, words):
    with pytest.raises(ValueError, match=f"expected a name {words} in "):
        changed(Budget(), [setting])


@pytest.mark.parametrize("setting", ["training=4", "rows=4", "words=4", "rows.512=true"])
def test_a_value_of_another_kind_is_refused(setting):
    with pytest.raises(ValueError, match="expected a value like "):
        changed(Budget(), [setting])


def test_a_dataclass_checks_what_it_is_given():
    with pytest.raises(ValueError, match="expected steps"):
        changed(Budget(), ["training.steps=0"])
