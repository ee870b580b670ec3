"""Weights that are kept are those with which the trainings ended; others are trained again to the same bits."""

import os
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from attnsweep import Categorical, Ledger, open_sweep
from attnsweep.orchestrator import cli
from attnsweep.orchestrator.inspection.kept_weights import keep_weights
from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from tests.fault import sweeps
from tests.orchestrator.commands import command
from tests.orchestrator.small_sweep import smallest_sweep
from tests.orchestrator.trained_sweep import trained_sweep

SPEC = smallest_sweep(
    {"n_positions": Categorical((4, 5)), "init_sigma": 0.3, "learning_rate": 0.05}, trials=2, replicates=3
)


@pytest.fixture
def sweep(tmp_path: Path) -> SweepDirectory:
    return trained_sweep(tmp_path / "sweep", SPEC)


def kept_files(sweep: SweepDirectory) -> list[Path]:
    return sorted((Path(str(sweep.place)) / "weights").glob("*"))


@pytest.mark.slow
def test_kept_weights_have_the_loss_of_their_training(sweep: SweepDirectory) -> None:
    said: list[str] = []
    keep_weights(sweep, [1], said.append)
    rows = {(row["trial"], row["replicate"]): row for row in Ledger(str(sweep.place)).trainings().to_pylist()}
    assert [path.name.partition("-")[0] for path in kept_files(sweep)] == sorted(
        row["training_id"] for (trial, _), row in rows.items() if trial == 1
    )
    for (trial, replicate), row in rows.items():
        module = open_sweep(sweep.place).module(f"{trial}/{replicate}")
        assert module.population_loss().item() == pytest.approx(row["final_loss"], rel=1e-12)  # type: ignore[operator]
    assert len(said) == 1


def test_run_refuses_to_keep_weights_that_there_will_not_be_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/missing.db")
    (tmp_path / "small.json").write_text(SPEC.to_json())
    ended = command("run", tmp_path / "small.json", "--dir", tmp_path / "run", "--local", "--keep-weights", "2")
    assert ended.code == 2
    assert ended.err.startswith("attnsweep: --keep-weights: ")
    assert not (tmp_path / "run").exists()


@pytest.mark.scale
@pytest.mark.slow
@pytest.mark.usefixtures("no_mlflow")
def test_a_sweep_that_is_resumed_keeps_the_weights_that_its_first_run_was_asked_for(tmp_path: Path) -> None:
    spec, path = tmp_path / "small.json", tmp_path / "run"
    spec.write_text(SPEC.to_json())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SweepLoop, "_commit", sweeps.after_commit(1, lambda: os.kill(os.getpid(), signal.SIGINT)))
        arguments = ["run", str(spec), "--dir", str(path), "--local", "--pack-size", "3", "--keep-weights", "1"]
        assert CliRunner().invoke(cli.app, arguments).exit_code == 130
    sweep = SweepDirectory.open(path)
    assert (sweep.finished, sweep.keep_weights, kept_files(sweep)) == (False, (1,), [])
    assert CliRunner().invoke(cli.app, ["resume", str(path), "--local", "--no-report"]).exit_code == 0
    rows = Ledger(path).trainings(columns=["training_id", "trial"]).to_pylist()
    assert {file.name.partition("-")[0] for file in kept_files(sweep)} == {
        row["training_id"] for row in rows if row["trial"] == 1
    }
    # A finished sweep, resumed, mends what is missing.
    kept_files(sweep)[0].unlink()
    assert CliRunner().invoke(cli.app, ["resume", str(path), "--local", "--no-report"]).exit_code == 0
    assert len(kept_files(sweep)) == 3
