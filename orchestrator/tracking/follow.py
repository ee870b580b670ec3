"""Logs the complete trials of a ledger to MLflow: once, or again and again while the sweep runs."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

import duckdb

from attnsweep.orchestrator.analysis.results import SweepResults, read_results
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.snapshot import fragment_names
from attnsweep.orchestrator.ledger.trial import complete_trials
from attnsweep.orchestrator.storage.locks import TakenError
from attnsweep.orchestrator.storage.place import Lock, Place
from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.orchestrator.storage.run_records import PROGRESS
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.terminal import plain
from attnsweep.orchestrator.tracking.content import has_runs_of_trials, table_of_trials, trial_contents
from attnsweep.orchestrator.tracking.mlflow_store import MlflowStore, end_running
from attnsweep.orchestrator.tracking.processes import State
from attnsweep.orchestrator.tracking.store import in_one_line, set_environment, tracking_uri

_COMMAND = "mlflow-sync"
_BATCH = 256
"""The number of trials read from the ledger at once, and written to a database in one transaction, in under a
second."""
_LOOK_SECONDS, _LOOK_SECONDS_IN_A_STORE = 1.0, 5.0
"""The time between two listings of the ledger's files: on a disk, and in an object store."""
_LOOK_SHARE = 10
"""The least ratio of the time between two listings to the time that finding the missing trials takes."""

OnProgress = Callable[[int, int], object]
"""Called with the number of trials logged and the number that were missing."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SyncResult:
    """How many trials were logged, and how many the store already had."""

    n_logged: int
    n_present: int


class Mirror:
    """Logs the trials of a sweep that have no run in a store. Looks up the existing runs once, at construction.

    Every method may raise what the store's library raises.

    Attributes:
        n_present: The number of trials that the store had when the mirror was constructed.

    Raises:
        UserError: If there is no ledger, or it cannot be read.
    """

    def __init__(self, directory: SweepDirectory, store: MlflowStore) -> None:
        self.directory = directory
        self._ledger = Ledger(directory.place)
        self.runs = store.runs_of(directory)
        self._finished, self._unfinished = self.runs.logged(self._retried())
        self.n_present = len(self._finished)
        self._has_runs = has_runs_of_trials(directory.spec)

    def missing(self) -> list[int]:
        """The complete trials that have no finished run yet."""
        if not self._has_runs:
            return []
        replicates = self.directory.spec.replicates
        complete = self._ledger.ask(partial(complete_trials, rule=replicates), ["trainings"])
        return [trial for trial in complete if trial not in self._finished]

    def _retried(self) -> dict[int, int | None]:
        trials = {trial for by_trial in self.directory.retried for trial in by_trial}
        if not trials:
            return {}
        chosen = ", ".join(map(str, trials))
        ends = f"select trial, epoch_ms(max(finished_at)) from trainings where trial in ({chosen}) group by trial"

        def ask(connection: duckdb.DuckDBPyConnection) -> dict[int, int | None]:
            complete = {*complete_trials(connection, self.directory.spec.replicates)}
            ended = dict(connection.execute(ends).fetchall())
            return {trial: ended[trial] if trial in complete else None for trial in trials}

        return self._ledger.ask(ask, ["trainings"])

    def log(self, trials: Sequence[int]) -> Iterator[list[int]]:
        """Yields each batch of complete trials once it is logged. After an early stop no trial is logged twice."""
        wanted = [trial for trial in trials if trial not in self._finished]
        for start in range(0, len(wanted), _BATCH):
            batch = wanted[start : start + _BATCH]
            contents = self._ledger.ask(partial(trial_contents, directory=self.directory, trials=batch))
            for written in self.runs.log(contents, self._unfinished):
                logged = [content.trial for content in written]
                self._finished.update(logged)
                yield logged

    def finish(self) -> None:
        self.runs.finish(*self._ledger.ask(self._summary))

    def _summary(self, connection: duckdb.DuckDBPyConnection) -> tuple[SweepResults, int | None, str | None]:
        row = connection.execute("select epoch_ms(max(finished_at)) from trainings").fetchone()
        trials = None if self._has_runs else table_of_trials(connection, self.directory)
        return read_results(connection, self.directory.spec), row[0] if row else None, trials


class Follower:
    """Keeps a sweep's runs up to date with the ledger.

    All it knows is stored, so it may be killed at any time and the next one continues. A file lock for each store
    prevents two of them from logging the same trials.

    Args:
        tell: Called when the state has changed.
        retry_seconds: The time from a failure to the next attempt.

    Attributes:
        state: How far the store is behind the ledger.
    """

    def __init__(
        self, place: Place, store: MlflowStore, tell: Callable[[State], object], retry_seconds: float = 60.0
    ) -> None:
        self._place = place
        self._store = store
        self._tell = tell
        self._retry_seconds = retry_seconds
        self._pause = _LOOK_SECONDS if place.n_at_once == 1 else _LOOK_SECONDS_IN_A_STORE
        self._lock: Lock | None = None
        self._mirror: Mirror | None = None
        self._seen: list[str] = []
        self.state = State()

    def claim(self) -> None:
        """Raises TakenError if another process logs the sweep to this store."""
        if self._lock is None:
            self._lock = self._place.lock(_COMMAND, self._store.lock_file)
        self._lock.confirm()

    def close(self) -> None:
        """Idempotent."""
        if self._lock is not None:
            self._lock.close()

    def look(self, is_over: Callable[[], bool] = lambda: False) -> float:
        """Logs trials that have become complete since the last call. Returns how many seconds to wait before the next.

        It never raises: a failure is stored as the state's `problem`, and the next call tries again. `is_over` is asked
        between two trials.
        """
        try:
            return self._look(is_over)
        except Exception as error:  # noqa: BLE001  # the sweep must go on whatever the store raises
            self._fail(error)
            return self._retry_seconds

    def end(self, *, in_haste: bool) -> None:
        """Like `finish`, but never raises. In haste, if the process may be killed before it is done, the sweep's run is
        first marked as no longer running."""
        try:
            if in_haste:
                self._opened().runs.interrupt()
            self.finish()
        except Exception as error:  # noqa: BLE001  # the sweep must end whatever the store raises
            self._fail(error)

    def finish(self) -> None:
        """Logs what the store lacks, and the sweep's summary. Raises whatever the store raises."""
        mirror = self._opened()
        self._log_missing(mirror, lambda: False)
        mirror.finish()
        self._say(replace(self.state, problem=None))

    def _look(self, is_over: Callable[[], bool]) -> float:
        names = fragment_names(self._place)
        if self._mirror is not None and names == self._seen:
            return self._pause
        is_new = self._mirror is None
        mirror = self._opened()
        if is_new and not is_over():
            mirror.runs.begin()
        # A ledger without rows is not read, because the names of its columns would require the import of the workload,
        # which takes long.
        seconds = self._log_missing(mirror, is_over) if names else 0.0
        self._seen = names
        self._say(replace(self.state, problem=None))
        return max(self._pause, _LOOK_SHARE * seconds)

    def _opened(self) -> Mirror:
        if self._mirror is None:
            # The MLflow store is checked before the lock is taken, so that an unusable store leaves no lock file in the
            # directory.
            self._store.check()
        self.claim()
        directory = SweepDirectory.open(self._place)
        # The set of complete trials changes if replicates were added or failed trainings are repeated. In this case the
        # existing MLflow runs are looked up again.
        if self._mirror is None or _wanted(self._mirror.directory) != _wanted(directory):
            self._mirror = Mirror(directory, self._store)
            # `n_logged` counts the trials that are known to have been logged. If the store's answer was lost, a logged
            # trial is missing from this number. It is counted in `n_present` instead, as if the store had had it
            # before.
            self._say(replace(self.state, n_present=max(self._mirror.n_present - self.state.n_logged, 0)))
        return self._mirror

    def _log_missing(self, mirror: Mirror, is_over: Callable[[], bool]) -> float:
        began = time.monotonic()
        missing = mirror.missing()
        seconds, n_missing = time.monotonic() - began, len(missing)
        self._say(replace(self.state, n_missing=n_missing))
        for logged in mirror.log(missing):
            n_missing -= len(logged)
            self._say(replace(self.state, n_logged=self.state.n_logged + len(logged), n_missing=n_missing))
            if is_over():
                break
            self.claim()
        return seconds

    def _fail(self, error: Exception) -> None:
        self._mirror = None
        self._say(replace(self.state, problem=in_one_line(error)))

    def _say(self, state: State) -> None:
        if state != self.state:
            self.state = state
            self._tell(state)


def _wanted(directory: SweepDirectory) -> tuple[object, ...]:
    """Changes when the spec changes or trainings are repeated."""
    return directory.spec, directory.retried


def sync(
    directory: SweepDirectory, uri: str | None = None, on_progress: OnProgress | None = None, *, follow: bool = False
) -> SyncResult:
    """Logs to MLflow the complete trials that it does not have yet, and the sweep's summary. Idempotent.

    It holds the lock of the sweep's ledger, because two processes at once could both create a missing run.

    Args:
        uri: The URI of the MLflow store; for `None` see `tracking_uri`.
        on_progress: Called with the numbers of logged and of missing trials when trials have been logged.
        follow: Whether to log trials as they become complete while another process works on the sweep.

    Raises:
        UserError: If another process works on the sweep, or with `follow` logs its trials to this store; the store does
            not accept the runs; or the ledger cannot be read.
    """
    store = MlflowStore(tracking_uri(uri))
    set_environment()
    has_warned = False

    def tell(state: State) -> None:
        nonlocal has_warned
        if state.problem is not None and not has_warned:
            has_warned = True
            warn_of_problem(state.problem, store, directory.place)
        elif on_progress is not None and state.n_logged:
            on_progress(state.n_logged, state.n_logged + state.n_missing)

    with closing(Follower(directory.place, store, tell)) as follower:
        if follow:
            follower.claim()
        while True:
            if not follow or _may_have_ended(directory.place):
                try:
                    with closing(directory.place.lock(_COMMAND)), store.failures_refused():
                        follower.finish()
                    return SyncResult(follower.state.n_logged, follower.state.n_present)
                except TakenError:
                    if not follow:
                        raise
            time.sleep(follower.look())


def warn_of_problem(problem: str, store: MlflowStore, place: Place) -> None:
    _log.warning(
        "%s: %s; the sweep goes on, `attnsweep %s %s` logs what is missing",
        plain(store.label),
        plain(problem),
        _COMMAND,
        plain(as_argument(place)),
    )


def mark_killed(directory: SweepDirectory, say: Callable[[str], object]) -> None:
    """Gives a run in MLflow whose driver was killed the status KILLED."""
    progress = PROGRESS.read_if_sound(directory.place)
    if progress is None or not progress.doing or progress.is_running(datetime.now(UTC)) or progress.is_marked:
        return
    try:
        # The lock proves that no driver works on the sweep.
        with closing(directory.place.lock("status")):
            if end_running(directory, tracking_uri()):
                say("MLflow      the sweep's run, which still said RUNNING, is marked KILLED")
            PROGRESS.write_passing(directory.place, progress.model_copy(update={"is_marked": True}))
    except TakenError:
        return
    except Exception as error:  # noqa: BLE001  # MLflow raises anything, and the status has been shown
        say(f"MLflow      the sweep's run may still say RUNNING: {in_one_line(error)}")


def _may_have_ended(place: Place) -> bool:
    progress = PROGRESS.read_if_sound(place)
    return progress is None or not progress.is_running(datetime.now(UTC))
