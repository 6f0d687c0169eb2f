"""Weights on disk, of any module; a module from a folder that describes it."""

import json
from dataclasses import asdict, dataclass
from unittest.mock import patch

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from rove_lab import checkpoints, weight_files
from rove_lab.weight_files import load_weights, read_model, write_tensors, write_weights


@dataclass(frozen=True)
class Line:
    """A config of a module that is none of the lab's."""

    d_in: int = 3
    d_out: int = 2

    def build(self):
        return nn.Sequential(nn.Linear(self.d_in, self.d_out), nn.Dropout())


def stored(config, folder, **more):
    module = config.build()
    write_weights(module, folder)
    (folder / "config.json").write_text(
        json.dumps({"kind": "rove-lab-gpt"} | asdict(config) | more)
    )
    return module


def test_weights_come_back(tmp_path):
    module, other = nn.Linear(3, 2).double(), nn.Linear(3, 2)
    write_weights(module, tmp_path)
    load_weights(other, tmp_path)
    assert torch.equal(other.weight, module.weight)
    assert other.bias.dtype == torch.float64
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_model_comes_back_as_its_config_says(tmp_path):
    module = stored(Line(d_out=5), tmp_path)
    state = torch.get_rng_state()
    again = read_model(tmp_path, Line)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(again[0].weight, module[0].weight)
    assert not again.training


def test_another_config_is_refused(tmp_path):
    stored(Line(), tmp_path, n_experts=8)
    with pytest.raises(ValueError, match=r"expected fields of Line in .*got \['n_experts'\]"):
        read_model(tmp_path, Line)
    stored(Line(), tmp_path, kind="llama")
    with pytest.raises(ValueError, match="expected the config of a rove-lab-gpt in"):
        read_model(tmp_path, Line)
    stored(Line(), tmp_path, d_out=4)
    with pytest.raises(ValueError, match=r"expected the weights of this Sequential in"):
        read_model(tmp_path, Line)


def test_a_refused_load_leaves_the_module_as_it_was(tmp_path):
    """In dtype and in numbers, also where some of the weights would fit."""
    write_weights(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)).double(), tmp_path)
    for module, words in [
        (nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 3)), r"fit: 1\.bias, 1\.weight$"),
        (nn.Sequential(nn.Linear(3, 2)), r"fit: 1\.bias, 1\.weight$"),
        (nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2), nn.Linear(2, 1)), r"fit: 2\.weight, 2\."),
    ]:
        before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        with pytest.raises(ValueError, match=words):
            load_weights(module, tmp_path)
        for name, tensor in module.state_dict().items():
            assert tensor.dtype == torch.float32
            assert torch.equal(tensor, before[name])


def test_tied_weights_come_back_tied_and_no_other_way(tmp_path):
    def pair(tied):
        module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
        if tied:
            module[1].weight = module[0].weight
        return module

    module, again = pair(True), pair(True)
    write_weights(module, tmp_path)
    load_weights(again, tmp_path)
    assert torch.equal(again[1].weight, module[0].weight)
    assert again[1].weight is again[0].weight
    with pytest.raises(ValueError, match=r"expected the weights of this Sequential .* 1\.weight"):
        load_weights(pair(False), tmp_path)
    write_weights(pair(False), tmp_path)
    with pytest.raises(ValueError, match="expected the weights of this Sequential"):
        load_weights(again, tmp_path)


def test_no_file_and_a_damaged_one_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"expected model.safetensors in .*, got none"):
        load_weights(nn.Linear(2, 2), tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not safetensors at all")
    with pytest.raises(ValueError, match=r"expected safetensors in .*got a damaged file"):
        load_weights(nn.Linear(2, 2), tmp_path)


def test_tensors_are_written_whatever_their_layout(tmp_path):
    tensor = torch.arange(6.0).view(2, 3).T
    write_tensors({"a": tensor}, tmp_path / "a")
    assert torch.equal(load_file(tmp_path / "a")["a"], tensor)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("save_model", lambda folder: write_weights(nn.Linear(2, 2), folder)),
        ("save_file", lambda folder: write_tensors({"a": torch.zeros(1)}, folder / "a")),
    ],
)
def test_a_full_disk_is_an_oserror(tmp_path, name, write):
    full = SafetensorError("Error while serializing: I/O error: No space left on device")
    with patch.object(weight_files, name, side_effect=full), pytest.raises(OSError, match="No spa"):
        write(tmp_path)


def test_it_is_where_it_was():
    assert checkpoints.load_weights is load_weights
