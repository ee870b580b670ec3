"""`attnsweep serve` in a real browser: the page is renewed while its reader reads, and shows what the reader chose."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces import Float
from tests.end_to_end.chromium import SECONDS_TO_SHOW, Browser
from tests.orchestrator.report.served import served
from tests.orchestrator.small_sweep import commit, open_writer, small_sweep, trial_rows

SPACE = {"n_steps": 8, "init_sigma": Float(low=1e-4, high=1.0, log=True)}
DRAWN = "//section[contains(@class, 'explore')][@aria-busy='false']"

NEWER = """new Promise((done) => {
    const events = new EventSource('/changes');
    events.onmessage = (event) => { if (Number(event.data) > %d) { events.close(); done(true); } };
})"""
"""Once the server has a newer page."""


def _train(directory: SweepDirectory, *trials: int) -> None:
    with open_writer(directory) as writer:
        for at in trials:
            commit(
                writer,
                trial_rows(at, ["solved"] * 2, sweep=directory.sweep, param_init_sigma=10.0 ** -(1 + at % 3)),
            )


@pytest.fixture
def directory(tmp_path: Path) -> SweepDirectory:
    directory = SweepDirectory.create(tmp_path / "sweep", small_sweep("served", space=SPACE, trials=9), {})
    _train(directory, 0, 1, 2)
    return directory


@pytest.fixture
def url(directory: SweepDirectory) -> Iterator[str]:
    with served(directory) as found:
        yield found


def _number(browser: Browser) -> int:
    return int(browser.evaluate("element.dataset.renewal", "//body"))


def _wait_for(browser: Browser, number: int) -> None:
    WebDriverWait(browser.driver, SECONDS_TO_SHOW).until(lambda _: _number(browser) >= number)
    browser.find(DRAWN)


@pytest.mark.scale
def test_the_page_is_renewed_where_its_reader_is(directory: SweepDirectory, url: str, browser: Browser) -> None:
    browser.log("browser")
    browser.open(url)
    browser.find(DRAWN)
    number = _number(browser)
    first = "//section[contains(@class, 'explore')]//select[1]"
    browser.click(f"({first})[1]/option[starts-with(text(), 'median')]")
    field = browser.driver.find_element(By.CSS_SELECTOR, ".explore input")
    field.send_keys("2\t")
    browser.evaluate("element.querySelector('summary').click()", "//details[summary[contains(text(), 'The spec')]]")
    browser.evaluate("element.scrollIntoView()", "//h2[text()='Explore']")
    _train(directory, 3)
    _wait_for(browser, number + 1)
    assert browser.find("//p[contains(@class, 'inside')]").text.startswith("4 of 4 trials")
    assert browser.find("//div[@class='detail']/h3").text == "Trial 2"
    assert browser.evaluate("element.selectedOptions[0].text", f"({first})[1]").startswith("median")
    assert browser.evaluate("element.open", "//details[summary[contains(text(), 'The spec')]]")
    assert abs(browser.evaluate("element.getBoundingClientRect().top", "//h2[text()='Explore']")) < 50
    assert browser.log("browser") == []

    # What is being typed is not taken away, and a paused page stays.
    number = _number(browser)
    browser.driver.find_element(By.CSS_SELECTOR, ".explore input").send_keys("1")
    _train(directory, 4)
    assert browser.evaluate(NEWER % number, "//body")
    assert _number(browser) == number
    browser.click("//button[text()='Pause']")
    assert _number(browser) == number
    browser.click("//button[text()='Go on']")
    _wait_for(browser, number + 1)
    assert browser.find("//div[@class='detail']/h3").text == "Trial 1"
