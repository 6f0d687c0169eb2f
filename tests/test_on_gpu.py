"""benchmarks/on_gpu.py and its parts, small and on a processor: nothing stops the others."""

import os
import sys
import time
from dataclasses import replace
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
from device_cases import asked_on
from experiment_scripts import ROOT

from rove_lab.records import Record, read_record

# FlexAttention asks to be compiled, as the benchmark does and this miniature does not
pytestmark = pytest.mark.filterwarnings("ignore:.*flex_attention.*:UserWarning")


@pytest.fixture
def module(monkeypatch):
    """The modules of benchmarks/ as the parts' processes see them, forgotten afterwards."""
    before = {*sys.modules}
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setattr(sys, "path", [*sys.path])  # the parts add to it
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    yield import_module
    places = (ROOT / "benchmarks", ROOT / "experiments")
    for name in {*sys.modules} - before:
        if getattr(sys.modules[name], "__file__", None) and any(
            place in (ROOT / sys.modules[name].__file__).parents for place in places
        ):
            del sys.modules[name]


@pytest.fixture
def tiny(module, tmp_path):
    return module("gpu_parts").Run(tmp_path, time.time() + 300, tiny=True)


# The run


@pytest.fixture
def part(module, monkeypatch, tmp_path):
    """Makes a part of some lines of Python."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def made(name, share, *lines):
        body = "\n    ".join(lines)
        (tmp_path / f"{name}.py").write_text(f"def run(given):\n    {body}\n", encoding="utf-8")
        return module("on_gpu").Part(name, share)

    return made


WRITES = "given.folder.joinpath('{}').write_text(f'{{given.tiny}} {{given.left > 0}}')"


def test_a_part_that_fails_or_is_late_takes_nothing_from_the_others(module, part, tmp_path, capsys):
    parts = [
        part("part_fails", 30, WRITES.format("before"), "raise ValueError('of no use')"),
        part("part_hangs", 0.01, "import time", "time.sleep(600)"),
        part("part_works", 30, WRITES.format("after")),
    ]
    started = time.time()
    outcomes = module("on_gpu").run(parts, tmp_path, 200.0, tiny=True)
    assert time.time() - started < 200
    assert outcomes == {
        "part_fails": "FAILED in part, exit 1",
        "part_hangs": "ENDED, its time was up",
        "part_works": "done",
    }
    for name in ("before", "after"):
        assert (tmp_path / name).read_text(encoding="utf-8") == "True True"
    printed = capsys.readouterr().out
    assert "[1/3] part_fails: " in printed
    assert "[3/3] part_works: done, " in printed


def test_what_a_part_started_is_ended_with_it(module, part, tmp_path):
    on_gpu, pid = module("on_gpu"), tmp_path / "pid"
    sleeper = part(
        "part_starts_another",
        1,
        "import signal, subprocess, sys",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)",  # it does not listen
        "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])",
        "whole = given.folder / 'whole'",
        "whole.write_text(str(other.pid))",
        "whole.rename(given.folder / 'pid')",
        "other.wait()",
    )
    given = module("gpu_parts").Run(tmp_path, time.time() + 300, tiny=True)
    process = get_context("spawn").Process(target=on_gpu.work, args=(sleeper, given))
    process.start()
    while not pid.exists() and process.is_alive():
        time.sleep(0.05)
    other = int(pid.read_text(encoding="utf-8"))
    os.kill(other, 0)  # it is there
    on_gpu.GRACE = 0.2
    on_gpu.end(process)
    assert not process.is_alive()
    for _ in range(200):
        if gone(other):
            return
        time.sleep(0.05)
    pytest.fail("the process that the part started is still there")


def gone(pid):
    """Whether a process has ended; one that nobody has asked after yet is a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text("utf-8").rpartition(")")[2].split()[0] == "Z"


def test_time_that_a_part_leaves_goes_to_those_after_it(module, monkeypatch, tmp_path):
    on_gpu, limits, clock = module("on_gpu"), [], [1000.0]

    def passed(part, given):
        limits.append(given.until - clock[0])
        clock[0] += 10.0
        return "done"

    monkeypatch.setattr(on_gpu, "passed", passed)
    monkeypatch.setattr(on_gpu.time, "time", lambda: clock[0])
    parts = [on_gpu.Part(name, share) for name, share in (("a", 2), ("b", 1), ("c", 1))]
    on_gpu.run(parts, tmp_path, 410.0, tiny=False)
    assert limits == [205 - on_gpu.GRACE, 200 - on_gpu.GRACE, 390 - on_gpu.GRACE]


def test_ctrl_c_ends_the_part_that_runs(module, part, monkeypatch, tmp_path):
    on_gpu, ended = module("on_gpu"), []

    class Interrupted:
        def __init__(self, target, args):
            pass

        def start(self):
            pass

        def join(self, seconds):
            raise KeyboardInterrupt

    monkeypatch.setattr(on_gpu, "get_context", lambda kind: type("C", (), {"Process": Interrupted}))
    monkeypatch.setattr(on_gpu, "end", ended.append)
    given = module("gpu_parts").Run(tmp_path, time.time(), tiny=True)
    with pytest.raises(KeyboardInterrupt):
        on_gpu.passed(on_gpu.PARTS[0], given)
    assert len(ended) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "expected a GPU, got none: --tiny --folder"),
        (["--tiny"], "expected --folder beside --tiny"),
        (["--tiny", "--folder", __file__], "expected a folder to write record.json to"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(module, arguments, words, capsys):
    with pytest.raises(SystemExit):
        module("on_gpu").main(arguments)
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(("outcome", "status"), [("done", 0), ("FAILED in part, exit 1", 1)])
def test_it_ends_by_saying_how_each_part_went(
    module, monkeypatch, tmp_path, capsys, outcome, status
):
    monkeypatch.setattr(module("on_gpu"), "passed", lambda part, given: outcome)
    with pytest.raises(SystemExit) as ended:
        module("on_gpu").main(["--tiny", "--folder", str(tmp_path)])
    assert int(ended.value.code) == status
    said = capsys.readouterr().out.splitlines()
    assert said[-7:] == [f"{part.name}: {outcome}" for part in module("on_gpu").PARTS]


def test_the_parts_are_there_and_take_less_than_eight_minutes(module):
    names = [part.name for part in module("on_gpu").PARTS]
    assert names == [
        "gpu_checks",
        "gpu_speed",
        *sorted(module("gpu_training").PLANS, key=names.index),
    ]
    assert sum(part.share for part in module("on_gpu").PARTS) == 460


# A record that grows


def test_what_fails_or_comes_late_is_named_and_what_was_measured_is_kept(module, tmp_path, capsys):
    parts = module("gpu_parts")
    run = parts.Run(tmp_path, time.time() + 300, tiny=True)
    kept = parts.Kept("gpu_some", "Some?", {"set": 1}, run)

    def fails():
        raise RuntimeError("no kernel\nat all")

    kept.attempt("none", fails)
    assert not (tmp_path / "gpu_some").exists()
    kept.attempt("one", lambda: {"a": {"b": [1]}})
    kept.attempt("two", lambda: {"a": {"c": [2.5]}})
    assert read_record(tmp_path / "gpu_some").values == {"a": {"b": [1], "c": [2.5]}}
    kept.run = replace(run, until=time.time() - 1)
    kept.attempt("three", lambda: {"a": {"d": [3]}})
    with pytest.raises(SystemExit):
        kept.ended()
    record = read_record(tmp_path / "gpu_some")
    assert (record.kind, record.seeds) == ("measurement", [0])
    assert record.config == {
        "set": 1, "failed": {"none": "RuntimeError: no kernel"}, "no time for": ["three"]
    }  # fmt: skip
    assert record.values == {"a": {"b": [1], "c": [2.5]}}
    printed = capsys.readouterr().out
    assert "gpu_some: none: FAILED, RuntimeError: no kernel in " in printed
    assert "gpu_some: three: not begun, no time is left" in printed


def test_what_ends_well_says_nothing(module, tiny):
    kept = module("gpu_parts").Kept("gpu_some", "Some?", {}, tiny)
    kept.attempt("one", lambda: {"a": [1]})
    kept.ended()


# The parts


def test_checks_are_recorded_with_their_limits(module, tiny, tmp_path, monkeypatch):
    checks = module("gpu_checks")
    checks.run(tiny)
    record = read_record(tmp_path / "gpu_checks")
    assert {*record.values} == {"float32", "bfloat16"}
    for cases in record.values.values():
        assert {*cases} == {*checks.FEW}
        for row in cases.values():
            assert 0 < row["relative error"][0] < row["at most"][0]
            assert row["met"] == [1]
    monkeypatch.setitem(checks.AT_MOST, torch.float32, 0.0)
    (rows,) = checks.checked("cpu", "GPT", torch.float32).values()
    assert rows["GPT"]["met"] == [0]


def test_all_cases_are_checked_where_the_run_is_not_tiny(module, tiny, tmp_path, monkeypatch):
    checks = module("gpu_checks")
    monkeypatch.setattr(checks, "checked", lambda device, name, dtype: {f"{name}, {dtype}": [1]})
    checks.run(replace(tiny, tiny=False))
    assert len(read_record(tmp_path / "gpu_checks").values) == len(asked_on("cpu"))


def test_speeds_are_recorded_table_by_table(module, tiny, tmp_path, monkeypatch):
    speed = module("gpu_speed")
    for measured in (speed.turning, speed.attention_core, speed.kernels):
        monkeypatch.setattr(measured, "compiled", lambda turn: turn)
    monkeypatch.setattr(sys.modules["paired"], "FEWEST_ROUNDS", 2)
    monkeypatch.setattr(speed, "peers_here", lambda: {"Hugging Face": "5"})
    speed.run(tiny)
    record = read_record(tmp_path / "gpu_speed")
    assert record.config["failed"] == {}
    assert {name: len(cases) for name, cases in record.values.items()} == {
        "kernels": 2, "training step": 1, "attention": 3, "rotation": 2, "decoding": 1
    }  # fmt: skip
    assert record.values["kernels"]["1x2x16x8 bfloat16"]["flash"]["RoVE / RoPE"]["ratio"][0] > 0
    (step,) = record.values["training step"].values()
    assert step["RoVE / RoPE, peak memory"]["ratio"][0] > 0.5


def test_a_large_run_measures_the_same_tables_of_gpt_2(module):
    speed = module("gpu_speed")
    small, large = (speed.tables(sizes, {}) for sizes in (speed.TINY, speed.Sizes()))
    assert [section for section, *_ in small] == [section for section, *_ in large]
    assert large[0][:2] == ("kernels", "8x12x1024x64 bfloat16")  # flash first of all
    assert speed.Sizes().gpt.n_layers == 12


@pytest.mark.parametrize("tiny_run", [True, False])
def test_every_plan_is_an_experiment_with_settings_that_it_has(module, tiny_run):
    training = module("gpu_training")
    for slug, plan in training.PLANS.items():
        experiment, budget = training.planned(plan, tiny_run)
        assert experiment.kind == "measurement"
        assert {*experiment.jobs(budget)} <= {*import_module(plan.script).EXPERIMENT.jobs(budget)}
        own = import_module(plan.script).EXPERIMENT
        assert type(budget) is type(own.gpu_budget if plan.gpu_budget else own.budget)
        if slug in ("gpu_length", "gpu_retrieval", "gpu_induction") and not tiny_run:
            assert budget == own.budget


@pytest.mark.parametrize("slug", ["gpu_training", "gpu_larger", "gpu_length", "gpu_retrieval",
                                  "gpu_induction"])  # fmt: skip
def test_every_training_runs_small_and_is_recorded(module, tiny, tmp_path, monkeypatch, slug):
    training = module("gpu_training")
    monkeypatch.setattr(training, "SEEDS", 1)
    training.run(tiny, slug)
    record = read_record(tmp_path / slug)
    assert (record.kind, record.seeds) == ("measurement", [0])
    assert record.question == import_module(training.PLANS[slug].script).EXPERIMENT.question


class Quick:
    """An experiment whose every seed is done at once."""

    def record(self, budget, seeds):
        about = {"versions": {}, "device": "a", "wall_s": 1.0, "cpu_s": 2.0, "commit": "0" * 40}
        values = {"RoPE": {"loss": [float(seeds[0])]}}
        return Record("?", "measurement", {}, seeds, values, **about)


def test_seeds_are_trained_while_there_is_time_and_joined(module, tiny, tmp_path, monkeypatch):
    training = module("gpu_training")
    monkeypatch.setattr(training, "planned", lambda plan, tiny: (Quick(), None))
    training.run(tiny, "gpu_training")
    record = read_record(tmp_path / "gpu_training")
    assert record.seeds == [0, 1, 2, 3]
    assert record.values == {"RoPE": {"loss": [0.0, 1.0, 2.0, 3.0]}}
    assert (record.wall_s, record.cpu_s) == (4.0, 8.0)
    clock = iter([0.0, 150.0])  # the first seed takes half of the time, and a second would be late
    monkeypatch.setattr(training.time, "perf_counter", lambda: next(clock))
    training.run(replace(tiny, until=time.time() + 150), "gpu_induction")
    assert read_record(tmp_path / "gpu_induction").seeds == [0]
    with pytest.raises(SystemExit):
        training.run(replace(tiny, until=time.time() - 1), "gpu_length")
    assert not (tmp_path / "gpu_length").exists()
