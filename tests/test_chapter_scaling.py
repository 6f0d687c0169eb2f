"""The chapter on scaling: its commands are read by the real parsers, its numbers are computed."""

import json
import math
import re
import shlex
import statistics
from pathlib import Path

import pytest
from accelerate.commands.launch import launch_command_parser
from packaging.requirements import Requirement
from torch.distributed.run import get_args_parser

from rove_lab import fineweb
from rove_lab.command_line import parse
from rove_lab.commands.compare import Compare
from rove_lab.commands.evaluate import Evaluate
from rove_lab.commands.generate import Generate
from rove_lab.commands.prepare_data import PrepareData
from rove_lab.commands.train import Train
from rove_lab.estimates import (
    parameter_count,
    tokens_per_second,
    training_flops,
    training_hours,
    training_memory,
)
from rove_lab.model import GPTConfig
from rove_lab.power import paired_power, seeds_needed, two_sample_power
from rove_lab.records import open_record
from rove_lab.shard_index import ShardIndex, write_index
from rove_lab.train_config import TrainConfig

ROOT = Path(__file__).resolve().parents[1]
CELLS = json.loads((ROOT / "book" / "scaling.ipynb").read_text(encoding="utf-8"))["cells"]
MARKDOWN = "\n".join("".join(c["source"]) for c in CELLS if c["cell_type"] == "markdown")
CODE = ["".join(c["source"]) for c in CELLS if c["cell_type"] == "code"]
# What an alt text says stands in pieces, each in quotes on a line of its own.
ALTS = ["".join(re.findall(r'^ {4}(?:alt=)?"(.*)"', code, re.M)) for code in CODE if "alt=" in code]
WORDS = " ".join([*MARKDOWN.split(), *" ".join(ALTS).split()])
COMMANDS = [
    line
    for block in re.findall(r"```bash\n(.*?)```", MARKDOWN, re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
]
SIZES = {name: GPTConfig.preset(f"gpt2-{name}") for name in ("124m", "354m")}
TOKENS = 10**10
PEAKS = {"RTX 4090": 165e12, "A100": 312e12, "H100": 989e12}
NOISE = 0.0024
GAINS = {"124m": math.log(22.37 / 22.30), "354m": math.log(15.64 / 15.52)}


# The commands


def asked(line):
    """The command of a line as the program reads it, and in how many processes."""
    program, *words = shlex.split(line)
    if program == "python":
        assert words[:2] == ["-m", "rove_lab"]
        return parse(words[2:]), 1
    if program == "torchrun":
        launch = get_args_parser().parse_args(words)
        processes = int(launch.nproc_per_node)
    else:
        assert (program, words[0]) == ("accelerate", "launch")
        launch = launch_command_parser().parse_args(words[1:])
        processes = launch.num_processes
        assert launch.multi_gpu
    assert launch.module
    assert launch.training_script == "rove_lab"
    return parse(launch.training_script_args), processes


@pytest.fixture
def shards(tmp_path, monkeypatch):
    """A folder that looks as if prepare-data had been there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shards").mkdir()
    write_index(ShardIndex("a text", "again", d_vocab=50_257, end_of_text=50_256), "shards")


@pytest.mark.parametrize("line", [line for line in COMMANDS if not line.startswith("pip ")])
def test_a_command_exists_and_means_what_the_page_says(shards, line):
    command, processes = asked(line)
    if not isinstance(command, (Train, Compare)):
        assert isinstance(command, (PrepareData, Evaluate, Generate))
        return
    recipe, preset = command.recipe, command.recipe.start.preset
    rotates = "--no-rotate-values" not in line
    assert recipe.model == GPTConfig.preset(preset, rotate_values=rotates)
    how = recipe.training
    assert how.batch_size % (processes * how.accumulate) == 0
    micro = how.batch_size // (processes * how.accumulate)
    assert micro == (8 if "--accumulate 64" in line else 16)
    steps = 20 if "--steps" in line else TrainConfig.preset(preset).steps
    assert (how.steps, how.compile) == (steps, "--compile" in line)


def test_every_command_is_shown_and_three_make_the_four_runs(shards):
    parsed = [asked(line)[0] for line in COMMANDS if not line.startswith("pip ")]
    assert {type(command) for command in parsed} == {
        PrepareData,
        Train,
        Compare,
        Evaluate,
        Generate,
    }
    alone = [line for line in COMMANDS if line.startswith("python") and "--seeds" not in line]
    needed = [line for line in alone if "prepare-data" in line or "compare --preset" in line]
    assert len(needed) == 3
    assert "three commands" in MARKDOWN.splitlines()[0]


def test_runs_that_are_read_later_are_where_they_were_written(shards):
    written = {str(asked(line)[0].recipe.folder) for line in COMMANDS if "compare --" in line}
    read = {word for line in COMMANDS for word in line.split() if word.startswith("runs/compare-")}
    assert read
    assert read <= written


def test_what_is_installed_is_the_project_with_an_extra_it_has():
    (line,) = (line for line in COMMANDS if line.startswith("pip "))
    wanted = Requirement(shlex.split(line)[2])
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert wanted.name == "rove-lab"
    assert all(re.search(rf"^{extra} = \[", pyproject, re.M) for extra in wanted.extras)
    assert f'Repository = "{wanted.url.removeprefix("git+")}"' in pyproject


# The numbers


def hours(name, gpu, reached):
    return training_hours(TOKENS, tokens_per_second(SIZES[name], PEAKS[gpu], reached))


def four_runs(gpu, reached):
    return 2 * sum(hours(name, gpu, reached) for name in SIZES)


def says(*phrases):
    for phrase in phrases:
        assert phrase in WORDS, phrase


def test_the_title_is_the_estimate_at_the_utilisations_of_others():
    least, most = four_runs("A100", 0.6), four_runs("A100", 0.3)
    assert (round(least, -2), round(most, -2)) == (100, 200)
    says("by estimate, 100 to 200 A100 hours", "100 to 200 hours of one A100")


def test_hours():
    told = {gpu: round(four_runs(gpu, 0.3)) for gpu in PEAKS}
    says(
        f"one A100 takes {told['A100']} hours, one H100 {told['H100']} and one RTX 4090 "
        f"{told['RTX 4090']}; eight A100s take {four_runs('A100', 0.3) / 8:.0f}."
    )
    assert round(four_runs("A100", 0.3) / 8) == 24
    says("a day on eight at 30 %")
    nanogpt, llmc = 300e9 / (4 * 86_400), 10e9 / (90 * 60)
    flops = training_flops(SIZES["124m"], 1).matmul
    assert nanogpt * flops / (8 * PEAKS["A100"]) == pytest.approx(0.30, abs=0.005)
    assert llmc * flops / (8 * PEAKS["A100"]) == pytest.approx(0.63, abs=0.005)
    says("a plain loop reaches 30 %, and a very good one twice that")


def test_operations():
    cost = {name: training_flops(config, TOKENS) for name, config in SIZES.items()}
    assert f"{2 * sum(flops.matmul for flops in cost.values()):.1e}" == "6.6e+19"
    says("6.6 × 10¹⁹ operations")
    flops = cost["124m"]
    assert f"{flops.rotations / flops.matmul:.3%}" == "0.026%"
    says("all of RoVE's rotations are 0.026 % of the operations", "Rotations are 0.026 %")
    at = {n: training_flops(GPTConfig.preset("gpt2-124m", n_ctx=n), 1) for n in (256, 4096, 8192)}
    assert at[256].rotations / at[256].matmul < 1 / 3000
    assert at[4096].attention < at[4096].weights
    assert at[8192].attention > at[8192].weights
    says("attention has overtaken them at 8192", "below a thirtieth of a percent")
    tiny = parameter_count(GPTConfig.preset("tiny"))
    assert 250 < parameter_count(SIZES["124m"]) / tiny < 350
    says("three hundred times smaller")


def test_what_a_step_was_measured_to_cost():
    measured = open_record("training_step").values["small"]
    ratios = [100 * (ratio - 1) for ratio in measured["RoVE"]["step / RoPE"]]
    assert (round(min(ratios)), round(max(ratios))) == (3, 5)
    says("RoVE's step takes 3 to 5 % longer", "a step costs 3 to 5 % more on our processor")
    small = training_flops(GPTConfig.preset("small"), 1)
    assert small.rotations / 2 / small.matmul < 1 / 1000
    says("its own rotations are less than a thousandth of the operations")
    peaks = zip(measured["RoVE"]["peak_mb"], measured["RoPE"]["peak_mb"], strict=True)
    more = [round(100 * (rove / rope - 1)) for rove, rope in peaks]
    assert (min(more), max(more)) == (2, 5)
    says("the peak of memory was 2 to 5 % higher")
    assert parameter_count(GPTConfig.preset("small")) == pytest.approx(5e6, rel=0.1)
    says("a model of five million parameters")


def pair_gb(name, micro):
    at = training_memory(SIZES[name], micro, bf16=True)
    return (2 * at.total - at.activations) / 1e9


@pytest.mark.parametrize(
    ("card", "small", "large"), [(24, 16, 4), (40, 32, 8), (80, 64, 32)], ids=str
)
def test_micro_batches_are_the_largest_that_leave_a_fifth_free(card, small, large):
    for name, micro in {"124m": small, "354m": large}.items():
        assert pair_gb(name, micro) < 0.8 * card < pair_gb(name, 2 * micro)
    says(
        "24 GB take micro-batches of 16 of the smaller model and 4 of the larger; 40 GB take 32 "
        "and 8 (the preset's 16 would leave too little), 80 GB 64 and 32"
    )


def test_memory():
    at = {name: training_memory(config, 16, bf16=True) for name, config in SIZES.items()}
    assert [round(of.activations / 1e9) for of in at.values()] == [12, 22]
    assert max(max(of.weights, of.gradients, of.moments) for of in at.values()) < 3e9
    assert at["124m"].weights < at["124m"].moments
    says("stay at 3 gigabytes or less", "at 16 sequences to 12 and 22 gigabytes")
    logits = 2 * 4 * 50_257 * 16 * 1024
    assert 0.5 < logits / at["124m"].activations < 0.55
    says("Half of the smaller model's activations are logits: 50,257 numbers")
    how = TrainConfig.preset("gpt2-124m")
    assert how.batch_size // how.accumulate == 16
    says("512 sequences", f"{how.accumulate} of 16 sequences on one GPU")
    says(f"at most {how.checkpoint_every} of {how.steps:,}")


def test_the_download_and_the_disk():
    source = Path(fineweb.__file__).read_text(encoding="utf-8")
    assert "14 files of 28.5 GB" in source
    says("28.5 GB, none of which is kept", f"{2 * TOKENS / 1e9:.0f} GB")


def test_pairs():
    alone = [seeds_needed(paired_power, gain, NOISE * math.sqrt(2)) for gain in GAINS.values()]
    much = [seeds_needed(paired_power, gain, NOISE * math.sqrt(0.2)) for gain in GAINS.values()]
    assert (alone, much) == ([12, 4], [4, 3])
    says("four pairs show the larger model's gain and twelve the smaller's; at 90 % three and four")
    says("from four matched pairs to twelve (at a noise of 0.0024)")
    says("with four pairs, that of the 124M model with twelve", "with three and four")
    assert seeds_needed(two_sample_power, GAINS["124m"], NOISE) == 11
    blagpt = {"RoPE": [3.1134, 3.1250], "RoVE": [3.1106, 3.1240]}
    apart = [rove - rope for rope, rove in zip(*blagpt.values(), strict=True)]
    assert min(statistics.stdev(losses) for losses in blagpt.values()) > 0.008
    assert statistics.stdev(apart) == pytest.approx(0.0013, abs=5e-5)
    says("each arm varies by 0.008 or more", "and the *difference* by 0.0013")


def test_what_our_own_pairs_did():
    held_out = open_record("training").values["held out"]
    rope, rove = (held_out[arm]["800"]["all"] for arm in ("RoPE", "RoVE"))
    apart = [b - a for a, b in zip(rope, rove, strict=True)]
    assert (len(apart), sum(difference < 0 for difference in apart)) == (4, 3)
    assert statistics.mean(apart) == pytest.approx(-0.019, abs=5e-4)
    assert statistics.stdev(apart) == pytest.approx(0.018, abs=5e-4)
    assert statistics.stdev(apart) > max(map(statistics.stdev, (rope, rove)))
    says("ahead in three pairs of four, by 0.019 in the mean", "vary by 0.018, more than")
    assert min(map(statistics.stdev, (rope, rove))) > NOISE


def test_beyond_the_training_length():
    assert math.log(293.24 / 133.68) == pytest.approx(0.79, abs=0.005)
    assert math.log(293.24 / 133.68) / GAINS["354m"] == pytest.approx(100, rel=0.03)
    says("a perplexity of 134 for RoVE and 293 for RoPE, 0.79 nats", "a hundred times larger")
    tuned = open_record("fine_tune").values["losses"]
    spread = [max(of["16 x"]) - min(of["16 x"]) for arms in tuned.values() for of in arms.values()]
    assert max(spread) == pytest.approx(0.5, abs=0.1)
    says("seeds differ by half a nat at 16 times the length")
