"""The steps that need an environment beside `.venv`: the core suite elsewhere, and the audit."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from step import INSTALL, ROOT, NotRun, Step, Steps, environment_made, python, venv_program

# It asks the advisory database of the package index; in an environment of its own, for what it
# brings is no part of the book.
AUDITOR = "pip-audit==2.10.1"
# What the core suite needs beside torch; safetensors, for one example that loads a trained model.
CORE_NEEDS = ("hypothesis", "numpy", "pytest", "pytest-xdist", "safetensors")


def project() -> dict[str, object]:
    """What `pyproject.toml` says of the package."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return dict(settings["project"])


def pin(package: str) -> str:
    """The line that pins a package."""
    files = (ROOT / name for name in ("requirements.txt", "constraints.txt"))
    lines = "\n".join(file.read_text(encoding="utf-8") for file in files).splitlines()
    return next(line for line in lines if line.startswith(f"{package}=="))


def interpreter(version: str) -> str | None:
    """A Python of this version that really runs: the present one, or one on the PATH."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    find = ("sh", "tools/find_python.sh", f"python{version}")
    found = subprocess.run(find, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


def core(where: str, venv: Path, base: str, torch: str) -> Steps:
    """Run the core suite in an environment that has little more than this torch."""
    needs = [torch, *map(pin, CORE_NEEDS)]
    suite = ("tools/core_suite.py", "-q", "--numprocesses=2")
    return [
        *environment_made(venv, base),
        Step(
            f"install {torch} into {venv.name} (gigabytes, the first time)",
            python(*INSTALL, *needs, venv=venv),
        ),
        Step(f"the core suite on {where} (pytest)", python(*suite, venv=venv)),
    ]


def newest_python() -> Steps:
    """Run the core suite on the newest Python that the package is for."""
    before = re.search(r"<3\.(\d+)", str(project()["requires-python"]))
    assert before is not None
    version = f"3.{int(before[1]) - 1}"
    venv = ROOT / f".venv-{version}"
    made = not environment_made(venv)
    found = venv_program("python", venv) if made else interpreter(version)
    if found is None:
        name = f"python{version}"
        wanting = f"no {name} on the PATH runs; make test-newest PYTHON=/path/to/{name}"
        return [NotRun(f"the core suite on Python {version}", wanting)]
    return core(f"Python {version}", venv, found, pin("torch"))


def lowest_torch() -> Steps:
    """Run the core suite on the lowest torch that the package allows, on the oldest Python."""
    allowed = re.search(r"torch>=([\d.]+)", str(project()["dependencies"]))
    oldest = re.search(r">=(3\.\d+)", str(project()["requires-python"]))
    assert allowed is not None
    assert oldest is not None
    torch = f"torch=={allowed[1]}"
    found = interpreter(oldest[1]) or sys.executable  # any Python that set-up takes will do
    return core(f"{torch}, the lowest allowed", ROOT / ".venv-lowest", found, torch)


def audit() -> Steps:
    """Ask the advisory database about every version that is pinned."""
    venv = ROOT / ".venv-audit"
    pinned = ("requirements.txt", "constraints.txt", "benchmarks/requirements.txt")
    files = (word for name in pinned for word in ("--requirement", name))
    # strict: without it, a database out of reach passes for one that knows nothing bad
    how = ("--strict", "--no-deps", "--disable-pip", "--progress-spinner=off")
    return [
        *environment_made(venv),
        Step(f"install {AUDITOR}", python(*INSTALL, AUDITOR, venv=venv)),
        Step(
            "known vulnerabilities of what is pinned (pip-audit)",
            (venv_program("pip-audit", venv), *how, *files),
        ),
    ]
