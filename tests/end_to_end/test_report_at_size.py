"""The report on a million trainings: its size, the time to write it, and how long its script keeps the browser busy."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By

from attnsweep.orchestrator.report.page import write_report
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces import Categorical, Float
from attnsweep.workloads.vocabulary import STUCK_OUTCOMES
from tests.end_to_end.chromium import Browser, open_browser
from tests.orchestrator.small_sweep import SCHEMAS, STEPS, TRAININGS, open_writer, small_sweep, trial_rows

MOST_BYTES = 10e6
MOST_TASK_MS = 200.0
OPTIMIZERS = np.array(["sgd", "adam", "adamw"])
MISSED = np.array(["degenerate_zero", "marginal", "plateau", "diverged"])


def _table(schema: pa.Schema, columns: dict[str, Any], n: int) -> pa.Table:
    """These columns; null in all others."""
    arrays = [
        pa.array(columns[each.name]).cast(each.type) if each.name in columns else pa.nulls(n, each.type)
        for each in schema
    ]
    return pa.table(arrays, schema=schema)


def _large_sweep(path: PlaceName, n_trials: int, replicates: int) -> SweepDirectory:
    """A sweep over four parameters, with a boundary."""
    rng = np.random.default_rng(0)
    trial, replicate = np.divmod(np.arange(n_trials * replicates), replicates)
    init_sigma, learning_rate, eps = (10 ** rng.uniform(*ends, n_trials) for ends in ((-4, 0), (-3, -1), (-12, -2)))
    chance = 1 / (1 + np.exp(-1.5 * (np.log10(init_sigma) + 2) - np.log10(learning_rate) - 2))
    solved = rng.random(len(trial)) < chance[trial]
    outcome = np.where(solved, "solved", MISSED[rng.choice(4, len(trial), p=[0.5, 0.3, 0.15, 0.05])])
    loss = np.where(solved, rng.lognormal(-3, 1, len(trial)), rng.lognormal(1, 0.3, len(trial)))
    ids = np.char.add(np.char.add(trial.astype(str), "/"), replicate.astype(str))
    spec = small_sweep("large", trials=n_trials, replicates=replicates)
    more = {"layer_norm_eps": Float(1e-12, 1e-2, log=True), "optimizer": Categorical(tuple(OPTIMIZERS.tolist()))}
    directory = SweepDirectory.create(path, spec.but(space={**spec.space, **more}), {})
    same = {name: [value] * len(trial) for name, value in trial_rows(0, ["solved"])[0].items() if value is not None}
    columns = same | {
        "sweep": [directory.sweep] * len(trial),
        **{"trial": trial, "replicate": replicate, "training_id": ids, "pack": (trial // 64).astype(str)},
        **{"outcome": outcome, "stuck": np.isin(outcome, list(STUCK_OUTCOMES))},
        "eval_loss": pa.array(loss, mask=outcome == "diverged"),
        **{"param_init_sigma": init_sigma[trial], "param_learning_rate": learning_rate[trial]},
        **{"param_layer_norm_eps": eps[trial], "param_optimizer": OPTIMIZERS[rng.integers(0, 3, n_trials)][trial]},
    }
    probes = np.repeat(np.arange(len(trial)), len(STEPS))
    step = np.tile(STEPS, len(trial))
    curves = {
        **{"training_id": ids[probes], "trial": trial[probes], "replicate": replicate[probes], "step": step},
        **{"metric": ["eval_loss"] * len(probes), "value": loss[probes] + (10 - loss[probes]) * np.exp(-step / 2)},
    }
    with open_writer(directory) as writer:
        tables = (_table(TRAININGS, columns, len(trial)), _table(SCHEMAS["curves"], curves, len(probes)))
        writer.commit("all", *tables, None)
    return directory


def _longest_task_ms(browser: Browser) -> float:
    """The processor time of the longest task of the page's main thread since the last call."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.log("performance")]
    events = [each["params"] for each in messages if each["method"] == "Tracing.dataCollected"]
    mains = {
        (each["pid"], each["tid"])
        for each in events
        if each["name"] == "thread_name" and each["args"]["name"] == "CrRendererMain"
    }
    tasks = [
        each["tdur"] / 1e3
        for each in events
        if each["name"].endswith("RunTask") and "tdur" in each and (each["pid"], each["tid"]) in mains
    ]
    assert len(tasks) > 100
    return float(max(tasks))


def _wait_until_drawn(browser: Browser) -> None:
    browser.find("//section[contains(@class, 'explore')][@aria-busy='false']")


@pytest.mark.scale
@pytest.mark.server
@pytest.mark.parametrize(("n_trials", "replicates"), [(12_500, 8), (100_000, 1), (62_500, 16)])
def test_very_many_trainings(
    n_trials: int,
    replicates: int,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    directory = _large_sweep(tmp_path / "sweep", n_trials, replicates)
    before = time.process_time()
    page = write_report([directory.place], None)
    seconds = time.process_time() - before
    size = page.stat().st_size
    record_property("megabytes and seconds", f"{size / 1e6:.1f} {seconds:.1f}")
    assert size < MOST_BYTES

    with open_browser(tmp_path, trace="toplevel") as browser:
        browser.open(page.resolve().as_uri())
        _wait_until_drawn(browser)
        plate = browser.driver.find_element(By.CSS_SELECTOR, ".plate")
        browser.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", plate)
        pointer = ActionChains(browser.driver)
        for at in range(10):
            pointer.move_to_element_with_offset(plate, 20 * at - 100, 10 * at - 50)
        pointer.click().perform()
        assert browser.find("//div[@class='detail']/h3").text.startswith("Trial ")
        for number in range(4):
            change = f"(element.value = '1', element.dispatchEvent(new Event('change')), {number})"
            browser.evaluate(change, f"(//section[contains(@class, 'explore')]//select)[{number + 1}]")
            _wait_until_drawn(browser)
        plate = browser.driver.find_element(By.CSS_SELECTOR, ".plate.brushed")
        browser.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", plate)
        across = 48 - plate.size["width"] // 2
        pointer = ActionChains(browser.driver)
        pointer.move_to_element_with_offset(plate, across, 100).click_and_hold()
        pointer.move_to_element_with_offset(plate, across, 0).release().perform()
        _wait_until_drawn(browser)
        longest = _longest_task_ms(browser)
        record_property("longest task, ms", longest)
        assert longest < MOST_TASK_MS
