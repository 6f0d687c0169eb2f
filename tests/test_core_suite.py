"""The core suite: what is in it by rule, and that it runs where little more than torch is."""

import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import core_suite  # noqa: E402  (only now on the path)

SUITE = core_suite.suite()
# Its tests read transformers' own configs, and nothing else is worth reading; its examples run.
WITHOUT_TESTS = {"hf_config"}


def test_every_core_module_is_in_it_with_its_examples_and_its_tests() -> None:
    names = {module.removeprefix("rove_lab.") for module in core_suite.core_modules()}
    assert {"rotation", "rotary", "masking", "attention", "frames", "model"} <= names
    assert {f"rove_lab/{name}.py" for name in names} <= {*SUITE}
    wanting = {name for name in names if f"tests/test_{name}.py" not in SUITE}
    assert wanting == WITHOUT_TESTS


def test_what_the_whole_core_has_in_common_is_in_it() -> None:
    shared = ("compile", "equations", "fuzz", "identities", "kv_cache", "rotation_autograd")
    assert {f"tests/test_{name}.py" for name in shared} <= {*SUITE}
    assert all((ROOT / path).is_file() for path in SUITE)


def test_what_needs_more_or_is_no_mathematics_is_not() -> None:
    others = ("against_huggingface", "figures", "training", "browser", "tools", "glossary")
    assert not {f"tests/test_{name}.py" for name in others} & {*SUITE}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with one core module, `turn`, another module, and a file that tests share."""
    (tmp_path / "pyproject.toml").write_text(
        '[[tool.importlinter.contracts]]\nid = "optional"\nsource_modules = ["rove_lab.turn"]\n'
    )
    for folder, name in (("rove_lab", "turn"), ("rove_lab", "plot"), ("tests", "shared")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f"{name}.py").write_text("import torch\n")
    return tmp_path


@pytest.mark.parametrize(
    ("source", "core"),
    [
        ("import math\nimport torch.nn.functional as F\n", True),
        ("from rove_lab import turn, Name\nimport shared\n", True),
        ("import json\nimport rove_lab.turn\n", False),  # no mathematics without torch
        ("import torch\nfrom rove_lab import plot\n", False),
        ("import torch\nfrom rove_lab.plot import draw\n", False),
        ("import torch\n\n\ndef test():\n    import transformers\n", False),
        ("import torch\nimport test_other\n", False),
    ],
)
def test_a_file_is_core_if_all_that_it_reaches_is(project: Path, source: str, core: bool) -> None:
    (project / "tests" / "test_other.py").write_text("from transformers import x\n")
    file = project / "tests" / "test_it.py"
    file.write_text(textwrap.dedent(source))
    assert core_suite.is_core(file, project) == core
    assert ("tests/test_it.py" in core_suite.suite(project)) == core
