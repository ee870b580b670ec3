"""The projection of a running sweep: a process of its own writes to MLflow, the driver tells it which trials ended."""

import json
import logging
import threading
from contextlib import suppress
from dataclasses import asdict
from queue import SimpleQueue
from typing import IO

import pyarrow as pa

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.trial import complete_trials
from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.orchestrator.storage.location import as_argument
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.terminal import plain
from attnsweep.orchestrator.tracking import processes
from attnsweep.orchestrator.tracking.process import DrawReport, Start, State
from attnsweep.orchestrator.tracking.report import warn_of
from attnsweep.orchestrator.tracking.store import as_shell_word, tracking_uri
from attnsweep.orchestrator.tracking.sync import OnProgress, SyncResult

_PATIENCE_SECONDS = 60.0
"""How long the end of a sweep waits while MLflow takes no trial: for one that accepts connections and never answers."""

_log = logging.getLogger(__name__)


class Projection:
    """Has trials logged to MLflow as they are told. Never blocks the sweep loop, never fails the sweep.

    A follower of the `SweepLoop`. MLflow is slow Python too: in the driver's process it would take turns with the loop.
    Only trial numbers are handed over; the other process reads the rows from the ledger. While MLflow is out of reach
    trials are dropped and it is tried again at intervals, then in `close`, each time with all that is missing.

    Args:
        directory: The sweep; its ledger's writer has been opened.
        uri: Of the MLflow store; `None` as in `tracking_uri`.
        retry_seconds: From a failure to the next attempt.
    """

    def __init__(self, directory: SweepDirectory, uri: str | None = None, retry_seconds: float = 60.0) -> None:
        self._directory = directory
        self._uri = tracking_uri(uri)
        self._state = State()
        self._given_up: str | None = None
        self._has_warned = self._is_ending = self._is_closed = False
        self._n_told = 0
        self._on_progress: OnProgress | None = None
        self._outbox: SimpleQueue[int | bool | None] = SimpleQueue()
        self._ended = threading.Event()
        self._process = processes.idle_or_new()
        # The URI may hold a password, which all could read among the arguments.
        start = Start(str(directory.place), self._uri, retry_seconds)
        with suppress(OSError):
            self._process.requests.write(json.dumps(asdict(start)) + "\n")
        self._sender = threading.Thread(
            target=self._send, args=(self._process.requests,), name="mlflow-projection", daemon=True
        )
        self._sender.start()
        threading.Thread(
            target=self._listen, args=(self._process.answers,), name="mlflow-projection", daemon=True
        ).start()

    @property
    def problem(self) -> str | None:
        """Why MLflow does not have everything, in one line; `None` while all is well."""
        return self._given_up or self._state.problem

    @property
    def lag(self) -> str:
        """How many of the trials that were told of MLflow does not have yet, and why; empty if it has them all."""
        n_behind = self._n_told - self._state.n_told
        if n_behind <= 0:
            return ""
        s = "" if n_behind == 1 else "s"
        return f"{n_behind:,} trial{s} behind{f': {self.problem}' if self.problem else ''}"

    def rows_committed(self, trainings: pa.Table) -> None:
        """Nothing to do: a trial is logged when all its rows are there."""

    def trial_told(self, trial: int) -> None:
        """Takes note of a trial whose rows are all in the ledger."""
        self._n_told += 1
        self._outbox.put(trial)

    def end_soon(self, *, in_haste: bool) -> None:
        """Says that no trial follows: the process logs what is missing and the sweep's summary. `close` waits for it.

        Args:
            in_haste: Whether `close` will not wait for all of it.
        """
        if not self._is_ending:
            self._is_ending = True
            self._outbox.put(in_haste)

    def close(self, timeout: float | None = None, on_progress: OnProgress | None = None) -> SyncResult:
        """Has what is missing and the sweep's summary logged, and ends the process. Idempotent.

        Args:
            timeout: Seconds after which the rest is left to `attnsweep mlflow-sync`; the parent run then says KILLED,
                if MLflow has answered by then. `None` waits for as long as MLflow takes a trial now and then.
            on_progress: Told now and then how many trials are logged from here on, by a thread.
        """
        self._on_progress = on_progress
        self.end_soon(in_haste=timeout is not None)
        self._wait(timeout)
        if not self._ended.is_set():
            self._give_up(
                f"no answer for {_PATIENCE_SECONDS:g} s" if timeout is None else f"not done within {timeout:.2g} s"
            )
            self._process.kill()
            self._ended.wait()
        self._outbox.put(None)
        self._sender.join()
        if not self._is_closed:
            self._is_closed = True
            if self._given_up is None:
                processes.keep(self._process)
            else:
                self._process.end()
        return SyncResult(self._state.n_logged, self._state.n_present)

    def to_open(self) -> str:
        """The command that shows the sweep in MLflow after `close`, or what MLflow lacks."""
        return self.shortfall() or f"mlflow ui --backend-store-uri {as_shell_word(self._uri)}"

    def shortfall(self) -> str | None:
        """What MLflow lacks after `close`, why, and how to fix it; `None` where it has everything."""
        if self.problem is None:
            return None
        replicates = self._directory.spec.replicates
        n_complete = len(Ledger(self._directory.place).ask(lambda connection: complete_trials(connection, replicates)))
        n_missing = max(n_complete - self._state.n_logged - self._state.n_present, 0)
        return (
            f"lacks the summary and up to {n_missing} of {n_complete} trials: {self.problem}; "
            f"once it answers: attnsweep mlflow-sync {as_argument(self._directory.place)}"
        )

    def _wait(self, timeout: float | None) -> None:
        """For the process to end: at most `timeout`; without one, until no trial was logged for so long."""
        while True:
            n_before = self._state.n_logged
            self._ended.wait(_PATIENCE_SECONDS if timeout is None else timeout)
            if timeout is not None or self._ended.is_set() or self._state.n_logged == n_before:
                return

    def _send(self, pipe: IO[str]) -> None:
        """Writes to the process what is in the outbox, until that holds `None`. A thread, since a full pipe blocks."""
        waiting: list[int | bool | None] = []
        # Once the process is gone, `_listen` says so.
        with suppress(OSError):
            pipe.flush()
            while None not in waiting:
                waiting = [self._outbox.get(), *(self._outbox.get() for _ in range(self._outbox.qsize()))]
                pipe.write(json.dumps({"told": [each for each in waiting if type(each) is int]}) + "\n")
                for in_haste in (each for each in waiting if isinstance(each, bool)):
                    pipe.write(json.dumps({"close": in_haste}) + "\n")
                pipe.flush()

    def _listen(self, pipe: IO[str]) -> None:
        """Takes the states of the process, until it ends. `close` waits for that: whatever it answers, this says so."""
        try:
            while "ended" not in (message := json.loads(pipe.readline() or "{}")):
                if not message:
                    self._lose(f"its process ended with status {self._process.wait()}")
                    break
                self._take(State(**message))
        except (ValueError, TypeError):
            # A line that a kill has cut off, or the process is of other code: it was changed under a running sweep.
            self._process.kill()
            self._lose(
                f"its process gave an answer that is not understood, and ended with status {self._process.wait()}"
            )
        finally:
            self._ended.set()

    def _take(self, state: State) -> None:
        before, self._state = self._state, state
        if state.problem is not None:
            self._warn(state.problem)
        if self._on_progress is not None and state.n_done > before.n_done:
            self._on_progress(state.n_done, state.n_missing)

    def _lose(self, problem: str) -> None:
        """Notes that the process is gone."""
        if self._given_up is None:
            self._give_up(problem)

    def _give_up(self, problem: str) -> None:
        self._given_up = problem
        self._warn(problem)

    def _warn(self, problem: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "MLflow (%s): %s; the sweep goes on, `attnsweep mlflow-sync %s` logs what is missing",
                plain(without_credentials(self._uri)),
                plain(problem),
                plain(as_argument(self._directory.place)),
            )


def have_report_drawn(directory: SweepDirectory, *, keep: bool, in_mlflow: bool) -> None:
    """Has the process that logged a sweep draw its report once, where the caller has not imported MLflow.

    A failure is a warning. An exception meanwhile, such as Ctrl-C, ends the process.

    Args:
        directory: The sweep.
        keep: Whether its directory gets the report.
        in_mlflow: Whether its run in MLflow gets the report, if it does not have it for these rows.
    """
    process = processes.idle_or_new()
    message = asdict(DrawReport(str(directory.place), tracking_uri() if in_mlflow else None, keep))
    try:
        with suppress(OSError):
            process.requests.write(json.dumps(message) + "\n")
            process.requests.flush()
        answer = _answer(process.answers.readline())
    except BaseException:
        process.end()
        raise
    if "ended" in answer:
        processes.keep(process)
    else:
        process.end()
    warn_of(answer.get("ended", f"no report: its process ended with status {process.status}"), directory)


def _answer(line: str) -> dict[str, str | None]:
    """An answer to `DrawReport`; empty if the process has ended, or is of other code than this one."""
    try:
        return dict(json.loads(line))
    except (ValueError, TypeError):
        return {}
