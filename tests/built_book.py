"""The built book, served on this machine and opened in a browser that can reach nothing but it.

Playwright and axe are imported where they are used: the core suite runs where neither is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "_build" / "html"
WIDE, NARROW = 1280, 390
LAUNCH = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

Open = Callable[..., "Page"]


@pytest.fixture(scope="session")
def site() -> Iterator[str]:
    """The address of the built book, served on this machine."""
    if not (BOOK / "index.html").exists():
        pytest.fail(f"{BOOK} holds no book; run `make book` first")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(BOOK)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def browser(chromium_path: Path) -> Iterator[Browser]:
    """One browser for all tests of a process: Playwright cannot be started twice in one."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=chromium_path, args=LAUNCH)
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser: Browser, site: str) -> Iterator[Open]:
    """Open a page of the book; when the test ends, nothing may have gone wrong on it unsaid."""
    faults: list[str] = []
    contexts: list[BrowserContext] = []

    def watch(page: Page) -> None:
        def failed(request: object) -> None:
            # A page that is left takes back what it had still asked for: no fault of the page.
            if request.failure != "net::ERR_ABORTED":
                faults.append(f"failed: {request.url} ({request.failure})")

        def heard(message: object) -> None:
            if message.type in {"error", "warning"}:
                faults.append(f"console {message.type}: {message.text}")

        page.on("console", heard)
        page.on("pageerror", lambda error: faults.append(f"page error: {error}"))
        page.on("requestfailed", failed)
        page.on(
            "response", lambda r: r.ok or r.status == 304 or faults.append(f"{r.status} {r.url}")
        )

    def refuse_the_network(route: object) -> None:
        parts = urlsplit(route.request.url)
        if parts.scheme in {"http", "https"} and parts.hostname != "127.0.0.1":
            faults.append(f"asked the network for {route.request.url}")
            route.abort()
        else:
            route.continue_()

    def open_page(
        name: str, *, width: int = WIDE, theme: str = "light", base: str = site, **context: object
    ) -> Page:
        one = browser.new_context(
            viewport={"width": width, "height": 844}, color_scheme=theme, **context
        )
        contexts.append(one)
        one.route("**/*", refuse_the_network)
        page = one.new_page()
        watch(page)
        page.goto(f"{base}/{name}.html", wait_until="load")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not faults, "\n".join(faults)


def serious_faults(page: Page) -> list[str]:
    """What axe-core finds on the page that keeps readers out."""
    from axe_playwright_python.sync_playwright import Axe

    # Without preload: axe would fetch style sheets again, by addresses they do not have. What is
    # hidden from screen readers and drawn by others is theirs to answer for, and slow to walk.
    found = Axe().run(
        page,
        context={"exclude": [["mjx-container"], [".rove-canvas"]]},
        options={"preload": False, "resultTypes": ["violations"]},
    )
    return [
        f"{fault['id']}: {node['html'][:200]}"
        for fault in found.response["violations"]
        if fault["impact"] in {"serious", "critical"}
        for node in fault["nodes"]
    ]
