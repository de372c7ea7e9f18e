"""A corpus, runs over it, and a real Chromium; tests that need one skip where none is found."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error, Page, Playwright, expect, sync_playwright

from sqale_grpo.corpus import PreparedCorpus
from sqale_grpo.report.page import write_report
from tests.helpers.reports import make_run, prepared

HINT = "no Chromium found: `make browser` installs one, or set CHROMIUM to its program"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


expect.set_options(timeout=30_000)  # a busy machine is slow, not wrong


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the source, the prepared corpus and the runs."""
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="session")
def corpus(place: Path) -> PreparedCorpus:
    """Three questions over one small database with hostile values."""
    return prepared(place)


@pytest.fixture(scope="session")
def run(place: Path, corpus: PreparedCorpus) -> Path:
    """A run of six of its eight updates; nobody may change it."""
    return make_run(place, corpus, "alpha", 6)


@pytest.fixture(scope="session")
def page_file(run: Path, place: Path) -> Path:
    """The report of ``run``."""
    return write_report([run], place / "report.html")


def chromium(playwright: Playwright) -> str | None:
    """The browser's program: $CHROMIUM, the system's, or Playwright's own."""
    named = [os.environ.get("CHROMIUM"), "/usr/bin/chromium", shutil.which("chromium"), shutil.which("google-chrome")]
    found = [*named, playwright.chromium.executable_path]
    return next((path for path in found if path and Path(path).exists()), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Headless Chromium."""
    with sync_playwright() as playwright:
        program = chromium(playwright)
        if program is None:
            pytest.skip(HINT)
        try:
            browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        except Error as error:
            pytest.skip(f"{program} does not start ({str(error).splitlines()[0]}); {HINT}")
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens an address in a context of its own; console errors and requests that leave the page fail the test."""
    contexts, wrong = [], []

    def opened(address: str, ready: bool = True, **options: object) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: wrong.append(request.url) if leaves(request.url, address) else None)
        page.goto(address)
        if ready:
            page.wait_for_selector("html[data-ready=true]")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not wrong


def leaves(url: str, address: str) -> bool:
    """Whether a request goes beyond the page's own address and server; what lies in the page itself does not."""
    own = address.split("#")[0]
    return not (url.startswith(("data:", "blob:")) or url.split("#")[0] == own or url.startswith("http://127.0.0.1"))
