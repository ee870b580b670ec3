"""The live module of a training has the weights of its end, or of a step of it."""

import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

from attnsweep import Categorical, Sweep, UserError, open_sweep
from attnsweep.orchestrator.inspection.kept_weights import keep_weights
from attnsweep.orchestrator.inspection.trained_module import load
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces.loading import load_sweep
from tests.orchestrator.trained_sweep import FRAGILE, edit_row, records, trained_sweep

SPEC = Sweep(
    name="small",
    workload="category_pairs",
    space={
        "n_steps": 24,
        "n_categories": 3,
        "n_positions": 4,
        "init_sigma": 0.3,
        "learning_rate": 0.05,
        "optimizer": Categorical(("adam", "lbfgs")),
        "stop_when_solved": False,
    },
    sampler="grid",
    trials=2,
    replicates=2,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("modules") / "s"
    trained_sweep(path, SPEC)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("trial", [0, 1])
def test_the_module_at_a_step_has_the_loss_of_its_curve(whole: Path, trial: int) -> None:
    sweep = open_sweep(whole)
    curve = sweep.sql(
        "select step, value from curves join trainings using (training_id) where metric = 'loss' and step <= n_steps "
        f"and trainings.trial = {trial} and trainings.replicate = 1 order by step"
    ).to_pylist()
    assert len(curve) > 4
    for row in curve[:: len(curve) // 2]:
        module = sweep.module(f"{trial}/1", step=row["step"])
        assert not module.training
        assert module.population_loss().item() == pytest.approx(row["value"], rel=1e-12)  # type: ignore[operator]
    (end,) = records(sweep.directories[0], trial=trial, replicate=1)
    ended = sweep.module(f"{trial}/1").population_loss()  # type: ignore[operator]
    assert ended.item() == pytest.approx(end["final_loss"], rel=1e-12)


@pytest.mark.slow
def test_kept_weights_are_taken_and_nothing_is_trained(whole: Path, tmp_path: Path) -> None:
    sweep = SweepDirectory.open(Path(shutil.copytree(whole, tmp_path / "s")))
    keep_weights(sweep, [0], lambda _: None)
    state = torch.get_rng_state()
    module = open_sweep(tmp_path / "s").module("0/0")
    assert torch.equal(torch.get_rng_state(), state)
    for path in (tmp_path / "s" / "weights").glob("*"):
        path.write_bytes(b"")
    with pytest.raises(UserError, match="a weights file whose bytes differ from those that were written"):
        open_sweep(tmp_path / "s").module("0/0")
    again = open_sweep(whole).module("0/0").state_dict()
    assert all(torch.equal(value, again[name]) for name, value in module.state_dict().items())


def test_a_training_that_ends_otherwise_is_said(whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sweep = SweepDirectory.open(Path(shutil.copytree(whole, tmp_path / "s")))
    edit_row(sweep, "trainings", 0, eval_loss=0.123)
    open_sweep(tmp_path / "s").module("0/0", step=3)
    assert "module of 0/0: trained again it ends otherwise than recorded, in eval_loss" in caplog.text


def test_a_training_of_the_second_of_two_sweeps_is_found(whole: Path, tmp_path: Path) -> None:
    trained_sweep(tmp_path / "other", SPEC.but(name="other", seed=5))
    both = open_sweep(whole, tmp_path / "other")
    expected = open_sweep(tmp_path / "other").module("1/0", step=2).state_dict()
    (row,) = records(SweepDirectory.open(tmp_path / "other"), trial=1, replicate=0)
    for name in ("1000001/0", row["training_id"]):
        given = both.module(name, step=2).state_dict()
        assert all(torch.equal(value, expected[each]) for each, value in given.items())


def test_what_is_not_there_is_refused(whole: Path) -> None:
    sweep = open_sweep(whole)
    with pytest.raises(UserError, match="TRAINING_ID: got '7/0', expected a training of "):
        sweep.module("7/0")
    with pytest.raises(UserError, match=r"step: got 25, expected a step that the training took, from 0 to \d+"):
        sweep.module("0/0", step=25)


@pytest.mark.slow
def test_a_failed_training_and_code_that_is_gone_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fragile.py").write_text(FRAGILE)
    sweep = trained_sweep(tmp_path / "s", load_sweep("fragile.py"))
    failed = records(sweep, outcome="failed")[0]
    name = f"{failed['trial']}/{failed['replicate']}"
    with pytest.raises(
        UserError, match=f"got 'the training {name} with the outcome failed', expected a training whose last weights"
    ):
        open_sweep(tmp_path / "s").module(name)
    with pytest.raises(UserError, match="got 'a training that fails when it is repeated: in two lines"):
        open_sweep(tmp_path / "s").module(name, step=0)
    (tmp_path / "fragile.py").unlink()
    with pytest.raises(UserError, match=r"fragile\.py', expected a Python file; check the path"):
        open_sweep(tmp_path / "s").module("0/0")


def test_tied_parameters_stay_tied() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    module[1].weight = module[0].weight
    load(module, {"0.weight": torch.ones(3, 3, dtype=torch.float64)})
    assert module[1].weight is module[0].weight
    assert module[1].weight.dtype == torch.float64
