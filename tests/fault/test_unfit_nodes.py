"""Nodes where no trainer starts, or where other code would train; and nodes that come and go. On a real cluster."""

import platform
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ray.cluster_utils import Cluster

from attnsweep.orchestrator.storage.errors import SweepError
from attnsweep.orchestrator.training.messages import RunContext
from attnsweep.orchestrator.training.nodes import Wanted
from attnsweep.orchestrator.training.ray_pool import TrainerPool
from attnsweep.workloads.category_pairs import CategoryPairs
from tests.fault import sweeps
from tests.fault.conftest import NODE

BROKEN = "libcudart.so.12: cannot open shared object file"
SECONDS = 120


@pytest.fixture(scope="module")
def cluster(empty_cluster: Cluster) -> Cluster:
    """A head without cores."""
    return empty_cluster


@pytest.fixture
def add_node(cluster: Cluster) -> Iterator[Callable[..., Any]]:
    """Adds a node for this test, of one core, whose workers look for modules in a folder first."""
    added = []

    def add(folder: Path | None = None) -> Any:
        added.append(cluster.add_node(**NODE, env_vars={"PYTHONPATH": str(folder)} if folder else None))
        return added[-1]

    yield add
    for node in added:
        if node in cluster.worker_nodes:
            cluster.remove_node(node)


def _with_broken_torch(folder: Path) -> Path:
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text(f"raise ImportError({BROKEN!r})\n")
    return folder


def test_a_sweep_goes_on_without_a_host_where_no_trainer_starts(
    add_node: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    add_node(_with_broken_torch(tmp_path / "broken"))
    add_node()
    sweeps.run(sweeps.small_sweep(), tmp_path / "here")
    # So small a sweep would end before the third attempt on the other node.
    monkeypatch.setattr(
        TrainerPool, "has_idle", property(lambda pool: bool(pool._plan.record.refused) and pool._plan.has_idle)
    )
    assert sweeps.run(sweeps.small_sweep(), tmp_path / "s", local=False).finished
    assert sweeps.outcomes(tmp_path / "s") == sweeps.outcomes(tmp_path / "here")
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "is not used" in line]
    assert f"ImportError: {BROKEN}" in said


@pytest.mark.scale
def test_a_sweep_stops_where_no_trainer_starts_at_all(add_node: Callable[..., Any], tmp_path: Path) -> None:
    add_node(_with_broken_torch(tmp_path / "broken"))
    with pytest.raises(SweepError) as stopped:
        sweeps.run(sweeps.small_sweep(), tmp_path / "s", local=False, n_trainers=1)
    assert f"ImportError: {BROKEN}" in str(stopped.value)


def test_rows_come_from_the_drivers_versions_alone(add_node: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "other"
    (folder / "numpy-0.7.dist-info").mkdir(parents=True)
    (folder / "numpy-0.7.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 0.7\n")
    add_node(folder)
    with pytest.raises(SweepError) as stopped:
        sweeps.run(sweeps.small_sweep(), tmp_path / "s", local=False)
    words = "no node of the cluster can train: host .*: its versions differ from the driver's: "
    assert stopped.match(words)
    assert str(stopped.value).endswith(" -> 0.7")


def _wait(pool: TrainerPool, condition: Callable[[], bool]) -> None:
    for _ in range(2 * SECONDS):
        if condition():
            return
        assert pool.reports(0.5) == []
    pytest.fail(f"waited {SECONDS} s in vain: {pool.waiting_for}")


@pytest.mark.scale
def test_nodes_that_come_are_used_and_those_that_go_are_let_go(cluster: Cluster, add_node: Callable[..., Any]) -> None:
    with closing(TrainerPool(CategoryPairs(), RunContext("s"), Wanted(1, 2), n_nodes=2)) as pool:
        assert (pool.waiting_for, pool.n_placed) == ("2 nodes; 1 are up", 0)
        first = add_node()
        _wait(pool, lambda: pool.n_placed == 1)
        assert (pool.waiting_for, pool.n_trainers) == ("", 1)
        add_node()
        _wait(pool, lambda: pool.n_placed == 2)
        cluster.remove_node(first)
        _wait(pool, lambda: pool.n_placed == 1)
        host = platform.node()
        told = ["joined", "joined", "left"]
        assert pool.notices() == [f"{what} the cluster: {host}" for what in told]
