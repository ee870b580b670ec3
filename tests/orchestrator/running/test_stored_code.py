"""A user's workload outlives the folder that it was run from: its code is in the sweep.

Files that a sweep names by path, such as corpora, are not in the sweep, which goes on with the same files alone.
"""

import hashlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rich.console import Console

from attnsweep.orchestrator.inspection.replay import replay
from attnsweep.orchestrator.inspection.retraining import retrain
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.running.session import resume_sweep, run_sweep
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tools.audit.audit import audit
from attnsweep.orchestrator.tracking.sync import sync
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.errors import UserError
from tests.fault import sweeps
from tests.refusals import refused

pytestmark = [pytest.mark.usefixtures("no_mlflow"), pytest.mark.slow]
QUIET = Console(quiet=True)
LOCAL = Resources(local=True, pack_size=4)
MINE = """
import my_names
from attnsweep import Sweep
from attnsweep.workloads.category_pairs import CategoryPairs

class Own(CategoryPairs):
    name = my_names.NAME

def sweep():
    return Sweep(name="own", workload="mine.py:Own", sampler="random", trials=2, replicates=4,
                 space={"n_steps": 20, "n_categories": 3, "n_positions": 4})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "job"
    place.mkdir()
    (place / "mine.py").write_text(MINE)
    (place / "my_names.py").write_text('NAME = "own"  # é')
    (place / "private.py").write_text("PASSWORD = 1")
    yield place
    sys.modules.pop("my_names", None)


def _interrupted(folder: Path, where: PlaceName) -> SweepDirectory:
    """A sweep that was stopped after its first commit, and whose folder is gone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SweepLoop, "_commit", sweeps.after_commit(1, lambda: os.kill(os.getpid(), signal.SIGINT)))
        assert not run_sweep(load_sweep(str(folder / "mine.py")), where, LOCAL, QUIET).finished
    shutil.rmtree(folder)
    return SweepDirectory.open(where)


def test_resume_replay_and_audit_work_once_the_folder_is_gone(folder: Path, tmp_path: Path, mlflow_uri: str) -> None:
    path = tmp_path / "s"
    directory = _interrupted(folder, path)
    assert directory.spec.workload == "mine.py:Own"
    assert list(directory.code) == ["mine.py", "my_names.py"]
    assert {each.stem for each in (path / "code").iterdir()} == set(directory.code.values())
    assert resume_sweep(path, LOCAL, QUIET).finished
    assert set(Ledger(path).trainings()["workload"].to_pylist()) == {"own"}
    assert replay(directory, "1/3").deviation.agrees
    sync(directory, mlflow_uri)
    assert not audit(path, mlflow_uri).problems
    retrain(directory, [Ledger(path).trainings()["training_id"][0].as_py()])


PROBLEM = """
from pathlib import Path
import attnsweep as at
import torch
from torch import nn

def data():
    x = torch.load(Path(__file__).with_name("table.pt"))
    return x[:, :2], x[:, 2:]

own = at.problem("own", model=lambda: nn.Linear(2, 1), data=data, loss="mse", files=("table.pt",))

def sweep():
    return at.Sweep(name="own", workload="own.py:own", space={"n_steps": 2}, sampler="random", trials=1, replicates=2)
"""


def test_a_file_that_the_code_reads_is_stored_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job").mkdir()
    torch.save(torch.arange(12.0).reshape(4, 3), tmp_path / "job" / "table.pt")
    file = tmp_path / "job" / "own.py"
    file.write_text(PROBLEM)
    run_sweep(load_sweep(str(file)), tmp_path / "s", LOCAL, QUIET)
    shutil.rmtree(tmp_path / "job")
    assert list(SweepDirectory.open(tmp_path / "s").code) == ["own.py", "table.pt"]
    assert resume_sweep(tmp_path / "s", LOCAL, QUIET, more_replicates=1).finished
    assert replay(SweepDirectory.open(tmp_path / "s"), "0/1").deviation.agrees


def test_a_changed_or_missing_file_is_refused(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "s"
    directory = _interrupted(folder, path)
    file = path / "code" / f"{directory.code['my_names.py']}.py"
    for spoil in (lambda: file.write_text('NAME = "other"'), file.unlink):
        spoil()
        with refused(file.name, UserError):
            resume_sweep(path, LOCAL, QUIET)
        with refused(file.name, UserError):
            replay(directory, "0/0")
        assert any(file.name in str(each) for each in audit(path).problems)


WITH_NOTES = """
from dataclasses import dataclass
from attnsweep import Sweep, parameter
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters

@dataclass(frozen=True, kw_only=True)
class Parameters(CategoryPairsParameters):
    notes: str = parameter("", "a file")

    @classmethod
    def pinned(cls, values):
        return {"notes": values["notes"]}

class Own(CategoryPairs):
    name = "own"
    parameters = Parameters

def sweep():
    space = {"n_steps": 20, "n_categories": 3, "n_positions": 4, "notes": "NOTES"}
    return Sweep(name="own", workload="mine.py:Own", sampler="random", trials=2, replicates=4, space=space)
"""


@pytest.mark.scale
def test_a_sweep_goes_on_with_the_files_that_it_began_with_alone(no_mlflow: None, tmp_path: Path) -> None:
    path, notes, mine = tmp_path / "s", tmp_path / "notes.txt", tmp_path / "mine.py"
    mine.write_text(WITH_NOTES.replace("NOTES", str(notes)))
    notes.write_text("as it was")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SweepLoop, "_commit", sweeps.after_commit(1, lambda: os.kill(os.getpid(), signal.SIGINT)))
        assert not sweeps.run(load_sweep(str(mine)), path, pack_size=4).finished
    sha256 = hashlib.sha256(b"as it was").hexdigest()
    assert SweepDirectory.open(path).files == {str(notes): sha256}
    for spoil in (lambda: notes.write_text("changed"), notes.unlink):
        spoil()
        with refused("s", UserError):
            sweeps.resume(path)
    assert Ledger(path).trainings().num_rows == 4
    notes.write_text("as it was")
    assert sweeps.resume(path).finished
