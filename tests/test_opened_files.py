"""No file that is opened runs code: no pickle is loaded, no code that comes with a model is run.

What the loaders do with such files is tested beside them (`test_pretrained.py`); here the sources
of everything but the tests are read, notebooks and the extension of the book included.
"""

import ast
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("rove_lab", "experiments", "benchmarks", "tools", "book")
PICKLERS = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
# Functions that unpickle, or run code that they are given or fetch.
LOADERS = {"read_pickle", "load_state", "unsafe_load", "full_load"}
RUNNERS = {"eval", "exec", "__import__"}
# Modules whose loaders are known by their whole name, which a shorter one would hide.
BY_NAME = {"torch", "torch.hub", "torch.serialization", "yaml", "builtins"}
MUST_BE = {"weights_only": True, "trust_remote_code": False, "allow_pickle": False}


def guilty(tree):
    """What in a source could run code from a file, as line and words."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.name for alias in node.names} | {getattr(node, "module", None) or ""}
            found += [(node.lineno, name) for name in names if name.partition(".")[0] in PICKLERS]
            found += [(node.lineno, words) for words in renamed(node)]
        elif isinstance(node, ast.Call):
            found += [(node.lineno, words) for words in called(node)]
            found += refused((keyword.arg, keyword.value) for keyword in node.keywords)
        elif isinstance(node, ast.Dict):
            found += refused(
                (getattr(k, "value", None), v) for k, v in zip(node.keys, node.values, strict=True)
            )
    return found


def renamed(node):
    """Imports that would give a loader or its module another name."""
    if isinstance(node, ast.Import):
        yield from (a.name for a in node.names if a.asname and a.name in {"torch", "yaml"})
    elif node.module in BY_NAME:
        hidden = RUNNERS | LOADERS | {"load"}
        yield from (f"{node.module}.{a.name}" for a in node.names if a.name in hidden)


def called(node):
    """The name of a call that may not be, or is not as it must be."""
    words = ast.unparse(node.func)
    name = words.rpartition(".")[-1]
    given = {keyword.arg for keyword in node.keywords}
    if words in RUNNERS or name in LOADERS or words in ("torch.hub.load", "hub.load"):
        yield words
    if words in ("torch.load", "torch.serialization.load") and "weights_only" not in given:
        yield f"{words} without weights_only"
    if words == "yaml.load":
        yield words


def refused(pairs):
    """Arguments that must be one constant and are something else."""
    for name, value in pairs:
        is_right = isinstance(value, ast.Constant) and value.value is MUST_BE.get(name)
        if name in MUST_BE and not is_right:
            yield value.lineno, f"{name}={ast.unparse(value)}"


def sources():
    """Every program and every notebook's cells, as path and text."""
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*")):
        if path.suffix == ".py":
            yield path, path.read_text(encoding="utf-8")
        elif path.suffix == ".ipynb" and ".ipynb_checkpoints" not in path.parts:
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
            code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
            lines = "\n".join(code).splitlines()
            spaces = [line[: len(line) - len(line.lstrip())] for line in lines]
            magic = [line.lstrip()[:1] in {"%", "!"} for line in lines]
            kept = zip(lines, spaces, magic, strict=True)
            yield path, "\n".join(space + "pass" if it else line for line, space, it in kept)


def test_nothing_loads_a_pickle_or_runs_code_that_comes_with_a_file():
    read = dict(sources())
    for folder in FOLDERS:
        assert any(path.is_relative_to(ROOT / folder) for path in read)
    assert sum(path.suffix == ".ipynb" for path in read) > 5
    found = {path.relative_to(ROOT): guilty(ast.parse(text)) for path, text in read.items()}
    assert {path: what for path, what in found.items() if what} == {}


def test_models_are_loaded_without_remote_code():
    """The one place that asks transformers for a model says so itself."""
    text = (ROOT / "rove_lab" / "pretrained.py").read_text(encoding="utf-8")
    assert '"trust_remote_code": False' in text
    assert '"use_safetensors": True' in text


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import joblib, os",
        "import dill.source",
        "from torch import load as l",
        "from torch.hub import load",
        "from builtins import eval as value_of",
        "import torch as t; x = t.load(path)",
        "x = torch.load(path)",
        "x = torch.serialization.load(path)",
        "x = torch.load(path, weights_only=False)",
        "x = torch.load(path, weights_only=flag)",
        "m = AutoModel.from_pretrained(name, trust_remote_code=True)",
        "how = {'trust_remote_code': True}",
        "d = load_dataset(name, trust_remote_code=remote)",
        "a = np.load(path, allow_pickle=True)",
        "f = pandas.read_pickle(path)",
        "accelerator.load_state(folder)",
        "m = torch.hub.load(repository, name)",
        "y = yaml.load(text)",
        "if text:\n    exec(text)",
        "value = eval(text)",
    ],
)
def test_what_must_not_be_would_be_seen(source):
    assert guilty(ast.parse(source))


@pytest.mark.parametrize(
    "source",
    [
        "x = torch.load(path, weights_only=True)",
        "m = AutoModel.from_pretrained(name, trust_remote_code=False, **how)",
        "model.eval(); how = {**safe, 'weights_only': True}",
        "a = numpy.load(path)",
        "values = json.load(file); y = yaml.safe_load(text)",
    ],
)
def test_what_may_be_is_let_pass(source):
    assert guilty(ast.parse(source)) == []
