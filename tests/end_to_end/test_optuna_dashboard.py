"""Optuna's own dashboard on the study of a sweep: what a user sees."""

import json
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from attnsweep.orchestrator.running.study import Study
from attnsweep.orchestrator.storage.sweep_directory import STUDY_FILE, SweepDirectory
from attnsweep.search_spaces import Categorical, Float
from tests.end_to_end.chromium import Browser
from tests.end_to_end.servers import answers, running
from tests.orchestrator.small_sweep import small_sweep
from tests.ports import free_ports

pytestmark = pytest.mark.server
_SPACE = {
    "n_steps": 8,
    "init_sigma": Categorical(choices=(None, 0.1)),
    "learning_rate": Float(low=1e-3, high=1e-1, log=True),
}


@dataclass(frozen=True)
class Shown:
    """A sweep's study, and the dashboard that shows it."""

    directory: SweepDirectory
    url: str

    def get(self, path: str) -> Any:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{self.url}/api/{path}") as answer:
            return json.load(answer)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """`optuna-dashboard` beside a sweep that has ended two trials, refused one and runs another."""
    home = tmp_path_factory.mktemp("optuna")
    directory = SweepDirectory.create(home / "sweep", small_sweep("shown", space=_SPACE, sampler="random"), {})
    study = Study(directory)
    study.tell(study.ask().trial, 0.25)
    study.tell(study.ask().trial, 0.75)
    study.refuse(study.ask().trial, "heads do not divide the width")
    study.ask()
    study.save()
    [port] = free_ports(1)
    program = Path(sys.executable).with_name("optuna-dashboard")
    command = [str(program), str(home / "sweep" / STUDY_FILE), "--host", "127.0.0.1", "--port", str(port)]
    url = f"http://127.0.0.1:{port}"
    with running(command, home / "dashboard.log", lambda: answers(f"{url}/api/studies")):
        yield Shown(directory, url)


@pytest.mark.scale
def test_the_dashboard_has_the_sweeps_trials(shown: Shown) -> None:
    [summary] = shown.get("studies")["study_summaries"]
    assert (summary["study_name"], summary["directions"]) == (shown.directory.sweep, ["minimize"])
    study = shown.get(f"studies/{summary['study_id']}")
    assert study["objective_names"] == ["stuck_rate"]
    assert [(trial["state"], trial.get("values")) for trial in study["trials"]] == [
        ("Complete", [0.25]),
        ("Complete", [0.75]),
        ("Fail", None),
        ("Running", None),
    ]
    assert {each["name"] for each in study["trials"][0]["params"]} == {"init_sigma", "learning_rate"}
    [reason] = study["trials"][2]["user_attrs"]
    assert (reason["key"], reason["value"]) == ("refused", "heads do not divide the width")


@pytest.mark.scale
def test_the_dashboard_opens_in_a_browser(shown: Shown, browser: Browser, tmp_path: Path) -> None:
    [summary] = shown.get("studies")["study_summaries"]
    browser.open(f"{shown.url}/dashboard/studies/{summary['study_id']}")
    browser.find(f"//*[contains(text(), '{shown.directory.sweep}')]")
    browser.find("//*[local-name() = 'text'][contains(., 'stuck_rate')]")
    browser.screenshot(tmp_path / "study.png")
