"""The report in a real browser, at a desk and on a phone: nothing scrolls sideways, fetches, fails or is missing, and
what is hostile stays text."""

import json
from pathlib import Path

import pytest

from attnsweep.orchestrator.report.page import write_report
from attnsweep.search_spaces import Categorical
from tests.end_to_end.chromium import Browser
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows

WIDTHS = {"desk": 1280, "phone": 390}
ERRORS = ("ValueError: no", "RuntimeError: " + "m" * 3000)
_UNREADABLE = """[...element.querySelectorAll('svg')].flatMap(svg => {
    const frame = svg.getBoundingClientRect(), seen = [...svg.querySelectorAll('text')];
    const boxes = seen.map(each => each.getBoundingClientRect());
    return seen.flatMap((text, i) => boxes[i].left < frame.left - 1 || boxes[i].right > frame.right + 1 ||
        boxes[i].top < frame.top - 1 || boxes[i].bottom > frame.bottom + 1 || boxes.some((other, j) => j < i &&
        other.left < boxes[i].right - 1 && boxes[i].left < other.right - 1 &&
        other.top < boxes[i].bottom - 3 && boxes[i].top < other.bottom - 3) ? [text.textContent] : []);
})"""
"""Texts of figures that are cut off or lie on others."""
HOSTILE = "<img src=x onerror=alert(1)></script><script>x()</script>"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page's address."""
    trials = [
        trial_rows(
            at,
            ["solved", ("degenerate_zero", "marginal", "runaway", "plateau")[at % 4], "diverged", "failed"],
            param_init_sigma=(5e-4, 5e-3, 5e-2, 0.5)[at % 4],
            param_learning_rate=(5e-3, 5e-2)[at // 4],
            param_variant=("positions_only", HOSTILE)[at % 2],
            outcome_detail=HOSTILE,
            level_zero=8.0,
            level_mean=7.5,
            loss_level=0.7,
            error=f"Traceback\n  {'m' * 3000}\n{ERRORS[at % 2]}",
        )
        for at in range(8)
    ]
    home = tmp_path_factory.mktemp("report") / ("a long folder " * 8) / "sweep"
    spec = small_sweep("read", trials=8, description="word" * 100)
    spec = spec.but(space={**spec.space, "variant": Categorical(choices=("positions_only", HOSTILE))})
    return write_report([sweep_on_disk(home, spec, *trials).place], None).resolve().as_uri()


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
        drawings = "[...element.querySelectorAll('svg')].map(each => [each.clientWidth, each.clientHeight])"
        sizes = browser.evaluate(drawings, "//body")
        assert len(sizes) >= 8
        for wide, high in sizes:
            assert 250 < wide < width
            assert 120 < high < wide * 1.5
        assert browser.evaluate(_UNREADABLE, "//body") == []
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


def test_what_is_hostile_stays_text(page: str, browser: Browser) -> None:
    browser.log("browser")
    browser.open(page)
    assert browser.evaluate("element.querySelectorAll('[onerror], img[src=\"x\"]').length", "//html") == 0
    assert browser.evaluate("document.scripts.length", "//html") == 2
    assert browser.log("browser") == []


def test_a_trial_tells_its_values_and_outcomes_and_shows_its_curves(page: str, browser: Browser) -> None:
    browser.open(page)
    dot = "(//*[contains(@class, 'plane')]//*[local-name() = 'circle'])[3]"
    hover = "element.dispatchEvent(new MouseEvent('{}', {{bubbles: true}}))"
    browser.evaluate(hover.format("mouseover"), dot)
    told = browser.find("//p[contains(@class, 'said')]").text
    assert told.startswith("Trial 2: init sigma 0.05, learning rate 0.005")
    assert told.endswith("| 1 solved, 1 runaway, 1 diverged, 1 failed")
    browser.evaluate(hover.format("click"), dot)
    assert browser.find("//p[contains(@class, 'of')]").text == told
    drawn = "[...element.querySelectorAll('polyline title')].map(each => each.textContent)"
    assert "replicate 0: solved" in browser.evaluate(drawn, "//*[@class='curves']")
    choice = "element.querySelectorAll('select')[2].options.length"
    assert browser.evaluate(choice, "//section[@class='explore']") == 1 + 7
