"""Stores of runs as followers of the ledger: what is complete there is logged, once or while the sweep runs."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

import duckdb

from attnsweep.orchestrator.analysis.results import SweepResults, read_results
from attnsweep.orchestrator.ledger.fragments import fragment_names
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.trial import complete_trials
from attnsweep.orchestrator.storage.owner import TakenError
from attnsweep.orchestrator.storage.place import Lock, Place
from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.orchestrator.storage.progress import PROGRESS
from attnsweep.orchestrator.storage.sources import refuse_merged
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.terminal import plain
from attnsweep.orchestrator.tracking.content import table_of_trials, trial_contents
from attnsweep.orchestrator.tracking.mlflow_store import MlflowStore
from attnsweep.orchestrator.tracking.processes import State
from attnsweep.orchestrator.tracking.run_store import RunStore
from attnsweep.orchestrator.tracking.store import in_one_line, set_environment, tracking_uri

_BATCH = 256
"""Trials read from the ledger at once, and written to a database in one transaction: less than a second's work."""
_LOOK_SECONDS, _LOOK_SECONDS_IN_A_STORE = 1.0, 5.0
"""Between two looks at the list of the ledger's files: on a disk, and in an object store."""
_LOOK_SHARE = 10
"""The least ratio of the time between two looks to the time that finding the missing trials takes."""

OnProgress = Callable[[int, int], object]
"""Called with the number of trials logged and the number that were missing."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The result of a projection: the number of trials it logged, and of those that the store already had."""

    n_logged: int
    n_present: int


class Mirror:
    """A sweep's ledger and its runs in a store, which are looked up once, when the mirror is made.

    Every method may raise what the store's library raises.

    Args:
        directory: The sweep; it has a ledger.
        store: The store.

    Attributes:
        n_present: Trials that the store had at that time.

    Raises:
        UserError: If there is no ledger, or it cannot be read.
    """

    def __init__(self, directory: SweepDirectory, store: RunStore) -> None:
        self.directory = directory
        self._ledger = Ledger(directory.place)
        self.runs = store.runs_of(directory)
        self._finished, self._unfinished = self.runs.logged(self._retried())
        self.n_present = len(self._finished)
        self._has_runs = directory.spec.trials <= self.runs.most_trials

    def missing(self) -> list[int]:
        """Complete trials of the ledger that the store does not have, and should."""
        if not self._has_runs:
            return []
        replicates = self.directory.spec.replicates
        complete = self._ledger.ask(lambda connection: complete_trials(connection, replicates))
        return [trial for trial in complete if trial not in self._finished]

    def _retried(self) -> dict[int, int | None]:
        """When each trial ended of which a failed training was trained again; `None` while one is missing."""
        trials = {trial for each in self.directory.retried for trial in each}
        if not trials:
            return {}
        chosen = ", ".join(map(str, trials))
        ends = f"select trial, epoch_ms(max(finished_at)) from trainings where trial in ({chosen}) group by trial"

        def ask(connection: duckdb.DuckDBPyConnection) -> dict[int, int | None]:
            complete = {*complete_trials(connection, self.directory.spec.replicates)}
            ended = dict(connection.execute(ends).fetchall())
            return {trial: ended[trial] if trial in complete else None for trial in trials}

        return self._ledger.ask(ask)

    def log(self, trials: Sequence[int]) -> Iterator[list[int]]:
        """Logs those of these complete trials that the store does not have, and yields those that were logged at once.

        Whoever asks for no more of them may call it again: none is logged twice.
        """
        wanted = [trial for trial in trials if trial not in self._finished]
        for start in range(0, len(wanted), _BATCH):
            batch = wanted[start : start + _BATCH]
            contents = self._ledger.ask(partial(trial_contents, directory=self.directory, trials=batch))
            for written in self.runs.log(contents, self._unfinished):
                logged = [content.trial for content in written]
                self._finished.update(logged)
                yield logged

    def finish(self) -> None:
        """Writes the sweep's summary."""
        self.runs.finish(*self._ledger.ask(self._found))

    def _found(self, connection: duckdb.DuckDBPyConnection) -> tuple[SweepResults, int | None, str | None]:
        row = connection.execute("select epoch_ms(max(finished_at)) from trainings").fetchone()
        trials = None if self._has_runs else table_of_trials(connection, self.directory)
        return read_results(connection, self.directory.spec), row[0] if row else None, trials


class Follower:
    """Keeps a sweep's runs in a store as the ledger is. It knows only what is stored: it may be killed at any
    time, and the next one goes on. A lock for each store lets no second one log the same trials.

    Args:
        place: The sweep.
        store: The store.
        tell: Called when the state has changed.
        retry_seconds: From a failure to the next look.

    Attributes:
        state: How far it is.
    """

    def __init__(
        self, place: Place, store: RunStore, tell: Callable[[State], object], retry_seconds: float = 60.0
    ) -> None:
        self._place = place
        self._store = store
        self._tell = tell
        self._retry_seconds = retry_seconds
        self._pause = _LOOK_SECONDS if place.pins_open_files else _LOOK_SECONDS_IN_A_STORE
        self._lock: Lock | None = None
        self._mirror: Mirror | None = None
        self._seen: list[str] = []
        self.state = State()

    def claim(self) -> None:
        """Takes the lock. Raises TakenError if another process logs the sweep's trials to this store."""
        if self._lock is None:
            self._lock = self._place.lock(self._store.command[0], self._store.lock_file)
        self._lock.confirm()

    def close(self) -> None:
        """Gives the lock back. Idempotent."""
        if self._lock is not None:
            self._lock.close()

    def look(self, is_over: Callable[[], bool] = lambda: False) -> float:
        """Logs the trials that have become complete; returns the seconds until the next look.

        It never fails: a failure is the state's `problem`, and the next look begins anew.

        Args:
            is_over: Whether to stop between two trials.
        """
        try:
            return self._look(is_over)
        except Exception as error:  # noqa: BLE001  # whatever the store raises, the sweep goes on
            self._fail(error)
            return self._retry_seconds

    def end(self, *, in_haste: bool) -> None:
        """`finish` for the end of a run, which never fails, as `look`.

        Args:
            in_haste: Whether it may be killed meanwhile: then the sweep's run is marked as no longer running before.
        """
        try:
            if in_haste:
                self._opened().runs.interrupt()
            self.finish()
        except Exception as error:  # noqa: BLE001  # as above
            self._fail(error)

    def finish(self) -> None:
        """Logs what is missing, and the sweep's summary. Raises whatever the store raises."""
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
        # A ledger without rows is read by importing what declares its columns.
        seconds = self._log_missing(mirror, is_over) if names else 0.0
        self._seen = names
        self._say(replace(self.state, problem=None))
        return max(self._pause, _LOOK_SHARE * seconds)

    def _opened(self) -> Mirror:
        if self._mirror is None:
            # What is no store is refused before the lock leaves its file in the directory.
            self._store.check()
        self.claim()
        directory = SweepDirectory.open(self._place)
        # Replicates may have been added, or failed ones are trained again, which makes other trials complete.
        if self._mirror is None or _wanted(self._mirror.directory) != _wanted(directory):
            self._mirror = Mirror(directory, self._store)
            # A trial whose answer was lost is there, and was not counted.
            self._say(replace(self.state, n_present=max(self._mirror.n_present - self.state.n_logged, 0)))
        return self._mirror

    def _log_missing(self, mirror: Mirror, is_over: Callable[[], bool]) -> float:
        """Logs complete trials that the store lacks; returns the seconds that finding them took."""
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
    """What decides which trials are complete."""
    return directory.spec, directory.retried


def sync(
    directory: SweepDirectory, uri: str | None = None, on_progress: OnProgress | None = None, *, follow: bool = False
) -> SyncResult:
    """`sync_with` for MLflow.

    Args:
        directory, on_progress, follow: As there.
        uri: The URI of the MLflow store; for `None` see `tracking_uri`.
    """
    refuse_merged(directory.place, directory.sources)
    store = MlflowStore(tracking_uri(uri))
    set_environment()
    return sync_with(directory, store, on_progress, follow=follow)


def sync_with(
    directory: SweepDirectory, store: RunStore, on_progress: OnProgress | None = None, *, follow: bool = False
) -> SyncResult:
    """Logs the complete trials that a store does not have, and the sweep's summary. Idempotent.

    It holds the lock of the sweep's ledger, because two processes at once could both create a missing run.

    Args:
        directory: The sweep.
        store: The store.
        on_progress: Called when trials have been logged.
        follow: While another process works on the sweep, log its trials as they become complete.

    Raises:
        UserError: If another process works on the sweep, or with `follow` logs its trials to this store; the store does
            not accept the runs; or the ledger cannot be read.
    """
    refuse_merged(directory.place, directory.sources)
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
                    with closing(directory.place.lock(store.command[0])), store.failures_refused():
                        follower.finish()
                    return SyncResult(follower.state.n_logged, follower.state.n_present)
                except TakenError:
                    if not follow:
                        raise
            time.sleep(follower.look())


def warn_of_problem(problem: str, store: RunStore, place: Place) -> None:
    """Warns that a store does not get what it should, for a reason that is given in one line."""
    command, *options = store.command
    _log.warning(
        "%s: %s; the sweep goes on, `attnsweep %s` logs what is missing",
        plain(store.label),
        plain(problem),
        plain(" ".join([command, as_argument(place), *options])),
    )


def _may_have_ended(place: Place) -> bool:
    """Whether no driver says that it works on a sweep. Only its lock says for certain that none does."""
    said = PROGRESS.read_if_sound(place)
    return said is None or not said.is_running(datetime.now(UTC))
