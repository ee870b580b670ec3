"""MLflow as a store of runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.database_uri import database_of
from attnsweep.orchestrator.tracking.run_store import lock_of
from attnsweep.orchestrator.tracking.runs import SweepRuns
from attnsweep.orchestrator.tracking.store import in_one_line, open_client
from attnsweep.workloads.errors import UserError


@dataclass(frozen=True)
class MlflowStore:
    """An MLflow server or database as a store of runs (`RunStore`).

    Attributes:
        uri: The store's URI, from `tracking_uri`.
    """

    uri: str
    command = ("mlflow-sync",)

    @property
    def label(self) -> str:
        return f"MLflow ({without_credentials(self.uri)})"

    @property
    def lock_file(self) -> str:
        return lock_of("mlflow-sync", str(database_of(self.uri) or self.uri))

    def check(self) -> None:
        """Checks the connection to the store. Raises whatever MLflow raises."""
        open_client(self.uri)

    def runs_of(self, directory: SweepDirectory) -> SweepRuns:
        """Looks up the runs of a sweep in MLflow. This method, and every method of the result, may raise
        MlflowException."""
        return SweepRuns(directory, self.uri)

    @contextmanager
    def failures_refused(self) -> Iterator[None]:
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except (MlflowException, SQLAlchemyError, OSError, ImportError, ValueError) as error:
            # An ImportError is raised for a database whose driver is not installed, a ValueError for an invalid URI of
            # the model registry.
            raise UserError(
                "--tracking-uri",
                given=without_credentials(self.uri),
                expected="an MLflow store that can be reached",
                fix=f"start the server, or give another URI ({in_one_line(error)})",
            ) from error
