"""What the faults happen to: a Ray of the module's own, and an MLflow database."""

from collections.abc import Iterator

import pytest
import ray


@pytest.fixture(scope="module")
def mlflow_database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the module's sweeps log."""
    uri = f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MLFLOW_TRACKING_URI", uri)
        yield uri


@pytest.fixture(scope="module")
def local_ray(mlflow_database: str) -> Iterator[str]:
    """A Ray with two cores, that `run_sweep` finds connected; yields its address."""
    del mlflow_database
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()
