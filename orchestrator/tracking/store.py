"""Where MLflow's runs go, and how its client is kept quick and quiet."""

import functools
import logging
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:
    from mlflow import MlflowClient

DEFAULT_DATABASE = Path("sweeps/mlflow.db")

_DESCRIPTION = """Sweeps of the workload `{name}`: a parent run per sweep, a child run per trial.

*Views*, at the upper right, has the trials of each sweep with their rates and swept parameters. In the list of all runs
``tags.`attnsweep.kind` = 'sweep'`` shows sweeps alone, ``metrics.stuck_rate > 0.5`` trials that are mostly stuck. The
ledger, in each sweep's directory, has every training.
"""

_ENVIRONMENT = {
    # MLflow's own 7 retries of 120 s would hold up the end of a sweep for minutes when its server is gone.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    # Standard output is the user's: it ends with one JSON object.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
"""Set where the user has not."""


def tracking_uri(given: str | None = None) -> str:
    """The URI to log to: the one given, else `MLFLOW_TRACKING_URI`, else the database under `./sweeps`.

    Raises:
        UserError: If it is no URI, or that of a database file that cannot be.
    """
    subject = "--tracking-uri"
    if given is None:
        subject = "MLFLOW_TRACKING_URI"
        given = os.environ.get(subject) or f"sqlite:///{DEFAULT_DATABASE.absolute()}"
    try:
        urlsplit(given)
        database = database_of(given)
        fault = "a directory is there" if database is not None and database.is_dir() else "" if given else "it is empty"
    except (OSError, RuntimeError, ValueError) as error:
        fault = getattr(error, "strerror", None) or str(error)
    if fault:
        raise UserError(
            subject,
            given=without_credentials(given),
            expected="the URI of an MLflow store, such as sqlite:///FILE or http://HOST:PORT",
            fix=f"correct it ({fault})",
        )
    return given


def set_environment() -> None:
    """Before MLflow is imported: how patient and how talkative it is."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # Of every repeated request it would say so.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)


def in_one_line(error: BaseException) -> str:
    """The error's first words, and its first cause, which MLflow buries."""
    root = error
    while (cause := root.__cause__ or root.__context__) is not None:
        root = cause
    return _words(error) if root is error else f"{_words(error)} ({_words(root)})"


def _words(error: BaseException) -> str:
    first_line = without_credentials(str(error)).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first_line[:120]}"


def open_client(uri: str) -> "MlflowClient":
    """A client of the store. The default database is made on first use."""
    set_environment()
    if (database := database_of(uri)) is not None:
        database.parent.mkdir(parents=True, exist_ok=True)
        if database == DEFAULT_DATABASE.resolve():
            _make_quick(database)
    from mlflow import MlflowClient

    return MlflowClient(uri)


def experiment(client: "MlflowClient", uri: str, name: str) -> str:
    """The id of the experiment of that name, made where there is none."""
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return client.create_experiment(
                name,
                artifact_location=_artifact_location(uri, name),
                tags={"mlflow.note.content": _DESCRIPTION.format(name=name)},
            )
        except MlflowException:
            # Another sweep was faster, or it cannot be made.
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    if found.lifecycle_stage != "active":
        client.restore_experiment(found.experiment_id)
    return str(found.experiment_id)


def _artifact_location(uri: str, name: str) -> str | None:
    """Beside a local database, where MLflow would take the working directory; a server decides for itself."""
    database = database_of(uri)
    if database is None:
        return None
    folder = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)
    return (database.parent / "mlflow-artifacts" / folder).as_uri()


def database_of(uri: str) -> Path | None:
    """The file of a local database; `None` for another store."""
    scheme = "sqlite:///"
    return Path(uri.removeprefix(scheme)).resolve() if uri.startswith(scheme) else None


@functools.cache
def _make_quick(database: Path) -> None:
    """Turns on write-ahead logging without a wait for the disk at each of the half dozen commits of a run.

    Readers (the UI) and the writer do not block each other. A power cut can cost the last runs, never the database;
    `sync` makes them again.
    """
    from sqlalchemy import Engine, event

    connection = sqlite3.connect(database, timeout=20.0)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
    finally:
        connection.close()

    @event.listens_for(Engine, "connect")
    def _(opened: object, _: object) -> None:
        if isinstance(opened, sqlite3.Connection) and _file_of(opened) == database:
            opened.execute("PRAGMA synchronous=NORMAL")


def _file_of(connection: sqlite3.Connection) -> Path:
    return Path(connection.execute("PRAGMA database_list").fetchone()[2])
