"""An MLflow store as a place that runs go to."""

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
    """A store of MLflow. See `RunStore`.

    Attributes:
        uri: Its URI, from `tracking_uri`.
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
        """Raises whatever MLflow raises."""
        open_client(self.uri)

    def runs_of(self, directory: SweepDirectory) -> SweepRuns:
        """Raises MlflowException if the store cannot be reached; so may every method of the runs."""
        return SweepRuns(directory, self.uri)

    @contextmanager
    def failures_refused(self) -> Iterator[None]:
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except (MlflowException, SQLAlchemyError, OSError, ImportError, ValueError) as error:
            # The last two: a database whose driver is not installed, and an invalid URI of the model registry.
            raise UserError(
                "--tracking-uri",
                given=without_credentials(self.uri),
                expected="an MLflow store that answers",
                fix=f"start it, or give another ({in_one_line(error)})",
            ) from error
