"""What every test shares: a quiet, offline, repeatable process, and the browser.

Tests marked `book` or `browser` read the finished book in `_build/html`; `make test` runs them
after the build.
"""

import os
import shutil
from pathlib import Path

import pytest

# Read by libraries as they are imported, so set before anything else is.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import hypothesis
import torch

IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

# Two workers on two cores: more threads a worker only make them wait for one another.
torch.set_num_threads(1)

hypothesis.settings.register_profile("local", deadline=None, print_blob=True)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if IN_CI else "local")


@pytest.fixture(scope="session")
def chromium_path() -> Path:
    """The Chromium that browser tests drive: `$CHROMIUM`, or the first one on the PATH.

    Without one the tests are skipped, so that a newcomer needs no browser; continuous integration
    (CI=true) fails instead, so that they cannot go missing unseen.
    """
    chosen = os.environ.get("CHROMIUM")
    if chosen and not shutil.which(chosen):
        pytest.fail(f"CHROMIUM={chosen} is not a program that can be run; unset it or correct it")
    path = chosen or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        missing = (
            f"no browser: none of {', '.join(BROWSERS)} is on the PATH; "
            "install Chromium or set CHROMIUM=/path/to/it"
        )
        if IN_CI:
            pytest.fail(missing)
        pytest.skip(missing)
    return Path(shutil.which(path))
