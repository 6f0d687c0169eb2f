"""The chapter on rounding: what it says follows from its record."""

import json
import math
import re
from pathlib import Path
from statistics import fmean

import pytest
import torch

from rove_lab import RotaryEmbedding
from rove_lab.records import open_record

ROOT = Path(__file__).resolve().parents[1]
CELLS = json.loads((ROOT / "book" / "numerics.ipynb").read_text(encoding="utf-8"))["cells"]
WORDS = " ".join(" ".join("".join(cell["source"]) for cell in CELLS).replace('"', "").split())
RECORD = open_record("numerics")
STOPS = RECORD.config["stops"]
HALF = [f"{dtype}, {way}" for dtype in ("bfloat16", "float16")
        for way in ("autocast", "loaded", "cast")]  # fmt: skip
OTHERS = ["Hugging Face", "rotary-embedding-torch", "x-transformers"]
NAIVE = "RoVE of Hugging Face's tables"


def says(*phrases):
    for phrase in phrases:
        assert phrase in WORDS, phrase


def mean(part, way, name, stop, score="rms"):
    return fmean(RECORD.values[part][way][name][str(stop)][score])


def means(part, way, name, last=STOPS[-1]):
    return [mean(part, way, name, stop) for stop in STOPS if stop <= last]


def between(low, high, found):
    """Whether the least and the most read so where they are rounded like that."""
    digits = len(low.partition(".")[2])
    assert (f"{min(found):.{digits}f}", f"{max(found):.{digits}f}") == (low, high)


def ratios(part, way, name, other, last=STOPS[-1]):
    pairs = zip(means(part, way, name, last), means(part, way, other, last), strict=True)
    return [one / two for one, two in pairs]


def test_versions_draws_and_sizes():
    peers, config = RECORD.config["peers"], RECORD.config
    says(f"torch {RECORD.versions['torch'].partition('+')[0]}, "
         + ", ".join(f"{name} {peers[name]}" for name in ("transformers",
                                                          "rotary-embedding-torch"))
         + f" and x-transformers {peers['x-transformers']}")  # fmt: skip
    assert len(RECORD.seeds) == 5
    says("five draws of vectors", f"heads of {config['d_head']} channels")
    says(f"base {config['base']:,}", f"A head of {config['output']['tokens']} tokens")
    assert RECORD.device.endswith("CPU, 1 threads a process")
    says("one thread of a processor", "**On a GPU: not measured.**")
    window, factor = config["round trip"].values()
    says(f"stretched from {window} tokens to {window * factor:,}", "sixteen times its length")
    assert config["offsets of a query from its key"] == [1, 128]
    says("Offsets of 1 to 128 tokens", "positions lie between 0.8 of a stop and it")
    assert config["positions"] == "64 between 0.8 of a stop and it"


def test_where_digits_go():
    spacing = 2.0 ** (math.floor(math.log2(1e6 * RotaryEmbedding(64).inv_freq[1])) - 23)
    assert spacing == 1 / 16
    says("near 749,894 are a sixteenth apart", "turns by 0.75 radians a token")
    assert f"{1e6 * RotaryEmbedding(64).inv_freq[1]:,.0f}" == "749,894"


def test_ours_is_flat_in_float32_and_below_whatever_was_done():
    for way in ["float32", *HALF]:
        found = means("turned", way, "ours")
        assert max(found) / min(found) < 1.02
        drifts = means("drift", way, "ours")
        assert max(drifts) / min(drifts) < 1.1
    for dtype in ("bfloat16", "float16"):
        one, *more = (RECORD.values["turned"][way]["ours"] for way in HALF if way.startswith(dtype))
        assert all(other == one for other in more)
    says("as exact at position 1,000,000 as at 10", "whatever was done to the model")
    digits = math.log10(
        mean("turned", "float64", "ours", 10**6) / mean("turned", "float64", "ours", 10)
    )
    assert digits == pytest.approx(5, abs=0.2)
    says("from 1e−16 to 1e−11", "In float64 they lose five digits, to 1e−11")


def test_turned_in_float32():
    assert {f"{error:.0e}" for error in means("turned", "float32", "ours")} == {"3e-08"}
    for name in OTHERS:
        assert means("turned", "float32", name) == means("turned", "float32", "Hugging Face")
    ends = [mean("turned", "float32", "Hugging Face", stop) for stop in (10, 10**6)]
    assert [f"{error:.0e}" for error in ends] == ["6e-08", "6e-03"]
    assert f"{mean('turned', 'float32', 'x-transformers', 10**6, 'max'):.2f}" == "0.04"
    says("6e−8 at 10, 0.006 at 1,000,000, where the worst plane is off by 0.04")
    assert math.log10(ends[1] / ends[0]) == pytest.approx(5, abs=0.1)
    says("lose five digits between 10 and 1,000,000")


def test_turned_under_autocast():
    for dtype, own, last, share in (("bfloat16", "0.0013", 30_000, 1.01),
                                    ("float16", "0.00017", 10_000, 1.05)):  # fmt: skip
        way = f"{dtype}, autocast"
        assert f"{mean('turned', way, 'ours', 10):.{len(own) - 2}f}" == own
        for name in ("Hugging Face", "x-transformers"):
            assert max(ratios("turned", way, name, "ours", last)) < share
            after = STOPS[STOPS.index(last) + 1]
            assert mean("turned", way, name, after) > share * mean("turned", way, "ours", after)
            assert f"{mean('turned', way, name, 10**6):.3f}" == "0.006"
    says("costs 0.0013 in bfloat16 and 0.00017 in float16", "At 1,000,000 they are at 0.006")
    says("within 1 % of that up to position 30,000 in bfloat16, and within 5 % up to 10,000")
    ret = "rotary-embedding-torch"
    assert f"{mean('turned', 'bfloat16, autocast', ret, 300):.2f}" == "0.15"
    assert f"{mean('turned', 'float16, autocast', ret, 3000):.2f}" == "0.18"
    assert mean("turned", "bfloat16, autocast", ret, 100) < 0.0014
    assert mean("turned", "float16, autocast", ret, 1000) < 0.0002
    says("from 300 on in bfloat16 (0.15) and from 3000 on in float16 (0.18)")
    assert torch.finfo(torch.float16).max == 65_504
    lost = {
        (way, name, stop)
        for way, names in RECORD.values["turned"].items()
        for name, rows in names.items()
        for stop, row in rows.items()
        if max(row["not finite"]) > 0
    }
    assert {stop for *_, stop in lost} == {"100000", "300000", "1000000"}
    assert {pair for *pair, _ in map(list, lost) for pair in [tuple(pair)]} == {
        ("float16, autocast", ret), ("float16, cast", ret), ("float16, cast", "x-transformers"),
    }  # fmt: skip
    says("beyond 65,504, the largest number of float16, it returns NaN")


def test_turned_by_models_that_were_loaded_or_cast():
    between("0.0020", "0.0024", means("turned", "bfloat16, loaded", "Hugging Face", 100_000))
    says("0.0020 to 0.0024 up to position 100,000, where ours has 0.0013")
    cast = [mean("turned", "bfloat16, cast", "Hugging Face", stop) for stop in (1000, 10_000)]
    assert [f"{error:.2f}" for error in cast] == ["0.10", "0.75"]
    says("0.10 at 1000, 0.75 at 10,000")
    for name in OTHERS[1:]:
        cast = [mean("turned", "bfloat16, cast", name, stop) for stop in (1000, 10_000, 10**6)]
        assert [f"{error:.2f}" for error in cast[:2]] == ["0.41", "0.88"]
        assert cast[2] == pytest.approx(math.sqrt(2), abs=0.2)
    says("0.41 at 1000, 0.88 at 10,000")


def test_drift():
    for way in ("bfloat16, cast", "bfloat16, loaded"):
        between("0.0004" if "cast" in way else "0.0005", "0.0005" if "cast" in way else "0.0006",
                means("drift", way, "Hugging Face", 300_000))  # fmt: skip
    says("0.0004 to 0.0006 in both up to 300,000")
    between("0.0004", "0.0007", means("drift", "bfloat16, cast", "Hugging Face"))
    assert mean("turned", "bfloat16, cast", "Hugging Face", 10**6) > 1
    for name in OTHERS[1:]:
        drifts = means("drift", "bfloat16, cast", name)
        assert (f"{drifts[0]:.3f}", f"{drifts[-1]:.2f}") == ("0.005", "0.12")
        assert {f"{drift:.2f}" for drift in drifts[STOPS.index(30_000) :]} == {"0.12"}
        assert drifts[STOPS.index(10_000)] < 0.115
    says("drift by 0.12 from position 30,000 on")
    omega = RotaryEmbedding(64).inv_freq
    off = ((omega.float().bfloat16().double() - omega) / omega).abs().max().item()
    assert f"{off:.1%}" == "0.4%"
    says("up to 0.4 % faster or slower")
    float64 = {name: mean("drift", "float64", name, 10**6) for name in ("ours", *OTHERS)}
    assert [f"{drift:.0e}" for drift in float64.values()] == ["1e-12", "7e-04", "3e-17", "3e-17"]
    says("drift by 3e−17 at any position, which is nothing, and ours by 1e−12")
    anywhere = torch.rand(2, 20_000, 32, generator=torch.Generator().manual_seed(0)) * 2 * torch.pi
    one, other = anywhere.cos().mean(-1)
    assert f"{(one - other).square().mean().sqrt().item():.2f}" == "0.18"
    says("two scores that have nothing to do with each other differ by 0.18")


def test_there_and_back():
    trips = RECORD.values["round trip"]
    for kinds in (names["ours"] for names in trips.values()):
        assert all(cell["gain"] == [1.0] * 5 for cell in kinds.values())
    theirs = trips["float32"]["Hugging Face"]
    assert f"{fmean(theirs['YaRN']['gain']):.2f}" == "1.63"
    assert f"{fmean(theirs['LongRoPE']['gain']):.2f}" == "1.33"
    assert f"{0.1 * math.log(16) + 1:.2f}" == "1.28"
    says("$m^2 = 1.63$, LongRoPE's by 1.33", "a factor of 1.28")
    grown = [fmean(theirs[kind]["error, grown"]) for kind in ("dynamic NTK", "LongRoPE")]
    assert [f"{error:.1f}" for error in grown] == ["1.3", "1.5"]
    says("(1.3 and 1.5: about as far as a random vector)")
    for kind in ("none", "linear", "Llama 3"):
        assert max(max(scores) for name, scores in theirs[kind].items() if name != "gain") < 1e-6
    ours = [e for cell in trips["float32"]["ours"].values() for es in cell.values() for e in es]
    assert {error for error in ours if error > 0.5} == {1.0}
    assert f"{max(error for error in ours if error < 0.5):.0e}" == "5e-08"
    assert {*trips["float32"]["ours"]} == {"none", "linear", "NTK", "Llama 3", "YaRN"}


def test_the_output_of_a_head():
    between("2.0", "2.4", ratios("output", "float32", NAIVE, "RoPE, Hugging Face"))
    says("about twice RoPE's everywhere (2.0 to 2.4 times)")
    for name in ("RoPE", "RoVE"):
        flat = means("output", "float32", name)
        assert max(flat) / min(flat) < 1.05
        assert {f"{error:.0e}" for error in flat} == {"2e-07"}
    for way in HALF:
        between("1.35", "1.37", ratios("output", way, "RoVE", "RoPE"))
    between("0.0029", "0.0030", means("output", "bfloat16, cast", "RoVE"))
    between("0.0021", "0.0022", means("output", "bfloat16, cast", "RoPE"))
    says("1.35 to 1.37 times as much, at every position", "1.4 times RoPE's error in this lab")


def test_the_output_of_naive_tables():
    assert max(ratios("output", "bfloat16, autocast", NAIVE, "RoVE", 100_000)) < 1.02
    assert f"{ratios('output', 'bfloat16, autocast', NAIVE, 'RoVE')[-1]:.1f}" == "1.7"
    says("within 2 % of ours up to position 100,000, and at 1,000,000 it errs 1.7 times")
    between("0.0040", "0.0048", means("output", "bfloat16, loaded", NAIVE, 300_000))
    more = ratios("output", "bfloat16, loaded", NAIVE, "RoVE", 300_000)
    assert 1.33 < min(more) < max(more) < 1.67
    says("a third to two thirds more than ours")
    between("0.007", "0.007", means("output", "bfloat16, cast", NAIVE, 300_000))
    assert min(ratios("output", "bfloat16, cast", NAIVE, "RoVE")) > 2
    between("1.7", "2.0", ratios("output", "bfloat16, loaded", NAIVE, "RoPE, Hugging Face"))
    says("1.7 to 2.0 times with naive tables in a model loaded in bfloat16")


def test_exercises():
    worst = mean("turned", "float32", "Hugging Face", 10**6, "max")
    assert 1 / 32 < worst < 0.045
    says("a thirty-second of a radian in float32, which is close to the 0.04 of the worst plane")
    angle = math.log2(1e6 * RotaryEmbedding(64).inv_freq[1])
    assert 2.0 ** (math.floor(angle) - 8) == 2048
    says("In bfloat16 it is 2048 radians")


def test_every_figure_is_of_the_record():
    code = ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code"]
    assert sum(bool(re.search(r"^bands\(", cell, re.MULTILINE)) for cell in code) == 3
    assert sum("open_record(" in cell for cell in code) == 1
