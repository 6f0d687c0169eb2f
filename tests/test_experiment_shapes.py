"""experiments/shapes.py in miniature, and what its record holds."""

import pytest
import torch
from experiment_scripts import ROOT, names, script_on_small_files

from rove_lab.evaluation import HELD_OUT_SEED
from rove_lab.experiment import described
from rove_lab.model import GPT, GPTConfig
from rove_lab.records import read_record
from rove_lab.training import TrainConfig

SMALL = GPTConfig(n_ctx=16, d_model=16, n_heads=2, n_layers=1, base=100.0, rotate_values=False)


@pytest.fixture
def shapes(monkeypatch, tmp_path):
    return script_on_small_files("shapes", monkeypatch, tmp_path / "sources")


@pytest.fixture
def budget(shapes):
    how = TrainConfig(steps=3, batch_size=2, learning_rate=1e-2)
    return shapes.Budget(
        SMALL, ((1, 2), (2, 1)), how, (1, 4), spans=3, spans_to_choose=2, betas=(1.0, 2.0)
    )


def expected_names(budget):
    lengths = [str(n) for n in budget.lengths]

    def both(inner):
        return {"RoPE": inner, "RoVE": inner}

    losses = {n: {"nats per byte": None} for n in lengths}
    of_shape = {
        "plain": both(losses),
        "YaRN": both(losses),
        "chosen": both({n: {"beta_fast": None} for n in lengths[1:]}),
        "training": both({"processor seconds a step": None}),
    }
    return dict.fromkeys(budget.named, of_shape)


def test_it_trains_and_scores_every_shape(shapes, budget, capsys):
    record = shapes.EXPERIMENT.record(budget, range(3))
    assert names(record.values) == expected_names(budget)
    assert list(record.values) == ["1 layer, 2 heads", "2 layers, 1 head"]
    assert record.config == described(budget)
    assert "[6/6] 2 layers, 1 head, seed 2: RoPE " in capsys.readouterr().out
    for shape in record.values.values():
        assert shape["plain"]["RoVE"]["16"] == shape["YaRN"]["RoVE"]["16"]
        assert shape["plain"]["RoVE"]["64"] != shape["YaRN"]["RoVE"]["64"]
        assert shape["plain"]["RoVE"]["64"] != shape["plain"]["RoPE"]["64"]


def test_a_shape_is_what_its_name_says(shapes):
    for budget in (shapes.CPU, shapes.GPU):
        for name, config in budget.named.items():
            layers, heads = (int(words.split()[0]) for words in name.split(", "))
            assert (config.n_layers, config.n_heads) == (layers, heads)
            assert not config.rotate_values


def test_yarn_is_on_at_the_lengths_that_were_chosen_for(shapes):
    gpt, tokens = GPT(SMALL), torch.arange(64)[None]
    at = shapes.yarn_as_chosen(gpt, {64: 2.0})
    trained = gpt(tokens)
    with at(16):
        assert torch.equal(gpt(tokens), trained)
    with at(64):
        assert gpt.blocks[0].attn.rotary.scaling.beta_fast == 2.0
        assert not torch.equal(gpt(tokens), trained)


def test_held_out_text_is_scored_and_beta_fast_chosen_on_text_of_the_training(
    shapes, budget, monkeypatch
):
    read = {"perplexity_by_length": [], "choose_beta_fast": []}

    def noting(inner, texts):
        def noted(model, tokens, *rest, **named):
            texts.append(tokens)
            return inner(model, tokens, *rest, **named)

        return noted

    for name, texts in read.items():
        monkeypatch.setattr(shapes, name, noting(getattr(shapes, name), texts))
    shapes.run(budget, "1 layer, 2 heads", seed=0)
    text = shapes.standard_library(16)
    for part, count, texts in (
        (text.held_out, 3, read["perplexity_by_length"]),
        (text.train, 2, read["choose_beta_fast"]),
    ):
        expected = next(part.at_length(64).batches(count, HELD_OUT_SEED))[0]
        assert texts
        assert all(torch.equal(tokens, expected) for tokens in texts)


def test_it_stops_where_a_training_was_stopped(shapes, budget, monkeypatch):
    def stopped(*arguments, **options):
        runs = matched(*arguments, **options)
        runs["RoVE"].interrupted = True
        return runs

    matched = shapes.train_matched
    monkeypatch.setattr(shapes, "train_matched", stopped)
    with pytest.raises(KeyboardInterrupt):
        shapes.run(budget, "2 layers, 1 head", seed=0)


def test_the_committed_record_is_what_the_script_would_write(shapes):
    values = read_record(ROOT / "results" / "shapes").values
    assert names(values) == expected_names(shapes.CPU)
    for shape in values.values():
        chosen = [
            beta
            for arm in shape["chosen"].values()
            for of in arm.values()
            for beta in of["beta_fast"]
        ]
        assert {*chosen} <= {*shapes.CPU.betas}
