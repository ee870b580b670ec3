"""Whole sweeps with real files; with a real MLflow database or Ray if they test something more."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces import Categorical, Float, Sequential, Sweep
from attnsweep.search_spaces.replication import is_complete
from tests.fault import sweeps
from tests.orchestrator.commands import command

pytestmark = pytest.mark.usefixtures("no_mlflow")

WITHOUT_RAY = """
import atexit, sys
from attnsweep.orchestrator.cli import main
atexit.register(lambda: print("loaded of Ray:", [name for name in sys.modules if name.partition(".")[0] == "ray"]))
main()
"""


SPACE = {
    **sweeps.small_sweep().space,
    "n_categories": 4,
    "n_positions": 6,
    "init_sigma": Float(low=1e-4, high=1.0, log=True),
    "learning_rate": Float(low=1e-3, high=1e-1, log=True),
}


def _sweep(**changes: Any) -> Sweep:
    return sweeps.small_sweep(**{"space": SPACE, "replicates": 8, "seed": 3, **changes})


def _rows(path: Path) -> pa.Table:
    return Ledger(path).trainings().sort_by([("trial", "ascending"), ("replicate", "ascending")])


def test_every_training_is_one_row(tmp_path: Path) -> None:
    report = sweeps.run(_sweep(), tmp_path / "s")
    rows = _rows(tmp_path / "s")
    assert report.finished
    assert list(zip(rows["trial"].to_pylist(), rows["replicate"].to_pylist(), strict=True)) == [
        (trial, replicate) for trial in range(8) for replicate in range(8)
    ]
    assert len(pc.unique(rows["training_id"])) == len(pc.unique(rows["seed"])) == 64
    assert set(rows["sweep"].to_pylist()) == {report.directory.sweep}
    curves = Ledger(tmp_path / "s").curves()
    assert set(pc.unique(curves["training_id"]).to_pylist()) == set(rows["training_id"].to_pylist())


@pytest.mark.parametrize(
    "trainers",
    [{}, pytest.param({"local": False, "n_trainers": 2}, marks=[pytest.mark.ray, pytest.mark.scale])],
    ids=["here", "on Ray"],
)
def test_a_training_does_not_depend_on_pack_or_trainer(trainers: dict[str, Any], tmp_path: Path) -> None:
    whole = _sweep(trials=8, replicates=8)
    here, there = tmp_path / "here", tmp_path / "there"
    sweeps.run(whole, here, pack_size=64)
    sweeps.run(whole, there, pack_size=7, **trainers)
    assert max(_rows(here)["pack_size"].to_pylist()) > 7
    assert max(_rows(there)["pack_size"].to_pylist()) <= 7
    its_own = ["sweep", "pack", "lane", "pack_size", "train_seconds", "probe_seconds", "finished_at"]
    assert _rows(there).drop_columns(its_own).to_pylist() == _rows(here).drop_columns(its_own).to_pylist()


@pytest.mark.scale
def test_trials_get_the_seeds_that_their_rates_need(tmp_path: Path) -> None:
    rule = Sequential(width=0.45, at_most=20, batch=8)
    spec = _sweep(space={**SPACE, "n_steps": 120}, trials=12, replicates=rule)
    whole = sweeps.run(spec, tmp_path / "s", pack_size=48)
    ended: dict[int, dict[int, bool | None]] = {trial: {} for trial in range(12)}
    for row in _rows(tmp_path / "s").to_pylist():
        ended[row["trial"]][row["replicate"]] = row["stuck"]
    assert whole.finished
    assert all(is_complete(spec.replicates, each) for each in ended.values())
    assert {8, 20} <= {len(each) for each in ended.values()} <= {8, 16, 20}


@pytest.mark.scale
def test_a_budget_of_time_ends_the_asking_for_good(tmp_path: Path) -> None:
    report = sweeps.run(_sweep(trials=10**6, replicates=4, seconds=0.3), tmp_path / "s", pack_size=16)
    assert report.finished
    assert 0 < report.n_trainings < 10**5
    directory = SweepDirectory.open(tmp_path / "s")
    assert directory.finished
    assert directory.progress.seconds > 0.3
    again = sweeps.resume(tmp_path / "s")
    assert again.n_trainings == report.n_trainings


def test_trials_that_the_workload_refuses_are_counted_and_the_rest_trained(tmp_path: Path) -> None:
    space = {
        **SPACE,
        "variant": Categorical(choices=("positions_only", "categories_only")),
        "attention_activation": "softmax",
    }
    report = sweeps.run(_sweep(space=space, trials=12, replicates=2), tmp_path / "s")
    assert report.finished
    assert 0 < len(report.refused) < 12
    assert report.n_trainings == 2 * (12 - len(report.refused))
    assert all("expectation: got 'population'" in reason for reason in report.refused.values())
    assert json.loads(report.to_json())["refused_trials"] == len(report.refused)


@pytest.mark.usefixtures("mlflow_uri")
def test_the_command_line_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs `attnsweep run` in a new process, like `make sweep` but smaller and without Ray, of which nothing is loaded.

    Tests of jobs and of what listens run the same command with Ray.
    """
    # MLflow takes seconds to make its tables.
    database = tmp_path / "sweeps" / "mlflow.db"
    database.parent.mkdir()
    (tmp_path / "mlflow.db").rename(database)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "MLFLOW_"))}
    budget = ["--trials", "4", "--replicates", "2", "--local", "--set", "n_steps=30"]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_RAY, "run", "quickstart", *budget, "--dir", "s", "--json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *_, printed, of_ray = done.stdout.splitlines()
    assert of_ray == "loaded of Ray: []"
    result = json.loads(printed)
    assert result["directory"] == "s"
    assert sum(result["outcomes"].values()) == 8
    assert 0 <= result["stuck_rate_low"] <= result["stuck_rate"] <= result["stuck_rate_high"] <= 1
    assert done.stderr.index("report   s/report/report.html") < done.stderr.index("attnsweep query s")
    assert "8 trainings" in (tmp_path / "s" / "report" / "report.html").read_text()
    with closing(sqlite3.connect(database)) as logged:
        assert logged.execute("select count(*) from runs where status = 'FINISHED'").fetchone() == (1 + 4,)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    for words, wanted in (
        (["audit", "s"], "clean\n"),
        (["status", "s"], "8 of 8"),
        (["query", "s", "select count(*) from trials", "--format", "csv"], "4"),
    ):
        said = command(*words)
        assert (said.code, said.err) == (0, "")
        assert wanted in said.out
