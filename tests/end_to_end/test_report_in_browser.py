"""The report in a real browser, at a desk and on a phone: nothing scrolls sideways, fetches, fails or is missing; what
its script shows of a point are the ledger's numbers; without the script the rest is there."""

import itertools
import json
import shlex
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.support.wait import WebDriverWait

from attnsweep.orchestrator import report
from attnsweep.orchestrator.ledger.query import query_all
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.report.explorer.head_maps import ShownHead, ShownLayer, TrainingMaps
from attnsweep.orchestrator.report.page import write_report
from attnsweep.search_spaces import Categorical
from tests.end_to_end.chromium import SECONDS_TO_SHOW, Browser
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows

WIDTHS = {"desk": 1280, "phone": 390}
ERRORS = ("ValueError: no", "RuntimeError: " + "m" * 3000)
HOSTILE = "<img src=x onerror=alert(1)></script><script>x()</script>"
FIND_TRIAL = """((wanted) => {
    const [box, tip] = [element.getBoundingClientRect(), element.querySelector('.tip')];
    for (let top = 0; top < box.height; top += 6) for (let left = 0; left < box.width; left += 6) {
        const place = { clientX: box.left + left, clientY: box.top + top };
        element.dispatchEvent(new PointerEvent('pointermove', place));
        if (!tip.hidden && tip.textContent.startsWith(`trial ${wanted}\\n`)) return [left, top];
    }
    return null;
})(%d)"""
"""Where a user who moves the pointer over the points finds a trial."""
TIPS = """(() => {
    const [box, tip, found] = [element.getBoundingClientRect(), element.querySelector('.tip'), new Set()];
    for (let top = 0; top < box.height; top += 6) for (let left = 0; left < box.width; left += 6) {
        element.dispatchEvent(new PointerEvent('pointermove', { clientX: box.left + left, clientY: box.top + top }));
        if (!tip.hidden) found.add(tip.textContent);
    }
    return [...found];
})()"""
"""All that a user reads who moves the pointer over the plane."""
HEIGHT_OF_A_CURVE = """(() => {
    const [box, tip] = [element.getBoundingClientRect(), element.querySelector('.tip')];
    for (let top = 0; top < box.height; top += 3) {
        const place = { clientX: box.left + Math.floor(box.width / 4), clientY: box.top + top };
        element.dispatchEvent(new PointerEvent('pointermove', place));
        if (!tip.hidden && tip.textContent.startsWith("training ")) return top + 5;
    }
    return null;
})()"""
"""Where, at a quarter of the width, the pointer finds a line."""

WEIGHTS = np.array([[[0.0, 0.25, 0.75], [1.0, 0.0, 0.0]], [[0.2, 0.3, 0.5], [0.0, 0.5, 0.5]]])
"""(H, Q, K) the attention of training 3/1."""
MAPS = TrainingMaps(
    name="3/1",
    text="Sentence 0 of 9: the dog",
    layers=(
        ShownLayer(
            title="encoder_self",
            queries=("the", "dog"),
            keys=("the", HOSTILE, "<eos>"),
            heads=tuple(ShownHead(title=f"{at}: positional", weights_QK=each) for at, each in enumerate(WEIGHTS)),
        ),
    ),
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
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
    return write_report([sweep_on_disk(home, spec, *trials).place], None, maps=lambda _: [MAPS]).resolve().as_uri()


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
        with browser.as_wide_as(230), _opened(browser, page):
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


@contextmanager
def _opened(browser: Browser, page: str) -> Iterator[Ledger]:
    """The page, drawn, in the browser; and its ledger."""
    browser.log("browser")
    browser.open(page)
    browser.find("//section[contains(@class, 'explore')][@aria-busy='false']")
    yield Ledger(Path(page.removeprefix("file://").replace("%20", " ")).parents[1])
    assert browser.log("browser") == []


def _answers(ledger: Ledger, sql: str) -> list[dict[str, Any]]:
    return list(query_all([ledger], sql).to_pylist())


def _texts(browser: Browser, selector: str) -> list[str]:
    return list(
        browser.evaluate(f"[...element.querySelectorAll({selector!r})].map(each => each.textContent)", "//body")
    )


def _six_digits(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def test_a_click_on_a_point_shows_the_ledgers_numbers(page: str, browser: Browser) -> None:
    with _opened(browser, page) as ledger:
        plate = browser.find("//div[@class='plate']")
        browser.evaluate("element.scrollIntoView({block: 'center'})", "//div[@class='plate']")
        left, top = browser.evaluate(FIND_TRIAL % 3, "//div[@class='plate']")
        size = plate.size
        pointer = ActionChains(browser.driver)
        pointer.move_to_element_with_offset(plate, left - size["width"] // 2, top - size["height"] // 2)
        pointer.click().perform()

        (trial,) = _answers(
            ledger,
            "select param_init_sigma, param_learning_rate, param_variant, loss_median from trials where trial = 3",
        )
        told = dict(zip(_texts(browser, ".detail dt"), _texts(browser, ".detail dd"), strict=True))
        assert told.pop("variant") == trial.pop("param_variant") == HOSTILE
        assert list(told) == [name.removeprefix("param_") for name in trial]
        assert [float(each) for each in told.values()] == [float(_six_digits(each)) for each in trial.values()]

        rows = _answers(
            ledger, "select replicate, outcome, outcome_detail, eval_loss from trainings where trial = 3 order by 1"
        )
        cells = _texts(browser, ".replicates td:not(:last-child)")
        assert cells == [
            text
            for row in rows
            for text in (str(row["replicate"]), row["outcome"], HOSTILE, _six_digits(row["eval_loss"]))
        ]

        curve = _answers(ledger, "from curves where trial = 3 and replicate = 0 and metric = 'eval_loss' order by step")
        first, last = curve[0], curve[-1]
        assert _texts(browser, ".curve figcaption") == [
            f"evaluation loss from {first['value']:g} at step {first['step']} to {last['value']:g} at step"
            f" {last['step']}; the height is logarithmic"
        ]
        commands = [shlex.split(each) for each in _texts(browser, ".detail pre.command")]
        assert commands == [["attnsweep", verb, "sweep", "3/0"] for verb in ("heads", "replay", "why")]
        assert "Its attention maps are not in this page" in browser.find("//div[@class='heads']").text


def test_the_maps_of_a_training_are_read_cell_by_cell(page: str, browser: Browser) -> None:
    with _opened(browser, page):
        browser.find("//label[text()='trial']/input").send_keys("3", Keys.ENTER)
        browser.click("//table[contains(@class, 'replicates')]//button[text()='1']")
        drawn = browser.evaluate(
            "[...element.querySelectorAll('canvas')]"
            ".map(each => [...each.getContext('2d').getImageData(0, 0, each.width, each.height).data])"
            ".map(pixels => pixels.filter((_, at) => at % 4 == 3))",
            "//div[@class='head-maps']",
        )
        assert drawn == [np.rint(255 * each).flatten().tolist() for each in WEIGHTS]
        one, other = (browser.find(f"//div[@class='head-maps']/figure[{at}]/canvas") for at in (1, 2))
        assert one.get_attribute("aria-label") == "encoder_self, head 0: positional; strongest dog → the: 1"
        browser.evaluate("element.scrollIntoView({block: 'center'})", "//div[@class='head-maps']")
        said = "//p[contains(@class, 'told')]"
        for canvas, (right, down), words in (
            (one, (1 / 3, -1 / 4), "head 0: positional: the → <eos>: 0.75"),
            (other, (0, 1 / 4), f"head 1: positional: dog → {HOSTILE[:24]}: 0.5"),
        ):
            size = canvas.size
            place = round(right * size["width"]), round(down * size["height"])
            ActionChains(browser.driver).move_to_element_with_offset(canvas, *place).perform()
            assert browser.find(said).text == words


def test_a_cell_of_the_plane_has_the_ledgers_share(page: str, browser: Browser) -> None:
    choose = "[...element.options].findIndex(each => each.text.startsWith(%r))"
    choose = f"(element.value = {choose}, element.dispatchEvent(new Event('change')))"
    select = "//section[contains(@class, 'explore')]//label[starts-with(text(), %r)]/select"
    with _opened(browser, page) as ledger:
        for name, wanted in (
            ("across", "learning"),
            ("up", "init"),
            ("as", "cells"),
            ("colour", "share degenerate_zero"),
        ):
            browser.evaluate(choose % wanted, select % name)
        told = browser.evaluate(TIPS, "//div[@class='plate']")
        assert len(told) == 8
        for words in told:
            names, ends, shares = [], [], ""
            for line in words.splitlines():
                if " to " in line:
                    name, low, _, high = line.split()
                    names.append(name)
                    ends.append(f"param_{name} between {float(low)} and {float(high)}")
                elif line.startswith("share"):
                    shares = line
            assert len(names) == 2
            (row,) = _answers(
                ledger,
                "select count(*) filter (outcome = 'degenerate_zero') as k, count(*) filter (outcome <> 'failed') as n,"
                f" count(distinct trial) as t from trainings where {' and '.join(ends)}",
            )
            trials = f"{row['t']} trial{'s' if row['t'] > 1 else ''}"
            assert shares == f"share degenerate_zero: {row['k']} of {row['n']} in {trials}"


def test_a_brush_keeps_the_trials_that_pass_it(page: str, browser: Browser) -> None:
    with _opened(browser, page) as ledger:
        inside = "//p[contains(@class, 'inside')]"
        assert browser.find(inside).text.startswith("8 of 8 trials")
        plate = browser.find("//div[contains(@class, 'brushed')]")
        # The first axis, init_sigma, from its lower end to its middle.
        across = 48 - plate.size["width"] // 2
        pointer = ActionChains(browser.driver)
        pointer.move_to_element_with_offset(plate, across, plate.size["height"] // 2 - 1).click_and_hold()
        pointer.move_to_element_with_offset(plate, across, 5).release().perform()
        ((n, k),) = [
            tuple(row.values())
            for row in _answers(
                ledger,
                "select count(*), count(*) filter (stuck) from trainings"
                " where outcome <> 'failed' and param_init_sigma < 0.01",
            )
        ]
        WebDriverWait(browser.driver, SECONDS_TO_SHOW).until(
            lambda _: browser.find(inside).text.startswith("4 of 8 trials are in the brushes")
        )
        assert browser.find(inside).text.endswith(f"of their {n} trainings that did not fail, {k} are stuck.")
        browser.click("//button[text()='Clear the brushes']")
        assert browser.find(inside).text.startswith("8 of 8 trials")


@contextmanager
def _on_a_phone(browser: Browser) -> Iterator[None]:
    with browser.as_wide_as(WIDTHS["phone"]):
        browser.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
        try:
            yield
        finally:
            browser.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})


def _draw_by_finger(browser: Browser, left: float, *tops: float) -> None:
    """One finger down at the first place, over the others, and up."""
    for kind, top in zip(("touchStart", *["touchMove"] * (len(tops) - 1)), tops, strict=True):
        points = [{"x": left, "y": top}]
        browser.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    browser.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def test_a_finger_brushes_on_an_axis_and_scrolls_between_axes(page: str, browser: Browser) -> None:
    inside, plate = "//p[contains(@class, 'inside')]", "//div[contains(@class, 'brushed')]"
    with _on_a_phone(browser), _opened(browser, page):
        browser.evaluate("element.scrollIntoView({block: 'center'})", plate)
        box = browser.evaluate("element.getBoundingClientRect().toJSON()", plate)
        before = browser.evaluate("scrollY", "//html")
        # The first axis, init_sigma, from its lower end to its middle.
        low, middle = box["top"] + box["height"] - 15, box["top"] + 40 + (box["height"] - 54) / 2
        _draw_by_finger(browser, box["left"] + 48, low, low - 40, middle)
        WebDriverWait(browser.driver, SECONDS_TO_SHOW).until(
            lambda _: browser.find(inside).text.startswith("4 of 8 trials are in the brushes")
        )
        assert browser.evaluate("scrollY", "//html") == before
        between = box["left"] + 48 + (box["width"] - 96) / 6
        _draw_by_finger(browser, between, low, low - 40, middle)
        WebDriverWait(browser.driver, SECONDS_TO_SHOW).until(lambda _: browser.evaluate("scrollY", "//html") > before)
        assert browser.find(inside).text.startswith("4 of 8 trials are in the brushes")


def test_a_click_on_a_single_curve_shows_its_training(page: str, browser: Browser) -> None:
    with _opened(browser, page) as ledger:
        titles = _texts(browser, ".curves h4")
        counted = _answers(ledger, "select outcome, count(*) as n from trainings where outcome <> 'failed' group by 1")
        assert sorted(titles) == sorted(
            f"{row['outcome']}{', moving' * (row['outcome'] != 'diverged')}: {row['n']} of {row['n']} trainings"
            for row in counted
        )
        panel = "//h4[starts-with(text(), 'marginal')]/following-sibling::div"
        browser.evaluate("element.scrollIntoView({block: 'center'})", panel)
        plate = browser.find(panel)
        height = browser.evaluate(HEIGHT_OF_A_CURVE, panel)
        assert height is not None
        pointer = ActionChains(browser.driver)
        size = plate.size
        pointer.move_to_element_with_offset(plate, -size["width"] // 4, height - size["height"] // 2).click().perform()
        (shown,) = _texts(browser, ".training h3")
        number, replicate = shown.removeprefix("Training ").split("/")
        (row,) = _answers(ledger, f"select outcome from trainings where trial = {number} and replicate = {replicate}")
        assert row["outcome"] == "marginal"
        assert _texts(browser, ".detail h3")[0] == f"Trial {number}"


def test_a_table_is_sorted_by_a_click_on_its_head(page: str, browser: Browser) -> None:
    with _opened(browser, page):
        column = "table.outcomes td:nth-child(2)"
        before = _texts(browser, column)
        numbers = sorted(int(each) for each in before)
        for expected in (numbers, numbers[::-1], [int(each) for each in before]):
            browser.click("//table[contains(@class, 'outcomes')]//button[text()='trainings']")
            assert [int(each) for each in _texts(browser, column)] == expected


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
            with _opened(browser, page):
                seen[scheme] = [browser.evaluate(each, "//body") for each in (ticks, letters, paper)]
        finally:
            browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert set(seen["light"][0]) == {"rgb(0, 0, 0)"}
    assert set(seen["dark"][0]) == {"rgb(236, 236, 236)"}
    assert seen["light"][1]
    assert seen["dark"][1] == seen["light"][1]
    assert (seen["light"][2], seen["dark"][2]) == ("rgb(255, 255, 255)", "rgb(22, 24, 27)")


def test_what_is_hostile_stays_text(page: str, browser: Browser) -> None:
    with _opened(browser, page):
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
    with _opened(browser, page):
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        try:
            assert "".join(browser.evaluate(shown, "//body").split()) == "".join(without.split())
        finally:
            browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
