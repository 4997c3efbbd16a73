"""The server's web pages, in a real browser where there is one (Chromium from the system's packages)."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright import sync_api

from conftest import into
from serving_helpers import SLOW_SERVER, ServerProcess

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
PATIENCE = 60_000  # milliseconds, on a busy machine
SIZES = {"desktop": (1280, 800), "phone": (390, 844)}
on_both_sizes = pytest.mark.parametrize("page", SIZES, indirect=True)


@pytest.fixture(scope="module")
def server(two_languages: Path) -> Iterator[ServerProcess]:
    options = ("--max-characters", "200", "--max-file", "100000", "--rate-limit", "0")
    with ServerProcess(*options, cwd=two_languages) as process:
        yield process


@pytest.fixture(scope="module")
def browser() -> Iterator["sync_api.Browser"]:
    with sync_api.sync_playwright() as playwright:
        # Root, as which containers run, gets no sandbox from Chromium.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(
    request: pytest.FixtureRequest, browser: "sync_api.Browser", server: ServerProcess
) -> Iterator["sync_api.Page"]:
    """The page, loaded; at the end it fits all screens, and nothing was complained about or asked for elsewhere."""
    width, height = SIZES[getattr(request, "param", "desktop")]
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
    for width, height in SIZES.values():
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it is wider than the screen"
    expected = getattr(page, "expected_complaints", 0)
    assert len(complaints) == expected, complaints
    context.close()


def result_is(page: "sync_api.Page", text: str | re.Pattern[str]) -> None:
    sync_api.expect(page.locator("#result")).to_have_text(text, timeout=PATIENCE)


@on_both_sizes
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


@on_both_sizes
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


def test_a_late_answer_does_not_replace_what_is_said_of_a_longer_text(page: "sync_api.Page") -> None:
    pending: list[sync_api.Route] = []
    page.route("**/translate", lambda route: pending.append(route))
    with page.expect_request("**/translate", timeout=PATIENCE):
        page.get_by_label("Text to translate").fill("a b")
    page.get_by_label("Text to translate").fill("a " * 101)
    alert = page.get_by_role("alert")
    sync_api.expect(alert).to_have_text("At most 200 characters can be translated at once.", timeout=PATIENCE)
    pending[0].fulfill(json={"translatedText": "late"})
    page.wait_for_timeout(500)
    result_is(page, "")
    sync_api.expect(alert).to_be_visible()


def test_a_server_that_is_gone_is_said(page: "sync_api.Page") -> None:
    page.expected_complaints = 1  # the browser itself logs a request that fails
    page.route("**/translate", lambda route: route.abort())
    page.get_by_label("Text to translate").fill("a b")
    sync_api.expect(page.get_by_role("alert")).to_have_text("The server cannot be reached.", timeout=PATIENCE)


def test_the_text_is_shown_as_text(page: "sync_api.Page") -> None:
    page.route("**/translate", lambda route: route.fulfill(json={"translatedText": "<img src=x onerror=alert(1)>"}))
    page.get_by_label("Text to translate").fill("a")
    result_is(page, "<img src=x onerror=alert(1)>")


def test_text_from_right_to_left_is_laid_out_so(page: "sync_api.Page") -> None:
    answer = {"translatedText": "שלום", "alternatives": ["(עולם) a"]}
    page.route("**/translate", lambda route: route.fulfill(json=answer))
    page.get_by_label("Text to translate").fill("سلام")
    result_is(page, "שלום")
    for name in ("#text", "#result"):
        sync_api.expect(page.locator(name)).to_have_css("direction", "rtl")
    page.get_by_role("button", name="Alternatives").click()
    sync_api.expect(page.get_by_role("listitem").get_by_role("button")).to_have_css("unicode-bidi", "plaintext")
    page.get_by_role("button", name="Clear").click()
    sync_api.expect(page.locator("#text")).to_have_css("direction", "ltr")


MARKDOWN = "# a b c\n\n* d e\n"
DROP = """
(content) => {
  const data = new DataTransfer();
  data.items.add(new File([content], "notes.md"));
  for (const kind of ["dragover", "drop"]) {
    const event = new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true });
    document.getElementById("text").dispatchEvent(event);
    if (!event.defaultPrevented) throw new Error("the browser would open the file");
  }
}
"""


def downloaded(page: "sync_api.Page") -> tuple[str, str]:
    """The name and the content of the translated document."""
    with page.expect_download(timeout=PATIENCE) as download:
        page.get_by_role("link", name="Download").click()
    return download.value.suggested_filename, download.value.path().read_text()


@on_both_sizes
def test_a_document_is_chosen_or_dropped(page: "sync_api.Page") -> None:
    expected = "notes_xx.md", f"# {into('xx', 'a b c')}\n\n* {into('xx', 'd e')}\n"
    page.get_by_label("Translate a document").set_input_files(
        {"name": "notes.md", "mimeType": "text/markdown", "buffer": MARKDOWN.encode()}
    )
    assert downloaded(page) == expected
    sync_api.expect(page.locator("#stage")).to_have_text("Translated notes.md")
    page.get_by_label("To", exact=True).select_option("yy")
    page.evaluate(DROP, MARKDOWN)
    sync_api.expect(page.locator("#stage")).to_have_text("Translated notes.md", timeout=PATIENCE)
    assert downloaded(page)[0] == "notes_yy.md"


def test_a_document_that_cannot_be_translated_is_said(page: "sync_api.Page") -> None:
    page.expected_complaints = 1  # the browser itself logs the answer's status
    page.get_by_label("Translate a document").set_input_files(
        {"name": "a.docx", "mimeType": "", "buffer": b"no archive"}
    )
    alert = page.get_by_role("alert")
    sync_api.expect(alert).to_contain_text("a.docx: damaged, or no .docx file", timeout=PATIENCE)
    sync_api.expect(page.locator("#work")).to_be_hidden()
    page.evaluate(DROP, "a" * 100_001)
    sync_api.expect(alert).to_have_text("notes.md is larger than 100,000 bytes.")


def test_the_progress_of_a_document_is_shown_and_it_can_be_cancelled(
    browser: "sync_api.Browser", tmp_path: Path
) -> None:
    with ServerProcess("60", cwd=tmp_path, program=SLOW_SERVER) as server:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(server.url)
        sync_api.expect(page.get_by_label("From")).to_have_value("en", timeout=PATIENCE)
        page.evaluate(DROP, "".join(f"* a {n}\n" for n in range(10_000)))
        bar = page.get_by_label("Progress of the document")
        sync_api.expect(page.locator("#stage")).to_have_text("Translating notes.md", timeout=PATIENCE)
        sync_api.expect(page.locator("#amount")).to_have_text(re.compile(r"^[1-9]\d? %$"), timeout=PATIENCE)
        assert 0 < bar.evaluate("bar => bar.position") < 1
        page.get_by_role("button", name="Cancel").click()
        sync_api.expect(bar).to_be_hidden()
        sync_api.expect(page.get_by_role("alert")).to_be_hidden()
        page.close()


def test_models_and_the_command_for_programs_are_named(page: "sync_api.Page") -> None:
    sync_api.expect(page.locator("#models")).to_have_text("two: English → xx, yy")
    page.get_by_label("To", exact=True).select_option("yy")
    line = page.locator("#curl").text_content()
    assert '"target":"yy"' in line
    if shutil.which("curl"):
        assert "translatedText" in json.loads(subprocess.run(f"{line} -s", shell=True, capture_output=True).stdout)


def test_the_page_of_the_api(page: "sync_api.Page") -> None:
    page.get_by_role("link", name="API").click()
    sync_api.expect(page.get_by_role("heading", name="POST /translate_file")).to_be_visible(timeout=PATIENCE)
    assert page.get_by_role("heading", level=2).count() == page.evaluate(
        "fetch('spec').then(got => got.json()).then(spec => Object.keys(spec.paths).length)"
    )
    lines = page.locator("pre").all_text_contents()
    if shutil.which("curl"):
        assert "translatedText" in json.loads(subprocess.run(f"{lines[0]} -s", shell=True, capture_output=True).stdout)
    page.get_by_role("link", name="Translate").click()
    sync_api.expect(page.get_by_label("Text to translate")).to_be_focused(timeout=PATIENCE)


def test_a_better_translation_is_sent(two_languages: Path, browser: "sync_api.Browser", tmp_path: Path) -> None:
    with ServerProcess("--suggestions", tmp_path / "better.jsonl", cwd=two_languages) as server:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(server.url)
        page.get_by_label("Text to translate").fill("a b c")
        result_is(page, into("xx", "a b c"))
        page.get_by_role("button", name="Improve").click()
        better = page.get_by_label("Better translation")
        sync_api.expect(better).to_have_value(into("xx", "a b c"))
        better.fill("x y z")
        page.get_by_role("button", name="Send").click()
        sync_api.expect(page.locator("#status")).to_have_text("Sent; thank you", timeout=PATIENCE)
        sync_api.expect(better).to_be_hidden()
        page.close()
    [line] = (tmp_path / "better.jsonl").read_text().splitlines()
    assert json.loads(line) == {"q": "a b c", "s": "x y z", "source": "en", "target": "xx"}
