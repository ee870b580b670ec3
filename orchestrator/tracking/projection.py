"""Copies a running sweep to MLflow: the driver's side."""

import threading

import pyarrow as pa

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.trial import complete_trials
from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking import processes
from attnsweep.orchestrator.tracking.content import MOST_RUNS, has_runs_of_trials
from attnsweep.orchestrator.tracking.follow import OnProgress, SyncResult, warn_of_problem
from attnsweep.orchestrator.tracking.mlflow_store import MlflowStore
from attnsweep.orchestrator.tracking.processes import Ended, LostError, State
from attnsweep.orchestrator.tracking.report import warn_of
from attnsweep.orchestrator.tracking.store import as_shell_word, tracking_uri

_PATIENCE_SECONDS = 60.0
"""How long the end of a sweep waits without any trial being logged: a server may accept connections and never
answer."""


class Projection:
    """Copies trials to MLflow through a separate process. Never blocks the loop, and never makes the sweep fail.

    MLflow is slow Python code: in the driver's process it would hold the interpreter lock and slow the sweep loop. The
    driver only reports to the process that the run ends; the process reads everything else from the ledger.

    Args:
        retry_seconds: The time from a failure to the next attempt.
    """

    def __init__(self, directory: SweepDirectory, uri: str | None = None, retry_seconds: float = 60.0) -> None:
        self._directory = directory
        self._uri = tracking_uri(uri)
        self._state = State()
        self._given_up: str | None = None
        self._has_warned = self._is_ending = self._is_closed = False
        self._n_completed, self._has_runs = 0, has_runs_of_trials(directory.spec)
        self._on_progress: OnProgress | None = None
        self._ended = threading.Event()
        self._process = processes.idle_or_new()
        self._process.ask("follow", directory=str(directory.place), uri=self._uri, retry_seconds=retry_seconds)
        self._listener = threading.Thread(target=self._listen, name="mlflow-projection", daemon=True)
        self._listener.start()

    @property
    def problem(self) -> str | None:
        return self._given_up or self._state.problem

    @property
    def lag(self) -> str:
        """How many complete trials MLflow does not have yet, and why, in words; empty if it has all."""
        n_behind = self._n_completed - self._state.n_present - self._state.n_logged
        if n_behind <= 0:
            return ""
        s = "" if n_behind == 1 else "s"
        return f"{n_behind:,} trial{s} behind{f': {self.problem}' if self.problem else ''}"

    def rows_committed(self, trainings: pa.Table) -> None:
        """The process that writes to MLflow reads the rows from the ledger."""

    def trial_told(self, trial: int) -> None:
        del trial
        self._n_completed += self._has_runs

    def end_soon(self, *, in_haste: bool) -> None:
        """Lets the process log what is missing and the summary. `in_haste`: `close` will not wait for all of it."""
        if not self._is_ending:
            self._is_ending = True
            self._process.write(in_haste)

    def close(self, timeout: float | None = None, on_progress: OnProgress | None = None) -> SyncResult:
        """Waits until all is logged. Idempotent.

        Args:
            timeout: Seconds after which the remainder is left to `attnsweep mlflow-sync`; the parent run then has the
                status KILLED, if MLflow has answered by then. `None` waits for as long as MLflow accepts a trial now
                and then.
            on_progress: Called by a thread with the number of trials logged, as the number grows.
        """
        self._on_progress = on_progress
        self.end_soon(in_haste=timeout is not None)
        self._wait(timeout)
        if not self._ended.is_set():
            self._give_up(
                f"no answer for {_PATIENCE_SECONDS:g} s" if timeout is None else f"not done within {timeout:.2g} s"
            )
            self._process.kill()
        self._listener.join()
        if not self._is_closed:
            self._is_closed = True
            if self._given_up is None:
                processes.keep(self._process)
            else:
                self._process.end()
        return SyncResult(self._state.n_logged, self._state.n_present)

    def to_open(self) -> str:
        """After `close`: a shell command that shows the sweep in MLflow, or what MLflow lacks."""
        shown = f"mlflow ui --backend-store-uri {as_shell_word(self._uri)}"
        if not self._has_runs:
            shown += f" (one run and the table trials.csv: more than {MOST_RUNS:,} trials have no runs of their own)"
        return self.shortfall() or shown

    def shortfall(self) -> str | None:
        """After `close`: what MLflow lacks, why, and how to fix it; `None` if it has everything."""
        if self.problem is None:
            return None
        replicates = self._directory.spec.replicates
        n_complete = len(Ledger(self._directory.place).ask(lambda connection: complete_trials(connection, replicates)))
        n_missing = max(n_complete - self._state.n_logged - self._state.n_present, 0)
        trials = f" and up to {n_missing} of {n_complete} trials" if self._has_runs else ""
        return (
            f"lacks the summary{trials}: {self.problem}; "
            f"once it answers: attnsweep mlflow-sync {as_argument(self._directory.place)}"
        )

    def _wait(self, timeout: float | None) -> None:
        while True:
            n_before = self._state.n_logged
            self._ended.wait(_PATIENCE_SECONDS if timeout is None else timeout)
            if timeout is not None or self._ended.is_set() or self._state.n_logged == n_before:
                return

    def _listen(self) -> None:
        try:
            while isinstance(state := self._process.read(), State):
                self._take(state)
        except LostError as lost:
            if self._given_up is None:
                self._give_up(str(lost))
        finally:
            self._ended.set()

    def _take(self, state: State) -> None:
        self._state = state
        if state.problem is not None:
            self._warn(state.problem)
        elif self._on_progress is not None:
            self._on_progress(state.n_logged, state.n_logged + state.n_missing)

    def _give_up(self, problem: str) -> None:
        self._given_up = problem
        self._warn(problem)

    def _warn(self, problem: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            warn_of_problem(problem, MlflowStore(self._uri), self._directory.place)


def have_report_drawn(directory: SweepDirectory, *, keep: bool, in_mlflow: bool) -> None:
    """Draws the report in a process that has imported MLflow already.

    A failure is a warning. An exception meanwhile, such as Ctrl-C, ends the process.

    `keep`: whether the sweep's directory gets it. `in_mlflow`: whether its run does, unless it has it for these rows.
    """
    process = processes.idle_or_new()
    try:
        process.ask("report", directory=str(directory.place), uri=tracking_uri() if in_mlflow else None, keep=keep)
        answer = process.read()
        assert isinstance(answer, Ended)
    except LostError as lost:
        process.end()
        warn_of(f"no report: {lost}", directory)
        return
    except BaseException:
        process.end()
        raise
    processes.keep(process)
    warn_of(answer.ended, directory)
