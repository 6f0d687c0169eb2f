"""benchmarks/: the plain decoder is the lab's GPT, and every step of both is timed and recorded."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from experiment_scripts import ROOT, names, script

from rove_lab.model import GPTConfig
from rove_lab.records import open_record, read_record

TINY = GPTConfig(d_vocab=31, n_ctx=8, d_model=24, n_layers=2, n_heads=3)
SCORES = ["step_ms", "tokens_per_s", "step / plain rotary"]


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    module = script("training_step", monkeypatch, "benchmarks")
    monkeypatch.setattr(module, "ProcessPoolExecutor", lambda *_, **__: ThreadPoolExecutor(1))
    monkeypatch.setattr(module.torch, "set_num_threads", lambda count: None)
    return module


def copied(model, plain):
    """The lab's weights in the plain model, which keeps queries, keys and values in one matrix."""
    with torch.no_grad():
        plain.embed.weight.copy_(model.embed.weight)
        plain.ln_final.load_state_dict(model.ln_final.state_dict())
        for ours, theirs in zip(model.blocks, plain.blocks, strict=True):
            parts = [getattr(ours.attn, f"W_{name}").transpose(1, 2) for name in "QKV"]
            theirs.attn.qkv.weight.copy_(torch.cat([part.flatten(0, 1) for part in parts]))
            theirs.attn.out.weight.copy_(ours.attn.W_O.flatten(0, 1).T)
            theirs.fc.weight.copy_(ours.mlp.W_in.weight)
            theirs.proj.weight.copy_(ours.mlp.W_out.weight)
            for name in ("ln1", "ln2"):
                getattr(theirs, name).load_state_dict(getattr(ours, name).state_dict())


@pytest.mark.parametrize("rms_norm", [True, False])
def test_the_plain_rotary_decoder_computes_what_the_labs_gpt_computes(benchmark, rms_norm):
    config = replace(TINY, rms_norm=rms_norm)
    model, plain = (benchmark.MODELS[name](config) for name in ("RoPE", "plain, rotary"))
    copied(model, plain)
    tokens = torch.randint(0, 31, (2, 7))
    assert torch.allclose(model(tokens), plain(tokens), atol=1e-5)
    count = [sum(p.numel() for p in each.parameters()) for each in (model, plain)]
    assert count[0] == count[1]


def test_learned_positions_are_one_table_more(benchmark):
    learned, rotary = (
        sum(p.numel() for p in benchmark.MODELS[name](TINY).parameters())
        for name in ("plain, learned positions", "plain, rotary")
    )
    assert learned - rotary == TINY.n_ctx * TINY.d_model
    tokens = torch.zeros(1, 8, dtype=torch.long)
    out = benchmark.MODELS["plain, learned positions"](TINY)(tokens)
    assert out.shape == (1, 8, 31)
    assert not torch.allclose(out[:, 0], out[:, 7])


def test_a_step_trains(benchmark):
    for name in benchmark.MODELS:
        stepper = benchmark.Stepper(name, benchmark.Shape(TINY, 4, 1))
        before = stepper.task.loss(stepper.model(stepper.inputs), stepper.targets)
        assert all(stepper.step() > 0 for _ in range(5))
        assert stepper.task.loss(stepper.model(stepper.inputs), stepper.targets) < before


def test_every_model_is_timed_and_recorded(benchmark, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(benchmark, "SHAPES", {"tiny": benchmark.Shape(TINY, 2, 3)})
    benchmark.main(repetitions=2, folder=tmp_path)
    record = read_record(tmp_path)
    assert record.seeds == [0, 1]
    assert names(record.values) == expected(benchmark)
    assert record.values["tiny"]["plain, rotary"]["step / plain rotary"] == [1.0, 1.0]
    assert "[2/2] tiny, RoVE: step_ms " in capsys.readouterr().out


def expected(benchmark):
    """The names of the values that the script records."""
    models = dict.fromkeys(benchmark.MODELS, dict.fromkeys([*SCORES, "peak_mb"]))
    models |= dict.fromkeys(benchmark.LOOP.values(), dict.fromkeys(SCORES))
    models["RoVE"] = models["RoVE"] | {"step / RoPE": None}
    return dict.fromkeys(benchmark.SHAPES, models)


def test_the_committed_record_is_what_the_script_would_write(benchmark):
    record = open_record("training_step")
    assert record.config == benchmark.config()
    assert names(record.values) == expected(benchmark)
