"""Ctrl-C and SIGTERM: what is done is committed, what is under way goes on in mid-course when the sweep is resumed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.ledger.reader import Ledger
from orchestrator.loop import SweepLoop
from orchestrator.pool import TrainerLost
from orchestrator.session import Resources, resume_sweep
from orchestrator.sweep_directory import SweepDirectory
from orchestrator.trainer import PackOrder, Progress, Report
from tests.fault import sweeps

pytestmark = pytest.mark.usefixtures("mlflow_database")


@pytest.fixture(scope="module")
def undisturbed(local_ray: str, mlflow_database: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("undisturbed") / "long"
    sweeps.run(sweeps.long_sweep(), path)
    return path


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_packs_under_way_are_handed_back_and_go_on_where_they_were(
    number: signal.Signals, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.pool.Trainer", sweeps.sliced())
    receive, n_slices = SweepLoop._receive, 0

    def stop_in_the_second_slice(loop: SweepLoop, order: PackOrder, report: Report | TrainerLost) -> None:
        nonlocal n_slices
        receive(loop, order, report)
        n_slices += isinstance(report, Progress)
        if n_slices == 4:
            os.kill(os.getpid(), number)

    path = tmp_path / "s"
    with monkeypatch.context() as patch:
        patch.setattr(SweepLoop, "_receive", stop_in_the_second_slice)
        assert not sweeps.run(sweeps.long_sweep(), path, n_trainers=2, pack_size=2).finished
    assert len(list((path / "checkpoints").glob("*.parquet"))) == 2
    assert not SweepDirectory.open(path).finished

    console = Console(record=True, width=200)
    assert resume_sweep(path, Resources(n_trainers=2, pack_size=2), console).finished
    assert (
        "found 0 trainings, told 0 trials, 4 trainings to train, 4 of them from a checkpoint" in console.export_text()
    )
    assert sweeps.outcomes(path) == sweeps.outcomes(undisturbed)
    assert sweeps.curves(path) == sweeps.curves(undisturbed)
    assert list((path / "checkpoints").iterdir()) == []


def test_a_damaged_checkpoint_is_as_good_as_none(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.pool.Trainer", sweeps.sliced())
    path = tmp_path / "s"
    with monkeypatch.context() as patch:
        receive, n_slices = SweepLoop._receive, 0

        def stop(loop: SweepLoop, order: PackOrder, report: Report | TrainerLost) -> None:
            nonlocal n_slices
            receive(loop, order, report)
            n_slices += isinstance(report, Progress)
            if n_slices == 2:
                os.kill(os.getpid(), signal.SIGTERM)

        patch.setattr(SweepLoop, "_receive", stop)
        assert not sweeps.run(sweeps.long_sweep(), path, pack_size=2).finished
    (file,) = (path / "checkpoints").glob("*.parquet")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert sweeps.resume(path).finished
    assert sweeps.outcomes(path) == sweeps.outcomes(undisturbed)
    assert list((path / "checkpoints").iterdir()) == []


def test_ctrl_c_commits_what_is_done_and_says_how_to_go_on(tmp_path: Path) -> None:
    """As a terminal does it: SIGINT to the whole process group."""
    attnsweep = str(Path(sys.executable).parent / "attnsweep")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    command = [attnsweep, "run", "quickstart", "--trials", "5000", "--pack-size", "8", "--trainers", "1"]
    command += ["--dir", "s", "--set", "n_steps=50"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("trials"):
                break
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "interrupted; go on with: attnsweep resume s" in errors
    assert "Traceback" not in errors
    assert Ledger(tmp_path / "s").trainings().num_rows > 0
