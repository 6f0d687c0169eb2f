"""Chapter 17: what it says beyond the list follows from the same records."""

import json
import math
from pathlib import Path

import pytest
import torch

from rove_lab.claims import claims
from rove_lab.records import open_record

ROOT = Path(__file__).resolve().parents[1]
CELLS = json.loads((ROOT / "book" / "17_claims.ipynb").read_text(encoding="utf-8"))["cells"]
WORDS = " ".join(
    " ".join("".join(cell["source"]) for cell in CELLS).replace('"\n    "', "").split()
)
WORDS = WORDS.replace(' " "', " ").replace('" "', "")
EFFECTS = {
    f"{claim.name} {effect.what}": effect
    for claim in claims()
    for part in claim.parts
    for effect in part.effects
}


def says(*phrases):
    for phrase in phrases:
        assert phrase in WORDS, phrase


def test_every_figure_is_drawn_from_records_and_says_in_words_what_it_shows():
    code = ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code"]
    figures = [cell for cell in code if "pair_differences(\n" in cell]
    assert len(figures) >= 4
    assert all("alt=" in cell for cell in figures)
    assert not any("published" in cell for cell in code), "theirs are in chapter 18"


def test_costs():
    for name, least, most in (
        ("C7 step time, d 256", 3, 5),
        ("C7 step time, d 128", 7, 9),
        ("C6 peak memory, d 256", 2, 5),
        ("C6 peak memory, d 128", -1, 7),
    ):
        assert (round(EFFECTS[name].least), round(EFFECTS[name].most)) == (least, most)
    says("3 to 5 percent more in one model and 7 to 9 in a smaller one")
    says("Peak memory: 2 to 5 percent more, and -1 to 7")
    step = open_record("rotation_speed").values["training step"]
    ratios = [100 * (ratio - 1) for ratio in step["RoVE / RoPE"]["ratio"]]
    assert [round(more) for more in sorted(ratios)] == [4, 6]
    assert step["RoPE"]["peak MB"] == step["RoVE"]["peak MB"]
    says("4 and 6 % in one of GPT-2's shape", "the same there to the megabyte")
    again = EFFECTS["C7 whole training, d 128"]
    assert (round(again.least), round(again.most), again.count) == (4, 5, 4)
    says("over four whole trainings 4 to 5")


def test_what_the_records_took():
    slugs = {slug for claim in claims() for part in claim.parts for slug in part.slugs}
    minutes = [open_record(slug).cpu_s / 60 for slug in slugs]
    assert (round(min(minutes)), round(max(minutes))) == (5, 42)
    says("5 to 42 minutes of processor time each")


def test_the_records_that_train_the_same_pairs():
    training, length, in_context = map(open_record, ("training", "length", "in_context"))
    text = in_context.config["text"]
    assert training.seeds == length.seeds == in_context.seeds == [0, 1, 2, 3]

    def same(how):
        return {k: v for k, v in how.items() if k not in ("kind", "rotate_values", "log_every")}

    for key in ("model", "training"):
        assert same(training.config[key]) == same(length.config[key]) == same(text[key])
    says("The records `training`, `length` and `in_context` (its byte models) train the same four")
    assert open_record("needles").seeds == open_record("retrieval").seeds[:3]
    says("`needles` trains three of the four pairs of `retrieval` again")


def losses(table, arm, length):
    return torch.tensor(table[arm][length]["nats per byte"])


def test_by_length():
    pair = open_record("length").values["pair"]
    apart = {
        (how, length): losses(pair[how], "RoVE", length) - losses(pair[how], "RoPE", length)
        for how in ("plain", "YaRN")
        for length in pair["plain"]["RoVE"]
    }
    assert apart["plain", "128"].mean() == pytest.approx(-0.02, abs=0.005)
    says("At the trained length the points lie around -0.02")
    assert (apart["plain", "512"] < -0.15).all()
    assert apart["plain", "512"].mean() == pytest.approx(-0.2, abs=0.05)
    assert apart["YaRN", "512"].mean() == pytest.approx(-0.03, abs=0.005)
    says("they are near -0.2 without YaRN, all below zero, and near -0.03 with it")
    far = {
        how: torch.cat(
            [
                losses(pair[how], "RoVE", "2048") - losses(pair[how], arm, "2048")
                for arm in ("RoPE", "RoPE for RoVE's time")
            ]
        )
        for how in ("plain", "YaRN")
    }
    assert [f"{far['plain'].max():.2f}", f"{far['plain'].min():.2f}"] == ["0.07", "-0.44"]
    assert [f"{far['YaRN'].max():.2f}", f"{far['YaRN'].min():.2f}"] == ["0.01", "-0.24"]
    says("from 0.07 to -0.44 without YaRN and from 0.01 to -0.24 with it")
    means = {key: -values.mean().item() for key, values in apart.items()}
    assert 0.2 < means["plain", "1024"] < 0.3
    assert 0.2 < means["plain", "2048"] < 0.3
    says("from two hundredths of a nat to two or three tenths, and so do the differences between")
    assert apart["plain", "2048"].std() > apart["plain", "128"].std()
    assert 0.02 < means["YaRN", "512"] < means["YaRN", "2048"] < 0.11
    says("a few hundredths of a nat to a tenth", "they overlap in every pair")
    for length in ("256", "512", "1024"):
        assert (apart["YaRN", length] > apart["plain", length]).all()


def test_a_window_of_the_trained_length_is_better_than_any_longer_one():
    pair = open_record("length").values["pair"]
    for arm in ("RoPE", "RoVE"):
        for length in ("256", "512", "1024", "2048"):
            window = losses(pair["window"], arm, length)
            assert (window < losses(pair["plain"], arm, length)).all()
            assert (window < losses(pair["YaRN"], arm, length)).all()
    says("loses less than it does in any longer one, with YaRN or without")


def test_induction():
    shapes = dict(open_record("induction").values)
    flat = shapes.pop("1 layer, 2 heads")["learned"]
    early, late, soon = [], [], []
    for values in shapes.values():
        rope, rove = (
            {int(step): torch.tensor(at["accuracy"]) for step, at in values["learned"][arm].items()}
            for arm in ("RoPE", "RoVE")
        )
        early.append(rove[280] - rope[280])
        late.append(rove[600] - rope[600])
        for pair in range(len(rope[20])):
            first = [
                next(step for step, at in arm.items() if at[pair] >= 0.9) for arm in (rope, rove)
            ]
            soon.append(first[0] - first[1])
    assert [f"{torch.cat(early).min():.2f}", f"{torch.cat(early).max():.2f}"] == ["0.45", "0.83"]
    says("At step 280 the pairs of two and three layers lie between 0.45 and 0.83")
    assert torch.cat(late).abs().max() < 0.03
    assert (len(soon), min(soon), max(soon)) == (16, 40, 180)
    says("in all sixteen pairs with two layers or three: they pass 90 % 40 to 180 steps before")
    assert all(
        abs(b - a) < 0.05
        for rope, rove in zip(flat["RoPE"].values(), flat["RoVE"].values(), strict=True)
        for a, b in zip(rope["accuracy"], rove["accuracy"], strict=True)
    )
    says("With one layer they are near 0 throughout")


def test_functions_from_examples():
    learned = open_record("in_context").values["functions"]["learned"]
    last = {
        arm: {k: torch.tensor(v).mean() for k, v in at["1600"].items()}
        for arm, at in learned.items()
    }
    assert [f"{100 * last[arm]['all']:.0f}" for arm in ("RoVE", "RoPE")] == ["80", "67"]
    says("RoVE is right in 80 % of the questions, RoPE in 67 %")
    lead = {
        inputs: last["RoVE"][inputs] - last["RoPE"][inputs] for inputs in ("seen before", "new")
    }
    assert lead["seen before"] / lead["new"] == pytest.approx(2, abs=0.1)
    assert [f"{apart:.2f}" for apart in lead.values()] == ["0.18", "0.09"]
    says("twice as large on inputs that were asked before (0.18) as on new ones (0.09)")
    shortcut = open_record("in_context").values["functions"]["shortcuts"]["the rarer class"]
    assert last["RoPE"]["new"] < min(shortcut["new"]) < last["RoVE"]["new"]
    suite = open_record("in_context").values["text"]["suite"]
    scores = [score for arm in suite.values() for k in arm["800"].values() for score in k]
    assert max(map(abs, scores)) < 0.06


def test_retrieval():
    found = open_record("retrieval").values["accuracy"]
    tasks, ways = ("needles", "associative recall"), ("as trained", "YaRN, beta_fast 4")

    def apart(times, *which):
        arms = (
            [found[task][way][arm][times]["accuracy"] for task in tasks for way in which]
            for arm in ("RoPE", "RoVE")
        )
        before, after = map(torch.tensor, arms)
        return after - before

    near = apart("2 ×", *ways)
    assert 0 < near.min() < near.max() < 0.055
    says("At twice the trained length all points lie above 0, up to 0.05")
    far, mended = apart("8 ×", ways[0]), apart("8 ×", ways[1])
    assert [f"{far.max():.2f}", f"{far.min():.2f}"] == ["-0.02", "-0.18"]
    assert [f"{mended.min():.2f}", f"{mended.max():.2f}"] == ["0.00", "0.04"]
    says("lie between -0.02 and -0.18 as trained, and between 0 and 0.04 with YaRN")
    assert all(0.005 < pairs.mean() < 0.02 for pairs in mended)
    says("one or two answers in a hundred")
    between = apart("4 ×", ways[0])
    assert all(pairs.min() < 0 < pairs.max() for pairs in between)


def test_the_range_of_standard_errors():
    gains = [gain / one.error for one in EFFECTS.values() for gain in one.gains]
    assert (round(min(gains)), round(max(gains))) == (-27, 15)
    says("as far as -27", "right, up to 15")


def test_what_lies_on_which_side():
    left = {name for name, one in EFFECTS.items() if max(one.gains) < 0}
    right = {name for name, one in EFFECTS.items() if one.borne}
    assert left == {
        "C6 peak memory, d 256",
        *(f"C7 {what}" for what in ("step time, d 256", "step time, d 128")),
        "C7 whole training, d 128",
        *(f"C11 beyond the sum, {n} ×" for n in (2, 4, 8)),
        *("C12 needles, 2 ×, 4 heads", "C12 needles, 8 ×", "C12 recall, 8 ×"),
        *("C13 SmolLM2 perplexity", "C13 byte model", "C13 SmolLM2, 8,192 tokens"),
    }
    assert right == {
        "C9 loss, training text",
        *(f"C9 induction, {shape}" for shape in ("1 head", "2 heads", "4 heads", "3 layers")),
        *(f"C9 functions, {which} inputs" for which in ("all", "new")),
        *(f"C10 {n} ×" for n in (2, 4, 8)),
        *("C10 16 ×, equal time", "C10 4 ×, 1 layer", "C10 4 ×, 2 heads", "C10 4 ×, 8 heads"),
        *(f"C11 YaRN, {n} ×" for n in (4, 8, 16)),
        *("C12 needles, 2 ×", "C12 recall, 2 ×", "C12 needles, 8 ×, β 8"),
        *(f"C12 recall, 8 ×, β {beta}" for beta in (2, 4, 8)),
    }
    unsure = EFFECTS["C10 4 ×, 1 head"]
    assert min(unsure.gains) > 0
    assert sum(unsure.gains) / unsure.count < 2 * unsure.error
    for name in EFFECTS.keys() - left - right - {"C10 4 ×, 1 head"}:
        assert min(EFFECTS[name].gains) <= 0 <= max(EFFECTS[name].gains)
    says("The others touch zero or lie on both sides of it, but for one head at 4 times")


def test_every_part_that_is_seen_has_four_pairs():
    seen = [p for claim in claims() for p in claim.parts if p.verdict == "seen at our scale"]
    assert {effect.count for part in seen for effect in part.effects} == {4}
    says("with four (as behind every *seen* here) one in 19")


@pytest.mark.parametrize(("pairs", "one_in"), [(3, 11), (4, 19), (5, 34)])
def test_how_often_luck_alone_is_called_seen(pairs, one_in):
    random = torch.Generator().manual_seed(17)
    noise = torch.randn(400_000, pairs, generator=random, dtype=torch.float64)
    error = noise.std(1) / math.sqrt(pairs)
    passed = ((noise > 0).all(1) & (noise.mean(1) > 2 * error)).double().mean().item()
    assert 1 / passed == pytest.approx(one_in, rel=0.03)
    says("With three pairs one empty effect in eleven would pass", "with five one in 34")
    says("once in 11 times with three pairs and once in 19 with four")


def test_exercises():
    assert max(effect.count for effect in EFFECTS.values()) <= 5
    says("no record of three to five can")
    assert [2 * 0.5**n for n in (3, 4, 6)] == [1 / 4, 1 / 8, 1 / 32]
    assert 2 * 0.5**5 > 0.05 > 2 * 0.5**6
    says("Three pairs that agree happen one time in four, four one in eight, six one in 32")
    assert 0.5 < 1 - 0.95**14 < 0.52
    says("Of fourteen empty claims at 5 % some claim passes every other time")
