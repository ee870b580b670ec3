"""A real MLflow database for the tests of a module."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.orchestrator.mlflow_runs import default_store


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, _empty_mlflow_database: Path) -> Iterator[MlflowClient]:
    with default_store(tmp_path_factory.mktemp("work"), _empty_mlflow_database) as store:
        yield store
