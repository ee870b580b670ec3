"""A driver killed at every step of the commit order, repeatedly in one sweep, which ends like an undisturbed one."""

import multiprocessing
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import mlflow
import pytest

from tests.fault import sweeps
from tests.fault.killed_driver import LEARNS, main

OUT_OF_REACH = "sqlite:////dev/null/mlflow.db"
POINTS = (
    "+attnsweep.orchestrator.storage.sweep_directory:SweepDirectory.create",
    "attnsweep.orchestrator.running.study:OptunaStudy.ask@3",
    "attnsweep.orchestrator.ledger.writer:LedgerWriter.commit",
    "pathlib:Path.replace@2",
    "+pathlib:Path.replace@2",
    "+attnsweep.orchestrator.ledger.writer:LedgerWriter.commit",
    "attnsweep.orchestrator.running.study:OptunaStudy.tell",
    "+attnsweep.orchestrator.running.study:OptunaStudy.tell",
    "attnsweep.orchestrator.storage.sweep_directory:SweepDirectory.record_run",
)
"""The points of the kills: before, between and after writing the directory, study, ledger and tell."""
N_BEFORE_TOLD = 7
"""Until then no trial is told, so that there is nothing to write to MLflow; it is out of reach, to save time."""


def _run_until_killed(path: Path, point: str, mlflow_uri: str, **resources: Any) -> None:
    # A fork server that has imported everything, because a new process would take seconds to import.
    drivers = multiprocessing.get_context("forkserver")
    drivers.set_forkserver_preload(
        ["attnsweep.orchestrator.running.session", "tests.fault.killed_driver", "tests.fault.sweeps"]
    )
    driver = drivers.Process(target=main, args=(path, point, mlflow_uri, resources))
    driver.start()
    driver.join()
    assert driver.exitcode == -signal.SIGKILL, point


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not in MLflow, since nothing is compared there."""
    path = tmp_path_factory.mktemp("undisturbed") / "small"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MLFLOW_TRACKING_URI", OUT_OF_REACH)
        sweeps.run(sweeps.small_sweep(**LEARNS), path)
    return path


# In test_killed_between_writes.py, which `make test` runs, the writes are cut short.
@pytest.mark.scale
def test_a_sweep_whose_driver_is_killed_at_every_step_ends_as_if_undisturbed(
    undisturbed: Path, mlflow_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    n_before = 0
    for point in POINTS:
        _run_until_killed(path, point, OUT_OF_REACH if point in POINTS[:N_BEFORE_TOLD] else mlflow_uri)
        if (path / "trainings").exists():
            rows = sweeps.outcomes(path)
            assert max(Counter((row["trial"], row["replicate"]) for row in rows).values(), default=1) == 1, point
            assert len(rows) >= n_before, point
            n_before = len(rows)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_uri)
    report = sweeps.resume(path)
    assert report.finished
    assert sweeps.outcomes(path) == sweeps.outcomes(undisturbed)
    assert sweeps.curves(path) == sweeps.curves(undisturbed)
    assert sweeps.told(path) == sweeps.told(undisturbed)
    mlflow.set_tracking_uri(mlflow_uri)
    assert _logged(report.directory.sweep) == {f"{report.directory.sweep}/{trial}": 1 for trial in range(8)}


@pytest.mark.scale
def test_the_trainers_of_a_killed_driver_leave_their_cores_to_the_next(
    local_ray: str, undisturbed: Path, tmp_path: Path
) -> None:
    """Trainers on both cores."""
    path = tmp_path / "s"
    on_ray = {"local": False, "address": local_ray, "n_trainers": 2}
    _run_until_killed(path, "+pathlib:Path.replace@2", OUT_OF_REACH, **on_ray)
    assert sweeps.resume(path, **on_ray).finished
    assert sweeps.outcomes(path) == sweeps.outcomes(undisturbed)


def _logged(sweep: str) -> Counter[str]:
    """The number of finished MLflow runs of each trial."""
    runs = mlflow.search_runs(
        experiment_names=["category_pairs"],
        filter_string=f"tags.`attnsweep.sweep` = '{sweep}' and tags.`attnsweep.kind` = 'trial'",
        output_format="list",
    )
    assert {run.info.status for run in runs} == {"FINISHED"}
    return Counter(run.data.tags["attnsweep.trial_key"] for run in runs)
