"""The progress line: on a terminal, elsewhere, and switched off."""

import io
import sys

import pytest

from rove_lab.progress import ProgressLine, Step


class Terminal(io.StringIO):
    def isatty(self):
        return True


def steps(step, of=100):
    return [
        Step("RoPE", step, of, 2.5, 20.0, (of - step) / 20, 12_800.0),
        Step("RoVE", step, of, 0.5, 20.0, (of - step) / 20, 12_800.0),
    ]


WORDS = "step 40 of 100: loss RoPE 2.500, RoVE 0.500; 12,800 tokens/s, 3 s left"


def test_a_terminal_sees_one_line_rewritten(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Terminal())
    line = ProgressLine()
    line.show(steps(40))
    assert sys.stdout.getvalue() == f"\r[========            ] {WORDS}"
    line.show(steps(100))
    assert sys.stdout.getvalue().endswith("12,800 tokens/s, done\n")


def test_elsewhere_a_line_is_printed_now_and_then(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr("rove_lab.progress.time.perf_counter", lambda: clock[0])
    line = ProgressLine()
    for clock[0], step in ((1.0, 20), (9.0, 30), (11.0, 40), (12.0, 50)):
        line.show(steps(step))
    assert capsys.readouterr().out == f"{WORDS}\n"
    line.show(steps(100))
    assert "step 100 of 100" in capsys.readouterr().out


@pytest.mark.parametrize("terminal", [False, True])
def test_a_line_that_is_off_says_nothing(terminal, monkeypatch):
    monkeypatch.setattr(sys, "stdout", Terminal() if terminal else io.StringIO())
    line = ProgressLine(shown=False)
    line.show(steps(100))
    line.end("interrupted")
    assert sys.stdout.getvalue() == ""
    ProgressLine().end("interrupted")
    assert sys.stdout.getvalue().endswith("interrupted\n")
