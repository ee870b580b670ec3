"""Logs a ledger's complete trials, and the sweep's results, to MLflow: once, or until the run that trains it ends."""

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import duckdb

from attnsweep.orchestrator.analysis.results import read_results
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.snapshot import fragment_names
from attnsweep.orchestrator.ledger.trial import complete_trials
from attnsweep.orchestrator.storage.copies import name_of
from attnsweep.orchestrator.storage.errors import TakenError
from attnsweep.orchestrator.storage.files import read_text
from attnsweep.orchestrator.storage.locks import Lock
from attnsweep.orchestrator.storage.place_names import place_of
from attnsweep.orchestrator.storage.run_records import PROGRESS
from attnsweep.orchestrator.storage.sweep_directory import REPORT_FILE, SweepDirectory
from attnsweep.orchestrator.tracking.content import has_runs_of_trials, table_of_trials, trial_contents
from attnsweep.orchestrator.tracking.runs import Status, SweepRuns
from attnsweep.orchestrator.tracking.store import failures_refused, set_environment, tracking_uri

LOCK_FILE = ".mlflow.lock"
_COMMAND = "mlflow-sync"
_BATCH = 256
"""Trials that are read from the ledger at a time."""
_POLL_SECONDS, _RETRY_SECONDS = 1.0, 5.0
"""Between two listings of the ledger's files, and to the next attempt after a failure."""
_N_TRAININGS = "select count(*), epoch_ms(max(finished_at)) from trainings"
_ENDS = "select trial, epoch_ms(max(finished_at)) from trainings group by trial"

OnProgress = Callable[[int, int], object]
"""Called with the number of trials logged so far, and the number that will have been when none is missing."""


@dataclass(frozen=True, slots=True)
class SyncResult:
    """Numbers of trials that were logged, and that MLflow already had."""

    n_logged: int
    n_present: int


def sync(
    directory: SweepDirectory, uri: str | None = None, on_progress: OnProgress | None = None, *, follow: bool = False
) -> SyncResult:
    """Idempotent: logs what MLflow lacks.

    Args:
        uri: As for `tracking_uri`.
        follow: Go on, whatever MLflow does, while a run of the sweep is going on.

    Raises:
        UserError: If another process logs the sweep, MLflow does not accept the runs, or the ledger cannot be read.
    """
    set_environment()
    with closing(_Mirror(directory.place, tracking_uri(uri), on_progress)) as mirror:
        while follow and _is_running(directory.place):
            time.sleep(mirror.log_new())
        while True:
            try:
                return mirror.finish()
            except TakenError:
                if not follow:
                    raise
            time.sleep(_POLL_SECONDS)


class _Mirror:
    """May be killed at any time: all that it needs is stored, and the next one continues."""

    def __init__(self, place: Path, uri: str, on_progress: OnProgress | None) -> None:
        self._place, self._uri, self._on_progress = place, uri, on_progress
        self._ledger = Ledger(place)
        self._lock: Lock | None = None
        self._runs: SweepRuns | None = None
        self._logged_fragments: list[str] | None = None
        self._n_logged, self._n_present = 0, -1

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()

    def log_new(self) -> float:
        """Logs trials that have become complete; never raises. Returns how many seconds to wait."""
        try:
            self._fetch()
            # Listed first, so that files that are written meanwhile count as new.
            names = fragment_names(self._place)
            if self._runs is None or names != self._logged_fragments:
                self._log_missing()
                self._logged_fragments = names
        except Exception:  # noqa: BLE001  # MLflow raises anything, and the sweep goes on; `finish` will say it
            self._runs = None
            return _RETRY_SECONDS
        return _POLL_SECONDS

    def finish(self) -> SyncResult:
        """Logs what is missing, and the sweep's results."""
        self._fetch()
        with failures_refused(self._uri):
            directory, runs = self._log_missing()
            n_trainings, ended = self._ledger.ask(lambda connection: connection.sql(_N_TRAININGS).fetchall()[0])
            if not runs.is_up_to_date(_status(directory), n_trainings, ended):
                results = self._ledger.ask(partial(read_results, spec=directory.spec))
                runs.log_results(directory, results)
                if not has_runs_of_trials(directory.spec):
                    runs.log_table(self._ledger.ask(partial(table_of_trials, spec=directory.spec)))
                runs.end(_status(directory), ended)
            if (self._place / REPORT_FILE).is_file():
                runs.log_report(read_text(self._place / REPORT_FILE))
        return SyncResult(self._n_logged, self._n_present)

    def _fetch(self) -> None:
        """Brings the copy of a sweep in an object store up to date."""
        place_of(name_of(self._place))

    def _log_missing(self) -> tuple[SweepDirectory, SweepRuns]:
        if self._lock is None:
            self._lock = Lock(self._place, _COMMAND, LOCK_FILE)
        self._lock.confirm()
        # Again, because a run may have added trials or replicates.
        directory = SweepDirectory.open(self._place)
        if self._runs is None:
            self._runs = SweepRuns(directory, self._uri)
            if _is_running(self._place):
                self._runs.begin()
        # A ledger without rows is not read, because its columns would follow from the spec, whose import is slow.
        has_runs = has_runs_of_trials(directory.spec) and fragment_names(self._place)
        ends = self._ledger.ask(partial(_ends, directory=directory), ["trainings"]) if has_runs else {}
        missing = [trial for trial, ended in ends.items() if not self._runs.has(trial, ended)]
        if self._n_present < 0:
            self._n_present = len(ends) - len(missing)
        n_due = self._n_logged + len(missing)
        for start in range(0, len(missing), _BATCH):
            batch = missing[start : start + _BATCH]
            for content in self._ledger.ask(partial(trial_contents, directory=directory, trials=batch)):
                self._runs.log(content)
                self._n_logged += 1
                if self._on_progress is not None:
                    self._on_progress(self._n_logged, n_due)
            self._lock.confirm()
        return directory, self._runs


def _ends(connection: duckdb.DuckDBPyConnection, directory: SweepDirectory) -> dict[int, int]:
    """When each complete trial's last training ended, milliseconds since the epoch."""
    ended = dict(connection.sql(_ENDS).fetchall())
    return {trial: ended[trial] for trial in complete_trials(connection, directory.spec.replicates)}


def _status(directory: SweepDirectory) -> Status:
    if _is_running(directory.place):
        return "RUNNING"
    return "FINISHED" if directory.finished else "KILLED"


def _is_running(place: Path) -> bool:
    progress = PROGRESS.read_if_sound(place)
    if progress is None or not progress.doing:
        return False
    if progress.is_running(datetime.now(UTC)):
        return True
    try:
        # The driver may be dead, or slow: a living one holds the sweep's lock.
        Lock(place, _COMMAND).close()
    except TakenError:
        return True
    return False
