"""Sweeps of several drivers: each writes an ordinary sweep directory, and readers take several as one."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from attnsweep import open_sweep
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.report.page import make_report
from attnsweep.orchestrator.running.session import resume_sweep, run_sweep
from attnsweep.orchestrator.running.study import read_trials
from attnsweep.orchestrator.storage.shards import WHOLE, Shard
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tools.audit.audit import audit
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.search_spaces import Sweep
from attnsweep.workloads.errors import UserError
from tests.fault import sweeps
from tests.orchestrator.commands import command
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("no_mlflow")

HERE = Resources(local=True)
RANDOM = sweeps.small_sweep(trials=7, replicates=2)


def _run(spec: Sweep, path: Path, shard: Shard = WHOLE) -> SweepDirectory:
    summary = run_sweep(spec, path, HERE, Console(quiet=True), shard=shard)
    assert summary.finished
    return summary.directory


def _losses(path: Path) -> dict[tuple[int, int], tuple[Any, ...]]:
    names = ("trial", "replicate", "seed", "outcome", "eval_loss", "param_init_sigma")
    rows = Ledger(path).trainings(columns=list(names)).to_pylist()
    return {(row["trial"], row["replicate"]): tuple(row.values()) for row in rows}


@pytest.fixture(scope="module")
def home(no_mlflow: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sweep `one` of one driver, and `two0`, `two1` of two."""
    home = tmp_path_factory.mktemp("shards")
    _run(RANDOM, home / "one")
    for index in (1, 0):
        _run(RANDOM, home / f"two{index}", Shard(index, 2))
    return home


def test_the_union_is_the_sweep_of_one_driver(home: Path) -> None:
    assert {trial % 2 for trial, _ in _losses(home / "two1")} == {1}
    assert _losses(home / "two0") | _losses(home / "two1") == _losses(home / "one")
    for name in ("two0", "two1"):
        assert [each for each in audit(home / name).problems if "mlflow-sync" not in each.fix] == []


def test_readers_take_both_as_one(home: Path) -> None:
    two, one = (str(home / "two0"), str(home / "two1")), str(home / "one")
    sql = "select count(*) as n, count(distinct trial) as trials from trainings"
    assert json.loads(command("query", *two, sql, "--format", "json").out) == [{"n": 14, "trials": 7}]
    assert open_sweep(*two).stuck_rates() == open_sweep(one).stuck_rates()
    page = make_report(two).text
    assert "14 trainings of 7 trials" in page


@pytest.mark.slow
def test_a_sampler_that_learns_is_told_its_own_trials_alone(tmp_path: Path) -> None:
    spec = sweeps.small_sweep(sampler="tpe", trials=28, replicates=1)
    halves = [_run(spec, tmp_path / str(index), Shard(index, 2)) for index in range(2)]
    trials = [read_trials(half) for half in halves]
    assert [[trial.number for trial in each] for each in trials] == [[*range(0, 28, 2)], [*range(1, 28, 2)]]
    drawn = [{tuple(trial.params.values()) for trial in each} for each in trials]
    assert drawn[0].isdisjoint(drawn[1])
    more = resume_sweep(halves[1].place, HERE, Console(quiet=True), more_trials=4)
    assert [trial.number for trial in read_trials(more.directory)] == [*range(1, 32, 2)]


def test_another_part_in_the_same_directory_and_more_drivers_than_trials_are_refused(home: Path) -> None:
    for place, shard in (("two0", WHOLE), ("two0", Shard(1, 2)), ("s", Shard(7, 8))):
        with refused("--shard", UserError):
            run_sweep(RANDOM, home / place, HERE, Console(quiet=True), shard=shard, or_resume=True)
    assert not (home / "s").exists()
