"""lens_arguments: what counts as a bridge and as its tokens."""

import pytest
import torch
from rove_models import ARCHITECTURES

from rove_lab.lens import bridge_from_huggingface
from rove_lab.lens_arguments import check_bridge, check_tokens


@pytest.fixture(scope="module")
def llama():
    return bridge_from_huggingface(ARCHITECTURES["llama"]())


def test_tokens_become_a_batch_of_int64(llama):
    assert check_bridge(llama) is llama
    for tokens in (torch.tensor([1, 2], dtype=torch.uint8), torch.tensor([[1, 2]])):
        checked = check_tokens(llama, tokens)
        assert checked.dtype == torch.int64
        assert checked.tolist() == [[1, 2]]


def test_the_name_of_the_argument_is_in_the_words(llama):
    with pytest.raises(ValueError, match="expected other_tokens from 0 to 63, got -1 to 3"):
        check_tokens(llama, torch.tensor([-1, 3]), "other_tokens")
    with pytest.raises(
        TypeError, match="expected other_tokens to be a tensor of integers, got list"
    ):
        check_tokens(llama, [1, 3], "other_tokens")
    with pytest.raises(
        TypeError, match="expected a TransformerBridge, got NoneType: make one with"
    ):
        check_bridge(None)
