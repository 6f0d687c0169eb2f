"""``python -m rove_lab`` as it is typed."""

import json
import subprocess
import sys
import time
import tomllib
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def python(*arguments):
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True)


def test_help_comes_soon_and_lists_the_commands():
    started = time.perf_counter()
    python("-c", "import torch")
    torch_alone = time.perf_counter() - started
    started = time.perf_counter()
    done = python("-m", "rove_lab", "--help")
    assert time.perf_counter() - started < 3 + 2 * torch_alone
    assert (done.returncode, done.stderr) == (0, "")
    for command in ("train", "compare", "evaluate", "generate", "prepare-data"):
        assert f"• {command} " in done.stdout


def test_help_imports_neither_transformers_nor_datasets():
    code = """
import json, sys
from rove_lab.command_line import run
run(["--help"])
print(json.dumps(sorted({"transformers", "datasets", "tiktoken"} & set(sys.modules))))
"""
    assert json.loads(python("-c", code).stdout.splitlines()[-1]) == []


def test_a_terminal_or_file_without_our_signs_gets_others(monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")  # cp1252, on Windows, has no − either
    done = python("-m", "rove_lab", "train", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "?" in done.stdout


def test_an_unknown_command_is_a_line_and_status_2():
    done = python("-m", "rove_lab", "no-command")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "no-command; Available subcommands: train, compare" in done.stderr


def test_without_tyro_it_says_what_to_install():
    code = """
import sys
sys.modules["tyro"] = None  # an import of it fails
sys.argv = ["rove-lab"]
from rove_lab.__main__ import main
main()
"""
    done = python("-c", code)
    assert done.returncode == 1
    assert done.stderr.strip() == (
        'the command line is read by tyro, which is missing: pip install "rove-lab[training]"'
    )


def test_ctrl_c_while_it_is_imported_is_no_traceback():
    code = """
import sys
class Press:
    def find_spec(self, name, *_):
        if name == "tyro":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Press())
from rove_lab.__main__ import main
main()
"""
    done = python("-c", code)
    assert (done.returncode, done.stderr) == (130, "")


def test_the_entry_point_is_there():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, name = project["scripts"]["rove-lab"].split(":")
    assert callable(getattr(import_module(module), name))
