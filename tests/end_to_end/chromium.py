"""Debian's Chromium for tests of web pages, driven by Selenium."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium.common.exceptions import NoSuchElementException
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

SECONDS_TO_SHOW = 30
CHROMIUM_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1600,1000",
)


class Browser:
    """One tab of Chromium, which keeps what it logs.

    Attributes:
        driver: Selenium's own interface to it.
    """

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        # From one fragment of a page to another would be no new page.
        self.driver.get("about:blank")
        self.driver.get(url)

    def find(self, xpath: str) -> WebElement:
        """The first element that matches, waited for. Without one the test fails, with the page's text."""
        try:
            return self.driver.find_element(By.XPATH, xpath)
        except NoSuchElementException:
            text = self.driver.execute_script("return document.body.innerText")
            pytest.fail(f"{xpath} did not appear; the page says:\n{text}")

    def evaluate(self, script: str, xpath: str) -> Any:
        """The value of a JavaScript expression of `element`, the first that matches."""
        return self.driver.execute_script(f"const element = arguments[0]; return {script}", self.find(xpath))

    @contextmanager
    def as_wide_as(self, width: int) -> Iterator[None]:
        """The tab has this width, in CSS pixels; below 500 it is a phone's."""
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        try:
            yield
        finally:
            self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def log(self, kind: str) -> list[dict[str, Any]]:
        """What it has logged since the last call: `browser` (its console) or `performance` (its network)."""
        return list(self.driver.get_log(kind))  # type: ignore[no-untyped-call]

    def screenshot(self, path: Path) -> None:
        assert self.driver.save_screenshot(str(path))


@contextmanager
def open_browser(home: Path) -> Iterator[Browser]:
    """A browser with its driver and profile in the folder `home`. Skips the test where there is none."""
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} on the PATH (Debian: apt-get install chromium chromium-driver)")
    options = ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for option in (*CHROMIUM_OPTIONS, f"--user-data-dir={home / 'profile'}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = ChromeService(shutil.which("chromedriver"), log_output=str(home / "chromedriver.log"))
    with Chrome(options, service) as driver:
        driver.implicitly_wait(SECONDS_TO_SHOW)
        yield Browser(driver)
