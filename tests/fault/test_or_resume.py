"""`attnsweep run --or-resume`: one command, repeated by a scheduler however often the driver was killed."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from attnsweep.orchestrator.running.session import run_sweep
from attnsweep.orchestrator.running.summary import Summary
from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.search_spaces import Sweep
from attnsweep.workloads.errors import UserError
from tests.fault import sweeps
from tests.orchestrator.commands import command
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("no_mlflow")


def _repeat(spec: Sweep, path: PlaceName, console: Console | None = None) -> Summary:
    here = Resources(local=True, pack_size=4)
    return run_sweep(spec, path, here, console or Console(stderr=True), or_resume=True)


@pytest.fixture(scope="module")
def finished(no_mlflow: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("finished") / "s"
    assert _repeat(sweeps.small_sweep(), path).finished
    return path


def test_a_finished_sweep_is_summarized_without_ray_and_whatever_code_is_there(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = Environment.current()
    later = now.model_copy(update={"versions": {**now.versions, "numpy": "99"}})
    monkeypatch.setattr(Environment, "current", classmethod(lambda *_: later))
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    spec = tmp_path / "small.json"
    spec.write_text(sweeps.small_sweep().to_json())
    record = (finished / "sweep.json").read_bytes()
    report = finished / "report" / "report.html"
    report.parent.mkdir()
    report.write_text("of these rows")
    summary = json.loads(command("run", spec, "--dir", finished, "--or-resume", "--json").out)
    assert (summary["finished"], summary["trainings"], summary["trainings_per_second"]) == (True, 32, 0.0)
    assert (finished / "sweep.json").read_bytes() == record
    assert report.read_text() == "of these rows"


def test_a_directory_with_another_sweep_is_refused(finished: Path) -> None:
    record = {path: path.read_bytes() for path in finished.rglob("*.*") if path.is_file()}
    with refused("--dir", UserError):
        _repeat(sweeps.small_sweep(trials=9), finished)
    assert {path: path.read_bytes() for path in finished.rglob("*.*") if path.is_file()} == record
