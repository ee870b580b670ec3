"""The part *Explore* of a report, used in a real browser: what it shows are the ledger's numbers."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.support.wait import WebDriverWait

from tests.end_to_end.chromium import SECONDS_TO_SHOW, Browser
from tests.end_to_end.read_page import HOSTILE, WEIGHTS, WIDTHS, answers, opened, texts

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


def _six_digits(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def test_a_click_on_a_point_shows_the_ledgers_numbers(page: str, browser: Browser) -> None:
    with opened(browser, page) as ledger:
        plate = browser.find("//div[@class='plate']")
        browser.evaluate("element.scrollIntoView({block: 'center'})", "//div[@class='plate']")
        left, top = browser.evaluate(FIND_TRIAL % 3, "//div[@class='plate']")
        size = plate.size
        pointer = ActionChains(browser.driver)
        pointer.move_to_element_with_offset(plate, left - size["width"] // 2, top - size["height"] // 2)
        pointer.click().perform()

        (trial,) = answers(
            ledger,
            "select param_init_sigma, param_learning_rate, param_variant, loss_median from trials where trial = 3",
        )
        told = dict(zip(texts(browser, ".detail dt"), texts(browser, ".detail dd"), strict=True))
        assert told.pop("variant") == trial.pop("param_variant") == HOSTILE
        assert list(told) == [name.removeprefix("param_") for name in trial]
        assert [float(each) for each in told.values()] == [float(_six_digits(each)) for each in trial.values()]

        rows = answers(
            ledger, "select replicate, outcome, outcome_detail, eval_loss from trainings where trial = 3 order by 1"
        )
        cells = texts(browser, ".replicates td:not(:last-child)")
        assert cells == [
            text
            for row in rows
            for text in (str(row["replicate"]), row["outcome"], HOSTILE, _six_digits(row["eval_loss"]))
        ]

        curve = answers(ledger, "from curves where trial = 3 and replicate = 0 and metric = 'eval_loss' order by step")
        first, last = curve[0], curve[-1]
        assert texts(browser, ".curve figcaption") == [
            f"evaluation loss from {first['value']:g} at step {first['step']} to {last['value']:g} at step"
            f" {last['step']}; the axis is the same for all trainings that did not diverge"
        ]
        commands = [shlex.split(each) for each in texts(browser, ".detail pre.command")]
        assert commands == [["attnsweep", verb, "sweep", "3/0"] for verb in ("heads", "replay", "why")]
        assert "Its attention maps are not in this page" in browser.find("//div[@class='heads']").text


def test_the_maps_of_a_training_are_read_cell_by_cell(page: str, browser: Browser) -> None:
    with opened(browser, page):
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


def _choose(browser: Browser, name: str, wanted: str) -> None:
    """Chooses what begins so in the list of this name."""
    at = f"[...element.options].findIndex(each => each.text.startsWith({wanted!r}))"
    choose = f"(element.value = {at}, element.dispatchEvent(new Event('change')))"
    browser.evaluate(choose, f"//section[contains(@class, 'explore')]//label[starts-with(text(), {name!r})]/select")


def test_a_cell_of_the_plane_has_the_ledgers_share(page: str, browser: Browser) -> None:
    with opened(browser, page) as ledger:
        for name, wanted in (
            ("across", "learning"),
            ("up", "init"),
            ("as", "cells"),
            ("colour", "share degenerate_zero"),
        ):
            _choose(browser, name, wanted)
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
            (row,) = answers(
                ledger,
                "select count(*) filter (outcome = 'degenerate_zero') as k, count(*) filter (outcome <> 'failed') as n,"
                f" count(distinct trial) as t from trainings where {' and '.join(ends)}",
            )
            trials = f"{row['t']} trial{'s' if row['t'] > 1 else ''}"
            assert shares == f"share degenerate_zero: {row['k']} of {row['n']} in {trials}"


def test_a_brush_keeps_the_trials_that_pass_it(page: str, browser: Browser) -> None:
    with opened(browser, page) as ledger:
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
            for row in answers(
                ledger,
                "select count(*), count(*) filter (stuck) from trainings"
                " where outcome <> 'failed' and param_init_sigma < 0.01",
            )
        ]
        WebDriverWait(browser.driver, SECONDS_TO_SHOW).until(
            lambda _: browser.find(inside).text.startswith("4 of 8 trials are in the brushes")
        )
        assert browser.find(inside).text.endswith(f"of their {n} trainings that did not fail, {k} are stuck.")
        for name, wanted in (("across", "learning"), ("up", "init"), ("as", "cells")):
            _choose(browser, name, wanted)
        assert len(browser.evaluate(TIPS, "//div[@class='plate']")) == 4
        browser.click("//button[text()='Clear the brushes']")
        assert len(browser.evaluate(TIPS, "//div[@class='plate']")) == 8
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
    with _on_a_phone(browser), opened(browser, page):
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
    with opened(browser, page) as ledger:
        titles = texts(browser, ".curves h4")
        counted = answers(ledger, "select outcome, count(*) as n from trainings where outcome <> 'failed' group by 1")
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
        (shown,) = texts(browser, ".training h3")
        number, replicate = shown.removeprefix("Training ").split("/")
        (row,) = answers(ledger, f"select outcome from trainings where trial = {number} and replicate = {replicate}")
        assert row["outcome"] == "marginal"
        assert texts(browser, ".detail h3")[0] == f"Trial {number}"
