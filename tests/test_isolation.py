"""A chapter alone: in an empty folder, its first cell run as it is, where Colab's packages are.

`make test` runs what changed since the commit before the last one, committed or not, and in any
case one chapter on each plotly; where git cannot say what changed (a shallow clone, an archive)
that is all. `make test-all` runs every chapter on both; `make test-notebooks`, every night, on the
plotly that is newest then, whatever its number.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from itertools import cycle
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = [path.name for path in sorted((ROOT / "book").glob("*.ipynb"))]
PLOTLY = {"plotly 5": "plotly>=5.24,<6", "plotly 7": "plotly>=7,<8"}
NEWEST = {"newest plotly": "plotly>=7"}

# What Colab brings, as far as a chapter may use it; plotly comes in two versions.
COLAB = [
    "accelerate",
    "ipykernel",
    "ipywidgets",
    "matplotlib",
    "nbformat",
    "numpy",
    "pip",
    "torch",
    "transformers",
]
NOT_IN_COLAB = ["rove_lab", "sphinx", "myst_nb", "pytest", "nbclient", "gguf", "transformer_lens"]

WIDGET = "application/vnd.jupyter.widget-view+json"
ASK = """
import json, sys
import plotly, rove_lab
print(json.dumps([rove_lab.__file__, plotly.__version__, plotly.__file__, sys.prefix]))
"""


# Which chapters run when


def changed_chapters(root: Path) -> list[str]:
    """The chapters that differ from the commit before the last one; none if that is unknown."""

    def git(*arguments: str) -> list[str]:
        command = ["git", "-C", str(root), *arguments, "--", "book"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    try:
        names = git("diff", "--name-only", "HEAD~1")
        names += git("ls-files", "--others", "--exclude-standard")
    except (OSError, subprocess.CalledProcessError):
        return []
    return sorted({Path(name).name for name in names} & {p.name for p in root.glob("book/*.ipynb")})


def chosen(changed: list[str], chapters: list[str]) -> set[tuple[str, str]]:
    """What `make test` runs: the first chapter and up to two changed ones on every plotly.

    More than two changed ones take turns, to stay within three minutes on two cores.
    """
    runs = {(chapters[0], plotly) for plotly in PLOTLY}
    if len(changed) <= 2:
        return runs | {(chapter, plotly) for chapter in changed for plotly in PLOTLY}
    return runs | set(zip(changed, cycle(PLOTLY), strict=False))


def test_a_few_changed_chapters_run_on_every_plotly_and_many_take_turns() -> None:
    chapters = [f"0{number}.ipynb" for number in range(6)]
    standing = {("00.ipynb", "plotly 5"), ("00.ipynb", "plotly 7")}
    assert chosen([], chapters) == standing
    two = {("04.ipynb", "plotly 5"), ("04.ipynb", "plotly 7")}
    assert chosen(["04.ipynb"], chapters) == standing | two
    all_changed = chosen(chapters, chapters)
    assert {chapter for chapter, _ in all_changed} == set(chapters)
    assert len(all_changed) == 7


def test_a_change_is_seen_committed_or_not_and_unknown_without_a_past(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *arguments], check=True)

    def commit() -> None:
        git("add", ".")
        git("commit", "--quiet", "-m", "a commit")

    (tmp_path / "book").mkdir()
    chapters = [tmp_path / "book" / f"{name}.ipynb" for name in "abcd"]
    for chapter in chapters[:3]:
        chapter.write_text("{}")
    assert changed_chapters(tmp_path) == []  # no checkout
    git("init", "--quiet")
    commit()
    assert changed_chapters(tmp_path) == []  # nothing before the first commit
    chapters[0].write_text('{"committed": 1}')
    commit()
    chapters[1].write_text('{"edited": 1}')
    chapters[3].write_text('{"new": 1}')
    chapters[2].unlink()
    (tmp_path / "book" / "intro.md").write_text("no chapter")
    assert changed_chapters(tmp_path) == ["a.ipynb", "b.ipynb", "d.ipynb"]


# Where they run


def with_what_they_need(names: list[str]) -> set[str]:
    """The installed distributions of these names and, in turn, of all that they require."""
    found: set[str] = set()
    waiting = [canonicalize_name(name) for name in names]
    while waiting:
        name = waiting.pop()
        try:
            required = distribution(name).requires or []
        except PackageNotFoundError:  # required on another system, or optional
            continue
        if name not in found:
            found.add(name)
            needed = [Requirement(line) for line in required]
            wanted = [one for one in needed if not one.marker or one.marker.evaluate({"extra": ""})]
            waiting += [canonicalize_name(one.name) for one in wanted]
    return found


@pytest.fixture(scope="session")
def colab_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Links to the packages of this environment that Colab has too, and to no other.

    A second torch would take minutes and gigabytes to install, and it would test PyTorch's wheel,
    not ours. Ours, plotly and whatever a first cell asks for are installed for good.
    """
    folder = tmp_path_factory.mktemp("colab")
    for name in with_what_they_need(COLAB) - {"plotly"}:
        files = distribution(name).files or []
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            link, target = folder / top, Path(str(distribution(name).locate_file(top)))
            if not link.exists() and not top.endswith(".pth"):
                link.symlink_to(target)
    return folder


@pytest.fixture(scope="session")
def install_plotly(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Have pip install a plotly, with what it needs, into a folder of its own: once for each."""

    @cache  # a fixture with parameters would install it again at every change of version
    def install(name: str) -> Path:
        folder = tmp_path_factory.mktemp("plotly")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
        wanted = (PLOTLY | NEWEST)[name]
        command = [*pip, "--target", str(folder), wanted]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.fail(
                f"pip could not install {wanted}: this test needs a package index within "
                f"reach, as `make test` needed one for its set-up. pip says:\n{done.stderr}"
            )
        return folder

    return install


@pytest.fixture
def plotly_packages(install_plotly: Callable[[str], Path], request: pytest.FixtureRequest) -> Path:
    """The folder of the plotly that a test is about."""
    return install_plotly(request.param)


@pytest.fixture
def kernel(
    tmp_path: Path,
    colab_packages: Path,
    plotly_packages: Path,
    wheel: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, str]:
    """A new environment with a kernel named `isolated`, and the surroundings to start it in."""
    fresh = tmp_path / "environment"
    venv.create(fresh, with_pip=False, symlinks=True)
    places = sysconfig.get_paths(vars={"base": str(fresh), "platbase": str(fresh)}, scheme="venv")
    # A .pth file shows it two more folders; what is installed into it comes before them.
    (Path(places["purelib"]) / "colab.pth").write_text(f"{plotly_packages}\n{colab_packages}\n")
    spec = {
        "argv": [
            str(fresh / "bin" / "python"),
            "-m",
            "ipykernel_launcher",
            "-f",
            "{connection_file}",
        ],
        "display_name": "isolated",
        "language": "python",
    }
    (tmp_path / "kernels" / "isolated").mkdir(parents=True)
    (tmp_path / "kernels" / "isolated" / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    ours = re.compile("PYTHON|VIRTUAL_ENV|ROVE_|PLOTLY_|IPYTHON|JUPYTER|HF_|OMP_|MPL|TOKENIZERS_")
    outside = {name: value for name, value in os.environ.items() if not ours.match(name)}
    home = tmp_path / "home"
    home.mkdir()
    return outside | {
        "PATH": f"{fresh / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "OMP_NUM_THREADS": "1",  # two of these run at a time, on two cores
        "PIP_CACHE_DIR": pip_cache(),
        "ROVE_LAB_SOURCE": str(wheel),
    }


def pip_cache() -> str:
    """Where pip keeps what it has downloaded before: not twice the same hundred megabytes."""
    ask = [sys.executable, "-m", "pip", "cache", "dir"]
    return subprocess.run(ask, capture_output=True, text=True, check=False).stdout.strip()


# The chapters


RUNS = chosen(changed_chapters(ROOT), CHAPTERS)


def marks(chapter: str, plotly: str) -> list[pytest.MarkDecorator]:
    """When a chapter runs on a plotly."""
    if plotly in NEWEST:
        return [pytest.mark.nightly]
    return [pytest.mark.isolation, *([] if (chapter, plotly) in RUNS else [pytest.mark.slow])]


@pytest.mark.parametrize(
    ("chapter", "plotly_packages"),
    [
        pytest.param(
            chapter, plotly, marks=marks(chapter, plotly), id=f"{Path(chapter).stem} on {plotly}"
        )
        for plotly in PLOTLY | NEWEST
        for chapter in CHAPTERS
    ],
    indirect=["plotly_packages"],
)
def test_a_chapter_runs_alone_in_an_empty_folder(
    chapter: str,
    plotly_packages: Path,
    kernel: dict[str, str],
    wheel: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    shutil.copy(ROOT / "book" / chapter, folder)
    notebook = nbformat.read(folder / chapter, as_version=4)
    question = nbformat.v4.new_code_cell(ASK)
    notebook.cells.append(question)
    client = NotebookClient(
        notebook,
        timeout=600,
        kernel_name="isolated",
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env=kernel)  # raises where a cell does

    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    printed = "".join(o.text for o in code[0].outputs if o.output_type == "stream")
    assert f"Installing {wheel} ..." in printed
    assert any(WIDGET in output.get("data", {}) for output in outputs), (
        "a live kernel, live sliders"
    )

    ours, plotly_version, plotly_file, prefix = json.loads(question.outputs[0].text)
    assert Path(prefix) == tmp_path / "environment"
    assert Path(ours).is_relative_to(prefix)
    assert Path(plotly_file).is_relative_to(plotly_packages)
    wanted = Requirement((PLOTLY | NEWEST)[request.node.callspec.params["plotly_packages"]])
    assert plotly_version in wanted.specifier
    assert [path.name for path in folder.iterdir()] == [chapter], "it wrote nothing beside itself"
    # Whatever IPython, pip and the like keep for themselves is hidden.
    assert [p.name for p in (tmp_path / "home").iterdir() if not p.name.startswith(".")] == []


@pytest.mark.isolation
@pytest.mark.parametrize("plotly_packages", ["plotly 7"], indirect=True)
def test_the_environment_has_what_colab_has_and_not_what_builds_the_book(
    kernel: dict[str, str], tmp_path: Path
) -> None:
    python = tmp_path / "environment" / "bin" / "python"
    names = [*COLAB, *NOT_IN_COLAB]
    code = f"from importlib.util import find_spec; print([n for n in {names} if find_spec(n)])"
    done = subprocess.run(
        [python, "-c", code], env=kernel, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout.replace("'", '"')) == COLAB
