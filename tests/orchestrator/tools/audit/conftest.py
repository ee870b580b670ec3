"""A sweep with refused and failed trainings, in ledger, study and MLflow; and copies to damage."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.sync import sync
from attnsweep.search_spaces import Pruner
from attnsweep.search_spaces.loading import load_sweep
from tests.orchestrator.trained_sweep import FRAGILE, trained_sweep

IN_A_STUDY: dict[str, Any] = {"seed": 581, "pruner": Pruner("threshold", upper=1e9), "prune_anyway": True}
"""Because of the pruner, which ends no trial, the sweep has a study."""


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("audit")
    (home / "fragile.py").write_text(FRAGILE)
    return home


@pytest.fixture(scope="session")
def store(home: Path, _empty_mlflow_database: Path) -> Path:
    return Path(shutil.copy(_empty_mlflow_database, home / "mlflow.db"))


@pytest.fixture(scope="session")
def whole(home: Path, store: Path) -> SweepDirectory:
    """Ten trials: trial 4 is refused, and all trainings of trial 8 failed."""
    directory = trained_sweep(home / "whole", load_sweep(str(home / "fragile.py")).but(**IN_A_STUDY))
    sync(directory, f"sqlite:///{store}")
    return directory


@pytest.fixture
def sweep(whole: SweepDirectory, tmp_path: Path) -> SweepDirectory:
    """A copy to be damaged."""
    shutil.copytree(str(whole.place), tmp_path / "sweep")
    return SweepDirectory.open(tmp_path / "sweep")


@pytest.fixture
def uri(whole: SweepDirectory, store: Path, tmp_path: Path) -> str:
    """A copy of the MLflow database."""
    shutil.copy(store, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path}/mlflow.db"


@pytest.fixture(scope="module", autouse=True)
def _known_store(home: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home / 'mlflow.db'}")
        yield
