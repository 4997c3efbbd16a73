"""The server's web page, in a real browser where there is one (Chromium from the system's packages)."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright import sync_api

from conftest import into
from serving_helpers import ServerProcess

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
PATIENCE = 60_000  # milliseconds, on a busy machine
SIZES = {"desktop": (1280, 800), "phone": (390, 844)}


@pytest.fixture(scope="module")
def server(two_languages: Path) -> Iterator[ServerProcess]:
    with ServerProcess("--max-characters", "200", "--rate-limit", "0", cwd=two_languages) as process:
        yield process


@pytest.fixture(scope="module")
def browser() -> Iterator["sync_api.Browser"]:
    with sync_api.sync_playwright() as playwright:
        # Root, as which containers run, gets no sandbox from Chromium.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(params=SIZES)
def page(
    request: pytest.FixtureRequest, browser: "sync_api.Browser", server: ServerProcess
) -> Iterator["sync_api.Page"]:
    """The page, loaded; at the end nothing must have been complained about, nor asked for elsewhere."""
    width, height = SIZES[request.param]
    context = browser.new_context(viewport={"width": width, "height": height})
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "request", lambda asked: None if asked.url.startswith((server.url, "data:")) else complaints.append(asked.url)
    )
    page.set_default_timeout(PATIENCE)
    page.goto(server.url)
    sync_api.expect(page.get_by_label("From")).to_have_value("en", timeout=PATIENCE)
    yield page
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it is wider than the screen"
    expected = getattr(page, "expected_complaints", 0)
    assert len(complaints) == expected, complaints
    context.close()


def result_is(page: "sync_api.Page", text: str | re.Pattern[str]) -> None:
    sync_api.expect(page.locator("#result")).to_have_text(text, timeout=PATIENCE)


def test_it_translates_while_one_types(page: "sync_api.Page") -> None:
    page.get_by_label("Text to translate").press_sequentially("a b c")
    result_is(page, into("xx", "a b c"))
    page.get_by_label("To", exact=True).select_option("yy")
    result_is(page, into("yy", "a b c"))
    sync_api.expect(page.locator("#count")).to_have_text("5 / 200")
    page.get_by_role("button", name="Clear").click()
    result_is(page, "")
    sync_api.expect(page.get_by_label("Text to translate")).to_be_focused()
    sync_api.expect(page.get_by_role("alert")).to_be_hidden()


def test_alternatives_come_on_a_click_and_can_be_taken(page: "sync_api.Page") -> None:
    page.get_by_label("Text to translate").fill("d e f")
    result_is(page, into("xx", "d e f"))
    more = page.get_by_role("button", name="Alternatives")
    more.click()
    sync_api.expect(more).to_have_attribute("aria-expanded", "true", timeout=PATIENCE)
    choices = page.get_by_role("listitem").all_text_contents()
    assert 1 <= len(choices) <= 3
    assert into("xx", "d e f") not in choices
    page.get_by_role("button", name=choices[0], exact=True).click()
    result_is(page, choices[0])
    page.get_by_role("button", name=into("xx", "d e f"), exact=True).click()
    result_is(page, into("xx", "d e f"))


def test_the_keyboard_is_enough(page: "sync_api.Page") -> None:
    sync_api.expect(page.get_by_label("Text to translate")).to_be_focused()
    page.keyboard.type("j")
    page.keyboard.press("Control+Enter")
    result_is(page, into("xx", "j"))
    names = []
    for _ in range(3):
        page.keyboard.press("Tab")
        names.append(page.evaluate("document.activeElement.textContent.trim()"))
    assert names == ["Clear", "Alternatives", "Copy"]


def test_a_screen_reader_finds_names_and_hears_the_result(page: "sync_api.Page") -> None:
    assert page.locator("#result").get_attribute("aria-live") == "polite"
    assert page.evaluate("document.documentElement.lang") == "en"
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, select, textarea, input')].filter(one => "
        "!one.textContent.trim() && !one.ariaLabel && !(one.labels && one.labels.length)).length"
    )
    assert unnamed == 0


def test_what_is_too_long_is_said_and_not_sent(page: "sync_api.Page") -> None:
    page.get_by_label("Text to translate").fill("a " * 101)
    sync_api.expect(page.get_by_role("alert")).to_have_text("At most 200 characters can be translated at once.")
    sync_api.expect(page.locator("#count")).to_have_class("over")
    page.get_by_label("Text to translate").fill("a")
    result_is(page, into("xx", "a"))
    sync_api.expect(page.get_by_role("alert")).to_be_hidden()


def test_a_server_that_is_gone_is_said(page: "sync_api.Page") -> None:
    page.expected_complaints = 1  # the browser itself logs a request that fails
    page.route("**/translate", lambda route: route.abort())
    page.get_by_label("Text to translate").fill("a b")
    sync_api.expect(page.get_by_role("alert")).to_have_text("The server cannot be reached.", timeout=PATIENCE)


def test_the_text_is_shown_as_text(page: "sync_api.Page") -> None:
    page.route("**/translate", lambda route: route.fulfill(json={"translatedText": "<img src=x onerror=alert(1)>"}))
    page.get_by_label("Text to translate").fill("a")
    result_is(page, "<img src=x onerror=alert(1)>")
