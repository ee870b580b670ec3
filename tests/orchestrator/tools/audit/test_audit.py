"""The audit of undamaged, running and unusual sweeps, and its command. Real study, ledger and MLflow."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from attnsweep.orchestrator.ledger.writer import LedgerWriter
from attnsweep.orchestrator.running.study import check_storage
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tools.audit.audit import audit
from attnsweep.orchestrator.tracking.sync import sync
from attnsweep.search_spaces import Float, LossQuantile, Sequential, Sweep
from attnsweep.search_spaces.loading import load_sweep
from tests.orchestrator.commands import command
from tests.orchestrator.tools.audit.conftest import IN_A_STUDY
from tests.orchestrator.tools.audit.damages import drop, lines_of, problems_of, set_values
from tests.orchestrator.trained_sweep import records, trained_sweep


def _bytes(path: Path) -> dict[str, tuple[bytes, int]]:
    files = [file for file in path.rglob("*") if file.is_file()]
    return {str(file): (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


@pytest.mark.slow
def test_a_sweep_that_is_well_is_clean(whole: SweepDirectory) -> None:
    found = audit(whole.place)
    assert problems_of(found) == []
    assert found.finished
    assert found.trials == {"asked": 9, "trained": 9, "told": 9, "logged": 9}
    assert len(lines_of(found)) == 7


@pytest.mark.slow
def test_an_audit_writes_nothing_and_needs_no_lock(sweep: SweepDirectory, tmp_path: Path, uri: str) -> None:
    table = pq.read_table(sweep.place / "trainings")
    with LedgerWriter(sweep.place, {"trainings": table.schema}, sweep.spec_sha256):
        before = _bytes(tmp_path)
        assert not audit(sweep.place, uri).problems
        assert _bytes(tmp_path) == before


@pytest.mark.slow
def test_what_is_missing_is_no_fault_before_the_end(home: Path) -> None:
    """In an unfinished sweep too, told trials without rows and duplicate rows are faults."""
    directory = trained_sweep(home / "stopped", load_sweep(str(home / "fragile.py")).but(**IN_A_STUDY), n_commits=2)
    found = audit(directory.place)
    assert problems_of(found) == []
    assert not found.finished
    asked, told = found.trials["asked"], found.trials["told"]
    assert asked is not None
    assert told is not None
    assert 0 < told < asked
    assert found.trials["logged"] == 0
    row = next(row for row in records(directory) if row["replicate"] == 0)
    drop("trainings", training_id=row["training_id"])(directory)
    assert f": {row['trial']} (1 of 3 missing)" in problems_of(audit(directory.place))[0]


@pytest.mark.scale
@pytest.mark.slow
def test_replicates_as_needed_and_another_objective(home: Path) -> None:
    spec = Sweep(
        name="sequential",
        workload="category_pairs",
        space={"n_steps": 8, "n_categories": 3, "n_positions": 4, "init_sigma": Float(low=1e-4, high=1.0, log=True)},
        sampler="random",
        objective=LossQuantile(quantile=0.5),
        trials=3,
        replicates=Sequential(width=0.6, at_most=6, batch=2),
    )
    directory = trained_sweep(home / "sequential", spec)
    sync(directory)
    found = audit(directory.place)
    assert problems_of(found) == []
    assert found.trials["asked"] == 3
    last = records(directory, trial=1)[-1]
    assert 2 < last["replicate"] + 1 <= 6
    drop("trainings", trial=1, replicate=last["replicate"])(directory)
    assert f": 1 (1 of {last['replicate'] + 1} missing)" in problems_of(audit(directory.place))[0]


@pytest.mark.slow
def test_a_study_in_a_storage_of_its_own(tmp_path: Path) -> None:
    spec = load_sweep("quickstart").but(trials=2, replicates=2, storage=f"sqlite:///{tmp_path}/study.db")
    check_storage(spec)
    directory = trained_sweep(tmp_path / "sweep", spec.fix({"n_steps": 5}))
    directory.record_run(finished=False, seconds=1.0)
    found = audit(directory.place)
    assert found.trials == {"asked": 2, "trained": 2, "told": 2, "logged": 0}
    assert problems_of(found) == []
    (tmp_path / "study.db").write_bytes(b"")
    [problem] = problems_of(audit(directory.place))
    assert "StorageInternalError" in problem
    assert (tmp_path / "study.db").read_bytes() == b""
    (tmp_path / "study.db").unlink()
    [problem] = problems_of(audit(directory.place))
    assert f"{tmp_path}/study.db" in problem
    assert not (tmp_path / "study.db").exists()


@pytest.mark.slow
def test_the_command_says_it_all(sweep: SweepDirectory) -> None:
    sound = command("audit", sweep.place)
    assert sound.code == 0
    assert sound.out.splitlines()[-1] == "clean"

    set_values(7, seed=3)(sweep)
    written = command("audit", sweep.place, "--json")
    assert written.code == 1
    told = json.loads(written.out)
    assert (told["clean"], told["finished"], told["sweep"]) == (False, True, sweep.sweep)
    [fault] = [check for check in told["checks"] if check["problems"]]
    assert "2/1" in fault["problems"][0]["what"]
    assert "2/1" in written.err.splitlines()[-1]


def test_no_sweep_at_all(tmp_path: Path) -> None:
    ended = command("audit", tmp_path)
    assert ended.code == 2
    assert ended.err.startswith("attnsweep: DIR: ")
    assert list(tmp_path.iterdir()) == []
