"""Settings of all tests, shared fixtures for Ray and servers, and the marks by which `make quick` selects tests."""

import fcntl
import gc
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer.main
from hypothesis import settings

from tests.compilers import no_compiler
from tests.rays import SHARED_RAYS

# A busy machine takes any time for an example. Tests get their settings when they are defined.
settings.register_profile("without deadlines", deadline=None)
settings.load_profile("without deadlines")

MARKS = {
    "local_ray": "ray",
    "ray_head": "ray",
    "cluster": "ray",
    "s3": "server",
    "running_store": "server",
    "browser": "server",
}
"""Marks by the fixture that a test uses. Tests that start Ray or a server themselves have an explicit mark."""
_RAY_FIRST = ("cluster", "local_ray", "ray_head", "", None)
SLOW_FOLDERS = {"end_to_end", "fault"}
"""Folders of tests with whole sweeps. Elsewhere slow tests are marked individually."""


# First: xdist reads the groups in its own.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests by what they use and where they stand. Tests of one Ray run in one process."""
    for item in items:
        for name in MARKS.keys() & getattr(item, "fixturenames", ()):
            item.add_marker(MARKS[name])
        if item.path.parent.name in SLOW_FOLDERS:
            item.add_marker("slow")
        sample = item.get_closest_marker("sample")
        if sample is not None and item.callspec.id not in sample.args:  # type: ignore[attr-defined]
            item.add_marker("scale")
        item.add_marker(pytest.mark.xdist_group(_process(item)))
    # First the tests that wait most; those that join the same Ray stand together, so that it starts once.
    items.sort(key=lambda item: _RAY_FIRST.index(_ray_of(item)))


def pytest_sessionstart() -> None:
    """Collects no garbage while modules are imported: there is none."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Spares the garbage collector, which pytest runs often, what has been imported."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    """Collects the garbage of all tests once: pytest does so five times, to hear what is raised meanwhile."""
    gc.collect()
    gc.freeze()


def _process(item: pytest.Item) -> str:
    """Tests with the same answer run in one process: they share a Ray, a browser, or the fixtures of their module."""
    if item.get_closest_marker("ray"):
        return f"ray {_ray_of(item)}"
    return "browser" if "browser" in getattr(item, "fixturenames", ()) else str(item.path)


def _ray_of(item: pytest.Item) -> str | None:
    """The fixture by which a test has a Ray, or "" if it starts its own; `None` if it needs none."""
    if not item.get_closest_marker("ray"):
        return None
    return next((name for name in _RAY_FIRST if name in getattr(item, "fixturenames", ())), "")


# Last: fixtures that use the Ray have ended by then.
@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Ends a Ray with the last test that uses it: its processes compute as long as they are there."""
    if nextitem is None or _ray_of(item) != _ray_of(nextitem):
        SHARED_RAYS.close()


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Limits torch to one thread, as in a trainer: on tensors this small, threads are slower."""
    # Not above: the process that distributes the tests runs none.
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _one_command() -> Iterator[None]:
    """Builds the command line once, as a process of its own does, instead of at each call of `main`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c() -> None:
    """Makes SIGINT raise in background jobs too, which shells start with SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def local_ray() -> str:
    """The address of a Ray with two cores, to which this process is connected; tests use it one after the other."""
    # Imported here, to spare most tests a second.
    import ray

    if not ray.is_initialized():
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
        SHARED_RAYS.callback(ray.shutdown)
    return str(ray.get_runtime_context().gcs_address)


@pytest.fixture
def no_ray() -> None:
    """Ensures that this process is not connected to a Ray."""
    _shut_down()


def _shut_down() -> None:
    if "ray" in sys.modules:
        sys.modules["ray"].shutdown()


@pytest.fixture
def without_compiler() -> Iterator[None]:
    """Hides this machine's compiler."""
    with no_compiler():
        yield


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The address of an object store with one bucket; the environment is set up for it."""
    from tests.orchestrator.storage.object_store import object_store

    with object_store() as address:
        yield address


@pytest.fixture(scope="session")
def _empty_mlflow_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty MLflow database to copy: MLflow takes seconds to create one, so the first process does it for all."""
    home = tmp_path_factory.getbasetemp()
    # Processes of xdist have folders of their own in that of the run.
    path = (home.parent if "PYTEST_XDIST_WORKER" in os.environ else home) / "empty mlflow.db"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            from attnsweep.orchestrator.tracking.store import open_client

            made = path.with_suffix(".made")
            open_client(f"sqlite:///{made}").search_experiments()
            made.rename(path)
    return path


@pytest.fixture(scope="session")
def _programs_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all processes of this run keep the programs of blocks."""
    home = tmp_path_factory.getbasetemp()
    return (home.parent if "PYTEST_XDIST_WORKER" in os.environ else home) / "cache"


@pytest.fixture(scope="module")
def compiled(_programs_home: Path) -> Iterator[None]:
    """Programs are compiled into a folder of the tests' own; where they cannot be, the test is skipped."""
    from attnsweep.workloads.engine.compiling.building import compiled_engine
    from attnsweep.workloads.engine.executors import NoCompilerError

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CACHE_HOME", str(_programs_home))
        try:
            compiled_engine()
        except NoCompilerError as error:
            pytest.skip(f"steps cannot be compiled here: {error}")
        yield


@pytest.fixture
def mlflow_uri(_empty_mlflow_database: Path, tmp_path: Path) -> str:
    """An empty MLflow store of the test's own."""
    return f"sqlite:///{shutil.copy(_empty_mlflow_database, tmp_path / 'mlflow.db')}"


@pytest.fixture(scope="module")
def no_mlflow() -> Iterator[None]:
    """An MLflow store out of reach, for sweeps that it plays no part in: they go on without it, in less time."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MLFLOW_TRACKING_URI", "sqlite:////dev/null/mlflow.db")
        yield
