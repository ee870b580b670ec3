"""Hosts for the tests of this folder, and the store that their sweeps log to."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.hosts.namespaces import Network, check_possible


@pytest.fixture(scope="module")
def new_network(
    tmp_path_factory: pytest.TempPathFactory, _empty_mlflow_database: Path
) -> Iterator[Callable[[], Network]]:
    """Makes switches for hosts, whose shared folder holds an empty MLflow store; they end with the module."""
    check_possible()
    with ExitStack() as made:

        def make() -> Network:
            shared = tmp_path_factory.mktemp("shared")
            shutil.copy(_empty_mlflow_database, shared / "mlflow.db")
            network = Network(shared)
            made.callback(network.close)
            return network

        yield make
