"""A sweep that is resumed with other versions than those it began with."""

import os
import signal
from pathlib import Path

import pytest
from rich.console import Console

from attnsweep import Sweep
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.running.session import resume_sweep
from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.workloads.errors import UserError
from tests.fault import sweeps

pytestmark = pytest.mark.usefixtures("no_mlflow")


def _interrupted(spec: Sweep, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(SweepLoop, "_commit", sweeps.interrupt_after(2))
        assert not sweeps.run(spec, path, pack_size=4).finished


def test_other_versions_are_refused_and_recorded_where_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    now = Environment.current()
    before = now.model_copy(update={"versions": {**now.versions, "numpy": "1.2.3"}})
    with monkeypatch.context() as patch:
        patch.setattr(Environment, "current", classmethod(lambda *_: before))
        _interrupted(sweeps.small_sweep(), path, patch)
    record = (path / "sweep.json").read_text()
    n_before = len(sweeps.outcomes(path))

    with pytest.raises(UserError, match=r"got 'numpy 1\.2\.3 -> .*--accept-drift"):
        sweeps.resume(path)
    assert (path / "sweep.json").read_text() == record
    assert len(sweeps.outcomes(path)) == n_before

    assert resume_sweep(path, Resources(local=True), Console(stderr=True), accept_drift=True).finished
    assert list(SweepDirectory.open(path).environments) == [before.id, now.id]
    trained = Ledger(path).trainings(columns=["environment"])["environment"].to_pylist()
    assert (trained.count(before.id), trained.count(now.id)) == (n_before, 32 - n_before)
    # The new environment is now the sweep's current one.
    assert sweeps.resume(path).finished


@pytest.mark.scale
def test_a_checkpoint_of_another_environment_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row names one environment, so an unfinished training begins again."""
    path = tmp_path / "s"
    now = Environment.current()
    monkeypatch.setattr("attnsweep.orchestrator.training.local_pool.Trainer", sweeps.sliced())
    with monkeypatch.context() as patch:
        then = now.model_copy(update={"versions": {**now.versions, "numpy": "1.2.3"}})
        patch.setattr(Environment, "current", classmethod(lambda *_: then))
        patch.setattr(SweepLoop, "_receive", sweeps.after_slices(2, lambda: os.kill(os.getpid(), signal.SIGINT)))
        assert not sweeps.run(sweeps.long_sweep(), path).finished
    assert len(list((path / "checkpoints").iterdir())) == 1
    console = Console(record=True, width=200)
    assert resume_sweep(path, Resources(local=True), console, accept_drift=True).finished
    assert "4 trainings to train" in console.export_text()
    assert list((path / "checkpoints").iterdir()) == []
