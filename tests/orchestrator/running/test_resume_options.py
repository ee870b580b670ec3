"""`resume --trials +N --replicates +N --retry-failed`: the sweep ends as if it had been run so, without failures."""

import json
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from typer.testing import CliRunner

from attnsweep import LossQuantile, Sequential, Sweep
from attnsweep.orchestrator.cli import app
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.session import resume_sweep
from attnsweep.orchestrator.storage.sweep_directory import Extension, SweepDirectory
from attnsweep.orchestrator.tools.audit.audit import audit
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.search_spaces import Pruner
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.errors import UserError
from tests.fault import sweeps
from tests.orchestrator.small_sweep import open_writer, small_sweep
from tests.refusals import refused

BY_CHANCE = {"sweep", "environment", "pack", "lane", "pack_size", "train_seconds", "probe_seconds", "finished_at"}
"""Columns that say where and when a training ran."""


def run(*arguments: str | Path) -> str:
    done = CliRunner().invoke(app, [*map(str, arguments), "--local", "--no-report"], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return done.stderr


def spec_file(folder: Path, sweep: Sweep) -> Path:
    path = folder / f"{sweep.trials}.json"
    path.write_text(sweep.to_json())
    return path


def rows(directory: Path) -> list[dict[str, object]]:
    table = Ledger(directory).trainings().sort_by([("trial", "ascending"), ("replicate", "ascending")])
    found: list[dict[str, object]] = table.drop_columns(list(BY_CHANCE)).to_pylist()
    return found


@pytest.mark.scale
@pytest.mark.slow
def test_what_is_added_ends_as_if_it_had_been_there_from_the_start(tmp_path: Path, no_mlflow: None) -> None:
    spec = small_sweep("s", sampler="random", trials=2, replicates=2)
    begun = spec_file(tmp_path, spec)
    run("run", begun, "--dir", tmp_path / "grown")
    run("resume", tmp_path / "grown", "--trials", "+1", "--replicates", "+2")
    run("run", spec_file(tmp_path, spec.but(trials=3, replicates=4)), "--dir", tmp_path / "whole")
    assert rows(tmp_path / "grown") == rows(tmp_path / "whole")
    assert sweeps.curves(tmp_path / "grown") == sweeps.curves(tmp_path / "whole")
    assert not (tmp_path / "grown" / "report").exists()
    found = SweepDirectory.open(tmp_path / "grown")
    assert (found.finished, found.spec.trials, found.stages) == (True, 3, (2, 4))
    # A scheduler that repeats the first command finds its sweep.
    assert "found 12 trainings" in run("run", begun, "--dir", tmp_path / "grown", "--or-resume")


@pytest.mark.parametrize("text", ["3", "+0", "-1", "+x"])
def test_what_is_added_has_a_sign(text: str, tmp_path: Path) -> None:
    SweepDirectory.create(tmp_path / "s", small_sweep("s"), {})
    with refused("--trials", UserError):
        run("resume", tmp_path / "s", f"--trials={text}")


@pytest.mark.parametrize(
    "changes", [{"pruner": Pruner("median"), "objective": LossQuantile()}, {"replicates": Sequential()}]
)
def test_replicates_that_a_pruner_or_a_rule_decides_about_are_not_added(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    SweepDirectory.create(tmp_path / "s", small_sweep("s", **changes), {})
    with refused("--replicates", UserError):
        run("resume", tmp_path / "s", "--replicates", "+2")


def test_failed_trainings_that_a_rule_has_counted_are_not_trained_again() -> None:
    with refused("--retry-failed", UserError):
        Extension(retried={0: (1,)}).of(small_sweep("s", replicates=Sequential()))


ON_A_BAD_DISK = """
from pathlib import Path
from attnsweep import Float, LossQuantile, Sweep
from attnsweep.workloads.category_pairs import CategoryPairs

class OnABadDisk(CategoryPairs):
    name = "on_a_bad_disk"

    def initial(self, module, lanes):
        if Path("{bad}").exists() and any(training.seed % 2 for training in lanes.trainings):
            raise OSError("planted")
        return super().initial(module, lanes)

def sweep():
    return Sweep(
        name="s", workload="bad.py:OnABadDisk", sampler="random", trials=3, replicates=3, objective=LossQuantile(),
        space={"n_steps": 20, "n_categories": 3, "n_positions": 4, "init_sigma": Float(0.01, 1.0)},
    )
"""


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """While this file exists, some trainings of the sweep fail."""
    return tmp_path / "bad"


@pytest.fixture
def spec(tmp_path: Path, bad: Path) -> Sweep:
    (tmp_path / "bad.py").write_text(ON_A_BAD_DISK.replace("{bad}", str(bad)))
    return load_sweep(str(tmp_path / "bad.py"))


def n_failed(path: Path) -> int:
    return len(Ledger(path).trainings(columns=["trial"], filter=pc.field("outcome") == "failed"))


@pytest.mark.scale
@pytest.mark.slow
def test_what_failed_ends_as_if_it_had_not(
    spec: Sweep, bad: Path, tmp_path: Path, mlflow_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_uri)
    path, whole = tmp_path / "s", tmp_path / "whole"
    sweeps.run(spec, whole)
    bad.touch()
    sweeps.run(spec, path)
    assert 0 < (n := n_failed(path)) < 9
    # They fail again, and a second time they do not.
    assert resume_sweep(path, Resources(local=True), retry_failed=True).n_failed == n
    bad.unlink()
    assert resume_sweep(path, Resources(local=True), retry_failed=True).n_failed == 0
    assert sweeps.outcomes(path) == sweeps.outcomes(whole)
    assert sweeps.curves(path) == sweeps.curves(whole)
    found = audit(path, mlflow_uri)
    assert (found.problems, found.trials["logged"]) == ([], 3)
    errors = [each for file in (path / "set_aside").glob("failed-*.json") for each in json.loads(file.read_text())]
    assert len(errors) == 2 * n
    assert all("OSError: planted" in each["error"] for each in errors)


def test_a_kill_leaves_each_failed_training_in_the_ledger_or_to_be_trained(
    spec: Sweep, bad: Path, tmp_path: Path, no_mlflow: None
) -> None:
    path = tmp_path / "s"
    bad.touch()
    sweeps.run(spec, path)
    bad.unlink()
    n = n_failed(path)
    begun, keys = SweepDirectory.open(path), ("trial", "replicate")
    failed = Ledger(path).trainings(columns=[*keys], filter=pc.field("outcome") == "failed").to_pylist()
    retry = Extension().retrying((each["trial"], each["replicate"]) for each in failed)
    begun.record_as(begun.but(extensions=(retry,)))
    assert _of_trainings(path) == []
    with open_writer(begun) as writer:
        writer.take_out_failed()
    assert n_failed(path) == 0
    assert Ledger(path).trainings().num_rows == 9 - n
    assert _of_trainings(path) == []
    # Any later run trains them, and then there is nothing to try again.
    assert resume_sweep(path, Resources(local=True)).n_trainings == 9
    assert n_failed(path) == 0
    assert _of_trainings(path) == []
    assert not resume_sweep(path, Resources(local=True), retry_failed=True).has_trained


def _of_trainings(path: Path) -> list[str]:
    """The problems that an audit finds, but for those of MLflow."""
    return [str(each) for each in audit(path).problems if "mlflow-sync" not in str(each)]
