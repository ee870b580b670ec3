"""The report in a real browser, at a desk and on a phone: nothing scrolls sideways, fetches, fails or is missing;
without the script the rest is there."""

import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from attnsweep.orchestrator import report
from tests.end_to_end.chromium import Browser
from tests.end_to_end.read_page import WIDTHS, opened, texts


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_the_report_fits_and_is_whole(width: int, page: str, browser: Browser, tmp_path: Path) -> None:
    with browser.as_wide_as(width):
        for kind in ("browser", "performance"):
            browser.log(kind)
        browser.open(page)
        inside = browser.evaluate("element.clientWidth", "//html")
        assert width - 20 <= inside <= width
        # Details are where long lines hide.
        browser.evaluate("element.querySelectorAll('details').forEach(each => each.open = true)", "//body")
        assert browser.evaluate("element.scrollWidth", "//html") == inside
        widths = "[...element.querySelectorAll('img')].map(image => image.decode().then(() => image.naturalWidth))"
        sizes = browser.evaluate(f"Promise.all({widths})", "//body")
        assert len(sizes) >= 8
        assert min(sizes) > 200
        drawings = "[...element.querySelectorAll('svg')].map(each => [each.clientWidth, each.clientHeight])"
        for wide, high in browser.evaluate(drawings, "//body"):
            assert 250 < wide < width
            assert 120 < high < wide * 1.5
        past = (
            "[...element.querySelectorAll('img, svg, h1, .tile, pre, .scroll')]"
            ".filter(each => each.getBoundingClientRect().right > document.documentElement.clientWidth + 1)"
            ".map(each => each.outerHTML.slice(0, 99))"
        )
        assert browser.evaluate(past, "//body") == []
        browser.screenshot(tmp_path / "report.png")

    assert browser.log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.log("performance")]
    asked = [each["params"]["request"]["url"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    assert {url for url in asked if not url.startswith("data:")} <= {page, "about:blank"}
    assert page in asked


RECORDED = """
window.written = [];
const fillText = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...room) {
  const wide = Math.min(this.measureText(text).width, room[0] ?? Infinity);
  const left = x - { left: 0, start: 0, center: wide / 2, right: wide }[this.textAlign];
  if (text && !this.getTransform().b) window.written.push([this.canvas.ariaLabel, text, left, left + wide, y]);
  return fillText.call(this, text, x, y, ...room);
};
"""


def test_no_label_covers_another_where_there_is_little_room(page: str, browser: Browser) -> None:
    added = browser.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": RECORDED})
    try:
        with browser.as_wide_as(230), opened(browser, page):
            first = browser.evaluate("window.written.splice(0)", "//html")
            browser.click("//section[contains(@class, 'explore')]//select/option[starts-with(text(), 'learning')]")
            browser.find("//section[contains(@class, 'explore')][@aria-busy='false']")
            second = browser.evaluate("window.written", "//html")
    finally:
        browser.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)
    assert {"0.01", "init_sigma"} <= {text for _, text, *_ in first}
    assert {"0.01", "learning_rate"} <= {text for _, text, *_ in second}
    for written in (first, second):
        lines: dict[tuple[str, int], set[tuple[str, float, float]]] = defaultdict(set)
        for canvas, text, left, right, height in written:
            lines[canvas, round(height)].add((text, left, right))
        pairs = (pair for line in lines.values() for pair in itertools.combinations(sorted(line), 2))
        assert [(a, b) for a, b in pairs if a[1] < b[2] and b[1] < a[2]] == []


@pytest.mark.parametrize(
    ("ticks", "band", "length", "kept"),
    [
        ([[at / 8, f"10⁻{at}"] for at in range(9)], 0, 320, 9),
        ([[at / 8, f"10⁻{at}"] for at in range(9)], 0, 150, 5),
        ([[(at + 0.5) / 4, f"a_long_choice_{at}"] for at in range(4)], 1 / 4, 276, 4),
        ([[(at + 0.5) / 12, f"a_long_choice_{at}"] for at in range(12)], 1 / 12, 276, 4),
    ],
    ids=["few numbers", "many numbers", "few choices", "many choices"],
)
def test_labels_of_ticks_do_not_touch(
    ticks: list[list[Any]], band: float, length: int, kept: int, browser: Browser
) -> None:
    source = (Path(report.__file__).parent / "templates" / "explore_drawing.js").read_text()
    measure = (
        "const pen = document.createElement('canvas').getContext('2d'); pen.font = '12px sans-serif';"
        "const found = roomyTicks(pen, {ticks: arguments[0], band: arguments[1]}, arguments[2]);"
        "return found.map(([place, label]) => [place * arguments[2], label, pen.measureText(label).width]);"
    )
    browser.open("about:blank")
    found = browser.driver.execute_script(f"{source}\n{measure}", ticks, band, length)
    assert len(found) == kept
    assert all(a[0] + a[2] / 2 < b[0] - b[2] / 2 for a, b in itertools.pairwise(found))
    assert all(label for _, label, _ in found)


def test_a_table_is_sorted_by_a_click_on_its_head(page: str, browser: Browser) -> None:
    with opened(browser, page):
        column = "table.outcomes td:nth-child(2)"
        before = texts(browser, column)
        numbers = sorted(int(each) for each in before)
        for expected in (numbers, numbers[::-1], [int(each) for each in before]):
            browser.click("//table[contains(@class, 'outcomes')]//button[text()='trainings']")
            assert [int(each) for each in texts(browser, column)] == expected


def test_on_a_dark_page_letters_change_but_not_those_on_data(page: str, browser: Browser) -> None:
    fills = (
        "[...element.querySelectorAll(%r)].map(each => getComputedStyle(each.querySelector('use, path') ?? each).fill)"
    )
    ticks, letters = fills % ".drawing [id*='text_'] g", fills % ".drawing [id$='-share'] g"
    paper = "getComputedStyle(element.querySelector(\".drawing [id$='patch_1'] path\")).fill"
    seen = {}
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        try:
            with opened(browser, page):
                seen[scheme] = [browser.evaluate(each, "//body") for each in (ticks, letters, paper)]
        finally:
            browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert set(seen["light"][0]) == {"rgb(0, 0, 0)"}
    assert set(seen["dark"][0]) == {"rgb(236, 236, 236)"}
    assert seen["light"][1]
    assert seen["dark"][1] == seen["light"][1]
    assert (seen["light"][2], seen["dark"][2]) == ("rgb(255, 255, 255)", "rgb(22, 24, 27)")


def test_what_is_hostile_stays_text(page: str, browser: Browser) -> None:
    with opened(browser, page):
        assert browser.evaluate("element.querySelectorAll('[onerror], img[src=\"x\"]').length", "//html") == 0
        assert browser.evaluate("document.scripts.length", "//html") == 2


def test_without_its_script_and_in_print_the_page_is_as_it_was(page: str, browser: Browser) -> None:
    shown = "element.innerText"
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.open(page)
        without = browser.evaluate(shown, "//body")
        assert "Phase diagram" in without
        assert not {"Explore", "Clear the brushes"} & set(without.splitlines())
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    with opened(browser, page):
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        try:
            assert "".join(browser.evaluate(shown, "//body").split()) == "".join(without.split())
        finally:
            browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
