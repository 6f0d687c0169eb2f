"""One step of a task: a command, the words for it, and the surroundings that it runs in."""

import os
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
INSTALL = ("-m", "pip", "install", "--disable-pip-version-check")


@dataclass(frozen=True)
class Step:
    """One command and the words for it."""

    title: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class NotRun:
    """What this machine cannot do, and what it wants for it."""

    title: str
    wanting: str


Steps = list[Step | NotRun]


def venv_program(name: str, venv: Path = VENV) -> str:
    """The path of a program of `.venv`, or of another environment."""
    return str(venv / "bin" / name)


def python(*arguments: str, venv: Path = VENV) -> tuple[str, ...]:
    """A command for the Python of `.venv`, or of another environment."""
    return (venv_program("python", venv), *arguments)


def pytest(marks: str) -> tuple[str, ...]:
    """A pytest command over the tests with these marks, on two workers."""
    return python("-m", "pytest", "-q", "--numprocesses=2", "-m", marks)


def environment_made(venv: Path, interpreter: str = sys.executable) -> Steps:
    """Make a virtual environment, where there is none yet."""
    if all(Path(venv_program(name, venv)).exists() for name in ("python", "pip")):
        return []
    return [Step(f"make {venv.name}", (interpreter, "-m", "venv", str(venv)))]


def environment() -> dict[str, str]:
    """The surroundings of every step: this `.venv`, whatever else the reader's machine holds."""
    surroundings = dict(os.environ)
    # A kernel named python3 may exist elsewhere: the notebooks must run on .venv's.
    surroundings.pop("JUPYTER_PATH", None)
    surroundings["JUPYTER_PREFER_ENV_PATH"] = "1"
    # Packages of another environment must not leak in, nor an activated one be taken for ours.
    surroundings.pop("PYTHONPATH", None)
    surroundings.pop("PYTHONHOME", None)
    surroundings["PYTHONNOUSERSITE"] = "1"
    surroundings["PYTHONUNBUFFERED"] = "1"
    surroundings["PYTHONUTF8"] = "1"
    surroundings["PATH"] = f"{VENV / 'bin'}{os.pathsep}{surroundings.get('PATH', '')}"
    surroundings["VIRTUAL_ENV"] = str(VENV)
    return surroundings


def passes(step: Step, place: str) -> bool:
    """Run one step, its output on the reader's screen, and say how it ended and after how long."""
    print(f"\n{place} {step.title} ...", flush=True)
    started = time.monotonic()
    status = subprocess.run(step.command, cwd=ROOT, env=environment(), check=False).returncode
    took = time.monotonic() - started
    if status:
        words = shlex.join(step.command).replace(f"{ROOT}{os.sep}", "")
        print(
            f"{place} FAILED after {took:.1f} s, exit {status}. This step alone: {words}",
            flush=True,
        )
    else:
        print(f"{place} done in {took:.1f} s", flush=True)
    return status == 0
