"""MLflow as a store that runs are logged to, and the runs that it has of a sweep. Looking them up creates nothing."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.runs import N_PROJECTED, SweepRuns, experiment_name, search_runs, trial_of
from attnsweep.orchestrator.tracking.store import database_of, in_one_line, open_client
from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:
    from mlflow import MlflowClient


@dataclass(frozen=True)
class MlflowStore:
    """An MLflow server or database; `uri` is from `tracking_uri`."""

    uri: str

    @property
    def label(self) -> str:
        """Its name for people, without credentials."""
        return f"MLflow ({without_credentials(self.uri)})"

    @property
    def lock_file(self) -> str:
        """By this file a process locks logging to this store."""
        address = str(database_of(self.uri) or self.uri)
        return f".mlflow-{hashlib.sha256(address.encode()).hexdigest()[:8]}.lock"

    def check(self) -> None:
        """Raises whatever MLflow raises if the store cannot be reached."""
        open_client(self.uri)

    def runs_of(self, directory: SweepDirectory) -> SweepRuns:
        return SweepRuns(directory, self.uri)

    @contextmanager
    def failures_refused(self) -> Iterator[None]:
        """Turns MLflow's exceptions into a `UserError` of one line."""
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except (MlflowException, SQLAlchemyError, OSError, ImportError, ValueError) as error:
            # Besides MLflow's own errors, an ImportError may be raised if the driver of a database is not installed,
            # and a ValueError if the URI of the model registry is invalid.
            given = without_credentials(self.uri)
            expected = "an MLflow store that can be reached"
            fix = f"start the server, or give another URI ({in_one_line(error)})"
            raise UserError("--tracking-uri", given=given, expected=expected, fix=fix) from error


@dataclass(frozen=True, slots=True)
class Child:
    """The MLflow run of one trial; `finished` if it is complete."""

    trial: int
    run_id: str
    finished: bool


@dataclass(frozen=True)
class Logged:
    """The runs that MLflow has of a sweep.

    Attributes:
        parents: By the id of each parent run of the sweep, the number of trainings that it records; `None` if the run
            has not ended yet.
    """

    parents: Mapping[str, int | None]
    children: Sequence[Child]

    @cached_property
    def finished(self) -> frozenset[int]:
        return frozenset(child.trial for child in self.children if child.finished)

    def runs_of(self, trial: int) -> list[str]:
        """Finished or not."""
        return [child.run_id for child in self.children if child.trial == trial]


def look_up(directory: SweepDirectory, uri: str) -> Logged:
    """Raises MlflowException if the store cannot be reached."""
    if (found := _experiment_of(directory, uri)) is None:
        return Logged({}, [])
    parents, children = (search_runs(*found, directory, kind) for kind in ("sweep", "trial"))
    counts = {run.info.run_id: run.data.tags.get(N_PROJECTED) for run in parents}
    return Logged(
        {run_id: None if count is None else int(count) for run_id, count in counts.items()},
        [Child(trial_of(run), run.info.run_id, run.info.status == "FINISHED") for run in children],
    )


def end_running(directory: SweepDirectory, uri: str) -> int:
    """Gives runs that MLflow holds for running the status KILLED. Returns their number.

    Raises:
        MlflowException: If the store cannot be reached.
    """
    if (found := _experiment_of(directory, uri)) is None:
        return 0
    running = search_runs(*found, directory, "sweep", "RUNNING")
    for run in running:
        found[0].set_terminated(run.info.run_id, "KILLED")
    return len(running)


def _experiment_of(directory: SweepDirectory, uri: str) -> "tuple[MlflowClient, str] | None":
    database = database_of(uri)
    if database is not None and not database.exists():
        return None
    client = open_client(uri)
    experiment = client.get_experiment_by_name(experiment_name(directory.spec.workload))
    if experiment is None or experiment.lifecycle_stage != "active":
        return None
    return client, experiment.experiment_id
