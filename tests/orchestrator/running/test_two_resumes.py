"""Two runs of one sweep, one after the other, and a run that is refused: no change of `sweep.json` is lost or made."""

import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rich.console import Console

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running import one_run
from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.running.session import resume_sweep, run_or_resume
from attnsweep.orchestrator.running.study import read_trials
from attnsweep.orchestrator.running.summary import Summary
from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.orchestrator.storage.sweep_directory import COURSE, STUDY_FILE, SweepDirectory
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.search_spaces import Sweep
from attnsweep.workloads.errors import UserError
from tests.fault import sweeps

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
    monkeypatch.setattr(one_run, "_LOOK_SECONDS", 0.01)
    return sweeps.small_sweep(trials=2, replicates=2)


@pytest.fixture
def unfinished(spec: Sweep, tmp_path: Path) -> Path:
    """As a driver leaves it that was killed at its very end."""
    sweeps.run(spec, tmp_path / "s")
    (tmp_path / "s" / COURSE.name).unlink()
    return tmp_path / "s"


def _while_waiting(path: Path, waiting: Callable[[Console], Summary], other: Callable[[], Summary]) -> Summary:
    """The run that waits for the sweep, while another one has it from beginning to end."""
    lock = SweepDirectory.open(path).place.lock("run")

    def in_between() -> None:
        lock.close()
        other()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(waiting, Console(file=WhileWaiting(in_between))).result()


def test_trials_that_another_run_has_added_meanwhile_stay(spec: Sweep, unfinished: Path) -> None:
    summary = _while_waiting(
        unfinished,
        lambda console: run_or_resume(spec, unfinished, HERE, console),
        lambda: resume_sweep(unfinished, HERE, more_trials=3),
    )
    found = SweepDirectory.open(unfinished)
    assert (found.more_trials, found.spec.trials, found.finished) == (3, 5, True)
    assert (summary.n_trials, summary.n_trainings) == (5, 10)
    assert [trial.number for trial in read_trials(found)] == [0, 1, 2, 3, 4]


def test_two_runs_add_what_both_were_asked_for(unfinished: Path) -> None:
    _while_waiting(
        unfinished,
        lambda console: resume_sweep(unfinished, HERE, console, patience=60, more_trials=1),
        lambda: resume_sweep(unfinished, HERE, more_trials=1, more_replicates=1),
    )
    found = SweepDirectory.open(unfinished)
    assert (found.more_trials, found.more_replicates) == (2, (1,))
    assert Ledger(unfinished).trainings().num_rows == 4 * 3


def test_an_environment_that_another_run_has_accepted_meanwhile_is_checked_and_stays(
    unfinished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Environment.current

    def elsewhere() -> Summary:
        def other(*arguments: object) -> Environment:
            found = here(*arguments)  # type: ignore[arg-type]
            return found.model_copy(update={"versions": {**found.versions, "numpy": "9.9.9"}})

        with monkeypatch.context() as patch:
            patch.setattr(Environment, "current", other)
            return resume_sweep(unfinished, HERE, more_trials=1, accept_drift=True)

    with pytest.raises(UserError, match=r"got 'numpy 9.9.9 -> .*--accept-drift"):
        _while_waiting(
            unfinished, lambda console: resume_sweep(unfinished, HERE, console, patience=60, more_trials=1), elsewhere
        )
    found = SweepDirectory.open(unfinished)
    rows = Ledger(unfinished).trainings(columns=["environment"])["environment"].unique().to_pylist()
    assert (len(rows), found.more_trials) == (2, 1)
    assert set(rows) == found.environments.keys()


def test_a_finished_sweep_that_was_extended_meanwhile_is_not_trained_by_what_only_summarizes(
    spec: Sweep, unfinished: Path
) -> None:
    resume_sweep(unfinished, HERE)

    def extended() -> Summary:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SweepLoop, "run", lambda *_: False)
            return resume_sweep(unfinished, HERE, more_trials=1)

    with pytest.raises(UserError, match="another process has just extended"):
        _while_waiting(unfinished, lambda console: run_or_resume(spec, unfinished, HERE, console), extended)
    assert Ledger(unfinished).trainings().num_rows == 4


def test_a_run_that_is_refused_records_nothing(unfinished: Path) -> None:
    journal = unfinished / STUDY_FILE
    whole, before = journal.read_text(), (unfinished / "sweep.json").read_bytes()
    journal.unlink()
    for _ in range(2):
        with pytest.raises(UserError, match="a study without 2 trials that are in the ledger"):
            resume_sweep(unfinished, HERE, more_trials=2)
        assert (unfinished / "sweep.json").read_bytes() == before
        assert not (unfinished / COURSE.name).exists()
    journal.write_text(whole)
    assert resume_sweep(unfinished, HERE, more_trials=2).n_trials == 4
