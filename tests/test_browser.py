"""The built book in a browser that can reach nothing but it: quiet, whole, playable, readable."""

import io
import re
from itertools import pairwise

import pytest
from book_contents import PAGES
from built_book import BOOK, NARROW, ROOT, WIDE, Open, serious_faults
from PIL import Image, ImageStat
from playwright.sync_api import Locator, Page, expect

pytestmark = pytest.mark.browser

CHAPTERS = [page for page in PAGES if (ROOT / f"{page}.ipynb").exists()]
OTHER_PAGES = ["search", "genindex"]

# Contrast as WCAG 2 defines it, of each element's own colour on the colour under it.
CONTRAST = """
(elements, property) => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b]
    .map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const under = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = numbers(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return light(colour);
    }
    return 1;
  };
  return Math.min(...elements.map((element) => {
    const own = light(numbers(getComputedStyle(element)[property]));
    const [a, b] = [own, under(element.parentElement)];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  }));
}
"""


def settle(page: Page) -> None:
    """Wait until the formulas are set and the figures drawn."""
    page.evaluate("async () => { if (window.MathJax) await MathJax.startup.promise }")
    for figure in page.locator(".rove-plot").all():
        expect(figure).to_have_attribute("data-state", "drawn", timeout=30_000)


def shown(figure: Locator) -> str:
    """The numbers a figure draws now."""
    # A drawing follows its slider within one frame of the screen.
    figure.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    return figure.locator(".rove-canvas").evaluate(
        "canvas => JSON.stringify(canvas.data.map(({x, y, z}) => [x, y, z]))"
    )


def moving_figures(page: Page) -> list[Locator]:
    return page.locator(".rove-plot:has(input[type=range])").all()


@pytest.mark.parametrize(
    ("theme", "width", "other"), [("light", WIDE, NARROW), ("dark", NARROW, WIDE)]
)
@pytest.mark.parametrize("name", [*PAGES, *OTHER_PAGES])
def test_a_page_is_quiet_whole_accessible_and_fits_its_window(
    visit: Open, name: str, theme: str, width: int, other: int
) -> None:
    page = visit(name, theme=theme, width=width)
    settle(page)
    assert not serious_faults(page)
    assert page.locator("html").get_attribute("data-theme") == theme
    assert page.title().endswith("RoVE Lab")

    # Formulas: all of them set, none broken, no source left to see.
    assert page.locator("main mjx-container").count() >= page.locator("main .math").count()
    assert page.locator("mjx-merror, [data-mjx-error], [data-mml-node=merror]").count() == 0
    prose = page.locator("main").evaluate(
        """main => {
          const copy = main.cloneNode(true);
          copy.querySelectorAll("pre, code, script, mjx-container").forEach((one) => one.remove());
          return copy.textContent;
        }"""
    )
    assert not re.search(r"\$|\\[()\[\]]|\\begin|:math:", prose)

    # Pictures: there, and put into words.
    for picture in page.locator("main img").all():
        assert picture.get_attribute("alt")
        assert picture.evaluate("img => img.complete && img.naturalWidth > 0")
    for figure in page.locator(".rove-plot").all():
        assert len(figure.get_attribute("aria-label")) > 20
        assert figure.locator(".main-svg").first.is_visible()

    # One search box wide, one search button narrow; nothing cut, nothing to scroll sideways.
    for now in [width, other]:
        page.set_viewport_size({"width": now, "height": 844})
        page.wait_for_function(
            """() => [...document.querySelectorAll(".rove-plot")].every((figure) =>
              figure.querySelector(".main-svg").clientWidth <= figure.clientWidth)"""
        )
        beyond = page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert beyond <= 0, f"{beyond} px wider than a window of {now} px"
        cut = page.locator(".rove-canvas").evaluate_all(
            """(canvases) => canvases.flatMap((canvas) => {
              const { left, right } = canvas.getBoundingClientRect();
              return [...canvas.querySelectorAll("text")]
                .map((text) => [text.textContent, text.getBoundingClientRect()])
                .filter(([, at]) => at.width && (at.left < left - 1 || at.right > right + 1))
                .map(([words]) => words);
            })"""
        )
        assert not cut, f"labels cut at a width of {now} px: {cut}"
        # The theme shows one or the other once it has noticed the new width: wait for it.
        searches = page.locator(".search-button, .search-button-field").locator("visible=true")
        expect(searches).to_have_count(1)


@pytest.mark.parametrize("name", CHAPTERS)
def test_figures_are_dragged_moved_by_keys_and_played(visit: Open, name: str) -> None:
    page = visit(name)
    settle(page)
    figures = moving_figures(page)
    assert figures, "a chapter has at least one figure that moves"
    for figure in figures:
        figure.scroll_into_view_if_needed()
        slider, canvas = figure.locator("input[type=range]"), figure.locator(".rove-canvas")
        last = int(slider.get_attribute("max"))
        before, pixels = shown(figure), canvas.screenshot()

        # Drag the thumb from where it is to the far end.
        start = int(slider.input_value())
        end = last if start < last / 2 else 0
        box = slider.bounding_box()
        middle = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + 10 + (box["width"] - 20) * start / last, middle)
        page.mouse.down()
        page.mouse.move(box["x"] + (box["width"] - 2 if end else 2), middle, steps=5)
        page.mouse.up()
        expect(slider).to_have_value(str(end))
        assert shown(figure) != before
        assert canvas.screenshot() != pixels

        # One stop back by the keyboard: value, words and drawing follow.
        dragged, told = shown(figure), slider.get_attribute("aria-valuetext")
        slider.press("ArrowLeft" if end else "ArrowRight")
        expect(slider).to_have_value(str(end - 1 if end else 1))
        assert slider.get_attribute("aria-valuetext") not in {told, None, ""}
        expect(figure.locator("output")).to_have_text(slider.get_attribute("aria-valuetext"))
        assert shown(figure) != dragged

        # Play from the first stop; once two more are drawn, pause, and it stays there. Of two stops
        # the second is the end, where it pauses by itself.
        slider.press("Home")
        first = shown(figure)
        button = figure.get_by_role("button", name=re.compile("^Play: "))
        canvas.evaluate(
            """(canvas, [button, last]) => {
              canvas.drawings = new Set();
              canvas.on("plotly_afterplot", () => {
                canvas.drawings.add(JSON.stringify(canvas.data.map(({ x, y, z }) => [x, y, z])));
                if (canvas.drawings.size === 2 && last > 1) button.click();
              });
            }""",
            [button.element_handle(), last],
        )
        button.click()
        page.wait_for_function(
            "([canvas, drawings]) => canvas.drawings.size >= drawings",
            arg=[canvas.element_handle(), min(2, last)],
        )
        expect(button).to_be_visible()
        paused = shown(figure)
        assert paused != first
        page.wait_for_timeout(500)
        assert shown(figure) == paused


def test_a_reader_who_asked_for_little_motion_gets_one_stop_a_second(visit: Open) -> None:
    page = visit(CHAPTERS[0], reduced_motion="reduce")
    settle(page)
    figure = moving_figures(page)[0]
    slider = figure.locator("input[type=range]")
    slider.press("Home")
    page.wait_for_timeout(1200)
    assert slider.input_value() == "0", "nothing plays by itself"
    stops = figure.evaluate(
        """(figure) => new Promise((done) => {
          const slider = figure.querySelector("input"), button = figure.querySelector("button");
          const times = [];
          figure.querySelector(".rove-canvas").on("plotly_afterplot", () => {
            times.push(performance.now());
            if (times.length === 3) { button.click(); done(times); }
          });
          button.click();
        })"""
    )
    assert min(later - sooner for sooner, later in pairwise(stops)) > 700


@pytest.mark.parametrize("name", CHAPTERS)
def test_figures_can_be_read_in_both_themes(visit: Open, name: str) -> None:
    page = visit(name)
    settle(page)
    for theme in ["light", "dark"]:
        # The reader turns the theme on the open page: what is drawn already must follow.
        page.evaluate("theme => document.documentElement.dataset.theme = theme", theme)
        page.wait_for_timeout(300)
        for drawn, colour in [
            (".rove-canvas text:visible", "fill"),
            (".rove-controls span:visible, .rove-controls output:visible", "color"),
            (".rove-play", "color"),
        ]:
            assert page.locator(drawn).evaluate_all(CONTRAST, colour) >= 4.5, (theme, drawn)
        for figure in page.locator(".rove-plot").all():
            picture = Image.open(io.BytesIO(figure.screenshot())).convert("L")
            brightness = ImageStat.Stat(picture).mean[0]
            assert brightness > 170 if theme == "light" else brightness < 85


def test_a_finger_on_a_figure_scrolls_the_page(visit: Open) -> None:
    page = visit(CHAPTERS[0], width=NARROW, has_touch=True, is_mobile=True)
    settle(page)
    plot = page.locator(".rove-canvas .nsewdrag").last
    plot.evaluate("plot => plot.scrollIntoView({ block: 'center' })")
    box, before = plot.bounding_box(), page.evaluate("scrollY")
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    finger = page.context.new_cdp_session(page)
    for kind, points in [
        ("touchStart", [{"x": x, "y": y}]),
        *(("touchMove", [{"x": x, "y": y - 15 * step}]) for step in range(1, 11)),
        ("touchEnd", []),
    ]:
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    page.wait_for_function("before => scrollY > before + 80", arg=before)


def test_paper_is_light_and_misses_no_figure(visit: Open) -> None:
    page = visit(CHAPTERS[0], theme="dark")
    settle(page)  # figures far below the window too: nothing has been scrolled
    assert page.evaluate("scrollY") == 0
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


@pytest.mark.parametrize("place", ["served", "opened from the disk"])
def test_search_finds_a_word(visit: Open, place: str) -> None:
    base = {"base": BOOK.as_uri()} if place == "opened from the disk" else {}
    page = visit(PAGES[0], **base)
    page.keyboard.press("Control+k")
    page.keyboard.type("offset")
    page.keyboard.press("Enter")
    found = page.locator("#search-results li a")
    expect(found.first).to_be_visible(timeout=20_000)
    found.first.click()
    expect(page.locator("article").first).to_contain_text("offset")


@pytest.mark.parametrize("name", ["index", *PAGES])
def test_a_page_opens_from_the_disk(visit: Open, name: str) -> None:
    page = visit(name, base=BOOK.as_uri())
    page.wait_for_url("**/book/*.html")
    settle(page)
    assert page.locator("main mjx-container").count() >= page.locator("main .math").count()
    for figure in moving_figures(page):
        before = shown(figure)
        slider = figure.locator("input")
        slider.press("Home" if slider.input_value() != "0" else "End")
        assert shown(figure) != before


def test_the_claims_are_filtered_by_their_verdict(visit: Open) -> None:
    page = visit("book/17_claims")
    claims = page.locator(".rove-claims")
    shown_claims = claims.locator("li").locator("visible=true")
    expect(shown_claims).to_have_count(14)
    claims.get_by_label("refuted").check()
    expect(shown_claims).to_have_count(1)
    expect(shown_claims).to_contain_text("C13")
    claims.get_by_label("every verdict").check()
    expect(shown_claims).to_have_count(14)
    tests = shown_claims.first.locator("details")
    expect(tests.locator("code").first).to_be_hidden()
    tests.locator("summary").click()
    expect(tests.locator("code").first).to_be_visible()
    # Every link leads to a place on a page that is there.
    for link in claims.locator("a").all():
        name, _, place = link.get_attribute("href").partition("#")
        assert f'id="{place}"' in (BOOK / "book" / name).read_text(encoding="utf-8")
