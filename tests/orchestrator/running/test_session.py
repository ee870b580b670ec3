"""One run of a sweep: what it closes when it fails, what two runs of one sweep or a refused run record, what is said
if weights cannot be kept; in threads, and with parameters that vary together."""

import io
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from attnsweep.orchestrator.running import session
from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.running.session import resume_sweep, run_sweep
from attnsweep.orchestrator.running.summary import Summary
from attnsweep.orchestrator.storage.errors import SweepError
from attnsweep.orchestrator.storage.locks import Lock
from attnsweep.orchestrator.storage.run_records import PROGRESS
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.following import Following
from attnsweep.orchestrator.training.local_pool import LocalPool
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.search_spaces import Sweep
from attnsweep.workloads.errors import UserError
from tests.fault import sweeps
from tests.refusals import refused

SPEC = sweeps.small_sweep(trials=2, replicates=2)
FAULT, CTRL_C = SweepError("enough", "here"), KeyboardInterrupt()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "fault", "is_projected"),
    [
        (SweepDirectory, "record_as", FAULT, False),
        (SweepLoop, "__init__", FAULT, False),
        (session, "Following", CTRL_C, False),
        (SweepLoop, "resume", CTRL_C, True),
        (SweepLoop, "run", CTRL_C, True),
        (SweepDirectory, "record_run", FAULT, True),
        (session, "summarize", FAULT, True),
    ],
)
def test_all_that_a_run_opened_is_closed(
    owner: Any,
    name: str,
    fault: BaseException,
    is_projected: bool,
    no_mlflow: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[str] = []

    def fail(*_: object, **__: object) -> None:
        raise fault

    def note(kind: type[Any], what: str) -> None:
        close = kind.close

        def note_and_close(*arguments: object) -> None:
            closed.append(what)
            close(*arguments)

        monkeypatch.setattr(kind, "close", note_and_close)

    with monkeypatch.context() as patched:
        note(LocalPool, "trainers")
        note(Following, "MLflow")
        patched.setattr(owner, name, fail)
        with pytest.raises(type(fault)):
            sweeps.run(SPEC, tmp_path / "s")
    assert closed == ["trainers", *(["MLflow"] if is_projected else [])]
    monkeypatch.undo()
    assert sweeps.resume(tmp_path / "s").finished
    assert len(sweeps.outcomes(tmp_path / "s")) == 4


HERE = Resources(local=True)


class WhileWaiting(io.StringIO):
    """A screen: when it first says that a run waits for another, something else happens before the run looks again."""

    def __init__(self, happens: Callable[[], object]) -> None:
        super().__init__()
        self._happens: Callable[[], object] | None = happens

    def write(self, text: str) -> int:
        if "waiting" in text and (happens := self._happens) is not None:
            self._happens = None
            happens()
        return super().write(text)


@pytest.fixture
def spec(monkeypatch: pytest.MonkeyPatch, no_mlflow: None) -> Sweep:
    monkeypatch.setattr(session, "_RETRY_SECONDS", 0.01)
    return sweeps.small_sweep(trials=2, replicates=2)


@pytest.fixture
def unfinished(spec: Sweep, tmp_path: Path) -> Path:
    """As a driver leaves it that was killed at its very end."""
    sweeps.run(spec, tmp_path / "s")
    (tmp_path / "s" / PROGRESS.name).unlink()
    return tmp_path / "s"


def _while_waiting(path: Path, waiting: Callable[[Console], Summary], other: Callable[[], Summary]) -> Summary:
    """The run that waits for the sweep, while another one has it from beginning to end."""
    lock = Lock(path, "run")

    def in_between() -> None:
        lock.close()
        other()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(waiting, Console(file=WhileWaiting(in_between))).result()


def test_trials_that_another_run_has_added_meanwhile_stay(spec: Sweep, unfinished: Path) -> None:
    summary = _while_waiting(
        unfinished,
        lambda console: run_sweep(spec, unfinished, HERE, console, or_resume=True),
        lambda: resume_sweep(unfinished, HERE, more_trials=3),
    )
    found = SweepDirectory.open(unfinished)
    assert (found.given.trials, found.spec.trials, found.finished) == (2, 5, True)
    assert (summary.n_trials, summary.n_trainings) == (5, 10)


def test_a_run_that_is_refused_records_nothing(unfinished: Path) -> None:
    before, grown = (unfinished / "sweep.json").read_bytes(), unfinished.with_name("grown")
    shutil.copytree(unfinished, grown)
    resume_sweep(grown, HERE, more_trials=3)
    (grown / "sweep.json").write_bytes(before)
    (grown / PROGRESS.name).unlink()
    for _ in range(2):
        with refused("trainings", UserError):
            resume_sweep(grown, HERE, more_trials=2)
        assert (grown / "sweep.json").read_bytes() == before
        assert not (grown / PROGRESS.name).exists()
    assert resume_sweep(unfinished, HERE, more_trials=2).n_trials == 4
