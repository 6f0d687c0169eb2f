"""benchmarks/numerics.py in miniature: it knows what is right, sees what is not, records both."""

import math
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from experiment_scripts import ROOT, script
from references import reference_attention, reference_rotary, reference_rotate
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig

from rove_lab import RotaryEmbedding
from rove_lab.records import read_record


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    module = script("numerics", monkeypatch, "benchmarks")
    monkeypatch.setattr(module, "find_peers", lambda: {"transformers": "5"})
    return module


@pytest.fixture
def in_use(benchmark):
    import rotations_in_use

    return rotations_in_use


@pytest.fixture
def no_peers(in_use, monkeypatch):
    """Those who are there wherever the tests run."""
    here = {name: in_use.LIBRARIES[name] for name in ("ours", "Hugging Face")}
    monkeypatch.setattr(in_use, "LIBRARIES", here)


@pytest.fixture
def stand_ins(monkeypatch):
    """The two other packages' calls, of neighbouring channels, by the lab's own rotation."""

    class Embedding(nn.Module):
        def __init__(self, d_head, theta=None, base=None):
            super().__init__()
            self.rotary = RotaryEmbedding(d_head, base=theta or base, interleaved=True)

        def rotate_queries_or_keys(self, t, offset=0):
            return self.rotary(offset + torch.arange(t.shape[-2])).apply(t)

        def forward(self, positions):
            return self.rotary(positions), 1.0

    one = SimpleNamespace(RotaryEmbedding=Embedding)
    other = SimpleNamespace(
        RotaryEmbedding=Embedding, apply_rotary_pos_emb=lambda t, freqs, scale: freqs.apply(t)
    )
    monkeypatch.setitem(sys.modules, "rotary_embedding_torch", one)
    monkeypatch.setitem(sys.modules, "x_transformers", ModuleType("x_transformers"))
    monkeypatch.setitem(sys.modules, "x_transformers.x_transformers", other)


def test_exact_turns_are_the_references(benchmark):
    from exact_turns import channels, exact_turns, planes

    positions = torch.tensor([0, 1, -7, 1_000_000])
    x = torch.randn(1, 2, 4, 8, generator=torch.Generator().manual_seed(0)).double()
    turns = exact_turns(positions, 8, 100)
    assert (turns.abs() - 1).abs().max() < 1e-15
    for interleaved in (False, True):
        assert torch.equal(channels(planes(x, interleaved), interleaved), x)
        expected = reference_rotate(
            x, [positions.tolist()], reference_rotary(8, base=100.0, interleaved=interleaved)
        )
        found = channels(planes(x, interleaved) * turns, interleaved)
        assert (found - expected).abs().max() < 1e-9


def test_drawn_planes_have_length_one_and_differ_by_seed(benchmark):
    from exact_turns import drawn_planes

    one, two = (drawn_planes(50, generator=torch.Generator().manual_seed(s)) for s in (0, 1))
    assert (one.abs() - 1).abs().max() < 1e-15
    assert (one - two).abs().min() > 0
    assert one.mean().abs() < 0.5


@pytest.mark.parametrize("name", ["rotary-embedding-torch", "x-transformers"])
def test_every_library_is_asked_for_the_same_positions(in_use, stand_ins, name):
    library, setting = in_use.LIBRARIES[name], in_use.SETTINGS["float64"]
    positions = torch.tensor([3, 0, 1_000_000])
    x = torch.randn(2, 3, in_use.D_HEAD).double()
    rotary = reference_rotary(in_use.D_HEAD, interleaved=True)
    expected = reference_rotate(x[None], [positions.tolist()], rotary)[0]
    assert library.interleaved
    assert (library.make(setting)(x, positions) - expected).abs().max() < 1e-9


def test_tables_of_hugging_face_are_those_of_its_models(in_use):
    """What a model loaded in a dtype keeps in float32, a cast one has rounded."""
    config = LlamaConfig(
        hidden_size=64, num_attention_heads=1, intermediate_size=8, num_hidden_layers=1,
        vocab_size=8,
    )  # fmt: skip
    for dtype in (torch.bfloat16, torch.float16):
        name = str(dtype).removeprefix("torch.")
        models = {
            f"{name}, loaded": AutoModelForCausalLM.from_config(config, dtype=dtype),
            f"{name}, cast": AutoModelForCausalLM.from_config(config).to(dtype),
            f"{name}, autocast": AutoModelForCausalLM.from_config(config),
        }
        for way, model in models.items():
            theirs = model.model.rotary_emb.inv_freq
            ours = in_use.HuggingFace(in_use.SETTINGS[way]).module.inv_freq
            assert ours.dtype == theirs.dtype == (dtype if "cast" in way.split() else torch.float32)
            assert torch.equal(ours, theirs)


def test_only_two_load_models_in_a_dtype(in_use):
    assert [*in_use.libraries_in(in_use.SETTINGS["float16, loaded"])] == ["ours", "Hugging Face"]
    for name in ("float32", "float64", "float16, cast", "bfloat16, autocast"):
        assert in_use.libraries_in(in_use.SETTINGS[name]) == in_use.LIBRARIES


@pytest.mark.parametrize("stop", [10, 1_000_000])
def test_an_error_is_the_distance_of_planes_of_length_one(in_use, stop):
    import position_error

    def off_by(angle, share=1.0):
        def make(setting):
            turn = in_use.ours(setting)
            return lambda x, positions: turn(turn(x, positions), torch.full([64], angle) * share)

        return in_use.Library(make, interleaved=False)

    setting = in_use.SETTINGS["float64"]
    right = position_error.turned(in_use.LIBRARIES["ours"], setting, stop, 0)
    assert right["max"] < 2e-10
    found = position_error.turned(off_by(0.5), setting, stop, 0)
    assert found["max"] == pytest.approx(2 * math.sin(0.25), rel=1e-3)  # of the fastest plane
    omega = torch.tensor([1e4 ** (-m / 32) for m in range(32)])
    chords = 2 * (0.25 * omega).sin()
    assert found["rms"] == pytest.approx(chords.square().mean().sqrt().item(), rel=1e-3)
    # the same mistake for a query and its key is none in their score
    assert position_error.drift(off_by(0.5), setting, stop, 0)["max"] < 1e-11


def test_a_position_that_is_rounded_is_seen(in_use):
    import position_error

    def make(setting):
        turn = in_use.ours(setting)
        return lambda x, positions: turn(x, positions.bfloat16().long())

    rounded, setting = in_use.Library(make, interleaved=False), in_use.SETTINGS["float32"]
    for measure in (position_error.turned, position_error.drift):
        good = measure(in_use.LIBRARIES["ours"], setting, 100_000, 0)
        assert good["max"] < 1e-6
        assert measure(rounded, setting, 100_000, 0)["rms"] > 0.05
        assert measure(rounded, setting, 100, 0)["max"] < 1e-6  # up to 256


def test_positions_lie_below_their_stop_and_reach_it(benchmark):
    from position_error import drawn_positions

    for stop in benchmark.STOPS:
        drawn = drawn_positions(stop, torch.Generator().manual_seed(0))
        assert 0.8 * stop <= drawn.min() <= drawn.max() == stop


def test_what_is_not_finite_is_counted_and_left_out(benchmark):
    from position_error import summed_up

    assert summed_up(torch.tensor([3.0, 4.0, torch.nan, torch.inf])) == {
        "not finite": 0.5,
        "rms": pytest.approx(math.sqrt(12.5), rel=1e-3),
        "max": 4.0,
    }
    assert summed_up(torch.tensor([torch.nan])) == {"not finite": 1.0}


@pytest.mark.parametrize("kind", ["none", "linear", "NTK", "Llama 3", "YaRN"])
def test_ours_comes_back_under_every_scaling(in_use, kind):
    import round_trip

    assert kind in round_trip.OURS
    for name in ("float64", "float32"):
        found = round_trip.ours(in_use.SETTINGS[name], kind, 0)
        assert found["gain"] == 1.0
        assert max(found["error"], found["error, grown"]) < 1e-6


def test_the_squared_factor_is_what_comes_back_from_hugging_face(in_use):
    import round_trip

    setting = in_use.SETTINGS["float32"]
    found = {kind: round_trip.hugging_face(setting, kind, 0) for kind in round_trip.THEIRS}
    squares = {
        "YaRN": (0.1 * math.log(16) + 1) ** 2,
        "LongRoPE": 1 + math.log(16) / math.log(4096),
    }
    for kind, scores in found.items():
        square = squares.get(kind, 1.0)
        assert scores["gain"] == pytest.approx(square, abs=1e-3)
        assert scores["error"] == pytest.approx(square - 1, abs=1e-3)
        changes = kind in ("dynamic NTK", "LongRoPE")
        assert (scores["error, grown"] > scores["error"] + 0.5) == changes


def test_exact_outputs_are_the_references(benchmark, monkeypatch):
    import output_error

    monkeypatch.setattr(output_error, "D_HEAD", 8)
    output_error.turns_by_offset.cache_clear()
    q, k, v = torch.randn(3, 1, 2, 5, 8, generator=torch.Generator().manual_seed(0)).double()
    rotary, where = reference_rotary(8), [list(range(5))]
    rope, rove = output_error.exact_outputs(q, k, v)
    expected = reference_attention(q, k, v, rotary, where, where)
    assert output_error.relative(expected, rope)["max"] < 1e-12
    expected = reference_attention(q, k, v, rotary, where, where, value_rotary=rotary)
    assert output_error.relative(expected, rove)["max"] < 1e-12
    assert output_error.relative(expected, rope)["max"] > 0.1
    output_error.turns_by_offset.cache_clear()


def test_the_naive_way_back_is_rove_where_numbers_are_exact_enough(in_use, monkeypatch):
    import output_error

    monkeypatch.setattr(output_error, "TOKENS", 16)
    found = output_error.outputs(in_use.SETTINGS["float32"], [10, 1_000_000], 0)
    assert [*found] == ["RoPE", "RoVE", output_error.THEIR_ROPE, output_error.THEIR_ROVE]
    for name, scores in found.items():
        assert scores["10"]["rms"] < 1e-6
        assert (scores["1000000"]["rms"] > 1e-4) == (name not in ("RoPE", "RoVE"))


def test_all_is_measured_and_recorded(benchmark, no_peers, tmp_path, capsys, monkeypatch):
    import output_error

    monkeypatch.setattr(output_error, "TOKENS", 8)
    ways = ("float32", "bfloat16, loaded")
    benchmark.main(settings=ways, stops=(10, 1000), seeds=3, folder=tmp_path)
    record = read_record(tmp_path)
    assert (record.kind, record.seeds) == ("measurement", [0, 1, 2])
    assert [*record.values] == ["turned", "drift", "round trip", "output"]
    for part in record.values.values():
        assert [*part] == [*ways]
    scores = record.values["turned"]["bfloat16, loaded"]["Hugging Face"]["1000"]
    assert scores["not finite"] == [0.0] * 3
    assert len({*scores["rms"]}) == 3
    assert record.config["stops"] == [10, 1000]
    assert [*record.config["settings"]] == [*benchmark.SETTINGS]
    assert "bfloat16, loaded: done" in capsys.readouterr().out
