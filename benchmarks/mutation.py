"""Would a test notice? Small changes to the mathematics, one at a time, against its fast tests.

Run it from a clone with nothing uncommitted: `make mutants`, or `python benchmarks/mutation.py`. A
mutant is a module of the core with one operator, number, condition, default or statement changed,
in a copy of the tree; it is killed when one of the module's test files fails or runs out of time.
A survivor is a change that no test saw: a test that is missing, or a change that means nothing
(another tolerance in the words of an error, the order of a sum). Which changes are tried is drawn
with the seed. A mutant that is killed costs about five seconds of a core, a survivor about ten; 250
of them take a quarter of an hour on two idle cores, and write results/mutation/record.json.
"""

from __future__ import annotations

import ast
import copy
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

import tyro

from rove_lab.records import Record, write_record
from rove_lab.surroundings import surroundings

ROOT = Path(__file__).resolve().parents[1]
# A module and the test files that answer for it, the likeliest to fail first.
TESTS = {
    "rotary": "test_rotary test_rotation test_rotary_input test_scaling test_precision",
    "rotation": "test_rotation test_rotation_autograd test_rotary_input test_precision",
    "attention": "test_attention test_attention_input test_attention_mask test_attention_sequences",
    "masking": "test_masking test_attention_mask test_attention_input test_attention_numerics",
    "temperature": "test_temperature test_attention test_against_huggingface",
    "kernels": "test_kernels",
    "mixers": "test_mixers test_mixer_arguments test_mixer_cost test_kronecker_rank",
    "matrix_mixer": "test_matrix_mixer test_mixer_arguments test_mixer_cost test_kronecker_rank",
}
COPIED = ("rove_lab", "tests", "pyproject.toml", "README.md")
OTHER = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.MatMult: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A module's source with one thing changed, and words for the change."""

    module: str
    line: int
    words: str
    source: str

    def __str__(self) -> str:
        return f"{self.module}.py:{self.line}: {self.words}"


def changed(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the place of an expression or a statement."""
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in OTHER:
        new = copy.deepcopy(node)
        new.op = OTHER[type(node.op)]()
        yield new
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            new = copy.deepcopy(node)
            new.ops[index] = OTHER[type(operator)]()
            yield new
    if isinstance(node, ast.UnaryOp):
        yield node.operand
    if isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield ast.Constant(not node.value)
        elif isinstance(node.value, int | float):
            yield ast.Constant(node.value + 1)
    if isinstance(node, ast.IfExp):
        yield node.body
        yield node.orelse
    if isinstance(node, ast.If | ast.While) and not isinstance(node.test, ast.Constant):
        new = copy.deepcopy(node)
        new.test = ast.UnaryOp(ast.Not(), node.test)
        yield new
    if isinstance(node, ast.Expr | ast.AugAssign) or (
        isinstance(node, ast.Raise) and node.exc is not None
    ):
        yield ast.Pass()
    if isinstance(node, ast.Return) and node.value is not None:
        yield ast.Return(ast.Constant(None))


def mutants(module: str, source: str) -> list[Mutant]:
    """Every change of a module; docstrings, annotations and the words of errors are left alone."""
    tree, found = ast.parse(source), []
    for parent, name, index, node in places(tree):
        for new in changed(node):
            here = getattr(parent, name)
            if index is None:
                setattr(parent, name, new)
            else:
                here[index] = new
            text = ast.unparse(ast.fix_missing_locations(tree))
            if index is None:
                setattr(parent, name, node)
            else:
                here[index] = node
            before, after = (ast.unparse(each).partition("\n")[0] for each in (node, new))
            found.append(Mutant(module, node.lineno, f"{before} -> {after}", text))
    return found


def places(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """Where something can be changed: a node's parent, the field of it, the index in that."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr):
                continue
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                continue  # a docstring
            if isinstance(child, ast.expr | ast.stmt):
                yield node, name, index, child
            if not isinstance(child, ast.Raise):
                yield from places(child)


def drawn(sample: int, seed: int) -> tuple[list[Mutant], dict[str, int]]:
    """A sample of all mutants, the same for the same seed, and how many each module has."""
    everything: list[Mutant] = []
    counts = {}
    for module in TESTS:
        found = mutants(module, (ROOT / "rove_lab" / f"{module}.py").read_text(encoding="utf-8"))
        counts[module] = len(found)
        everything += found
    return random.Random(seed).sample(everything, min(sample, len(everything))), counts


class Tree:
    """A copy of what the tests need, in which one module at a time is another."""

    def __init__(self, folder: Path, timeout: float) -> None:
        self.folder, self.timeout = folder, timeout
        folder.mkdir()
        for name in COPIED:
            place = ROOT / name
            if place.is_dir():
                shutil.copytree(place, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(place, folder / name)

    def outcome(self, module: str, source: str) -> str:
        """What a module's tests say of this source: killed, timed out or survived."""
        path = self.folder / "rove_lab" / f"{module}.py"
        before = path.read_text(encoding="utf-8")
        path.write_text(source, encoding="utf-8")
        files = [f"tests/{name}.py" for name in TESTS[module].split()]
        options = ["-x", "-q", "-p", "no:cacheprovider"]
        command = [sys.executable, "-B", "-m", "pytest", *options, *files]
        # The same examples each time; no plugins, which take longer to load than a test to run.
        quiet = {"CI": "true", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        quiet |= {"PYTHONPATH": str(self.folder), "OMP_NUM_THREADS": "1"}
        try:
            done = subprocess.run(
                command,
                cwd=self.folder,
                env=os.environ | quiet,
                capture_output=True,
                timeout=self.timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "timed out"
        finally:
            path.write_text(before, encoding="utf-8")
        return "killed" if done.returncode else "survived"


def tried(sample: list[Mutant], workers: int, timeout: float) -> dict[Mutant, str]:
    """Each mutant of the sample, and what became of it.

    Raises:
        RuntimeError: If a module's own source fails: then a mutant's failure would mean nothing.
    """
    found: dict[Mutant, str] = {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        trees: SimpleQueue[Tree] = SimpleQueue()
        for worker in range(workers):
            trees.put(Tree(Path(folder) / str(worker), timeout))

        def attempt(module: str, source: str) -> str:
            tree = trees.get()
            try:
                return tree.outcome(module, source)
            finally:
                trees.put(tree)

        modules = sorted({mutant.module for mutant in sample})
        paths = [ROOT / "rove_lab" / f"{module}.py" for module in modules]
        sources = [ast.unparse(ast.parse(path.read_text(encoding="utf-8"))) for path in paths]
        for module, said in zip(modules, pool.map(attempt, modules, sources), strict=True):
            if said != "survived":
                raise RuntimeError(
                    f"expected the tests of {module} to pass unchanged within {timeout:g} s: "
                    "mend them first, or give --timeout more."
                )
        results = pool.map(attempt, *zip(*((m.module, m.source) for m in sample), strict=True))
        for done, (mutant, said) in enumerate(zip(sample, results, strict=True), start=1):
            found[mutant] = said
            print(f"[{done}/{len(sample)}] {said}: {mutant}", flush=True)
    return found


def main(
    sample: int = 250,
    seed: int = 0,
    workers: int = 2,
    timeout: float = 300.0,
    folder: Path = ROOT / "results" / "mutation",
) -> None:
    """Try a sample of mutants, and write the record.

    Args:
        sample: How many mutants.
        seed: Of the draw.
        workers: Mutants at a time, one core each.
        timeout: Seconds after which a mutant counts as killed.
        folder: Where record.json goes.
    """
    about, wall = surroundings(ROOT, threads=1), time.perf_counter()
    chosen, counts = drawn(sample, seed)
    found = tried(chosen, workers, timeout)
    values = {}
    for module in [*sorted({mutant.module for mutant in chosen}), "all"]:
        said = [found[mutant] for mutant in chosen if module in (mutant.module, "all")]
        numbers = {"mutants": len(said), "score": 1 - said.count("survived") / len(said)}
        numbers |= {word: said.count(word) for word in ("killed", "timed out", "survived")}
        values[module] = {name: [number] for name, number in numbers.items()}
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    record = Record(
        question="Which share of small changes to the mathematics do its fast tests notice?",
        kind="measurement",
        config={
            "sample": sample,
            "timeout_s": timeout,
            "possible": counts,
            "tests": {module: files.split() for module, files in TESTS.items()},
            "survivors": [str(mutant) for mutant, said in found.items() if said == "survived"],
        },
        seeds=[seed],
        values=values,
        wall_s=round(time.perf_counter() - wall, 1),
        cpu_s=round(children.ru_utime + children.ru_stime, 1),
        **about,
    )
    print(
        f"score {values['all']['score'][0]:.3f}; wrote {write_record(record, folder)}", flush=True
    )


if __name__ == "__main__":
    tyro.cli(main)
