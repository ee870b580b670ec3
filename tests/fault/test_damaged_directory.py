"""A sweep directory with torn, damaged or left-over files: `resume` repairs it, and the sweep is whole again."""

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from attnsweep.orchestrator.audit.audit import audit
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.running.session import resume_sweep
from attnsweep.orchestrator.storage.errors import SweepError
from attnsweep.orchestrator.tracking.follow import sync
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.workloads.errors import UserError
from tests.fault import sweeps


@pytest.mark.scale
def test_damage_is_set_aside_and_trained_again(no_mlflow: None, mlflow_uri: str, tmp_path: Path) -> None:
    spec = sweeps.small_sweep()
    sweeps.run(spec, tmp_path / "undisturbed", pack_size=4)
    path = tmp_path / "s"
    sweeps.run(spec, path, pack_size=4)
    told = sweeps.told(path)

    first, second, third, *_ = sorted((path / "trainings").glob("*.parquet"))
    flipped = bytearray(first.read_bytes())
    flipped[len(flipped) // 3] ^= 1
    first.write_bytes(flipped)
    second.write_bytes(second.read_bytes()[:-100])
    (path / "curves" / third.name).unlink()
    (path / "trainings" / ".torn.tmp").write_bytes(b"PAR1")
    with (path / "study.journal").open("a") as journal:
        journal.write('{"op_code": 6, "worker_id": "')

    with pytest.raises(
        UserError, match=r"restore it; or: attnsweep resume .*, which sets it aside and trains it again"
    ):
        Ledger(path).trainings()
    assert len([each for each in audit(path).problems if "attnsweep resume" in each.fix]) >= 3

    console = Console(record=True, width=1000)
    report = resume_sweep(path, Resources(local=True, pack_size=4), console)
    said = console.export_text()
    assert said.count("set aside in") == 3
    assert "found 20 trainings, reported 0 trials to Optuna, 12 trainings to train" in said
    assert report.finished
    assert sweeps.outcomes(path) == sweeps.outcomes(tmp_path / "undisturbed")
    assert sweeps.curves(path) == sweeps.curves(tmp_path / "undisturbed")
    assert sweeps.told(path) == told
    sync(report.directory, mlflow_uri)
    assert [str(problem) for problem in audit(path, mlflow_uri).problems] == []
    assert len(list((path / "set_aside" / "trainings").iterdir())) == 3


def test_a_file_that_is_damaged_while_a_sweep_runs_is_a_fault_of_the_run(
    no_mlflow: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, path, commit = sweeps.small_sweep(trials=1), tmp_path / "s", SweepLoop._commit

    def damaging(*arguments: Any) -> None:
        commit(*arguments)
        for file in (path / "curves").glob("0*.parquet"):
            file.write_bytes(file.read_bytes()[:-100])

    monkeypatch.setattr(SweepLoop, "_commit", damaging)
    with pytest.raises(SweepError, match=rf"{path}/curves/0.*expected a Parquet file that attnsweep wrote"):
        sweeps.run(spec, path, pack_size=4)
