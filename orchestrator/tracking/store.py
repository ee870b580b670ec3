"""Which MLflow store is used, and settings that make its client fast and quiet."""

import logging
import os
import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.orchestrator.storage.place_names import refuse_ray_session
from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:
    from mlflow import MlflowClient

DEFAULT_DATABASE = Path("sweeps/mlflow.db")
_SCHEME = "sqlite:///"

_ENVIRONMENT = {
    # Without a server, MLflow's defaults (7 retries, each with a timeout of 120 s) would delay the end of a sweep for
    # minutes.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    # Standard output is for results, and ends with one JSON object.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
"""Set unless the user has set them."""


def uri_of(database: Path) -> str:
    # SQLAlchemy decodes the path, and takes what follows a question mark for options.
    return _SCHEME + f"{database.absolute()}".replace("%", "%25").replace("?", "%3F")


def database_of(uri: str) -> Path | None:
    """`None` for any store but a local database."""
    path = uri.removeprefix(_SCHEME).partition("?")[0]
    return Path(unquote(path)).resolve() if uri.startswith(_SCHEME) else None


def tracking_uri(uri: str | None = None) -> str:
    """By default `MLFLOW_TRACKING_URI`, else the database in `./sweeps`.

    Raises:
        UserError: If it is not a URI, if a directory has the database's name, or if the default would be in the
            directory of a Ray session.
    """
    subject = "--tracking-uri"
    if uri is None:
        subject = "MLFLOW_TRACKING_URI"
        uri = os.environ.get(subject) or None
    if uri is None:
        refuse_ray_session(DEFAULT_DATABASE, subject, "set it, for example to sqlite:////shared/sweeps/mlflow.db")
        uri = uri_of(DEFAULT_DATABASE)
    try:
        urlsplit(uri)
        database = database_of(uri)
        fault = "" if uri else "it is empty"
        if database is not None and database.is_dir():
            fault = "a directory is there"
        # `Path.resolve` has followed all links, except in a circle, for which it raises before Python 3.13.
        elif database is not None and database.is_symlink():
            fault = "its links lead in a circle"
    except (OSError, RuntimeError, ValueError) as error:
        fault = getattr(error, "strerror", None) or str(error)
    if fault:
        expected = "the URI of an MLflow store, such as sqlite:///FILE or http://HOST:PORT"
        raise UserError(subject, given=without_credentials(uri), expected=expected, fix=f"correct the URI ({fault})")
    return uri


def as_shell_word(uri: str) -> str:
    """With credentials, which can only come from the environment, the name of the variable."""
    return shlex.quote(uri) if without_credentials(uri) == uri else '"$MLFLOW_TRACKING_URI"'


def set_environment() -> None:
    """Limits how long MLflow waits and how much it prints. Must be called before it is imported."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # urllib3 warns about every repeated request, and matplotlib about a home directory that is not writable.
    for name in ("urllib3.connectionpool", "matplotlib"):
        logging.getLogger(name).setLevel(logging.ERROR)


def in_one_line(error: BaseException) -> str:
    """With the root cause, which MLflow shows only in the traceback."""
    root = error
    while (cause := root.__cause__ or root.__context__) is not None:
        root = cause
    return _words(error) if root is error else f"{_words(error)} ({_words(root)})"


def _words(error: BaseException) -> str:
    first_line = without_credentials(str(error)).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first_line[:120]}"


@contextmanager
def failures_refused(uri: str) -> Iterator[None]:
    """Turns MLflow's exceptions into a `UserError` of one line."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError, ImportError, ValueError) as error:
        # An ImportError is a missing driver of a database, a ValueError an invalid URI of the model registry.
        expected = "an MLflow store that can be reached"
        fix = f"start the server, or give another URI ({in_one_line(error)})"
        raise UserError("--tracking-uri", given=without_credentials(uri), expected=expected, fix=fix) from error


def open_client(uri: str) -> "MlflowClient":
    """A local database is created when it is first used."""
    set_environment()
    if (database := database_of(uri)) is not None and not database.exists():
        database.parent.mkdir(parents=True, exist_ok=True)
        if database == DEFAULT_DATABASE.resolve():
            # With a write-ahead log, MLflow's page reads the database while a sweep writes it.
            with closing(sqlite3.connect(database, timeout=20.0)) as connection:
                connection.execute("pragma journal_mode=wal")
    from mlflow import MlflowClient

    return MlflowClient(uri)


def experiment(client: "MlflowClient", uri: str, name: str) -> str:
    """Its id; it is created if it does not exist."""
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        database, folder = database_of(uri), "".join(sign if sign.isalnum() or sign in "._-" else "_" for sign in name)
        place = None if database is None else (database.parent / "mlflow-artifacts" / folder).as_uri()
        try:
            return client.create_experiment(name, artifact_location=place)
        except MlflowException:
            # Another sweep may have created it meanwhile.
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    if found.lifecycle_stage != "active":
        client.restore_experiment(found.experiment_id)
    return str(found.experiment_id)
