"""What each command leaves: models as the package trains them, numbers as it measures them."""

import json
import math
from itertools import chain
from pathlib import Path

import pytest
import tokenizers
import torch
from command_samples import QUICK, SIZES, status, write_texts
from hf_models import small_config
from token_documents import made_up, write
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

import rove_lab.commands.evaluate
from rove_lab.checkpoints import save_model
from rove_lab.command_line import parse, run
from rove_lab.commands.evaluate import _by_position
from rove_lab.commands.learning import say, write_json
from rove_lab.commands.measures import lengths_within, windows
from rove_lab.commands.recipe import Corpus
from rove_lab.commands.trained import corpus_of, models_in
from rove_lab.commands.vocabulary import spell, tokenizer_of, tokens_of
from rove_lab.context_extension import choose_beta_fast, yarn_by_length
from rove_lab.data import ByteText, text_files
from rove_lab.evaluation import loss_by_position, perplexity_by_length
from rove_lab.few_shot import few_shot_scores, suite_score
from rove_lab.model import GPT, GPTConfig, load_pretrained
from rove_lab.run_folder import last_checkpoint, trained_models
from rove_lab.training import train_matched

CONFIG = GPTConfig(n_ctx=16, d_model=16, n_layers=1, n_heads=2)
LENGTHS = [16, 32, 64, 128, 256]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_texts(tmp_path_factory.mktemp("text") / "texts")


@pytest.fixture(scope="module")
def compared(text, tmp_path_factory):
    """A comparison of two seeds."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert status("compare", "--folder", folder, "--seeds", 2, "--n-tokens", 1024, text=text) == 0
    return folder


def weights(model):
    return list(chain(model.parameters(), model.buffers()))


def assert_same(models, others):
    assert models.keys() == others.keys()
    for name, model in models.items():
        for own, other in zip(weights(model), weights(others[name]), strict=True):
            assert torch.equal(own, other)


def test_compare_trains_as_the_package_does(compared, text):
    training = parse(["train", *QUICK]).recipe.training
    arms = {"RoPE": GPTConfig(**vars(CONFIG) | {"rotate_values": False}), "RoVE": CONFIG}
    runs = train_matched(arms, training, text_files(text, 16).train, progress=False)
    assert_same(trained_models(compared), {name: run.model for name, run in runs.items()})
    others = trained_models(compared / "seed-1")
    assert not torch.equal(weights(others["RoVE"])[0], weights(runs["RoVE"].model)[0])


def test_compare_measures_what_it_says(compared, text):
    found = json.loads((compared / "comparison.json").read_text())
    assert found["seeds"] == [0, 1]
    assert found["unit"] == "nats per byte"
    assert GPTConfig(**found["model"]) == CONFIG
    scored = windows(text_files(text, 16).held_out, 256, 1024)
    assert found["held_out_tokens"] == scored.numel() == 1024
    for name in ("RoPE", "RoVE"):
        values = found["values"][name]
        for index, folder in enumerate((compared, compared / "seed-1")):
            model = trained_models(folder)[name]
            expected = perplexity_by_length(model, scored, LENGTHS)
            for length, perplexity in expected.items():
                assert values["perplexity"][str(length)][index] == pytest.approx(perplexity)
            assert values["loss"][index] == pytest.approx(math.log(expected[16]))
            assert values["step_ms"][index] > 0


def test_the_table_has_every_number_and_the_differences(compared, text, capsys):
    asked = ("--folder", compared, "--n-tokens", 1024, "--lengths", 16, 64)
    assert status("compare", *asked, text=text) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"finished already: nothing to train in {compared}"
    values = json.loads((compared / "comparison.json").read_text())["values"]
    rope, rove = values["RoPE"], values["RoVE"]
    rows = {line[:23].strip(): line.split()[-2:] for line in lines[4:8]}
    assert rows == {
        "nats per byte": [f"{rope['loss'][0]:.3f}", f"{rove['loss'][0]:.3f}"],
        "perplexity at 16 (1 ×)": [f"{arm['perplexity']['16'][0]:.3f}" for arm in (rope, rove)],
        "perplexity at 64 (4 ×)": [f"{arm['perplexity']['64'][0]:.3f}" for arm in (rope, rove)],
        "step, ms": [f"{arm['step_ms'][0]:.3f}" for arm in (rope, rove)],
    }
    assert lines[8] == (
        f"RoVE − RoPE: {rove['loss'][0] - rope['loss'][0]:+.4f} nats per byte; step time "
        f"RoVE / RoPE: {rove['step_ms'][0] / rope['step_ms'][0]:.3f} (one seed; --seeds "
        "3 shows how far seeds differ)"
    )


@pytest.mark.parametrize("name", ["RoPE", "RoVE"])
def test_train_makes_one_arm_of_the_comparison(compared, text, name, capsys):
    flag = "--rotate-values" if name == "RoVE" else "--no-rotate-values"
    assert status("train", flag, "--folder", "one", text=text) == 0
    models = trained_models("one")
    assert_same(models, {name: trained_models(compared)[name]})
    scored = windows(text_files(text, 16).held_out, 16, 256 * 16)
    perplexity = perplexity_by_length(models[name], scored, [16])[16]
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"held-out text: {math.log(perplexity):.3f} nats per byte, perplexity {perplexity:.3f} in "
        f"windows of 16; the model is in one/checkpoint-4/{name}"
    )


def test_evaluate_measures_what_it_says(compared, text, capsys, monkeypatch):
    chosen_on = []

    def choose(model, tokens, length, **how):
        chosen_on.append(tokens)
        return choose_beta_fast(model, tokens, length, **how)

    monkeypatch.setattr(rove_lab.commands.evaluate, "choose_beta_fast", choose)
    asked = ["--n-tokens", "1024", "--shots", "0", "2", "--out", "found.json"]
    assert run(["evaluate", str(compared), *asked]) == 0
    said = capsys.readouterr().out
    found = json.loads(Path("found.json").read_text())
    split = text_files(text, 16)
    for name, model in trained_models(compared).items():
        at = windows(split.held_out, 16, 1024)
        losses = loss_by_position(model, at)
        scored = windows(split.held_out, 256, 1024)
        plain = perplexity_by_length(model, scored, LENGTHS)
        learned = windows(split.train, 32, 256)  # not what the model is scored on
        assert torch.equal(chosen_on.pop(0), learned)
        beta_fast = choose_beta_fast(model, learned, 32).beta_fast
        yarn = perplexity_by_length(
            model, scored, LENGTHS, extension=yarn_by_length(model, beta_fast=beta_fast)
        )
        shots = suite_score(few_shot_scores(model, [0, 2]))
        expected = (
            {
                "loss after 1 to 3 tokens": losses[:, :3].mean().item(),
                "loss after 4 to 15 tokens": losses[:, 3:].mean().item(),
            }
            | {f"perplexity at {n} ({n // 16} ×)": plain[n] for n in LENGTHS}
            | {f"  with YaRN at {n} ({n // 16} ×)": yarn[n] for n in LENGTHS[1:]}
            | {f"in context, {k} examples": score for k, score in shots.items()}
        )
        assert found["values"][name] == pytest.approx(expected)
        assert found["beta_fast"][name] == beta_fast
        assert f"{beta_fast:g} for {name}" in said
        for row, value in expected.items():
            assert f"{value:.3f}" in next(line for line in said.splitlines() if row in line)


def test_evaluate_reads_another_text_where_one_is_named(compared, tmp_path, capsys):
    other = write_texts(tmp_path / "other", documents=80)
    quick = "--no-yarn --shots --n-tokens 256 --lengths 16".split()
    assert run(["evaluate", str(compared), *quick, "--out", "own.json"]) == 0
    assert run(["evaluate", str(compared), *quick, "--text", str(other), "--out", "b.json"]) == 0
    own, others = (json.loads(Path(name).read_text()) for name in ("own.json", "b.json"))
    assert own["values"] != others["values"]
    assert list(own["values"]["RoVE"])[-1] == "perplexity at 16 (1 ×)"
    assert own["beta_fast"] == {"RoPE": None, "RoVE": None}


def test_evaluate_reads_a_hugging_face_model(text, tmp_path, capsys):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(small_config("llama", vocab_size=256)).eval()
    signs = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(
        tokenizers.models.BPE({sign: number for number, sign in enumerate(signs)}, [])
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    capsys.readouterr()
    asked = "--n-ctx 16 --lengths 16 64 --n-tokens 128 --shots 1 --out found.json".split()
    assert run(["evaluate", str(tmp_path / "model"), "--text", str(text), *asked]) == 0
    values = json.loads(Path("found.json").read_text())["values"][str(tmp_path / "model")]
    held_out = bytes(text_files(text, 16).held_out.bytes.tolist()).decode()
    ids = torch.tensor(tokenizer.encode(held_out)[:128])
    expected = perplexity_by_length(model, ids, [16, 64])
    assert values["perplexity at 64 (4 ×)"] == pytest.approx(expected[64], rel=1e-5)
    assert "  with YaRN at 64 (4 ×)" in values
    assert capsys.readouterr().err == ""


def test_evaluate_says_that_a_hugging_face_model_has_no_tokenizer(text, tmp_path, capsys):
    config = small_config("llama", vocab_size=256)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "model")
    capsys.readouterr()
    assert run(["evaluate", str(tmp_path / "model"), "--text", str(text)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith("rove-lab: expected a tokenizer in the folder ")


@pytest.mark.parametrize(("warmup", "told"), [(4, 1), (3, 0)])
def test_a_warm_up_that_takes_all_steps_is_told(text, capsys, warmup, told):
    assert status("train", "--folder", "one", "--warmup-steps", warmup, text=text) == 0
    words = "the learning rate only grows: 4 warm-up steps of 4; --warmup-steps sets fewer"
    assert capsys.readouterr().out.splitlines().count(words) == told


def test_generate_writes_with_every_model(compared, capsys):
    asked = ["--prompt", "def f", "--n-tokens", "20", "--seed", "3", "--temperature", "0.5"]
    assert run(["generate", str(compared), *asked]) == 0
    said = capsys.readouterr().out
    for name, model in trained_models(compared).items():
        tokens = torch.tensor([list(b"def f")])
        random = torch.Generator().manual_seed(3)
        written = model.generate(tokens, 20, temperature=0.5, generator=random)
        assert f"--- {name}\n{spell(written[0].tolist(), None)}\n" in said


def test_generate_reads_a_model_s_folder(capsys):
    save_model(GPT(CONFIG), "mine")
    assert run(["generate", "mine", "--n-tokens", "5", "--temperature", "0"]) == 0
    assert capsys.readouterr().out.startswith("--- RoVE\ndef ")


def test_a_model_that_comes_with_the_package_goes_by_its_name(capsys):
    assert run(["generate", "byte-rove", "--n-tokens", "5", "--temperature", "0"]) == 0
    said = capsys.readouterr().out
    shipped = load_pretrained("byte-rove")
    assert_same(models_in(Path("byte-rove")), {"RoVE": shipped})
    tokens = torch.tensor([list(b"def ")])
    written = shipped.generate(tokens, 5, temperature=0.0)[0].tolist()
    assert bytes(written).decode() in said
    assert corpus_of(Path("byte-rove")) == Corpus()
    mine = GPT(CONFIG).eval()
    save_model(mine, "byte-rove")  # a folder of that name goes first
    assert_same(models_in(Path("byte-rove")), {"RoVE": mine})


def test_evaluate_takes_the_name_too(capsys):
    asked = [
        "--n-tokens",
        "1024",
        "--lengths",
        "128",
        "--shots",
        "--no-yarn",
        "--out",
        "found.json",
    ]
    assert run(["evaluate", "byte-rope", *asked]) == 0
    found = json.loads(Path("found.json").read_text())["values"]["RoPE"]
    assert found["perplexity at 128 (1 ×)"] < 6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["generate", "mine", "--prompt", ""], "expected a prompt to go on from"),
        (["generate", "mine", "--n-tokens", "0"], "expected n_tokens to be positive"),
        (["generate", "mine", "--temperature", "-1"], "expected temperature of 0 or more"),
        (["generate", "mine", "--seed", str(2**63)], "expected a seed from 0 to 2**63 - 1"),
        (["generate", "other"], "nothing says what its tokens spell"),
        (["evaluate", "mine", "--n-tokens", "0"], "expected n_tokens to be positive"),
        (["evaluate", "mine", "--n-ctx", "0"], "expected n_ctx to be positive"),
        (["evaluate", "mine", "--shards", "shards"], "give --text"),
        (["evaluate", "no/such-model"], "is not a folder"),
        (["prepare-data", "--parquet", "none"], "expected a parquet file"),
    ],
)
def test_what_cannot_be_done_is_refused(arguments, words, capsys):
    write(made_up(60), Path("shards"))
    save_model(GPT(CONFIG), "mine")
    save_model(GPT(GPTConfig(d_vocab=100, n_ctx=16, d_model=16, n_layers=1)), "other")
    assert run(arguments) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_a_run_remembers_its_text(compared, text):
    assert corpus_of(compared) == Corpus(text=text)
    assert corpus_of(last_checkpoint(compared) / "RoVE") == Corpus(text=text)
    assert models_in(last_checkpoint(compared) / "RoPE").keys() == {"RoPE"}


def test_a_run_goes_on_from_another_folder(text, tmp_path, monkeypatch):
    """What is noted is where the text is, not how it was typed."""
    monkeypatch.chdir(text.parent)
    assert run(["train", "--text", "texts", "--folder", str(tmp_path / "run"), *SIZES, *QUICK]) == 0
    monkeypatch.chdir(tmp_path)
    assert (
        corpus_of(tmp_path / "run").open(16).train.n_documents
        == text_files(text, 16).train.n_documents
    )


def test_windows_are_the_same_ones_and_read_as_a_tokenizer_reads():
    part = ByteText([bytes(range(65, 91)) * 10], 8)
    assert torch.equal(windows(part, 8, 64), windows(part, 8, 64))
    assert windows(part, 8, 1).shape == (1, 8)
    assert windows(part, 8, 10**9).shape == (part.n_tokens // 8, 8)
    pairs = windows(part, 8, 64, lambda text: [ord(sign) for sign in text[::2]])
    assert pairs.flatten().tolist() == (list(range(65, 91, 2)) * 5)[:64]
    few = windows(part, 50, 1000, lambda text: [ord(sign) for sign in text[::2]])
    assert few.shape == (2, 50)
    with pytest.raises(ValueError, match="expected 200 tokens of text or more, got 130"):
        windows(part, 200, 200, lambda text: [ord(sign) for sign in text[::2]])
    with pytest.raises(ValueError, match=r"a tokenizer of its own.*give --text"):
        windows(object(), 8, 8, list)


def test_lengths_go_as_far_as_the_text_and_the_memory():
    part = ByteText([bytes(100)], 8)
    assert lengths_within([], 8, part, 256) == [8, 16, 32, 64]
    assert lengths_within([], 8, part, 2**25) == [8, 16, 32]
    assert lengths_within([64, 8], 8, part, 2**25) == [8, 64]
    with pytest.raises(ValueError, match="held-out text of more than 200 tokens"):
        lengths_within([50, 200], 8, part, 256)
    with pytest.raises(ValueError, match=r"divide the longest, 64, got \[1, 24\]"):
        lengths_within([1, 24, 64], 8, part, 256)


def test_losses_by_position_are_means_over_fourfold_spans():
    losses = torch.arange(1.0, 21.0).expand(2, 20)  # entry t is what was paid after t tokens
    assert _by_position(losses) == {
        "loss after 1 to 3 tokens": 2.0,
        "loss after 4 to 15 tokens": 9.5,
        "loss after 16 to 20 tokens": 18.0,
    }
    assert _by_position(losses[:, :1]) == {"loss after 1 token": 1.0}


def test_tokens_spell_what_a_terminal_can_show():
    gpt2 = tokenizer_of(GPT(GPTConfig(d_vocab=50_257, d_model=4, n_heads=1)))
    for text in ("naïve\n\tdef", "<|endoftext|>"):
        for tokenizer in (gpt2, None):
            assert spell(tokens_of(text, tokenizer), tokenizer) == text
    assert spell([27, 91, 65, 255], None) == "\ufffd[A\ufffd"  # an escape would move the cursor


def test_only_the_main_process_speaks(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    say("hello")
    assert capsys.readouterr().out == ""
    assert run(["train", "--text", "none"]) == 2
    assert capsys.readouterr().err.startswith("rove-lab (process 1): expected a text file")
    for alone in (["generate", "none"], ["prepare-data", "--parquet", "none"]):
        assert run(alone) == 0  # the main process does it
    assert capsys.readouterr() == ("", "")


def test_json_is_whole_or_not_there(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"loss": math.nan})
    assert list(tmp_path.iterdir()) == []
