"""A full disk, torn and damaged files, a lost study, rows of another sweep: one message; `resume` goes on or not."""

from pathlib import Path

import pytest
from rich.console import Console

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.session import resume_sweep
from attnsweep.orchestrator.storage.sweep_directory import STUDY_FILE
from attnsweep.orchestrator.tools.audit.audit import audit
from attnsweep.orchestrator.tracking.sync import sync
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.workloads.errors import UserError
from tests.fault import sweeps
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("no_mlflow")


@pytest.mark.scale
def test_damage_is_set_aside_and_trained_again(mlflow_uri: str, tmp_path: Path) -> None:
    spec = sweeps.small_sweep()
    sweeps.run(spec, tmp_path / "undisturbed", pack_size=4)
    path = tmp_path / "s"
    sweeps.run(spec, path, pack_size=4)

    first, second, third, *_ = sorted((path / "trainings").glob("*.parquet"))
    flipped = bytearray(first.read_bytes())
    flipped[len(flipped) // 3] ^= 1
    first.write_bytes(flipped)
    second.write_bytes(second.read_bytes()[:-100])
    (path / "curves" / third.name).unlink()
    (path / "trainings" / ".torn.tmp").write_bytes(b"PAR1")

    with pytest.raises(
        UserError, match=r"restore it; or: attnsweep resume .*, which sets it aside and trains it again"
    ):
        Ledger(path).trainings()
    assert len([each for each in audit(path).problems if "attnsweep resume" in each.fix]) >= 3

    console = Console(record=True, width=1000)
    report = resume_sweep(path, Resources(local=True, pack_size=4), console)
    said = console.export_text()
    assert said.count("set aside in") == 3
    assert "12 trainings to train" in said
    assert report.finished
    assert sweeps.outcomes(path) == sweeps.outcomes(tmp_path / "undisturbed")
    assert sweeps.curves(path) == sweeps.curves(tmp_path / "undisturbed")
    sync(report.directory, mlflow_uri)
    assert [str(problem) for problem in audit(path, mlflow_uri).problems] == []
    assert len(list((path / "set_aside" / "trainings").iterdir())) == 3


def test_a_lost_study_is_written_again_from_the_ledger(tmp_path: Path) -> None:
    path = tmp_path / "s"
    sweeps.run(sweeps.small_sweep(sampler="tpe", trials=12), path)
    rows, told, found = sweeps.outcomes(path), sweeps.told(path), audit(path)
    whole = (path / STUDY_FILE).read_bytes()
    for part in (0.0, 0.3, 0.6):
        (path / STUDY_FILE).write_bytes(whole[: int(part * len(whole))])
        assert sweeps.resume(path).finished
        assert (sweeps.outcomes(path), sweeps.told(path), audit(path)) == (rows, told, found)


def test_rows_of_trials_that_the_sweep_does_not_have_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "s"
    sweeps.run(sweeps.small_sweep(trials=3), path)
    record = (path / "sweep.json").read_bytes()
    resume_sweep(path, Resources(local=True), Console(stderr=True), more_trials=1)
    (path / "sweep.json").write_bytes(record)
    for _ in range(2):
        with refused("trainings", UserError) as raised:
            sweeps.resume(path)
        assert "trial 3" in str(raised.value)
