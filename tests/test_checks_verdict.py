"""What all checks share: the line they print, and how they read and compare an answer."""

import math

import pytest
import torch

from rove_lab.checks.verdict import NotSolved, call, compare, draw, read, require, verdict


def line(capsys, block):
    with verdict("so it is."):
        block()
    (said,) = capsys.readouterr().out.splitlines()
    return said


def refuse(hint):
    raise NotSolved(hint)


def test_a_block_that_ends_is_solved(capsys):
    assert line(capsys, lambda: None) == "Solved: so it is."


def test_a_block_that_refuses_gives_its_hint(capsys):
    assert line(capsys, lambda: refuse("look.")) == "Not solved yet: look."


def test_a_block_that_breaks_says_how_in_a_line(capsys):
    said = line(capsys, lambda: {}["a\nb"])
    assert said == r"Not solved yet: the answer cannot be used (KeyError: 'a\nb')."
    assert len(line(capsys, lambda: math.sqrt("x" * 999))) < 300


def test_an_interrupt_passes_and_leaves_everything_as_it_was():
    dtype, state = torch.get_default_dtype(), torch.get_rng_state()

    def interrupted():
        with verdict("so it is."):
            torch.set_default_dtype(torch.float16)
            torch.rand(3)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert torch.get_default_dtype() == dtype
    assert torch.equal(torch.get_rng_state(), state)


def test_a_function_gets_copies():
    x = torch.ones(2)
    assert call(lambda one: one.zero_(), x).sum() == 0
    assert x.sum() == 2


def test_a_model_is_passed_as_it_is():
    model = torch.nn.Linear(1, 1)
    assert call(lambda one: one, model) is model


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (None, "put your function"),
        (..., "put your function"),
        (3, "expected a function, got int"),
        (lambda: 1 / 0, "your function raised ZeroDivisionError: division by zero"),
        (lambda one: one, "your function raised TypeError"),
        (lambda: None, "returns nothing"),
        (lambda: ..., "returns nothing"),
    ],
)
def test_what_is_no_function_is_told_so(function, words):
    with pytest.raises(NotSolved, match=words):
        call(function)


@pytest.mark.parametrize(
    "answer",
    [
        torch.tensor([1.0, 2.0], requires_grad=True),
        torch.tensor([1, 2]),
        torch.tensor([1, 2], dtype=torch.bfloat16),
        torch.tensor([1, 2]).numpy(),
        [1, 2.0],
        (torch.tensor(1.0), 2),
    ],
)
def test_whatever_holds_numbers_is_read(answer):
    got = read(answer, [2])
    assert got.tolist() == [1, 2]
    assert got.dtype == torch.float64
    assert not got.requires_grad


@pytest.mark.parametrize("answer", [2, 2.0, torch.tensor(2), torch.tensor([2.0]), [[2]]])
def test_one_number_is_one_however_it_is_wrapped(answer):
    assert read(answer, []).shape == ()
    assert read(answer, []) == 2


def test_reading_copies():
    answer = torch.ones(2, dtype=torch.float64)
    read(answer, [2]).zero_()
    assert answer.sum() == 2


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "put your answer"),
        (..., "put your answer"),
        ("R", "shape .2., got str"),
        ([[1], [2, 3]], "shape .2., got list"),
        (10**400, "got int"),
        (torch.zeros(2, device="meta"), "got Tensor"),
        (torch.zeros(2) * 1j, "complex"),
        (torch.zeros(3), "shape .2., got shape .3."),
        (torch.zeros(1, 2), "got shape .1, 2."),
        (5, "got shape"),
        ([1, math.nan], "NaN"),
        ([1, math.inf], "infinity"),
    ],
)
def test_what_cannot_be_read_is_told_so(answer, words):
    with pytest.raises(NotSolved, match=words):
        read(answer, [2])


def test_one_number_is_asked_for_in_words():
    with pytest.raises(NotSolved, match=r"expected one number, got shape \[2\]"):
        read([1, 2], [])


def test_float32_is_right_and_a_thousandth_is_not():
    right = torch.tensor([100.0, 0.5], dtype=torch.float64)
    compare(right + 0.005, right)
    with pytest.raises(NotSolved, match=r"off by up to 0\.1\b"):
        compare(right + 0.1, right)


def test_a_count_has_no_tolerance_if_none_is_wanted():
    got = torch.tensor(100_001.0, dtype=torch.float64)
    compare(got, 100_000)
    with pytest.raises(NotSolved, match="the answer is 100000; yours is 100001"):
        compare(got, 100_000, tolerance=1e-6)


def test_the_first_mistake_that_fits_is_named():
    got = torch.tensor(-1.0, dtype=torch.float64)
    mistakes = {"twice.": 2.0, "the sign.": -1.0, "the other sign.": -1.0}
    with pytest.raises(NotSolved, match=r"^the sign\.$"):
        compare(got, 1.0, mistakes)
    compare(got, -1.0, mistakes)


def test_what_is_required_is_said():
    require(True, "no")
    with pytest.raises(NotSolved, match=r"^no$"):
        require(torch.tensor(False), "no")


def test_draws_repeat_and_leave_torchs_own_alone():
    state = torch.get_rng_state()
    assert torch.equal(torch.rand(3, generator=draw(1)), torch.rand(3, generator=draw(1)))
    assert torch.equal(torch.get_rng_state(), state)
