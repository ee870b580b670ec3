"""Draws the pictures of the tutorial and of the first page: the report in a browser (Chromium).

    python docs/execute_tutorial.py --keep DIR && python docs/screens.py DIR

Writes to docs/figures: `tutorial_curves.png`, which the tutorial draws itself, `tutorial_report.png`,
`tutorial_explore.png`, and `report.gif`, a walk through the report of the first sweep.
"""

import argparse
import io
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from PIL import Image
from selenium.webdriver import Chrome, ChromeOptions, ChromeService, Keys
from selenium.webdriver.common.by import By

FIGURES = Path(__file__).parent / "figures"
WIDTH, HEIGHT = 1040, 900
"""Pixels of the page that is shown."""
SECONDS_A_FRAME = 2.0
COLOURS = 128
"""Colours of the moving picture, which are most of its size."""


def picture(driver: Chrome) -> Image.Image:
    return Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")


def scroll_to(driver: Chrome, path: str) -> None:
    driver.execute_script("arguments[0].scrollIntoView()", driver.find_element(By.XPATH, path))


def frames(driver: Chrome, report: Path) -> Iterator[Image.Image]:
    """Yields what a reader sees on the way down: the answer, the plane, one trial, the curves."""
    driver.get(report.resolve().as_uri())
    yield picture(driver)
    scroll_to(driver, "//h2[text()='Phase diagram']")
    yield picture(driver)
    scroll_to(driver, "//h2[text()='Explore']")
    yield picture(driver)
    driver.find_element(By.XPATH, "//label[text()='trial']/input").send_keys("8", Keys.ENTER)
    scroll_to(driver, "//div[@class='plate']")
    yield picture(driver)
    scroll_to(driver, "//h2[text()='Learning curves by outcome']")
    yield picture(driver)


def draw(tutorial: Path, driver: Chrome) -> None:
    """Writes the four pictures."""
    shutil.copy(tutorial / "three_curves.png", FIGURES / "tutorial_curves.png")
    head, _, _, explore, _ = frames(driver, tutorial / "sweeps/mine/report/report.html")
    for name, image in (("report", head), ("explore", explore)):
        image.quantize(COLOURS).save(FIGURES / f"tutorial_{name}.png", optimize=True)
    first, *others = (frame.quantize(COLOURS) for frame in frames(driver, tutorial / "sweeps/first/report/report.html"))
    milliseconds = int(1000 * SECONDS_A_FRAME)
    first.save(FIGURES / "report.gif", save_all=True, append_images=others, duration=milliseconds, loop=0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tutorial", type=Path, metavar="DIR", help="where execute_tutorial.py --keep has run")
    directory = parser.parse_args().tutorial
    options = ChromeOptions()
    with tempfile.TemporaryDirectory() as profile:
        for option in ("--headless", "--no-sandbox", "--hide-scrollbars", f"--user-data-dir={profile}"):
            options.add_argument(option)
        options.add_argument(f"--window-size={WIDTH},{HEIGHT}")
        with Chrome(options, ChromeService(shutil.which("chromedriver"))) as driver:
            draw(directory, driver)
