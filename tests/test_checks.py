"""The checks of the exercises, tried on the notebooks' own cells: empty, solved, wrong, junk."""

import copy
import math
import subprocess
import sys

import pytest
import torch
from book_exercises import CHAPTERS, ROOT, Exercise, names_before_the_exercises, read_chapter, said
from wrong_answers import WRONG

from rove_lab.checks.verdict import compare
from rove_lab.frames import Frame

BOOK = {path: read_chapter(path) for path in CHAPTERS}
EXERCISES = [exercise for chapter in BOOK.values() for exercise in chapter.exercises]
MISTAKES = [
    pytest.param(exercise, code, hint, id=f"{exercise.label}-{number}")
    for exercise in EXERCISES
    for number, (code, hint) in enumerate(WRONG.get(exercise.label, []))
]
each_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda one: one.label)

NAMES = {}


@pytest.fixture
def names(exercise):
    """The chapter's names before its exercises, computed once, its default dtype and gradients."""
    before, gradients = torch.get_default_dtype(), torch.is_grad_enabled()
    if exercise.chapter not in NAMES:
        try:
            NAMES[exercise.chapter] = names_before_the_exercises(BOOK[exercise.chapter])
        finally:
            torch.set_default_dtype(before)
            torch.set_grad_enabled(gradients)
    torch.set_default_dtype(NAMES[exercise.chapter]["default dtype"])
    torch.set_grad_enabled(NAMES[exercise.chapter]["gradients"])
    yield dict(NAMES[exercise.chapter])
    torch.set_default_dtype(before)
    torch.set_grad_enabled(gradients)


def verdict(exercise: Exercise, names: dict, answer: object = None, **instead: object) -> str:
    """What the check says of an answer, one line."""
    (line,) = said(exercise.check, {**names, exercise.name: answer, **instead}).splitlines()
    return line


def with_the_solution(exercise: Exercise, names: dict) -> object:
    """The solution's own function, and the check among the names."""
    said(exercise.answer[-1], names)
    said("\n".join(exercise.solution), names)
    return names[exercise.name]


# The book


def test_every_chapter_has_three_exercises_and_every_exercise_its_mistakes():
    assert len(CHAPTERS) >= 6
    for path, chapter in BOOK.items():
        assert len(chapter.exercises) >= 3, path.name
    for page in (ROOT / "book").glob("*.md"):  # where no cell runs, no check could
        assert "{exercise}" not in page.read_text(encoding="utf-8"), page.name
    labels = [exercise.label for exercise in EXERCISES]
    assert sorted(WRONG) == sorted(labels)
    assert all(len(mistakes) >= 2 for mistakes in WRONG.values())


@each_exercise
def test_an_exercise_has_a_cell_for_its_answer_and_a_solution_with_the_same_check(exercise):
    assert exercise.solved, "a solution ends"
    (answer,) = exercise.answer
    assert answer.startswith("from rove_lab.checks.")
    assert "    ...\n" in answer
    last = exercise.solution[-1].splitlines()[-1]
    assert last == exercise.check
    assert f"def {exercise.name}(" in "\n".join(exercise.solution)
    assert exercise.check.partition("(")[0] in answer.splitlines()[0]


# The cells


@each_exercise
def test_the_cell_as_it_stands_says_not_solved_yet(exercise, names):
    (line,) = said(exercise.answer[-1], names).splitlines()
    assert line == (
        "Not solved yet: your function returns nothing: write its body, and `return` the answer."
    )


@each_exercise
def test_the_books_solution_solves_it(exercise, names):
    said(exercise.answer[-1], names)
    state = torch.get_rng_state()
    lines = said("\n".join(exercise.solution), names).splitlines()
    assert lines[-1].startswith("Solved: ")
    assert sum(line.startswith(("Solved", "Not solved")) for line in lines) == 1
    assert torch.get_default_dtype() == names["default dtype"]
    torch.set_rng_state(state)


@pytest.mark.parametrize(("exercise", "code", "hint"), MISTAKES)
def test_a_mistake_gets_its_hint(exercise, names, code, hint):
    said(exercise.answer[-1], names)
    said(code, names)
    (line,) = said(exercise.check, names).splitlines()
    assert line.startswith("Not solved yet: ")
    assert hint in line


@each_exercise
def test_every_hint_is_given_to_whoever_makes_its_mistake(exercise, names, monkeypatch):
    """An answer as a hint supposes it, on all inputs, must not be another hint's, or right."""
    solution = with_the_solution(exercise, names)
    hints = {}

    def made(hint):
        def compared(got, expected, mistakes=None, **how):
            hints.update(dict.fromkeys(mistakes or {}))
            wrong = torch.as_tensor((mistakes or {}).get(hint, expected), dtype=torch.float64)
            compare(wrong.expand(got.shape), expected, mistakes, **how)

        for module in [one for name, one in sys.modules.items() if "rove_lab.checks." in name]:
            if hasattr(module, "compare"):
                monkeypatch.setattr(module, "compare", compared)
        return verdict(exercise, names, solution)

    assert made(None).startswith("Solved: ")
    for hint in [*hints]:
        assert made(hint) == f"Not solved yet: {hint}"


# Whatever a reader types


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def raises(error):
    def function(*_):
        raise error

    return function


def endless(*_):
    return endless()


def changes_everything(*_):
    torch.set_default_dtype(torch.bfloat16)
    torch.manual_seed(5)
    torch.randn(3)
    return "changed"


THINGS = {
    "none": None,
    "dots": ...,
    "text": "R_t",
    "many lines": "one\ntwo",
    "number": 3.25,
    "nan": math.nan,
    "infinity": math.inf,
    "huge": 10**400,
    "true": True,
    "complex": 1j,
    "list": [1, 2],
    "ragged": [[1], [2, 3]],
    "dict": {"token": "a", "distance": None, "both": []},
    "set": {1},
    "object": object(),
    "type": int,
    "module": math,
    "no numbers": torch.zeros(0),
    "wrong shape": torch.zeros(2, 3, 4, 5),
    "not finite": torch.full((8, 8), math.nan),
    "no data": torch.zeros(8, 8, device="meta"),
    "sparse": torch.eye(8).to_sparse(),
    "half": torch.ones(8, 8, dtype=torch.float16),
    "bits": torch.ones(8, 8, dtype=torch.bool),
    "requires grad": torch.ones(8, requires_grad=True),
}
FUNCTIONS = {
    **{f"returns {name}": (lambda *_, thing=thing: thing) for name, thing in THINGS.items()},
    "raises": raises(KeyError("one\ntwo")),
    "raises what has no words": raises(Mute()),
    "leaves": raises(SystemExit(3)),
    "runs over": raises(RuntimeError("x" * 5000)),
    "too few arguments": lambda: 0,
    "calls itself": endless,
    "changes everything": changes_everything,
    "generator": lambda *_: (one for one in "ab"),
}


@each_exercise
def test_nothing_a_reader_types_breaks_a_check_or_solves_it(exercise, names):
    said(exercise.answer[-1], names)
    for name, thing in {**THINGS, **FUNCTIONS}.items():
        dtype, state = torch.get_default_dtype(), torch.get_rng_state()
        line = verdict(exercise, names, thing)
        assert line.startswith("Not solved yet: "), name
        assert len(line) < 300, name
        assert torch.get_default_dtype() == dtype, name
        assert torch.equal(torch.get_rng_state(), state), name
    assert "raised KeyError: 'one\\ntwo'" in verdict(exercise, names, FUNCTIONS["raises"])
    assert "raised SystemExit: 3" in verdict(exercise, names, FUNCTIONS["leaves"])


@each_exercise
def test_a_check_uses_neither_the_global_random_numbers_nor_the_default_dtype(exercise, names):
    solution = with_the_solution(exercise, names)
    for dtype in (torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        state = torch.get_rng_state()
        assert verdict(exercise, names, solution).startswith("Solved: ")
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.get_default_dtype() == dtype


@each_exercise
def test_float32_with_a_gradient_and_spoilt_inputs_are_no_mistake(exercise, names):
    solution = with_the_solution(exercise, names)
    returned = []

    def careless(*inputs):
        answer = solution(*copy.deepcopy(inputs))
        for one in inputs:
            if isinstance(one, torch.Tensor):
                one.zero_()
        if not isinstance(answer, dict | Frame):  # frames have no dtype
            answer = torch.as_tensor(answer, dtype=torch.float32).requires_grad_()
            returned.append((answer, answer.detach().clone()))
        return answer

    if exercise.label == "ex-take-away":  # it is judged by what it does to the model, not a copy

        def careless(model, task):
            return {name: torch.tensor(score) for name, score in solution(model, task).items()}

    assert verdict(exercise, names, careless).startswith("Solved: ")
    for answer, before in returned:
        assert torch.equal(answer, before)


def test_an_interrupt_is_the_readers_own():
    from rove_lab.checks.rotations import check_complex

    with pytest.raises(KeyboardInterrupt):
        check_complex(raises(KeyboardInterrupt()))


def test_the_checks_need_torch_alone():
    """As on Colab, where a chapter installs what its own figures need."""
    modules = [f"rove_lab.checks.{path.stem}" for path in (ROOT / "rove_lab/checks").glob("*.py")]
    code = f"""
import sys
for name in ["IPython", "accelerate", "matplotlib", "plotly", "transformers"]:
    sys.modules[name] = None  # an import of it fails
from importlib import import_module
for name in {sorted(modules)}:
    import_module(name.removesuffix(".__init__"))
print("imported")
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "imported\n", done.stderr
