"""The report and the corpus page in a real browser, where there is one (Chromium from the system's packages)."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright import sync_api

from command import mt
from mt.extras.reporting.html import page as html_page
from mt.extras.reporting.html import table

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

# The lowest contrast of text with the ground behind it; what is folded away is unfolded first.
CONTRAST = """() => {
  document.querySelectorAll("details").forEach((one) => { one.open = true; });
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const luminance = (colour) => {
    const [r, g, b] = colour.map((value) => value < 10.1 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    const colour = numbers(getComputedStyle(element).backgroundColor);
    return colour.length === 4 && colour[3] < 1 ? ground(element.parentElement) : colour;
  };
  const texts = [...document.querySelectorAll("h1, h2, h3, p, li, a, cite, th, td, summary, .badge, text, .lines")];
  return Math.min(...texts.map((element) => {
    const style = getComputedStyle(element);
    const [low, high] = [numbers(element.localName === "text" ? style.fill : style.color), ground(element)]
      .map(luminance).sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  }));
}"""


@pytest.fixture(scope="module")
def pages(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    files = {name: folder / f"{name}.html" for name in ("report", "corpus")}
    mt("report", trained / "runs" / "tiny", "--output", files["report"], cwd=folder)
    mt("data", "check", "tiny.yaml", "--html", files["corpus"], cwd=trained)
    return files


@pytest.fixture(scope="module")
def browser() -> Iterator["sync_api.Browser"]:
    with sync_api.sync_playwright() as playwright:
        # Root, as which containers run, gets no sandbox from Chromium.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["report", "corpus"])
def test_a_page_fits_and_is_legible(
    name: str, width: int, scheme: str, pages: dict[str, Path], browser: "sync_api.Browser"
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)  # type: ignore[arg-type]
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda asked: complaints.append(asked.url) if asked.url.startswith("http") else None)
    page.goto(pages[name].as_uri())
    assert page.evaluate(CONTRAST) >= 4.5, "WCAG AA"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it is wider than the screen"
    fonts = "[...new Set([...document.querySelectorAll('body *')].map((one) => getComputedStyle(one).fontFamily))]"
    assert page.evaluate(fonts) == ["system-ui, sans-serif"]
    figure = page.locator("figure:has(circle)").first
    point = figure.locator("circle").last
    point.hover()
    value = (point.text_content() or "?").split(", ")[-1]  # two lines may have a point in one place
    sync_api.expect(figure.locator("output")).to_contain_text(value)
    assert complaints == []
    page.close()


def test_the_corpus_page_tells_positions_copies_commands_and_unfolds(
    pages: dict[str, Path], browser: "sync_api.Browser"
) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 844})
    page.goto(pages["corpus"].as_uri())
    picture = page.locator(".axis + svg").first
    box = picture.bounding_box()
    assert box is not None
    picture.hover(position={"x": box["width"] / 2, "y": 5})
    assert page.locator("figure:has(.map) output").text_content() in ("pair 150", "pair 151")
    assert page.locator(".finding[open]").count() == 0
    name = page.locator(".finding").first.get_attribute("id")
    page.goto(f"{pages['corpus'].as_uri()}#{name}")
    assert page.locator(".finding[open]").get_attribute("id") == name
    page.locator("summary").last.focus()
    page.keyboard.press("Enter")
    button = page.locator("button.copy").first
    button.press("Enter")
    sync_api.expect(button).to_have_text(re.compile("Copied|Selected"))
    page.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_text_from_right_to_left_begins_at_the_right(width: int, browser: "sync_api.Browser") -> None:
    page = browser.new_page(viewport={"width": width, "height": 844})
    rows = table(["source", "translation"], [["(שלום) a.", "(a) שלום."]], "texts")
    page.set_content(html_page("w", "t", "s", "", [("Texts", f'{rows}<div class="columns"><h3>(שלום) a.</h3></div>')]))
    turned = page.evaluate("""() => [...document.querySelectorAll("td, .columns h3")].map((one) => {
      const [text, range] = [one.firstChild, document.createRange()];
      const [first, last] = [0, text.length - 1].map((at) => {
        range.setStart(text, at);
        range.setEnd(text, at + 1);
        return range.getBoundingClientRect().left;
      });
      return first > last;
    })""")
    assert turned == [True, False, True]
    page.close()
