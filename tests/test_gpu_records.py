"""The page of what a GPU measured: its tables where there are records, a sentence where not."""

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from sphinx.errors import ExtensionError

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "book" / "_ext"))

import gpu_records

from rove_lab.records import Record, open_record, write_record

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "book" / "gpu.md").read_text("utf-8")
CARD = "NVIDIA A1 (made up)"
ABOUT = {"versions": {"torch": "2.13.0"}, "device": CARD, "wall_s": 61.2, "cpu_s": 1.0}


def made_up(values, seeds=(0,), **config):
    return Record(
        "Made up?", "measurement", config, [*seeds], values, **ABOUT, commit="abc1234" + "0" * 33
    )


def case(error, met=1):
    return {"relative error": [error], "at most": [1e-5], "met": [met]}


def ratio(value, **spread):
    return {"ratio": [value], **{name: [end] for name, end in spread.items()}}


CHECKS = made_up(
    {
        "float32": {"GPT": case(3.21e-7), "YaRN": case(0.5, met=0)},
        "bfloat16": {"GPT": case(4e-3), "flash kernel": case(2e-3)},
    },
    failed={"cuDNN kernel, bfloat16": "RuntimeError: no"},
)
CHECKS.config["no time for"] = ["FlexAttention, float32"]
SPEED = made_up(
    {
        "kernels": {
            "8x12x1024x64 bfloat16": {
                "flash": {
                    "RoPE": {"ms": [1.0]},
                    "RoVE / RoPE": ratio(1.02345, low=1.01, high=1.04, rounds=60),
                }
            }
        },
        "training step": {"a": {"RoVE / RoPE, peak memory": ratio(1.5)}},
    }
)


def test_without_a_record_every_table_is_a_sentence(tmp_path):
    shown = gpu_records.with_records(PAGE, tmp_path)
    assert shown.count("**Not measured yet.**") == 4
    assert "gpu-record" not in shown
    assert "|" not in shown


def test_the_page_asks_for_every_table():
    assert gpu_records.BLOCK.findall(PAGE) == [*gpu_records.TABLES]


def test_checks_are_shown_by_dtype_under_the_card_with_what_failed(tmp_path):
    write_record(CHECKS, tmp_path / "gpu_checks")
    assert gpu_records.checks(tmp_path).splitlines() == [
        f"Measured on one **{CARD}**, torch 2.13.0, commit abc1234, in 61 s. "
        "Not measured: cuDNN kernel, bfloat16 (RuntimeError: no). "
        "Not measured: FlexAttention, float32 (no time was left).",
        "",
        "| relative error | float32 | bfloat16 |",
        "| --- | --- | --- |",
        "| GPT | 3.2e-07 | 4.0e-03 |",
        "| YaRN | 5.0e-01, **over the limit** | – |",
        "| flash kernel | – | 2.0e-03 |",
    ]
    assert gpu_records.with_records(PAGE, tmp_path).count("**Not measured yet.**") == 3


def test_speeds_are_shown_with_their_spread(tmp_path):
    write_record(SPEED, tmp_path / "gpu_speed")
    assert gpu_records.speed(tmp_path).splitlines()[2:] == [
        "| where | what | ratio |",
        "| --- | --- | --- |",
        "| kernels, 8x12x1024x64 bfloat16, flash | RoVE / RoPE | 1.02 (1.01 to 1.04) |",
        "| training step, a | RoVE / RoPE, peak memory | 1.5 |",
    ]


def test_trainings_stand_beside_those_of_a_processor(tmp_path):
    for slug in ("training", "length", "retrieval", "induction"):
        of_a_processor = open_record(slug)
        write_record(of_a_processor, tmp_path / slug)
        write_record(replace(of_a_processor, device=CARD), tmp_path / f"gpu_{slug}")
    shown = gpu_records.trainings(tmp_path)
    head, _, *rows = [line for line in shown.splitlines() if line.startswith("|")]
    assert head == "|  | RoPE, GPU | RoVE, GPU | RoPE, processor | RoVE, processor |"
    assert len(rows) == len(gpu_records.TRAININGS)
    for row in rows:
        here, there = row.split("|")[2:4], row.split("|")[4:6]
        assert here == there  # the same record twice
    assert re.search(r"after 800 steps \| 1\.\d+ \(1\.\d+ to 1\.\d+; 4\) \|", shown)
    assert re.search(r"half of the answers are right \| 3\d\d\.?\d* \(", shown)
    assert shown.count(CARD) == 4  # the four took different times


def test_a_single_seed_has_no_spread_and_a_missing_training_no_row(tmp_path):
    losses = {arm: {"4": {"all": [loss]}} for arm, loss in (("RoPE", 1.25), ("RoVE", 1.5))}
    seconds = {arm: {"wall": [0.0125]} for arm in ("RoPE", "RoVE")}
    one = made_up({"held out": losses, "seconds a step": seconds})
    for slug in ("gpu_training", "training", "gpu_larger"):
        write_record(one, tmp_path / slug)
    rows = [line for line in gpu_records.trainings(tmp_path).splitlines() if "doc" in line]
    assert [row.split("|")[2:] for row in rows] == [
        [" 1.25 ", " 1.5 ", " 1.25 ", " 1.5 ", ""],
        [" 12.5 ", " 12.5 ", " 12.5 ", " 12.5 ", ""],
    ]
    assert gpu_records.larger(tmp_path).splitlines()[2:] == [
        "| nats per byte held out | RoPE | RoVE |",
        "| --- | --- | --- |",
        "| after 4 steps | 1.25 | 1.5 |",
    ]


def test_a_processors_record_or_an_unknown_table_ends_the_build(tmp_path):
    write_record(replace(CHECKS, device="x86_64 CPU, 2 threads"), tmp_path / "gpu_checks")
    with pytest.raises(ExtensionError, match="expected a GPU's record in results/gpu_checks"):
        gpu_records.checks(tmp_path)
    with pytest.raises(ExtensionError, match=r"expected one of .*'checks'.* got 'prices'"):
        gpu_records.with_records("```{gpu-record} prices\n```")


def test_a_page_is_read_again_and_others_stay_as_they_are():
    asked = []
    app = SimpleNamespace(env=SimpleNamespace(note_reread=lambda: asked.append(1)))
    read = ["Words.\n\n```{gpu-record} checks\n```\n"]
    gpu_records.read_page(app, "page", read)
    assert read == [f"Words.\n\n{gpu_records.checks(gpu_records.RESULTS)}\n"]
    assert asked == [1]
    read = ["```python\n1\n```"]
    gpu_records.read_page(None, "page", read)
    assert read == ["```python\n1\n```"]
