"""The explorable computes what rove_lab computes, whichever way it is played with."""

import contextlib
import io
import math
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import pytest
import torch
from built_book import BOOK, NARROW, ROOT, WIDE, Open, serious_faults
from playwright.sync_api import Browser, Locator, Page, expect
from torch import Tensor

from rove_lab import RotaryEmbedding, rove_attention

pytestmark = pytest.mark.browser

PAGE = "book/explorable"
TOKENS = 32
BASES, SIZES = [10, 100, 1000, 10000, 500000], [4, 8, 16, 32]


@dataclass(frozen=True)
class Choices:
    """What a reader can choose; at first, what the page opens with."""

    base: int = 100
    d_head: int = 8
    interleaved: bool = False
    keep: tuple[int, ...] = (0, 1, 2, 3)
    plane: int = 1
    i: int = 20
    j: int = 14

    @property
    def rotary(self) -> RotaryEmbedding:
        whole = RotaryEmbedding(self.d_head, base=self.base, interleaved=self.interleaved)
        return whole.planes(self.keep)

    @property
    def vectors(self) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v, by the formula on the page."""
        c = torch.arange(self.d_head, dtype=torch.float64)
        return (4.7 * c + 2.5).cos(), (1.7 * c + 2).cos(), (2.1 * c + 1.5).cos()


OPENING = Choices()
CASES = [
    Choices(base=10, d_head=4, interleaved=True, keep=(0,), plane=0, i=0, j=31),
    Choices(base=10000, d_head=16, keep=(0, 2, 5, 7), plane=5, i=31, j=3),
    Choices(base=500000, d_head=32, interleaved=True, keep=tuple(range(16)), plane=2, i=9, j=9),
    Choices(base=1000, d_head=32, keep=(), plane=15, i=5, j=9),
    Choices(base=100, interleaved=True, plane=3, i=17, j=16),
]


def score_at(choices: Choices, offset: float) -> float:
    q, k, _ = choices.vectors
    return (q @ choices.rotary.matrix(offset) @ k / choices.d_head**0.5).item()


def cosine_at(choices: Choices, offset: float) -> float:
    v = choices.vectors[2]
    return torch.cosine_similarity(choices.rotary.matrix(offset) @ v, v, dim=0).item()


def computed(choices: Choices) -> dict[str, object]:
    """The state of the page as the library computes it, under the script's names."""
    q, k, v = choices.vectors
    rotary, i, j = choices.rotary, choices.i, choices.j
    # A query that sees one key reads that key's message, whatever the score.
    one_each = (x[None, None] for x in (q, k, v))  # [heads, pos, d_head]
    message = rove_attention(*one_each, rotary, positions=[i], key_positions=[j], is_causal=False)
    omega = rotary.inv_freq[choices.plane].item()
    return {
        "q": q.tolist(),
        "k": k.tolist(),
        "v": v.tolist(),
        "common": rotary([j]).apply(v[None])[0].tolist(),
        "message": message[0, 0].tolist(),
        "offset": j - i,
        "omega": omega,
        "angle": (j - i) * omega,
        "score": score_at(choices, j - i),
        "likeness": {"rope": 1.0, "rove": cosine_at(choices, j - i)},
        **{name: value for name, value in asdict(choices).items() if name not in {"d_head"}},
        "dHead": choices.d_head,
        "keep": list(choices.keep),
    }


# Reading the page


def number(words: str) -> float:
    (found,) = re.findall(r"[−-]?\d+(?:\.\d+)?", words)
    return float(found.replace("−", "-"))


def point(words: str) -> list[float]:
    return [number(part) for part in words.strip("()").split(",")]


def shown(page: Page) -> dict[str, str]:
    """The words of every number on the page, by its name."""
    return page.locator("[data-number]").evaluate_all(
        "all => Object.fromEntries(all.map((one) => [one.dataset.number, one.textContent]))"
    )


def state(page: Page) -> dict[str, object]:
    return page.evaluate("() => roveExplorable.state")


def nearly(expected: object, tolerance: float = 1e-6) -> object:
    """`expected`, with every number in it within the tolerance."""
    if isinstance(expected, dict):
        return {name: nearly(value, tolerance) for name, value in expected.items()}
    return pytest.approx(expected, abs=tolerance, rel=0)


def check_every_number(page: Page, choices: Choices) -> None:
    expected = computed(choices)
    assert state(page) == nearly(expected)

    words, pair = shown(page), choices.rotary.plane_channels[choices.plane].tolist()
    # Half a digit of what is written, and the sixth digit of what is meant.
    three, two, one = (0.5 * 10**-digits + 1e-6 for digits in (3, 2, 1))
    assert number(words.pop("i")) == choices.i
    assert number(words.pop("j")) == choices.j
    assert number(words.pop("plane")) == choices.plane
    assert number(words.pop("offset")) == choices.j - choices.i
    assert number(words.pop("score")) == nearly(expected["score"], three)
    assert number(words.pop("angle")) == nearly(expected["angle"], three)
    assert number(words.pop("likeness-rope")) == 1
    assert number(words.pop("likeness-rove")) == nearly(expected["likeness"]["rove"], three)
    turn = words.pop("turn")
    if expected["omega"]:
        assert number(turn) == nearly(2 * math.pi / expected["omega"], one)
    else:
        assert turn == "it does not turn"
    v, common, message = (expected[name] for name in ("v", "common", "message"))
    stages = {"rope": [v, v, v], "rove": [v, common, message]}
    for method, vectors in stages.items():
        for stage, vector in enumerate(vectors):
            written = point(words.pop(f"{method}-{stage}"))
            assert written == nearly([vector[c] for c in pair], two)
    assert words == {}, "every number shown is checked"

    check_the_arrows(page, choices, stages)
    check_the_curves(page, choices)
    for handle, at in [("query", choices.i), ("key", choices.j)]:
        slider = page.locator(f".ex-handle.ex-{handle}")
        assert slider.get_attribute("aria-valuenow") == str(at)
        told = slider.get_attribute("aria-valuetext").split(", ")
        assert [part.rsplit(" ", 1)[0] for part in told[:3]] == [f"{handle} at", "offset", "score"]
        assert [number(part) for part in told[:3]] == nearly(
            [at, choices.j - choices.i, expected["score"]], three
        )


def check_the_arrows(page: Page, choices: Choices, stages: dict[str, list[list[float]]]) -> None:
    """Dials and strip: each arrow points where its vector does, as long as it should be."""
    channels = choices.rotary.plane_channels.tolist()
    longest = max(math.hypot(*(choices.vectors[2][pair]).tolist()) for pair in channels)
    expected = {
        f"[data-dial='{method}-{stage}'] .ex-arrow": [[vector[c] for c in channels[choices.plane]]]
        for method, vectors in stages.items()
        for stage, vector in enumerate(vectors)
    }
    for method, vectors in stages.items():
        strip = [[vectors[2][c] for c in pair] for pair in channels]
        expected[f".ex-plane .ex-arrow.ex-{method}"] = strip
    for selector, vectors in expected.items():
        drawn = page.locator(selector).evaluate_all(
            "all => all.map((one) => [one.style.transform, one.getAttribute('d')])"
        )
        assert len(drawn) == len(vectors), selector
        for (transform, path), (x, y) in zip(drawn, vectors, strict=True):
            angle = -float(re.fullmatch(r"rotate\((.*)rad\)", transform)[1])
            length = float(re.match(r"M0 0H([\d.]+)", path)[1]) / 50 * longest
            tip = [length * math.cos(angle), length * math.sin(angle)]
            assert tip == nearly([x, y], 1e-4), selector  # CSS keeps six digits of an angle


def check_the_curves(page: Page, choices: Choices) -> None:
    """Each curve runs through the library's values, by the axis that is drawn beside it."""
    offsets = range(1 - TOKENS, TOKENS)
    curves = {
        ("score", "ink"): [score_at(choices, offset) for offset in offsets],
        ("message", "rope"): [1.0 for _ in offsets],
        ("message", "rove"): [cosine_at(choices, offset) for offset in offsets],
    }
    for (chart, kind), values in curves.items():
        ticks, path, marks = page.locator(f"[data-chart={chart}]").evaluate(
            """(chart, kind) => [
              [...chart.querySelectorAll("text[text-anchor=end]")].slice(1)
                .map((tick) => [tick.textContent, Number(tick.getAttribute("y")) - 4]),
              chart.querySelector(`.ex-curve.ex-${kind}`).getAttribute("d"),
              [...chart.querySelectorAll(`.ex-present.ex-${kind}`)]
                .map((mark) => ["cx", "cy"].map((at) => Number(mark.getAttribute(at)))),
            ]""",
            kind,
        )
        (low, low_y), (high, high_y) = [(number(words), y) for words, y in (ticks[0], ticks[-1])]
        unit = (high - low) / (high_y - low_y)
        drawn = [[float(part) for part in one.split()] for one in path[1:].split("L")][::8]
        assert [low + (y - low_y) * unit for _, y in drawn] == nearly(values, 0.01 * abs(unit))
        # The mark lies on its curve, at the present offset.
        assert marks == [nearly(drawn[choices.j - choices.i + TOKENS - 1], 0.01)]


# Playing with it


def drag(page: Page, handle: Locator, to: int, along: Callable[[int], float]) -> None:
    box = handle.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move((x + along(to)) / 2, y + 40, steps=3)  # a hand does not keep to the line
    page.mouse.move(along(to), y, steps=3)
    page.mouse.up()


def place(page: Page) -> Callable[[int], float]:
    """Where token t lies across the window."""
    box = page.locator(".ex-tokens").bounding_box()
    return lambda t: box["x"] + 24 + t / (TOKENS - 1) * (box["width"] - 48)


def choose_by_pointer(page: Page, choices: Choices) -> None:
    page.locator("select[name=base]").select_option(str(choices.base))
    page.locator("select[name=dHead]").select_option(str(choices.d_head))
    layout = "interleaved" if choices.interleaved else "halves"
    page.locator("select[name=interleaved]").select_option(label=layout)
    page.get_by_role("button", name="none turns").click()
    for m in choices.keep:
        page.get_by_label(f"plane {m} turns", exact=True).click()
    page.locator(f"[name=plane][value='{choices.plane}']").click()
    page.locator(".ex-tokens").scroll_into_view_if_needed()
    for handle, to in [("query", choices.i), ("key", choices.j)]:
        drag(page, page.locator(f".ex-handle.ex-{handle}"), to, place(page))


def choose_by_keyboard(page: Page, choices: Choices) -> None:
    def pick(name: str, place: int) -> None:
        select = page.locator(f"select[name={name}]")
        select.press("Home")
        for _ in range(place):
            select.press("ArrowDown")

    pick("base", BASES.index(choices.base))
    pick("dHead", SIZES.index(choices.d_head))
    pick("interleaved", choices.interleaved)
    page.get_by_role("button", name="all turn").press("Enter")
    for m in range(choices.d_head // 2):
        if m not in choices.keep:
            page.get_by_label(f"plane {m} turns", exact=True).press("Space")
    for _ in range((choices.plane - state(page)["plane"]) % (choices.d_head // 2)):
        page.locator("[name=plane]:checked").press("ArrowRight")
    for handle, to in [("query", choices.i), ("key", choices.j)]:
        slider = page.locator(f".ex-handle.ex-{handle}")
        if to < TOKENS / 2:
            keys = ["Home", *["PageUp"] * (to // 8), *["ArrowRight", "ArrowUp"] * 4]
        else:
            keys = ["End", *["PageDown"] * ((31 - to) // 8), *["ArrowLeft", "ArrowDown"] * 4]
        left = to % 8 if to < TOKENS / 2 else (31 - to) % 8
        for key in keys[: len(keys) - 8 + left]:
            slider.press(key)


def open_explorable(visit: Open, **context: object) -> Page:
    page = visit(PAGE, **context)
    expect(page.locator(".rove-explorable")).to_have_attribute("data-state", "drawn")
    page.evaluate("async () => { await MathJax.startup.promise }")
    return page


def test_it_opens_with_the_numbers_of_the_library(visit: Open) -> None:
    check_every_number(open_explorable(visit), OPENING)


@pytest.mark.parametrize("choose", [choose_by_pointer, choose_by_keyboard])
@pytest.mark.parametrize("choices", CASES, ids=lambda one: f"{one.base}-{one.d_head}-{one.plane}")
def test_every_number_is_the_librarys(
    visit: Open, choices: Choices, choose: Callable[[Page, Choices], None]
) -> None:
    page = open_explorable(visit)
    choose(page, choices)
    check_every_number(page, choices)


def test_the_mathematics_is_the_librarys_far_from_what_is_shown(visit: Open) -> None:
    page = open_explorable(visit)
    generator = torch.Generator().manual_seed(0)
    for choices in [OPENING, *CASES]:
        x, y = torch.randn(2, choices.d_head, dtype=torch.float64, generator=generator)
        for i, j in [(0, 0), (3, -41), (100_000, 99_000), (0.5, -7.25)]:
            given = {
                "base": choices.base,
                "dHead": choices.d_head,
                "interleaved": choices.interleaved,
                "keep": list(choices.keep),
            }
            found = page.evaluate(
                """([rotary, i, j, x, y]) => {
                  const { frequencies, planeChannels, apply, undo, score } = roveExplorable;
                  return [frequencies(rotary), planeChannels(rotary), apply(rotary, i, x),
                    undo(rotary, j, x), score(rotary, i, j, x, y)];
                }""",
                [given, i, j, x.tolist(), y.tolist()],
            )
            rotary = choices.rotary
            expected = [
                rotary.inv_freq,
                rotary.plane_channels,
                rotary([i]).apply(x[None])[0],
                rotary([j]).undo(x[None])[0],
                x @ rotary.matrix(j - i) @ y / choices.d_head**0.5,
            ]
            for mine, theirs in zip(found, expected, strict=True):
                torch.testing.assert_close(
                    torch.tensor(mine, dtype=theirs.dtype), theirs, atol=1e-6, rtol=0
                )


def test_shifting_both_changes_the_common_frame_alone(visit: Open) -> None:
    page = open_explorable(visit)
    button = page.get_by_role("button", name="shift both right")
    curves = "svg => svg.innerHTML"
    before, words = state(page), shown(page)
    drawn = [chart.evaluate(curves) for chart in page.locator("[data-chart]").all()]
    for step in range(1, TOKENS - OPENING.i):
        button.press("Enter")
        check = replace(OPENING, i=OPENING.i + step, j=OPENING.j + step)
        assert state(page) == nearly(computed(check))
    after = state(page)
    moved = {"i", "j", "common"}
    assert {name for name in before if before[name] != nearly(after[name])} == moved
    changed = {name for name, text in shown(page).items() if text != words[name]}
    assert changed == {"i", "j", "rove-1"}
    for chart, old in zip(page.locator("[data-chart]").all(), drawn, strict=True):
        assert [number(part) for part in re.findall(r"[−-]?\d+\.\d+", chart.evaluate(curves))] == (
            pytest.approx([number(part) for part in re.findall(r"[−-]?\d+\.\d+", old)], abs=1e-6)
        )

    # At the end of the line nothing happens, and the keyboard keeps its place.
    expect(button).to_have_attribute("aria-disabled", "true")
    button.press("Enter")
    assert state(page) == after
    expect(button).to_be_focused()
    page.get_by_role("button", name="shift both left").click()
    assert (state(page)["i"], state(page)["j"]) == (TOKENS - 2, TOKENS - 2 - 6)
    expect(button).to_have_attribute("aria-disabled", "false")


def test_a_handle_stays_on_the_line_and_leaves_other_keys_alone(visit: Open) -> None:
    page = open_explorable(visit)
    key = page.locator(".ex-handle.ex-key")
    for pressed, at in [
        ("Home", 0),
        ("ArrowLeft", 0),
        ("PageDown", 0),
        ("End", 31),
        ("PageUp", 31),
    ]:
        key.press(pressed)
        assert state(page)["j"] == at
    drag(page, key, -40, place(page))
    assert state(page)["j"] == 0
    for other in ["a", "Enter", "Control+End", "Alt+ArrowRight"]:
        key.press(other)
        assert state(page)["j"] == 0
    # A click anywhere on the line takes the token there. (Control+End has scrolled the page.)
    page.locator(".ex-tokens").scroll_into_view_if_needed()
    page.mouse.click(place(page)(25), key.bounding_box()["y"] + 14)
    assert (state(page)["i"], state(page)["j"]) == (OPENING.i, 25)
    assert page.locator("small[data-note=mask]").inner_text() == "future: masked, if causal"


def test_a_smaller_head_has_no_plane_that_is_gone(visit: Open) -> None:
    page = open_explorable(visit)
    page.locator("[name=plane][value='3']").click()
    page.locator("select[name=dHead]").select_option("4")
    check_every_number(page, replace(OPENING, d_head=4, keep=(0, 1), plane=1))


def test_with_no_plane_turning_rove_is_rope(visit: Open) -> None:
    page = open_explorable(visit)
    note = page.locator("[data-note=planes]")
    assert note.inner_text() == ""
    page.get_by_role("button", name="none turns").click()
    assert "RoVE is RoPE" in note.inner_text()
    assert state(page)["message"] == state(page)["v"]
    page.get_by_role("button", name="all turn").click()
    check_every_number(page, OPENING)


# A finger


def touch(page: Page, points: list[tuple[float, float]]) -> None:
    finger = page.context.new_cdp_session(page)
    for kind, at in [("touchStart", points[0]), *(("touchMove", one) for one in points[1:])]:
        spot = {"x": at[0], "y": at[1]}
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [spot]})
    finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def test_a_finger_along_the_line_drags_and_across_it_scrolls(visit: Open) -> None:
    page = open_explorable(visit, width=NARROW, has_touch=True, is_mobile=True)
    page.locator(".ex-choices").evaluate("box => scrollTo(0, box.offsetTop)")
    handle = page.locator(".ex-handle.ex-key").bounding_box()
    x, y = handle["x"] + handle["width"] / 2, handle["y"] + handle["height"] / 2
    far, here = place(page)(4), page.evaluate("scrollY")
    touch(page, [(x + (far - x) * step / 10, y) for step in range(11)])
    assert state(page)["j"] == 4
    assert page.evaluate("scrollY") == here

    # Down the page at token 28: the key must be where it was when the page has moved.
    touch(page, [(place(page)(28), y - 12 * step) for step in range(11)])
    page.wait_for_function("here => scrollY > here + 50", arg=here)
    assert state(page)["j"] == 4


# Looks


def contrast(front: str, back: str) -> float:
    """Contrast of two colours `rgb(r, g, b)` as WCAG 2 defines it."""

    def light(colour: str) -> float:
        parts = [float(part) / 255 for part in re.findall(r"[\d.]+", colour)[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return sum(c * share for c, share in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))

    dark, bright = sorted((light(front), light(back)))
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_letters_and_lines_can_be_told_from_the_page(visit: Open, theme: str) -> None:
    # The reader turns the theme on the open page.
    page = open_explorable(visit, theme="dark" if theme == "light" else "light")
    page.evaluate("theme => document.documentElement.dataset.theme = theme", theme)
    back = page.locator("body").evaluate("one => getComputedStyle(one).backgroundColor")
    assert (contrast("rgb(0, 0, 0)", back) > 10) == (theme == "light")

    def colours(selector: str, name: str) -> set[str]:
        script = "(all, name) => all.map((one) => getComputedStyle(one)[name])"
        return set(page.locator(selector).evaluate_all(script, name))

    letters = colours(".rove-explorable svg text:not(.ex-query text)", "fill")
    words = colours(".rove-explorable :is(small, dt, dd, span, b, p, legend)", "color")
    lines = colours(".ex-curve, .ex-arrow, .ex-link, .ex-winding", "stroke")
    assert len(words) > 3
    assert len(lines) == 3
    assert min(contrast(colour, back) for colour in letters | words) >= 4.5
    assert min(contrast(colour, back) for colour in lines) >= 3


@pytest.mark.parametrize(("theme", "width"), [("light", WIDE), ("dark", NARROW)])
@pytest.mark.parametrize("choices", [OPENING, CASES[3]], ids=["opening", "16 planes, none turns"])
def test_it_is_accessible(visit: Open, theme: str, width: int, choices: Choices) -> None:
    page = open_explorable(visit, theme=theme, width=width)
    choose_by_keyboard(page, choices)
    assert not serious_faults(page)


@pytest.mark.parametrize("width", [320, NARROW, 768, WIDE])
def test_it_fits_its_window(visit: Open, width: int) -> None:
    page = open_explorable(visit, width=width)
    page.locator("select[name=dHead]").select_option("32")
    page.set_viewport_size({"width": width, "height": 700})
    beyond = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert beyond <= 0
    box = page.locator(".rove-explorable")
    inside = box.evaluate(
        """box => {
          const edge = box.getBoundingClientRect();
          return [...box.querySelectorAll("*")].map((one) => one.getBoundingClientRect())
            .filter((one) => one.width)
            .every((one) => one.left >= edge.left - 1 && one.right <= edge.right + 1);
        }"""
    )
    assert inside, "something sticks out of the frame"


@pytest.mark.parametrize(("motion", "glides"), [("reduce", False), ("no-preference", True)])
def test_nothing_moves_unasked_nor_glides_where_stillness_is_asked_for(
    visit: Open, motion: str, glides: bool
) -> None:
    page = open_explorable(visit, reduced_motion=motion)
    page.wait_for_timeout(400)
    moving = "document.querySelector('.rove-explorable').getAnimations({ subtree: true }).length"
    assert page.evaluate(moving) == 0
    took = page.locator(".rove-explorable *").evaluate_all(
        "all => Math.max(...all.map((one) => parseFloat(getComputedStyle(one).transitionDuration)))"
    )
    assert (took > 0) is glides
    page.locator(".ex-handle.ex-key").press("Home")
    assert (page.evaluate(moving) > 0) is glides


def test_it_opens_from_the_disk(visit: Open) -> None:
    page = open_explorable(visit, base=BOOK.as_uri())
    choose_by_keyboard(page, CASES[0])
    check_every_number(page, CASES[0])


def test_paper_shows_it_in_light_colours_without_its_buttons(visit: Open) -> None:
    page = open_explorable(visit, theme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    expect(page.locator(".ex-buttons").first).to_be_hidden()
    for part in [".ex-tokens", ".ex-numbers", ".ex-curves", ".ex-dials", ".ex-strip"]:
        expect(page.locator(part)).to_be_visible()


def test_without_scripts_words_stand_in_its_place(browser: Browser, site: str) -> None:
    # Not by `visit`: scripts that are not fetched count as faults there.
    page = browser.new_page(java_script_enabled=False)
    page.goto(f"{site}/{PAGE}.html")
    box = page.locator(".rove-explorable")
    expect(box).to_contain_text("computes in the page and needs JavaScript", use_inner_text=True)
    page.close()


def test_the_program_on_the_page_prints_the_numbers_of_the_page(visit: Open) -> None:
    text = (ROOT / "book" / "explorable.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(program, {})
    score, x, y = map(float, re.findall(r"-?\d+\.\d+", printed.getvalue()))
    words = shown(open_explorable(visit))
    assert number(words["score"]) == score
    assert point(words["rove-2"]) == nearly([x, y], 0.005 + 1e-4)


def test_the_script_is_short() -> None:
    script = ROOT / "book" / "_static" / "rove-explorable.js"
    assert len(script.read_text(encoding="utf-8").splitlines()) < 400
