"""The MLflow projection of a running sweep, in a thread of the driver's process."""

import contextlib
import logging
import threading
import time
from queue import Empty, Full, Queue

import pyarrow as pa

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.trial import complete_trials
from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.orchestrator.storage.location import as_argument
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.terminal import plain
from attnsweep.orchestrator.tracking.store import in_one_line, tracking_uri
from attnsweep.orchestrator.tracking.sync import Mirror, OnProgress, SyncResult

_MOST_WAITING = 4096
"""Told trials that may wait in the queue. More are dropped and found missing later: the ledger has them."""
_PATIENCE_SECONDS = 60.0
"""How long the end of a sweep waits for MLflow to accept one more trial. A server may accept connections and never
answer."""

_log = logging.getLogger(__name__)


class Projection:
    """Logs trials to MLflow as they are told. Never blocks the sweep loop, never fails the sweep.

    It is a follower of the `SweepLoop`. The loop hands over only trial numbers; the thread reads the rows from the
    ledger. While MLflow is out of reach, trials are dropped. At intervals, and in `close`, the thread tries again to
    log all missing trials.

    Args:
        directory: The sweep; its ledger's writer has been opened.
        uri: The URI of the MLflow store; for `None` see `tracking_uri`.
        retry_seconds: Seconds from a failure to the next attempt.

    Attributes:
        problem: Why MLflow does not have everything, in one line; `None` if there is no problem.
    """

    def __init__(self, directory: SweepDirectory, uri: str | None = None, retry_seconds: float = 60.0) -> None:
        self.problem: str | None = None
        self._directory = directory
        self._uri = tracking_uri(uri)
        self._retry_seconds = retry_seconds
        self._told: Queue[int | None] = Queue(maxsize=_MOST_WAITING)
        self._closing = threading.Event()
        self._in_haste = False
        self._abandoned = threading.Event()
        self._on_progress: OnProgress | None = None
        self._n_logged, self._n_present = 0, 0
        self._has_warned = False
        self._thread = threading.Thread(target=self._run, name="mlflow-projection", daemon=True)
        self._thread.start()

    def rows_committed(self, trainings: pa.Table) -> None:
        """Does nothing: a trial is logged once all its rows are in the ledger."""

    def trial_told(self, trial: int) -> None:
        """Queues a trial whose rows are all in the ledger."""
        with contextlib.suppress(Full):
            self._told.put_nowait(trial)

    def close(self, timeout: float | None = None, on_progress: OnProgress | None = None) -> SyncResult:
        """Logs the missing trials and the sweep's summary, and ends the thread. Idempotent.

        Args:
            timeout: Seconds after which the rest is left to `attnsweep mlflow-sync`; the parent run then says KILLED.
                `None` waits as long as MLflow keeps accepting trials.
            on_progress: Called by the thread for each trial logged from now on.
        """
        self._on_progress = on_progress
        self._in_haste = timeout is not None
        self._closing.set()
        with contextlib.suppress(Full):
            self._told.put_nowait(None)
        self._wait(timeout)
        if self._thread.is_alive():
            self._abandoned.set()
            self._note(
                f"no answer for {_PATIENCE_SECONDS:g} s" if timeout is None else f"not done within {timeout:.2g} s"
            )
        return SyncResult(self._n_logged, self._n_present)

    def shortfall(self) -> str | None:
        """What MLflow lacks after `close`, why, and how to fix it; `None` if it has everything."""
        if self.problem is None:
            return None
        replicates = self._directory.spec.replicates
        n_complete = len(Ledger(self._directory.place).ask(lambda connection: complete_trials(connection, replicates)))
        n_missing = max(n_complete - self._n_logged - self._n_present, 0)
        return (
            f"lacks the summary and up to {n_missing} of {n_complete} trials: {self.problem}; "
            f"once it answers: attnsweep mlflow-sync {as_argument(self._directory.place)}"
        )

    def _wait(self, timeout: float | None) -> None:
        """Waits for the thread to end: at most `timeout` seconds, or without one until no trial was logged for
        `_PATIENCE_SECONDS`."""
        while True:
            n_before = self._n_logged
            self._thread.join(_PATIENCE_SECONDS if timeout is None else timeout)
            if timeout is not None or not self._thread.is_alive() or self._n_logged == n_before:
                return

    def _run(self) -> None:
        mirror: Mirror | None = None
        trials: list[int] = []
        next_attempt = time.monotonic()
        while not self._closing.is_set():
            if mirror is not None or time.monotonic() >= next_attempt:
                try:
                    if mirror is None:
                        mirror = self._open()
                        if self._closing.is_set():
                            break
                        mirror.runs.begin()
                        trials = mirror.missing()
                    for _ in mirror.log(trials):
                        self._n_logged += 1
                        if self._closing.is_set():
                            break
                except Exception as error:  # noqa: BLE001  # whatever MLflow raises, the sweep continues
                    mirror = None
                    next_attempt = time.monotonic() + self._retry_seconds
                    self._note(in_one_line(error))
            trials = self._take()
        try:
            self._drain(mirror or self._open())
        except Exception as error:  # noqa: BLE001  # as above
            self._note(in_one_line(error))

    def _open(self) -> Mirror:
        mirror = Mirror(self._directory, self._uri)
        # A trial may have been logged although MLflow's answer was lost; it was not counted then.
        self._n_present = max(mirror.n_present - self._n_logged, 0)
        if not self._abandoned.is_set():
            self.problem = None
        return mirror

    def _take(self) -> list[int]:
        """All trials told since the last call; waits for at least one."""
        told = [self._told.get()]
        with contextlib.suppress(Empty):
            while True:
                told.append(self._told.get_nowait())
        return [trial for trial in told if trial is not None]

    def _drain(self, mirror: Mirror) -> None:
        if self._in_haste:
            mirror.runs.interrupt()
        # Another process may already be logging the missing trials.
        if self._abandoned.is_set():
            return
        missing = mirror.missing()
        for n_done, _ in enumerate(mirror.log(missing), start=1):
            self._n_logged += 1
            if self._on_progress is not None:
                self._on_progress(n_done, len(missing))
            if self._abandoned.is_set():
                return
        mirror.finish()

    def _note(self, problem: str) -> None:
        self.problem = problem
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "MLflow (%s): %s; the sweep goes on, `attnsweep mlflow-sync %s` logs what is missing",
                plain(without_credentials(self._uri)),
                plain(problem),
                plain(as_argument(self._directory.place)),
            )
