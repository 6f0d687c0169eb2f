"""Run the core suite: the tests of the mathematics, which need torch and the test tools alone.

Usage: `python tools/core_suite.py [what pytest takes]`, by the Python of any environment that has
torch, numpy, pytest, pytest-xdist and hypothesis. Nothing lists the suite: it is the core modules
that `pyproject.toml` names, the small GPT on top of them, and every test file that imports nothing
else, by itself or by a file it shares.
"""

import ast
import platform
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# torch brings mpmath, by way of sympy.
PACKAGES = {"hypothesis", "mpmath", "numpy", "pytest", "torch"}
# The model that most of it is for, and the filters that its equations are tried on.
ABOVE = {"rove_lab.filters", "rove_lab.model", "rove_lab.transformer_block"}


def core_modules(root: Path = ROOT) -> set[str]:
    """The modules that may import torch alone, by import-linter's contract, and those above."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (optional,) = (one for one in contracts if one["id"] == "optional")
    return {*optional["source_modules"], *ABOVE}


def imported(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever the statement stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "rove_lab":
            yield from (f"rove_lab.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def is_core(path: Path, root: Path = ROOT) -> bool:
    """Whether a file of tests reaches torch, and beside the core only what it stands on."""
    reached = set(reaches(path, root))
    return "torch" in reached and reached <= PACKAGES | core_modules(root)


def reaches(path: Path, root: Path = ROOT) -> Iterator[str]:
    """The packages, and the modules of ours, that a file of tests needs; Python's own left out."""
    for name in imported(path):
        package = name.partition(".")[0]
        shared = root / "tests" / f"{name}.py"
        if shared.is_file():
            yield from reaches(shared, root)
        elif package != "rove_lab":
            yield from {package} - sys.stdlib_module_names
        elif (root / name.replace(".", "/")).with_suffix(".py").is_file():
            yield name


def suite(root: Path = ROOT) -> list[str]:
    """The files of the suite: modules, for their doctests, and tests."""
    modules = sorted(f"{name.replace('.', '/')}.py" for name in core_modules(root))
    tests = sorted(path for path in root.glob("tests/test_*.py") if is_core(path, root))
    return [*modules, *(path.relative_to(root).as_posix() for path in tests)]


if __name__ == "__main__":
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy"))
    print(f"Python {platform.python_version()}, {versions}", flush=True)
    command = [sys.executable, "-m", "pytest", *sys.argv[1:], *suite()]
    sys.exit(subprocess.run(command, cwd=ROOT, check=False).returncode)
