"""benchmarks/rotation_speed.py in miniature: all is measured, judged and recorded, and agrees."""

import sys

import pytest
import torch
from experiment_scripts import ROOT, script

from rove_lab import Rotation
from rove_lab.model import GPTConfig
from rove_lab.records import read_record

SHAPE = (1, 2, 16, 8)
# FlexAttention asks to be compiled, as the benchmark does and this miniature does not
pytestmark = pytest.mark.filterwarnings("ignore:.*flex_attention.*:UserWarning")


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    module = script("rotation_speed", monkeypatch, "benchmarks")
    monkeypatch.setattr(module.torch, "set_num_threads", lambda count: None)
    monkeypatch.setattr(module, "SHAPES", [SHAPE])
    monkeypatch.setattr(module, "PEERS", {"Hugging Face": None})
    monkeypatch.setattr(module, "find_peers", lambda: {"transformers": "5"})
    monkeypatch.setattr(module, "GPT", GPTConfig(d_vocab=31, n_ctx=8, d_model=24, n_heads=3))
    monkeypatch.setattr(module, "MIXER", {"n": 8, "d": 4})
    monkeypatch.setattr(module, "LENGTHS", [4, 8, 16])
    monkeypatch.setattr(module, "HELD", 32)
    monkeypatch.setattr(module, "BUDGET", 0.0)
    for part in (module.turning, module.attention_core, module.kernels):
        monkeypatch.setattr(part, "compiled", lambda turn: turn)
    monkeypatch.setattr(sys.modules["paired"], "FEWEST_ROUNDS", 2)
    monkeypatch.setattr(sys.modules["paired"], "MOST_CALLS", 1)
    return module


def test_all_is_measured_judged_and_recorded(benchmark, tmp_path, capsys):
    benchmark.main(repetitions=2, folder=tmp_path)
    record = read_record(tmp_path)
    assert (record.kind, record.seeds) == ("measurement", [0, 1])
    assert {*record.values} == {*benchmark.SECTIONS}
    cases = {"1x2x16x8 float32", "1x2x16x8 bfloat16"}
    targets = benchmark.targets
    for section in ("rotation", "attention", "kernels"):
        assert {*record.values[section]} == cases
    limited = [
        (record.values["rotation"]["1x2x16x8 float32"]["forward"],
         targets.of_turning(SHAPE, torch.float32)),
        (record.values["attention"]["1x2x16x8 bfloat16"]["forward"],
         targets.of_attention("forward", 16)),
        (record.values["training step"], targets.OF_A_STEP),
        (record.values["mixers"], targets.OF_MIXERS),
        (record.values["growth"], targets.OF_GROWTH),
    ]  # fmt: skip
    for rows, limits in limited:
        assert limits
        for name, limit in limits.items():
            score = rows[name].get("ratio", rows[name].get("exponent"))
            assert rows[name]["at most"] == [limit, limit]
            assert rows[name]["met"] == [int(value <= limit) for value in score]
    for name, limit in targets.AT_LEAST.items():
        row = record.values["mixers"][name]
        assert row["met"] == [int(value >= limit) for value in row["ratio"]]
    assert "[2/2] mixers, RoVE, dense / torch.zeros ratio " in capsys.readouterr().out


def test_the_limits_follow_size_dtype_and_length(benchmark):
    limits = benchmark.targets.of_turning
    clone = "ours, compiled / clone"
    assert limits((1, 12, 1024, 64), torch.float32)[clone] == 1.7
    assert limits((1, 12, 4096, 64), torch.float32)[clone] == 1.4
    assert limits((1, 12, 4096, 64), torch.bfloat16)[clone] == 3.0
    grown = "RoVE, compiled / RoPE, compiled"
    assert benchmark.targets.of_attention("forward", 1024)[grown] == 1.10
    assert benchmark.targets.of_attention("forward and backward", 8192)[grown] == 1.02


def test_a_limit_of_a_row_that_is_not_there_is_no_limit_met(benchmark):
    for judge in (benchmark.targets.judged, benchmark.targets.judged_below):
        with pytest.raises(KeyError, match="RoVE / rope"):
            judge({"RoVE / RoPE": {"ratio": 1.0}}, {"RoVE / rope": 1.2})


def test_what_is_timed_is_the_same_rotation(benchmark):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, *SHAPE)
    turned, back = benchmark.turning.ours(q)(q, k)
    theirs, _ = benchmark.turning.PEERS["Hugging Face"](q)(q, k)
    assert torch.allclose(turned, theirs, atol=1e-5)
    assert torch.allclose(benchmark.turning.ours(q)(back, back)[0], k, atol=1e-5)
    cores = benchmark.attention_core.cores(q)
    rope, rove, theirs = (core(q, k, v) for core in cores.values())
    assert torch.allclose(rope, theirs, atol=1e-5)
    assert not torch.allclose(rove, rope, atol=1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_kernel_gives_the_same(benchmark, dtype):
    found = benchmark.kernels.measured(SHAPE, dtype, 0.0)
    assert {"math", "flash", "flex"} <= {*found}
    for rows in found.values():
        assert rows["RoVE"]["relative error"] < benchmark.targets.OF_ERROR[dtype]


def test_a_step_of_decoding_turns_one_token_and_leaves_what_is_held(benchmark, monkeypatch):
    turned, turn = [], Rotation._turn

    def spy(self, x, sign):
        turned.append(x.numel())
        return turn(self, x, sign)

    run = benchmark.decoding.step(True, held=32, heads=2, d_head=8)
    monkeypatch.setattr(Rotation, "_turn", spy)
    first = run()
    assert turned == [2 * 8] * 4  # a query, a key, a value, and the output back
    assert torch.equal(run(), first)
    turned.clear()
    benchmark.decoding.step(False, held=32, heads=2, d_head=8)()
    assert turned == [2 * 8] * 2


def test_cases_take_turns_and_ratios_are_of_the_same_round(benchmark):
    paired, ran = sys.modules["paired"], []
    cases = {name: lambda name=name: ran.append(name) for name in "abc"}
    seconds = paired.interleaved(cases, 0.0)
    assert {name: len(taken) for name, taken in seconds.items()} == dict.fromkeys("abc", 2)
    assert len(ran) == 3 * (2 + 2 * 2)  # twice before the rounds begin, once before a clock
    assert all({*ran[at : at + 6]} == {*"abc"} for at in range(0, 18, 6))
    times = {"a": [2.0, 40.0, 6.0], "b": [1.0, 10.0, 2.0]}
    row = paired.ratio(times, "a", "b")["a / b"]
    assert (row["ratio"], row["rounds"]) == (3.0, 3)
    assert row["low"] < 3 < row["high"]


def test_the_fitted_exponent_is_the_power(benchmark):
    points = [(x, 0.5 + 1.75 * x) for x in (0.0, 1.0, 2.5, 4.0)]
    assert benchmark.dense_mixers.slope(points) == pytest.approx(1.75)


def test_a_short_case_is_called_once_before_the_clock_and_several_times_after(
    benchmark, monkeypatch
):
    paired, waits, ran = sys.modules["paired"], [], []
    monkeypatch.setattr(paired, "MOST_CALLS", 100)
    monkeypatch.setattr(paired, "LEAST_SECONDS", 2e-3)
    assert [paired.calls_a_round(taken) for taken in (1e-9, 1e-4, 1e-3, 1.0)] == [100, 20, 2, 1]
    monkeypatch.setattr(paired, "DEVICE", "cuda")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(1))
    monkeypatch.setattr(paired, "LEAST_SECONDS", 100.0)
    clock = iter(range(1000))
    monkeypatch.setattr(paired.time, "perf_counter", lambda: float(next(clock)))
    seconds = paired.interleaved({name: lambda: ran.append(1) for name in "ab"}, 0.0)
    # between two readings passes one second: 100 calls would take LEAST_SECONDS, and are the most
    assert len(ran) == 4 + 2 * 2 * (1 + 100)
    assert seconds == {name: [1 / 100] * 2 for name in "ab"}
    assert len(waits) == 2 * 2 + 2 * 2 * 2  # a GPU is waited for at every reading, and else not


def test_peers_that_are_missing_or_do_not_run_are_left_out(benchmark, monkeypatch):
    peers = sys.modules["peers"]

    def lacks_what_it_needs(x):
        raise ModuleNotFoundError("einx")

    given = {"ours": lambda x: None, "theirs": lacks_what_it_needs, "gone": lambda x: None}
    monkeypatch.setattr(peers, "PEERS", given)
    monkeypatch.setattr(peers, "PACKAGES", ("torch", "torch", "no-such-package"))
    assert peers.peers_here() == {"ours": torch.__version__}
