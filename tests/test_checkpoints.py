"""Models on disk: whole or not at all, and exactly what was saved."""

import json
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from safetensors import SafetensorError
from torch import nn

from rove_lab import weight_files
from rove_lab.checkpoints import load_model, load_weights, save_model, save_weights, write_folder
from rove_lab.model import GPT, GPTConfig

CONFIG = GPTConfig(
    d_vocab=11, n_ctx=8, d_model=16, n_heads=4, n_kv_heads=2, n_layers=2, value_planes=(0,)
)
TOKENS = torch.arange(10)[None]


@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        replace(CONFIG, tied=False, rms_norm=False),
        replace(CONFIG, rotate_values=False, value_planes=None, d_head=6, d_mlp=5, base=17.0),
    ],
    ids=["tied", "untied, LayerNorm", "RoPE, other sizes"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_model_comes_back_bit_for_bit(tmp_path, config, dtype):
    model = GPT(config).to(dtype).eval()
    state = torch.get_rng_state()
    again = load_model(save_model(model, tmp_path / "mine"))
    assert torch.equal(torch.get_rng_state(), state)
    assert again.config == config
    assert not again.training
    assert {p.dtype for p in again.parameters()} == {dtype}
    assert torch.equal(again(TOKENS), model(TOKENS))
    assert (again.unembed.weight is again.embed.weight) == config.tied
    assert sorted(p.name for p in (tmp_path / "mine").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]


def test_tied_weights_are_stored_once(tmp_path):
    tied, untied = (
        save_model(GPT(replace(CONFIG, tied=tied)), tmp_path / str(tied)) for tied in (True, False)
    )
    sizes = [(place / "model.safetensors").stat().st_size for place in (tied, untied)]
    assert sizes[1] - sizes[0] >= 4 * 11 * 16


def test_a_second_model_replaces_the_first(tmp_path):
    first, second = GPT(CONFIG), GPT(CONFIG).eval()
    save_model(first, tmp_path / "mine")
    save_model(second, tmp_path / "mine")
    assert torch.equal(load_model(tmp_path / "mine")(TOKENS), second(TOKENS))
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_neighbours_of_a_model_are_left_alone(tmp_path):
    for name in ("mine.old", "mine.partial"):
        save_model(GPT(CONFIG), tmp_path / name)
    for _ in range(2):
        save_model(GPT(CONFIG), tmp_path / "mine")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine", "mine.old", "mine.partial"]


def test_a_link_to_a_model_stays_one(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for _ in range(2):  # the first makes what the link points to
        assert save_model(GPT(CONFIG), tmp_path / "link") == tmp_path / "link"
        assert (tmp_path / "link").is_symlink()
    assert load_model(tmp_path / "elsewhere").config == CONFIG


def test_a_kill_between_the_two_renames_loses_nothing(tmp_path):
    model = GPT(CONFIG).eval()
    save_model(model, tmp_path / "mine").rename(tmp_path / ".mine.replaced")

    def write(place):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="expected room to write"):
        write_folder(tmp_path / "mine", write)
    assert torch.equal(load_model(tmp_path / "mine")(TOKENS), model(TOKENS))
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_any_module_has_weights_to_save(tmp_path):
    module, other = nn.Linear(3, 2), nn.Linear(3, 2)
    save_weights(module, tmp_path)
    load_weights(other, tmp_path)
    assert torch.equal(other.weight, module.weight)
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


# No disk


def test_a_full_disk_keeps_what_was_there(tmp_path):
    model = GPT(CONFIG).eval()
    save_model(model, tmp_path / "mine")
    full = SafetensorError("Error while serializing: I/O error: No space left on device")
    with (
        patch.object(weight_files, "save_model", side_effect=full),
        pytest.raises(OSError, match=r"expected room to write .*mine, got: .*No space left"),
    ):
        save_model(GPT(CONFIG), tmp_path / "mine")
    assert torch.equal(load_model(tmp_path / "mine")(TOKENS), model(TOKENS))
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_an_interrupted_write_keeps_what_was_there(tmp_path):
    model = GPT(CONFIG).eval()
    save_model(model, tmp_path / "mine")

    def write(place):
        (place / "half").write_text("x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_folder(tmp_path / "mine", write)
    assert torch.equal(load_model(tmp_path / "mine")(TOKENS), model(TOKENS))
    # What was left half-written does not stand in the way of the next one.
    save_model(GPT(CONFIG), tmp_path / "mine")
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


# Refusals


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(TypeError, match="expected a GPT, got Linear"):
        save_model(nn.Linear(2, 2), tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_missing_file_is_named(tmp_path, name):
    place = save_model(GPT(CONFIG), tmp_path / "mine")
    (place / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"expected {name} in "):
        load_model(place)


def test_another_config_than_the_weights_is_refused(tmp_path):
    place = save_model(GPT(CONFIG), tmp_path / "mine")
    stored = json.loads((place / "config.json").read_text())
    for change in ({"d_model": 32}, {"n_layers": 3}, {"n_layers": 1}, {"tied": False}):
        (place / "config.json").write_text(json.dumps(stored | change))
        with pytest.raises(ValueError, match="the config is not that of the checkpoint"):
            load_model(place)
    for text, words in [
        (json.dumps(stored | {"n_experts": 8}), r"got \['n_experts'\]: was it written by a newer"),
        (json.dumps({"model_type": "llama"}), "expected the config of a rove-lab-gpt"),
        ("{", "expected JSON in .*config.json, got a damaged file"),
        ("[]", "expected names and values in .*config.json, got list"),
        (json.dumps(stored | {"n_layers": 0}), "expected n_layers to be positive"),
    ]:
        (place / "config.json").write_text(text)
        with pytest.raises(ValueError, match=words):
            load_model(place)


def test_a_damaged_file_is_named(tmp_path):
    place = save_model(GPT(CONFIG), tmp_path / "mine")
    file = place / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"expected safetensors in .*got a damaged file"):
        load_model(place)
    file.write_bytes(b"not safetensors at all")
    with pytest.raises(ValueError, match="damaged file"):
        load_model(place)


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "mine").write_text("a file of the user's")
    with pytest.raises(OSError, match="mine"):
        save_model(GPT(CONFIG), tmp_path / "mine" / "deeper")
    assert (tmp_path / "mine").read_text() == "a file of the user's"
    with pytest.raises(ValueError, match=r"expected a new folder or a model's, got .*'mine' in it"):
        save_model(GPT(CONFIG), tmp_path)


def test_what_another_program_wrote_is_not_replaced(tmp_path):
    file, folder = tmp_path / "weights.bin", tmp_path / "bert"
    file.write_text("mine")
    with pytest.raises(ValueError, match=r"expected a folder for the model, got the file .*bin"):
        save_model(GPT(CONFIG), file)
    assert file.read_text() == "mine"
    folder.mkdir()
    save_weights(nn.Linear(2, 2), folder)  # without a config, then with another program's
    for config in (None, '{"model_type": "bert"}', "{"):
        if config is not None:
            (folder / "config.json").write_text(config)
        with pytest.raises(ValueError, match=r"expected a new folder or a model's, got .*bert"):
            save_model(GPT(CONFIG), folder)
        load_weights(nn.Linear(2, 2), folder)
