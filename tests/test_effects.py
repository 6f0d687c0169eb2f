"""effects: a difference a pair, and what it says of a claim."""

import math
from dataclasses import replace

import pytest

from rove_lab import effects
from rove_lab.effects import Effect
from rove_lab.records import open_record

VALUES = {
    "loss": {"RoPE": [2.0, 4.0, 3.0, 5.0], "RoVE": [1.5, 3.0, 2.5, 4.0]},
    "mixed": [1.9, 4.1, 2.5, 4.5],
    "ratio": [1.08, 1.10, 1.09, 1.09],
    "few": {"RoPE": [1.0, 2.0], "RoVE": [2.0, 3.0]},
}
LOWER = ("loss", "a loss", "mine", ("loss", "RoPE"), ("loss", "RoVE"), "lower", "nats")


@pytest.fixture(autouse=True)
def record(monkeypatch):
    monkeypatch.setattr(effects, "_values", lambda slug: VALUES)


def test_a_pair_is_roves_number_less_ropes():
    effect = Effect(*LOWER)
    assert effect.pairs == [-0.5, -1.0, -0.5, -1.0]
    assert (effect.count, effect.agree) == (4, 4)
    assert effect.gains == [0.5, 1.0, 0.5, 1.0]
    assert (effect.mean, effect.size) == (-0.75, 0.75)
    assert (effect.least, effect.most) == (-1.0, -0.5)
    assert (effect.rope_mean, effect.rove_mean) == (3.5, 2.75)
    assert effect.error == pytest.approx(math.sqrt(4 * 0.25**2 / 3) / 2)


def test_per_cent_are_of_ropes_number_and_a_ratio_needs_no_other():
    effect = replace(Effect(*LOWER), unit="%")
    assert effect.pairs == pytest.approx([-25, -25, -100 / 6, -20])
    effect = replace(effect, rope=(), rove=("ratio",))
    assert effect.pairs == pytest.approx([8, 10, 9, 9])


def test_a_star_is_the_mean_over_all_names():
    effect = replace(Effect(*LOWER), rope=(), rove=("loss", "*"), unit="nats")
    assert [1 + pair for pair in effect.pairs] == [1.75, 3.5, 2.75, 4.5]
    with pytest.raises(ValueError, match=r"expected numbers at \* / RoPE in mine, got no 'RoPE'"):
        replace(effect, rove=("*", "RoPE"))


def test_what_rove_changes_elsewhere_is_taken_off():
    elsewhere = (("loss", "RoPE"), ("mixed",))  # -0.1, 0.1, -0.5, -0.5
    effect = replace(Effect(*LOWER), beside=elsewhere)
    assert effect.pairs == pytest.approx([-0.4, -1.1, 0.0, -0.5])


@pytest.mark.parametrize(
    ("claimed", "rove", "agree", "borne", "against"),
    [
        ("lower", ("loss", "RoVE"), 4, True, False),
        ("higher", ("loss", "RoVE"), 0, False, True),
        ("lower", ("mixed",), 3, False, False),
        ("higher", ("mixed",), 1, False, False),
        ("no more", ("loss", "RoVE"), 4, True, False),
        ("no more", ("mixed",), 3, False, False),
    ],
)
def test_what_counts_as_seen(claimed, rove, agree, borne, against):
    effect = replace(Effect(*LOWER), rove=rove, claimed=claimed)
    assert (effect.agree, effect.borne, effect.against) == (agree, borne, against)


def test_pairs_that_agree_must_also_be_surer_than_two_standard_errors(monkeypatch):
    wide = {"RoPE": [1.0, 1.0, 1.0], "RoVE": [0.99, 0.98, 0.1]}
    monkeypatch.setattr(effects, "_values", lambda slug: {"loss": wide})
    effect = Effect(*LOWER)
    assert effect.agree == effect.count
    assert abs(effect.mean) < 2 * effect.error
    assert not effect.borne
    other = replace(effect, claimed="higher")
    assert other.agree == 0
    assert not other.against


def test_a_pair_that_is_even_agrees_with_nothing(monkeypatch):
    even = {"RoPE": [1.0, 1.0, 1.0], "RoVE": [0.5, 0.5, 1.0]}
    monkeypatch.setattr(effects, "_values", lambda slug: {"loss": even})
    effect = Effect(*LOWER)
    assert (effect.agree, effect.borne) == (2, False)
    other = replace(effect, claimed="higher")
    assert (other.agree, other.against) == (0, False)


def test_no_more_leaves_the_room_it_is_given():
    ratio = {"rope": (), "rove": ("ratio",), "claimed": "no more", "unit": "%"}
    assert not replace(Effect(*LOWER), **ratio, within=9).borne
    assert replace(Effect(*LOWER), **ratio, within=11).borne
    assert replace(Effect(*LOWER), **ratio, within=1).against


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "two words"}, "expected a name of one word, got 'two words'"),
        ({"claimed": "better"}, "expected lower or higher or no more to be claimed, got 'better'"),
        (
            {"rove": ("loss", "RoPE "), "rope": ()},
            "expected numbers at loss / RoPE  in mine, got no 'RoPE '",
        ),
        ({"rove": ("loss",)}, "expected numbers at loss in mine, got more names"),
        ({"rove": ("loss", "RoVE", "all")}, "got no 'all'"),
        ({"rove": ("few", "RoVE"), "rope": ("few", "RoPE")}, "expected 3 pairs or more in mine"),
        ({"within": 0.1}, "expected 'no more' to be claimed within 0.1"),
        ({"beside": (("loss", "RoPE"),)}, "expected RoPE's names and RoVE's to stand beside"),
        ({"beside": (("loss", "RoPE"), ("loss", "RoVE")), "unit": "%"}, "per cent of two"),
    ],
)
def test_what_means_nothing_is_refused(change, words):
    with pytest.raises(ValueError, match=words):
        replace(Effect(*LOWER), **change)


def test_it_reads_the_labs_own_records(monkeypatch):
    monkeypatch.undo()
    held_out = open_record("training").values["held out"]
    rope, rove = (held_out[arm]["800"]["all"] for arm in ("RoPE", "RoVE"))
    at = [("held out", arm, "800", "all") for arm in ("RoPE", "RoVE")]
    effect = Effect("loss", "held-out loss", "training", *at, "lower", "nats per byte")
    assert effect.pairs == [b - a for a, b in zip(rope, rove, strict=True)]
    with pytest.raises(ValueError, match="expected a record among"):
        replace(effect, record="none")
