"""What every test shares: a quiet, offline, repeatable process, and the browser.

Tests marked `book` or `browser` read the finished book in `_build/html`; `make test` runs them
after the build.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Read by libraries as they are imported, so set before anything else is.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import hypothesis
import torch
from built_book import browser, site, visit  # noqa: F401  (fixtures)

ROOT = Path(__file__).resolve().parent.parent
IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

# Two workers on two cores: more threads a worker only make them wait for one another.
torch.set_num_threads(1)

hypothesis.settings.register_profile("local", deadline=None, print_blob=True)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
# by hand: pytest tests/test_fuzz.py --hypothesis-profile=fuzz
hypothesis.settings.register_profile("fuzz", deadline=None, print_blob=True, max_examples=5000)
hypothesis.settings.load_profile("ci" if IN_CI else "local")


NO_BROWSER = (
    f"no browser: none of {', '.join(BROWSERS)} is on the PATH; "
    "install Chromium or set CHROMIUM=/path/to/it"
)


def find_browser() -> Path | None:
    """The Chromium that browser tests drive: `$CHROMIUM`, or the first one on the PATH.

    Raises:
        FileNotFoundError: If `$CHROMIUM` is set to something that cannot be run.
    """
    chosen = os.environ.get("CHROMIUM")
    if chosen and not shutil.which(chosen):
        raise FileNotFoundError(
            f"CHROMIUM={chosen} is not a program that can be run: unset it or correct it"
        )
    found = filter(None, map(shutil.which, [chosen] if chosen else BROWSERS))
    return next(map(Path, found), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a browser where there is none, so that a newcomer needs none.

    Continuous integration (CI=true) does not skip: there the fixture fails, so that these tests
    cannot go missing unseen. A mark, for pytest folds marked skips into one line.
    """
    wanting = [item for item in items if "chromium_path" in getattr(item, "fixturenames", ())]
    if wanting and not IN_CI and find_browser() is None:
        for item in wanting:
            item.add_marker(pytest.mark.skip(reason=NO_BROWSER))


@pytest.fixture(scope="session")
def chromium_path() -> Path:
    """The path of the browser to drive."""
    path = find_browser()
    if path is None:
        pytest.fail(NO_BROWSER)
    return path


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it is installed elsewhere, built from this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    build = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run([sys.executable, *build], check=True, capture_output=True)
    (built,) = folder.iterdir()
    return built
