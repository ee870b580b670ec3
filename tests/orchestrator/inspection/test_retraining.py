"""A training that ends otherwise than its row, when it is trained again: whatever trains it again says so."""

import shutil
from pathlib import Path

import pytest
import torch

from attnsweep import Categorical, open_sweep
from attnsweep.orchestrator.inspection import retraining
from attnsweep.orchestrator.inspection.kept_weights import keep_weights
from attnsweep.orchestrator.inspection.recorded import find_training
from attnsweep.orchestrator.inspection.retraining import retrain
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.environment import Environment, versions
from attnsweep.orchestrator.storage.errors import SweepError
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.tasks import Task
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.testing import defaults
from tests.orchestrator.small_sweep import smallest_sweep
from tests.orchestrator.trained_sweep import edit_row, records, trained_sweep
from tests.refusals import refused

SPEC = smallest_sweep({"init_sigma": Categorical((1e-4, 0.3)), "learning_rate": 0.01}, trials=2, replicates=2)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("again") / "s"
    trained_sweep(path, SPEC)
    return path


@pytest.fixture
def sweep(whole: Path, tmp_path: Path) -> SweepDirectory:
    """A copy, to be changed."""
    return SweepDirectory.open(Path(shutil.copytree(whole, tmp_path / "s")))


@pytest.fixture
def edited(sweep: SweepDirectory) -> str:
    """The name of a stuck training whose row has another loss than it ends with."""
    row = records(sweep, outcome="degenerate_zero", replicate=0)[0]
    edit_row(sweep, "trainings", row["place"], eval_loss=row["eval_loss"] / 2)
    return f"{row['trial']}/0"


def test_weights_of_another_ending_are_not_kept_and_the_others_are(sweep: SweepDirectory, edited: str) -> None:
    with pytest.raises(SweepError):
        keep_weights(sweep, [int(edited[0])], lambda _: None)
    (kept,) = (Path(str(sweep.place)) / "weights").iterdir()
    assert kept.name.partition("-")[0] == find_training(Ledger(sweep.place), f"{edited[0]}/1")


def _recorded_in(sweep: SweepDirectory, of_rows: dict[str, str], latest: dict[str, str]) -> SweepDirectory:
    """The sweep, its rows recorded in one environment, and another one as its latest."""
    one, other = (Environment(versions=each) for each in (of_rows, latest))
    for index in range(Ledger(sweep.place).trainings().num_rows):
        edit_row(sweep, "trainings", index, environment=one.id)
    sweep.record_as(sweep.entering(one).entering(other))
    return SweepDirectory.open(sweep.place)


def test_what_this_machine_cannot_compile_is_trained_without_it_and_said(
    sweep: SweepDirectory, without_compiler: None
) -> None:
    found = _recorded_in(sweep, versions() | {"engine": "compiled, avx2, g++ 1", "torch": "1.9.0"}, versions())
    (again,) = retrain(found, [find_training(Ledger(found.place), "0/0")])
    assert "compiled" in again.notes[0]
    assert "1.9.0" in again.notes[1]
    assert again.difference == ""


@pytest.mark.parametrize(("has_gpu", "device", "width"), [(True, "cuda", 128), (False, "cpu", None)])
def test_what_a_gpu_trained_is_trained_again_on_one_in_the_recorded_width(
    has_gpu: bool, device: str, width: int | None, sweep: SweepDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    row = records(sweep)[0] | {"device": "cuda", "pack_size": 100}
    task = Task(0, 0, Training(defaults(CategoryPairs()), 1))
    found = retraining.setting_of(sweep, row, task)
    assert (found.device, found.width, found.engine) == (device, width, "eager")


FAILS_LATER = """
from pathlib import Path
from attnsweep import Sweep
from attnsweep.workloads.category_pairs import CategoryPairs

class FailsLater(CategoryPairs):
    name = "fails_later"

    def build(self, parameters):
        if Path({flag!r}).exists() and parameters.init_sigma < 0.1:
            raise ZeroDivisionError("planted")
        return super().build(parameters)
"""


def test_a_training_that_fails_when_trained_again_takes_no_other_with_it(tmp_path: Path) -> None:
    (tmp_path / "later.py").write_text(FAILS_LATER.format(flag=str(tmp_path / "flag")))
    sweep = trained_sweep(tmp_path / "s", SPEC.but(workload=f"{tmp_path / 'later.py'}:FailsLater", replicates=1))
    (tmp_path / "flag").touch()
    good, bad = (records(sweep, param_init_sigma=sigma)[0] for sigma in (0.3, 1e-4))
    one, other = retrain(sweep, [good["training_id"], bad["training_id"]])
    assert one.deviation.absolute == 0.0
    assert one.ended.keys() == {"q_MK", "v_NN"}
    assert "ZeroDivisionError: planted" in other.difference
    with refused("0/0", UserError):
        open_sweep(sweep.place).module(f"{bad['trial']}/0")
