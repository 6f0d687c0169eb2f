"""claims: each claim is there once, and every verdict rests on tests and records that exist."""

import ast
import json
import re
import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from book_contents import PAGES
from docutils.nodes import make_id

from rove_lab import claims as module
from rove_lab.claims import Claim, Part, claims, claims_in_markdown
from rove_lab.effects import Effect
from rove_lab.records import open_record

ROOT = Path(__file__).resolve().parents[1]
PARTS = [
    pytest.param(claim, part, id=f"{claim.name} {part.of}".strip())
    for claim in claims()
    for part in claim.parts
]
each_part = pytest.mark.parametrize(("claim", "part"), PARTS)
LOSS = Effect(
    "loss",
    "held-out loss",
    "training",
    ("curve", "RoPE", "800"),
    ("curve", "RoVE", "800"),
    "lower",
    "nats per byte",
)


@cache
def functions(file):
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@cache
def headings(chapter):
    """The addresses of a chapter's headings, as Sphinx makes them."""
    cells = json.loads((ROOT / "book" / f"{chapter}.ipynb").read_text(encoding="utf-8"))["cells"]
    text = "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    return {make_id(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


# What the file says


def test_each_of_the_fourteen_claims_is_there_once():
    assert [claim.name for claim in claims()] == [f"C{n}" for n in range(1, 15)]
    assert len({claim.words for claim in claims()}) == 14


@each_part
def test_a_verdict_points_at_tests_that_exist(claim, part):
    for test in part.tests:
        file, name = test.split("::")
        assert name.startswith("test_")
        assert name in functions(file), test


@each_part
def test_a_verdict_points_at_records_that_exist_and_travel_with_the_package(claim, part):
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    held = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for slug in part.slugs:
        assert open_record(slug).question
        assert f"results/{slug}/record.json" in held


@each_part
def test_a_verdict_points_into_a_chapter(claim, part):
    assert f"book/{part.chapter}" in PAGES
    assert part.anchor in headings(part.chapter)


@pytest.mark.book
@each_part
def test_a_built_page_has_the_place(claim, part):
    page = ROOT / "_build" / "html" / "book" / f"{part.chapter}.html"
    assert f'id="{part.anchor}"' in page.read_text(encoding="utf-8")


@each_part
def test_a_verdict_says_what_was_seen_in_a_few_sentences(claim, part):
    assert 3 < len(part.seen.split()) < 90
    assert part.seen.endswith((".", ".)"))
    assert not re.search(r"[{}$`]", part.seen), "plain words, for a page and for a terminal"
    assert bool(part.of) == (len(claim.parts) > 1)


@each_part
def test_a_measured_verdict_gives_no_number_but_its_records(claim, part):
    """What stands in the file are names of numbers: no result is typed in."""
    if part.effects:
        assert re.search(r"\{\w+\.\w+", part.words)
        assert all(
            f"{{{effect.name}." in part.words or len(part.effects) > 1 for effect in part.effects
        )
        typed = re.findall(r"(?<![\w{:.-])\d+\.\d+", re.sub(r"\{.*?\}", "", part.words))
        assert typed == []


def test_effects_have_short_labels_of_their_own():
    labels = [
        f"{claim.name} {effect.what}"
        for claim in claims()
        for part in claim.parts
        for effect in part.effects
    ]
    assert len(set(labels)) == len(labels)
    assert max(map(len, labels)) <= 26, "they stand beside a figure on a phone"


@each_part
def test_what_was_not_measured_needs_no_scale(claim, part):
    assert part.tests or part.slugs or part.verdict == "out of reach here"
    if part.verdict == "refuted":
        assert part.effects


def test_what_is_cited_is_in_the_bibliography():
    keys = re.findall(
        r"^@\w+\{(.*),$", (ROOT / "book/references.bib").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {key for claim in claims() for key in claim.cite} <= set(keys)
    assert all(("garcia2026rove" in claim.cite) == ("paper" in claim.made) for claim in claims())


def test_the_introduction_shows_this_list():
    intro = (ROOT / "book" / "intro.md").read_text(encoding="utf-8")
    assert claims_in_markdown() in intro
    assert intro.count("| C1 |") == 1


# What is refused


def test_a_verdict_is_one_of_five():
    with pytest.raises(ValueError, match=r"expected a verdict among shown exactly.*got 'proven'"):
        Part("proven", "It is.", "04_rove", "what-it-costs")


@pytest.mark.parametrize(
    ("verdict", "effects", "words"),
    [
        ("shown exactly", (), "expected a test behind 'shown exactly'"),
        ("seen at our scale", (), "expected an effect behind 'seen at our scale'"),
        ("not seen at our scale", (), "expected a test, a record or an effect behind 'not seen"),
        ("refuted", (), "expected a test, a record or an effect behind 'refuted', got none"),
        ("not seen at our scale", (LOSS,), "expected seen at our scale by what training holds"),
        ("refuted", (LOSS,), "expected seen at our scale by what training holds, got 'refuted'"),
        (
            "seen at our scale",
            (replace(LOSS, claimed="higher"),),
            "expected not seen at our scale or refuted by what training holds",
        ),
        (
            "refuted",
            (LOSS, replace(LOSS, name="gain", claimed="higher")),
            "expected not seen at our scale by what training holds, got 'refuted'",
        ),
    ],
)
def test_a_verdict_is_what_the_effects_bear_out(verdict, effects, words):
    with pytest.raises(ValueError, match=words):
        Part(verdict, "It is.", "10_training", "the-record", effects=effects)


def test_what_is_out_of_reach_may_rest_on_nothing_and_on_no_effect():
    where = "04_rove", "a-change-of-frame"
    assert Part("out of reach here", "Not weighed.", *where).slugs == ()
    with pytest.raises(ValueError, match="expected seen at our scale by what training holds"):
        Part("out of reach here", "Not weighed.", *where, effects=(LOSS,))


def test_the_words_take_their_numbers_from_the_effects():
    words = "By {loss.size:.3f}, in {loss.agree} of {loss.count}."
    part = Part("seen at our scale", words, "10_training", "the-record", effects=(LOSS,))
    assert part.seen == f"By {-LOSS.mean:.3f}, in 4 of 4."
    for wrong in ("{gain.size}", "{loss.volume}", "{0}"):
        with pytest.raises(ValueError, match="expected words about the part's effects"):
            replace(part, words=wrong)


def test_a_claim_is_made_by_someone_and_judged():
    claim = claims()[0]
    for made in ((), ("press",)):
        with pytest.raises(ValueError, match="expected C1 made by paper or summaries"):
            replace(claim, made=made)
    with pytest.raises(ValueError, match="expected a verdict on C1, got none"):
        Claim(claim.name, claim.words, claim.made, claim.cite, ())


def test_a_field_that_is_none_is_refused(tmp_path, monkeypatch):
    text = Path(module.__file__).with_suffix(".toml").read_text(encoding="utf-8")
    (tmp_path / "claims.toml").write_text(text.replace('anchor = "', 'anker = "', 1), "utf-8")
    monkeypatch.setattr(module, "__file__", str(tmp_path / "claims.py"))
    with pytest.raises(ValueError, match=r"expected the fields of a Part, got \['anker'\]"):
        claims.__wrapped__()


# What words say without a number


def moved(effect, one, other):
    """The same effect at another place of its record."""
    rope, rove = (
        tuple(other if name == one else name for name in names)
        for names in (effect.rope, effect.rove)
    )
    assert rope != effect.rope
    return replace(effect, rope=rope, rove=rove)


def lead_on_seen_inputs(by):
    """Two thirds; a shortcut's scores tell what share of the questions has inputs seen before."""
    shortcut = open_record("in_context").values["functions"]["shortcuts"]["the rarer class"]
    every, seen, new = (shortcut[name][0] for name in ("all", "seen before", "new"))
    share = (every - new) / (seen - new)
    return abs(1 - (1 - share) * by["new"].mean / by["end"].mean - 2 / 3) < 0.05


def window_is_better(by):
    """In every pair, at each of the lengths, with RoPE and with RoVE."""
    pair = open_record("length").values["pair"]
    score = "nats per byte"
    return all(
        short < long
        for arm in ("RoPE", "RoVE")
        for effect in by.values()
        for short, long in zip(
            pair["window"][arm][effect.rove[-2]][score],
            pair["plain"][arm][effect.rove[-2]][score],
            strict=True,
        )
    )


@pytest.mark.parametrize(
    ("name", "of", "words", "bears"),
    [
        (
            "C11",
            "the gains add",
            "in every pair:",
            lambda by: {e.agree for e in by.values()} == {0},
        ),
        (
            "C12",
            "as trained, twice the length, two heads",
            "(in one by a single needle of 192)",
            lambda by: round(192 * min(by["needles"].gains)) == 1,
        ),
        (
            "C12",
            "needles with YaRN, eight times",
            "in all pairs with the last one only",
            lambda by: [e.agree == e.count for e in by.values()] == [False, False, True],
        ),
        (
            "C9",
            "in context, induction",
            "in all four pairs of each of four shapes",
            lambda by: [e.agree for e in by.values()] == [4, 4, 4, 4],
        ),
        (
            "C9",
            "loss on the training's text, per step",
            "After 800 steps",
            lambda by: by["training"].rove[-1] == "800",
        ),
        (
            "C13",
            "",
            "With 8,192 tokens read",
            lambda by: (
                by["long"].rove[2] == "8192"
                and by["long"].mean
                > max(
                    replace(
                        by["long"],
                        rope=("text", "as it is", n, "nats"),
                        rove=("text", "RoVE", n, "nats"),
                    ).mean
                    for n in ("512", "2048")
                )
            ),
        ),
        (
            "C9",
            "in context, functions",
            "Two thirds of the lead are on inputs",
            lead_on_seen_inputs,
        ),
        (
            "C10",
            "2 to 8 times the length",
            "But either model does better when it sees no more than its last 128 bytes",
            window_is_better,
        ),
        (
            "C11",
            "better with YaRN, per step, at twice",
            "about as much as at the length of the training",
            lambda by: abs(by["two"].mean - moved(by["two"], "256", "128").mean) < by["two"].error,
        ),
        (
            "C12",
            "as trained, eight times",
            "At four times neither is ahead",
            lambda by: all(
                abs(at.mean) < 2 * at.error and 0 < at.agree < at.count
                for at in (moved(effect, "8 ×", "4 ×") for effect in by.values())
            ),
        ),
    ],
)
def test_words_without_a_number_are_what_the_effects_bear_out(name, of, words, bears):
    (part,) = [
        part for claim in claims() if claim.name == name for part in claim.parts if part.of == of
    ]
    assert words in part.seen
    assert bears({effect.name: effect for effect in part.effects})
