"""Weights that are kept are those with which the trainings ended; others are trained again to the same bits."""

import sys
from pathlib import Path

import pytest
import torch

from attnsweep import Categorical, Ledger, Sweep, UserError, trained_weights
from attnsweep.orchestrator import cli
from attnsweep.orchestrator.inspection.gradients import check_sweep
from attnsweep.orchestrator.inspection.kept_weights import keep_weights
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.category_pairs.positions_only import PositionsOnly
from tests.orchestrator.trained_sweep import trained_sweep

SPEC = Sweep(
    name="small",
    workload="category_pairs",
    space={
        "n_steps": 20,
        "n_categories": 3,
        "n_positions": Categorical((4, 5)),
        "init_sigma": 0.3,
        "learning_rate": 0.05,
    },
    sampler="grid",
    trials=2,
    replicates=3,
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
        weights = trained_weights(str(sweep.place), f"{trial}/{replicate}")
        module = PositionsOnly(3, row["param_n_positions"], softmax=False).double()
        module.load_state_dict(weights)
        assert module.population_loss().item() == pytest.approx(row["final_loss"], rel=1e-12)
    assert said == ["training 3 trainings again, to keep their weights ..."]


@pytest.mark.slow
def test_what_is_kept_already_is_not_trained_again(sweep: SweepDirectory) -> None:
    said: list[str] = []
    keep_weights(sweep, [0], said.append)
    before = [(path, path.stat().st_mtime_ns) for path in kept_files(sweep)]
    again = {f"0/{replicate}": trained_weights(str(sweep.place), f"0/{replicate}") for replicate in range(3)}
    keep_weights(sweep, [0, 1], said.append)
    assert len(said) == 2
    assert {*before} < {(path, path.stat().st_mtime_ns) for path in kept_files(sweep)}
    for path in kept_files(sweep):
        path.unlink()
    for name, weights in again.items():
        trained = trained_weights(str(sweep.place), name)
        assert all(torch.equal(trained[each], value) for each, value in weights.items())


def test_a_damaged_file_is_refused_by_name(sweep: SweepDirectory) -> None:
    keep_weights(sweep, [0], lambda _: None)
    for path in kept_files(sweep):
        path.write_bytes(path.read_bytes()[:-9] + b"X" + path.read_bytes()[-8:])
    with pytest.raises(UserError, match=r"weights/.*parquet: got 'other bytes than were written'"):
        trained_weights(str(sweep.place), "0/0")


def test_gradients_are_checked_at_kept_weights(sweep: SweepDirectory) -> None:
    keep_weights(sweep, [0, 1], lambda _: None)
    for path in kept_files(sweep):
        path.write_bytes(b"")
    with pytest.raises(UserError, match="other bytes than were written"):
        check_sweep(sweep, lambda _: None)


def test_run_keeps_the_weights_of_a_trial_or_refuses_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/missing.db")
    sweep = tmp_path / "small.json"
    sweep.write_text(SPEC.to_json())
    arguments = ["attnsweep", "run", str(sweep), "--dir", str(tmp_path / "run"), "--local", "--keep-weights"]
    monkeypatch.setattr(sys, "argv", [*arguments, "2"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "--keep-weights: got 2, expected the number of a trial, 0..1" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
