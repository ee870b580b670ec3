"""A real MLflow database for a test, and functions to read it."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.store import DEFAULT_DATABASE, tracking_uri
from tests.present import present


@contextmanager
def default_store(home: Path, empty: Path) -> Iterator[MlflowClient]:
    """The default database, in a new working directory: a copy of this empty one."""
    database = home / DEFAULT_DATABASE
    database.parent.mkdir()
    shutil.copy(empty, database)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield MlflowClient(tracking_uri())


def runs_of(client: MlflowClient, directory: SweepDirectory, kind: str = "trial") -> list[Run]:
    """A sweep's runs of one kind, by trial."""
    found = present(client.get_experiment_by_name("category_pairs"))
    condition = f"tags.`attnsweep.sweep` = '{directory.sweep}' and tags.`attnsweep.kind` = '{kind}'"
    children = client.search_runs([found.experiment_id], condition)
    return sorted(children, key=lambda run: run.data.tags.get("attnsweep.trial_key", ""))


def everything_stored() -> dict[str, list[Any]]:
    """All tables of the default database."""
    connection = sqlite3.connect("sweeps/mlflow.db")
    tables = [name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")]
    stored = {table: sorted(connection.execute(f'select * from "{table}"').fetchall(), key=repr) for table in tables}
    connection.close()
    return stored


def warnings_in(log: pytest.LogCaptureFixture) -> list[str]:
    """What attnsweep has warned of."""
    return [record.getMessage() for record in log.records if record.name.startswith("attnsweep")]
