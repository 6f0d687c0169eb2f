"""pretrained and retrofit: a model saved with RoVE on has it on when it is loaded."""

import json

import pytest
import tokenizers
import torch
import transformers
from rove_models import ARCHITECTURES
from rove_situations import TOKENS
from test_retrofit import logits_of

from rove_lab.huggingface import enable_rove, load_causal_lm


def save(model, folder):
    model.save_pretrained(folder)
    words = {"<unk>": 0, "cat": 1}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    tokenizer.save_pretrained(folder)


def stored(folder):
    return json.loads((folder / "config.json").read_text())


def store(folder, **changes):
    config = stored(folder) | changes
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_is_on_again_with_the_same_logits(architecture, tmp_path, capsys):
    model = ARCHITECTURES[architecture](dtype=torch.float32)
    off = logits_of(model)
    with enable_rove(model, layers=[0, 2], planes=[0]):
        expected = logits_of(model)
        save(model, tmp_path)
    assert stored(tmp_path)["rove"] == {"layers": [0, 2], "planes": [0]}
    loaded, _ = load_causal_lm(tmp_path)
    assert "RoVE is on in it, as when it was saved: RoveHandle(layers=[0, 2], planes=[0])." in (
        capsys.readouterr().out
    )
    assert torch.equal(logits_of(loaded), expected)
    assert loaded.config.rove == {"layers": [0, 2], "planes": [0]}
    loaded.rove.remove()
    assert not hasattr(loaded.config, "rove")
    assert torch.equal(logits_of(loaded), off)


def test_a_model_fine_tuned_with_it_comes_back(tmp_path):
    model = ARCHITECTURES["llama"](dtype=torch.float32)
    enable_rove(model)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimiser.zero_grad()
        model(TOKENS, labels=TOKENS).loss.backward()
        optimiser.step()
    save(model, tmp_path)
    loaded, _ = load_causal_lm(tmp_path)
    assert torch.equal(logits_of(loaded), logits_of(model))
    loaded.save_pretrained(tmp_path / "again")
    assert stored(tmp_path / "again")["rove"] == {"layers": [0, 1, 2], "planes": None}


def test_a_model_saved_after_it_was_removed_has_none(tmp_path):
    model = ARCHITECTURES["llama"](dtype=torch.float32)
    enable_rove(model).remove()
    save(model, tmp_path)
    assert "rove" not in stored(tmp_path)
    loaded, _ = load_causal_lm(tmp_path)
    assert not hasattr(loaded, "rove")
    assert torch.equal(logits_of(loaded), logits_of(model))


@pytest.mark.parametrize(
    "field",
    [
        True,
        [],
        {},
        "all",
        {"layers": [0]},
        {"layers": None, "planes": None},
        {"layers": [0], "planes": None, "base": 500.0},
        {"layers": [3], "planes": None},
        {"layers": ["0"], "planes": None},
        {"layers": [0], "planes": [12]},
        {"layers": [0], "planes": 3},
        {"layers": [0], "planes": "all"},
    ],
)
def test_refuses_a_field_that_enable_rove_does_not_write(field, tmp_path):
    save(ARCHITECTURES["llama"](dtype=torch.float32), tmp_path)
    store(tmp_path, rove=field)
    with pytest.raises(ValueError, match=r"of RoVE what enable_rove writes, .* take rove out of"):
        load_causal_lm(tmp_path)


def test_refuses_the_field_in_a_model_that_cannot_have_it(tmp_path):
    config = transformers.GPT2Config(n_embd=16, n_head=2, n_layer=1, vocab_size=64)
    save(transformers.GPT2LMHeadModel(config), tmp_path)
    store(tmp_path, rove={"layers": [0], "planes": None})
    with pytest.raises(ValueError, match=r"of RoVE what enable_rove writes.*no rotary embedding"):
        load_causal_lm(tmp_path)
