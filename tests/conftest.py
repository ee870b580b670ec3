"""Settings of all tests, and the Ray that those who train share."""

from collections.abc import Iterator

import pytest
import ray
import torch


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """As in a trainer: on tensors this small, threads cost more than they bring."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def _no_ray_is_left() -> Iterator[None]:
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def local_ray(_no_ray_is_left: None) -> str:
    """The address of a Ray with two cores, that `run_sweep` finds connected; modules take turns with it."""
    if not ray.is_initialized():
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    return str(ray.get_runtime_context().gcs_address)


@pytest.fixture
def no_ray() -> None:
    """This process is not connected to one."""
    ray.shutdown()


@pytest.fixture(scope="module")
def mlflow_database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the module's sweeps log."""
    uri = f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MLFLOW_TRACKING_URI", uri)
        yield uri
