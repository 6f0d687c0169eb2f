"""huggingface: one place for what a user of Hugging Face models calls."""

import rove_lab
from rove_lab import huggingface, pretrained, retrofit, value_projections


def test_the_names_are_those_of_the_parts():
    parts = (pretrained, retrofit, value_projections)
    for name in huggingface.__all__:
        assert getattr(huggingface, name) in [getattr(part, name, None) for part in parts]
    assert set(pretrained.__all__) | set(retrofit.__all__) < set(huggingface.__all__)


def test_the_names_are_not_the_packages_own():
    assert not set(huggingface.__all__) & set(rove_lab.__all__)
