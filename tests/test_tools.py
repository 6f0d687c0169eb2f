"""The tools behind `make`: the project's address, the steps, the interpreter they start from."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


sys.path.insert(0, str(ROOT / "tools"))  # they import one another


def tool(name: str) -> ModuleType:
    spec = spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


repository = tool("repository")
step = tool("step")
others = tool("other_environments")
steps = tool("steps")

OTHER = "https://github.com/some-one/their.lab"
MARKS = ("slow", "isolation", "nightly", "book", "browser")


# The address


def statements(root: Path) -> dict[str, set[str]]:
    """The addresses that each file states, by the field that states them."""
    fields = {
        "pyproject.toml": r'^Repository = "(.*)"$',
        "_config.yml": r"^  url: (\S+)$",
        "CITATION.cff": r'^repository-code: "(.*)"$',
        "README.md": r"git\+(https://github\.com/[\w.-]+/[\w.-]+)`",
    }
    found = {
        name: set(re.findall(field, (root / name).read_text(encoding="utf-8"), re.MULTILINE))
        for name, field in fields.items()
    }
    for path in root.glob("book/*.ipynb"):
        address = re.compile(r"https://github\.com/[\w.-]+/[\w-]+(?:\.(?!git\b)[\w-]+)*")
        first = path.read_text(encoding="utf-8").split('"cell_type": "code"')[1]
        found[path.name] = set(address.findall(first))
    return found


def test_every_file_states_the_same_address() -> None:
    address = repository.current()
    assert statements(ROOT) == {name: {address} for name in statements(ROOT)}


def test_the_address_stands_in_no_file_that_would_be_missed() -> None:
    holds = subprocess.run(
        ["git", "grep", "-lIF", "--untracked", repository.owner_and_name(repository.current())],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    within_reach = {
        path.relative_to(ROOT) for place in repository.PLACES for path in ROOT.glob(place)
    }
    assert set(map(Path, holds.stdout.split())) <= within_reach


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the files that may hold the address."""
    for place in repository.PLACES:
        for path in ROOT.glob(place):
            target = tmp_path / path.relative_to(ROOT)
            target.parent.mkdir(exist_ok=True)
            shutil.copy(path, target)
    return tmp_path


def contents(root: Path) -> dict[Path, bytes]:
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_new_address_stands_everywhere_and_the_way_back_restores_every_byte(copy: Path) -> None:
    before, old = contents(copy), repository.current(copy)
    changed = repository.rewrite(OTHER, copy)
    assert {"pyproject.toml", "_config.yml", "CITATION.cff", "README.md"} <= {
        p.name for p in changed
    }
    assert statements(copy) == {name: {OTHER} for name in statements(copy)}
    assert not any(
        repository.owner_and_name(old).encode() in data for data in contents(copy).values()
    )
    repository.rewrite(old, copy)
    assert contents(copy) == before


def test_only_the_address_itself_is_rewritten(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project.urls]\nRepository = "https://github.com/a/b"\n'
    )
    ours = (
        "https://github.com/a/b, git+https://github.com/a/b.git https://github.com/a/b/issues "
        "github/a/b/blob (https://github.com/a/b)."
    )
    others = (
        "https://github.com/a/b-two https://github.com/a/b.two https://notgithub.com/a/b x/a/b\r\n"
    )
    (tmp_path / "README.md").write_bytes((ours + others).encode())
    repository.rewrite("https://github.com/c/d", tmp_path)
    assert (tmp_path / "README.md").read_bytes().decode() == ours.replace("a/b", "c/d") + others


@pytest.mark.parametrize(
    "url",
    [
        "",
        "github.com/a/b",
        "http://github.com/a/b",
        "https://github.com/a",
        "https://github.com/a/b/",
        "https://github.com/a/b.git",
        "https://github.com/a/b/tree/main",
        "https://github.com/-a/b",
        "https://github.com/a/..",
        "https://github.com/a/b c",
        "https://gitlab.com/a/b",
        'https://github.com/a/b"\nx = "',
    ],
)
def test_a_malformed_address_is_refused_and_changes_nothing(url: str, copy: Path) -> None:
    before = contents(copy)
    with pytest.raises(
        ValueError, match=r"expected https://github\.com/owner/name, got .*without a closing slash"
    ):
        repository.rewrite(url, copy)
    assert contents(copy) == before


# The steps


def test_unit_tests_come_before_the_book_and_its_pages_after() -> None:
    commands = [" ".join(step.command) for step in steps.check()]
    unit = next(i for i, words in enumerate(commands) if "not book and not browser" in words)
    alone = next(i for i, words in enumerate(commands) if "-m isolation" in words)
    built = next(i for i, words in enumerate(commands) if "jupyter-book" in words)
    pages = next(i for i, words in enumerate(commands) if "(book or browser)" in words)
    assert unit < alone < built < pages
    assert commands[built].endswith("-W --keep-going")


def test_every_test_runs_in_one_stage_and_slow_ones_in_test_all() -> None:
    def selects(words: str, marks: set[str]) -> bool:
        return bool(eval(words, {name: name in marks for name in MARKS}))

    def stages_of(task: list) -> list[str]:
        commands = [one.command for one in task if isinstance(one, step.Step)]
        return [command[-1] for command in commands if "pytest" in command]

    for task, count in ((steps.check(), 0), (steps.check_all(), 1)):
        stages = stages_of(task)
        for mark in (set(), {"isolation"}, {"book"}, {"browser"}, {"book", "browser"}):
            assert sum(selects(stage, mark) for stage in stages) == 1
            assert sum(selects(stage, mark | {"slow"}) for stage in stages) == count
        assert not any(selects(stage, {"nightly"}) for stage in stages)
    assert [selects(stage, {"nightly"}) for stage in stages_of(steps.notebooks())] == [True]


@pytest.mark.parametrize("task", ["bench", "numerics", "gpu"])
def test_what_is_measured_beside_goes_into_a_folder_that_only_benchmarks_read(task: str) -> None:
    install, measure = (step.command for step in steps.TASKS[task]())
    assert {"--no-deps", "--target", ".bench"} <= {*install}
    assert (ROOT / measure[-1]).is_file()
    assert "/.bench/" in (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    needed = (ROOT / "benchmarks" / "requirements.txt").read_text(encoding="utf-8")
    ours = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    for line in needed.splitlines():
        assert line.startswith("#") or (line not in ours and re.fullmatch(r"[\w-]+==[\d.]+", line))


def test_the_core_runs_on_the_newest_python_and_on_the_lowest_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = others.pin("torch")
    for name in ("pyproject.toml", "requirements.txt", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    monkeypatch.setattr(others, "ROOT", tmp_path)
    monkeypatch.setattr(others, "interpreter", lambda version: f"a-{version}")
    for task, venv, made_by, torch in (
        (others.newest_python(), ".venv-3.13", "a-3.13", pinned),
        (others.lowest_torch(), ".venv-lowest", "a-3.11", "torch==2.6"),
    ):
        made, install, suite = (one.command for one in task)
        assert made == (made_by, "-m", "venv", str(tmp_path / venv))
        assert install[0] == suite[0] == str(tmp_path / venv / "bin" / "python")
        assert suite[1] == "tools/core_suite.py"
        assert torch in install
        assert not {"transformers", "plotly"} & {word.partition("==")[0] for word in install}
        assert {made, install, suite} <= {one.command for one in steps.check_all()}


def test_a_machine_without_a_python_is_told_so_and_ci_does_not_let_it_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(others, "interpreter", lambda version: None)
    monkeypatch.setattr(others, "ROOT", tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    fine = steps.Step("fine", (sys.executable, "-c", "print('it ran')"))
    monkeypatch.setitem(steps.TASKS, "test", lambda: [*others.newest_python(), fine])
    monkeypatch.setattr(steps, "IN_CI", False)
    assert steps.run("test")
    first, *_, last = capfd.readouterr().out.strip().splitlines()
    why = "no python3.13 on the PATH runs; make test-newest PYTHON=/path/to/python3.13"
    assert first == f"test [1/2] the core suite on Python 3.13: NOT RUN, {why}"
    assert last.startswith("test: the rest done in ")
    assert last.endswith(f"; NOT RUN: the core suite on Python 3.13, {why}")
    monkeypatch.setattr(steps, "IN_CI", True)
    assert not steps.run("test")
    assert "it ran" not in capfd.readouterr().out


def test_an_interpreter_is_the_present_one_or_one_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert others.interpreter(present) == sys.executable
    executable(tmp_path / "python9.9", f'exec {sys.executable} "$@"')
    executable(tmp_path / "python9.8", "exit 127")  # a shim
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert others.interpreter("9.9") == "python9.9"
    assert others.interpreter("9.8") is None


def test_the_audit_covers_every_pin_and_fails_where_it_learns_nothing() -> None:
    command = steps.audit()[-1].command
    assert "--strict" in command
    audited = {word for word in command if word.endswith(".txt")}
    assert audited == {"requirements.txt", "constraints.txt", "benchmarks/requirements.txt"}
    assert all((ROOT / name).is_file() for name in audited)


def test_notebooks_run_on_the_kernel_of_this_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = tmp_path / "kernels" / "python3" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    kernel.write_text('{"argv": ["other"], "display_name": "Other", "language": "python"}')
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    code = (
        "from jupyter_client.kernelspec import KernelSpecManager as M;"
        "print(M().get_kernel_spec('python3').resource_dir)"
    )
    surroundings = step.environment()
    done = subprocess.run(
        [sys.executable, "-c", code], env=surroundings, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip().startswith(sys.prefix)


def test_a_failing_step_ends_the_task_and_is_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fine = steps.Step("fine", (sys.executable, "-c", "print('it ran')"))
    broken = steps.Step("broken", (sys.executable, "-c", "raise SystemExit(3)"))
    monkeypatch.setitem(steps.TASKS, "test", lambda: [fine, broken, fine])
    assert not steps.run("test")
    printed = capfd.readouterr().out
    assert printed.count("it ran") == 1
    assert "test [1/3] fine ..." in printed
    assert re.search(r"test \[2/3\] FAILED after \d+\.\d s, exit 3", printed)
    assert "[3/3]" not in printed


def test_a_book_that_failed_is_checked_whole_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = tmp_path / ".doctrees"
    memory.mkdir()
    broken = steps.Step("book", (sys.executable, "-c", "raise SystemExit(1)"))
    monkeypatch.setattr(steps, "DOCTREES", memory)
    monkeypatch.setattr(steps, "book", lambda: [broken])
    monkeypatch.setitem(steps.TASKS, "book", steps.book)
    assert not steps.run("book")
    assert not memory.exists()


# The interpreter


def find_python(*arguments: str, path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", str(ROOT / "tools" / "find_python.sh"), *arguments],
        env={"PATH": path},
        capture_output=True,
        text=True,
    )


def executable(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_the_first_python_that_really_runs_is_taken(tmp_path: Path) -> None:
    executable(tmp_path / "python3.13", "echo 'not installed' >&2; exit 127")  # a shim
    executable(tmp_path / "python3.12", "exit 1")  # no venv, say
    executable(tmp_path / "python3", f'exec {sys.executable} "$@"')
    assert find_python(path=str(tmp_path)).stdout.strip() == "python3"
    assert find_python(str(tmp_path / "python3"), path="").stdout.strip() == f"{tmp_path}/python3"


def test_a_machine_without_a_fit_python_is_told_what_to_do(tmp_path: Path) -> None:
    executable(tmp_path / "python3", "exit 1")
    done = find_python(path=str(tmp_path))
    assert done.returncode == 1
    assert "No Python 3.11, 3.12 or 3.13" in done.stderr
    named = find_python("python3", path=str(tmp_path))
    assert named.returncode == 1
    assert "PYTHON=python3 does not run" in named.stderr


def test_make_lists_its_targets() -> None:
    done = subprocess.run(
        ["make"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    listed = re.findall(r"^make ([a-z-]+)", done.stdout, re.MULTILINE)
    tasks = {*steps.TASKS} - {"set-up"}
    assert tasks | {"serve", "format", "clean", "repository"} <= set(listed)
