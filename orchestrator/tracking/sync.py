"""Logging missing runs: from the ledger's complete trials to MLflow."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from attnsweep.orchestrator.analysis.results import SweepResults, read_results
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.trial import complete_trials
from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.orchestrator.storage.sources import refuse_merged
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.content import trial_contents
from attnsweep.orchestrator.tracking.runs import SweepRuns
from attnsweep.orchestrator.tracking.store import in_one_line, set_environment, tracking_uri
from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:
    import duckdb

_BATCH = 256
"""Trials read from the ledger at once, and written to a database in one transaction: less than a second's work."""

OnProgress = Callable[[int, int], object]
"""Called with the number of trials logged and the number that were missing."""


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The result of a projection: the number of trials it logged, and of those that MLflow already had."""

    n_logged: int
    n_present: int


class Mirror:
    """A sweep's ledger and its MLflow runs. MLflow's runs are looked up once, when the mirror is made.

    Args:
        directory: The sweep; it has a ledger.
        uri: The URI of the MLflow store.

    Attributes:
        n_present: Trials that MLflow had at that time.
        n_logged: Trials logged since.

    Raises:
        MlflowException: If the store cannot be reached; so may every method.
        UserError: If there is no ledger, or it cannot be read.
    """

    def __init__(self, directory: SweepDirectory, uri: str) -> None:
        self._directory = directory
        self._ledger = Ledger(directory.place)
        self.runs = SweepRuns(directory, uri)
        self._finished, self._unfinished = self.runs.logged()
        self.n_present = len(self._finished)
        self.n_logged = 0

    def missing(self) -> list[int]:
        """Complete trials of the ledger that MLflow does not have."""
        replicates = self._directory.spec.replicates
        complete = self._ledger.ask(lambda connection: complete_trials(connection, replicates))
        return [trial for trial in complete if trial not in self._finished]

    def log(self, trials: Sequence[int]) -> Iterator[list[int]]:
        """Logs those of these complete trials that MLflow does not have, and yields those that were logged at once.

        Whoever asks for no more of them may call it again: none is logged twice.
        """
        wanted = [trial for trial in trials if trial not in self._finished]
        for start in range(0, len(wanted), _BATCH):
            batch = wanted[start : start + _BATCH]
            contents = self._ledger.ask(partial(trial_contents, directory=self._directory, trials=batch))
            for written in self.runs.log(contents, self._unfinished):
                logged = [content.trial for content in written]
                self._finished.update(logged)
                self.n_logged += len(logged)
                yield logged

    def finish(self) -> None:
        """Updates the parent run's summary and figures and ends it."""
        found, ended = self._ledger.ask(self._found)
        self.runs.finish(found, ended)

    def _found(self, connection: "duckdb.DuckDBPyConnection") -> tuple[SweepResults, int | None]:
        row = connection.execute("select epoch_ms(max(finished_at)) from trainings").fetchone()
        return read_results(connection, self._directory.spec), row[0] if row else None


def sync(directory: SweepDirectory, uri: str | None = None, on_progress: OnProgress | None = None) -> SyncResult:
    """Logs the complete trials that MLflow does not have, and the sweep's summary. Idempotent.

    It holds the lock of the sweep's ledger, because two processes at once could both create a missing run.

    Args:
        directory: The sweep.
        uri: The URI of the MLflow store; for `None` see `tracking_uri`.
        on_progress: Called when trials have been logged.

    Raises:
        UserError: If another process works on the sweep, the store does not accept the runs, or the ledger cannot be
            read.
    """
    refuse_merged(directory.place, directory.sources)
    store = tracking_uri(uri)
    with closing(directory.place.lock("mlflow-sync")):
        set_environment()
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError

        try:
            mirror = Mirror(directory, store)
            missing = mirror.missing()
            for _ in mirror.log(missing):
                if on_progress is not None:
                    on_progress(mirror.n_logged, len(missing))
            mirror.finish()
        except (MlflowException, SQLAlchemyError, OSError, ImportError, ValueError) as error:
            # The last two: a database whose driver is not installed, and an invalid URI of the model registry.
            raise UserError(
                "--tracking-uri",
                given=without_credentials(store),
                expected="an MLflow store that answers",
                fix=f"start it, or give another ({in_one_line(error)})",
            ) from error
    return SyncResult(mirror.n_logged, mirror.n_present)
