"""Trainers and nodes that die, leave, come or do not fit, on a real cluster of several nodes."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster as RayCluster

from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.storage.errors import SweepError
from attnsweep.orchestrator.training.cluster import Cluster
from attnsweep.orchestrator.training.messages import HandedBack, PackOrder, Report, RunContext, TrainerLost
from attnsweep.orchestrator.training.ray_pool import TrainerPool
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.orchestrator.training.trainer_actor import TrainerActor
from attnsweep.workloads.category_pairs import CategoryPairs
from tests.fault import sweeps
from tests.fault.conftest import NODE
from tests.fault.servers import wait_until

ACTOR = "attnsweep.orchestrator.training.ray_pool.TrainerActor"


@pytest.fixture
def add_node(cluster: RayCluster) -> Iterator[Callable[..., Any]]:
    """Adds a node of one core, for this test; its workers look for modules in a folder first."""

    def add(folder: Path | None = None) -> Any:
        path = os.pathsep.join([str(folder or ""), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
        return cluster.add_node(**NODE, env_vars={"PYTHONPATH": path})

    yield add
    for node in list(cluster.worker_nodes):
        cluster.remove_node(node)


def _disturbed(folder: Path) -> type[TrainerActor]:
    class Disturbed(sweeps.sliced(TrainerActor)):  # type: ignore[misc]
        """Trainers of which one gets a SIGKILL before the third slice of a pack, and later one a SIGTERM."""

        n_slices = 0

        def proceed(self) -> Report:
            self.n_slices += 1
            for number in (signal.SIGKILL, signal.SIGTERM):
                if self.n_slices == 3 and not (folder / number.name).exists():
                    (folder / number.name).touch()
                    os.kill(os.getpid(), number)
                    break
            report: Report = super().proceed()
            return report

    return Disturbed


def test_trainers_and_nodes_that_die_lose_nothing(
    cluster: RayCluster, add_node: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one sweep: a trainer that is killed, one that is told to go, a node that is lost, a raylet that dies."""
    spec = sweeps.long_sweep(trials=12)
    sweeps.run(spec, tmp_path / "undisturbed")
    first, second = add_node(), add_node()
    received: list[tuple[PackOrder, Report | TrainerLost]] = []
    receive = SweepLoop._receive

    def hear(loop: SweepLoop, order: PackOrder, report: Report | TrainerLost) -> None:
        received.append((order, report))
        receive(loop, order, report)

    def remove() -> None:
        cluster.remove_node(first, allow_graceful=False)
        add_node()

    def kill() -> None:
        (raylet,) = second.all_processes["raylet"]
        os.kill(raylet.process.pid, signal.SIGKILL)
        # Its trainer may live on for a moment and could train everything that is left.
        wait_until(lambda: second.node_id not in Cluster("").nodes(), "the loss of the node to be noticed")
        add_node()

    monkeypatch.setattr(SweepLoop, "_receive", hear)
    monkeypatch.setattr(ACTOR, _disturbed(tmp_path))
    monkeypatch.setattr("attnsweep.orchestrator.training.ray_pool._NODES_SECONDS", 0.0)
    monkeypatch.setattr(SweepLoop, "_commit", sweeps.after_commit(4, remove))
    monkeypatch.setattr(SweepLoop, "_commit", sweeps.after_commit(6, kill))
    disturbed = {"local": False, "n_trainers": (2, 2), "pack_size": 2, "checkpoint_seconds": 0.0}
    assert sweeps.run(spec, tmp_path / "s", **disturbed).finished

    lost = [order.pack for order, report in received if isinstance(report, TrainerLost)]
    assert len(lost) >= 2
    assert any(order.pack == lost[0] and order.checkpoint is not None for order, _ in received)
    assert any(isinstance(report, HandedBack) and report.checkpoint is not None for _, report in received)
    assert sweeps.outcomes(tmp_path / "s") == sweeps.outcomes(tmp_path / "undisturbed")
    assert sweeps.curves(tmp_path / "s") == sweeps.curves(tmp_path / "undisturbed")


def _with_broken_torch(folder: Path) -> Path:
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text("raise ImportError('no libcudart.so')\n")
    return folder


def _with_another_numpy(folder: Path) -> Path:
    (folder / "numpy-0.7.dist-info").mkdir()
    (folder / "numpy-0.7.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 0.7\n")
    return folder


@pytest.mark.parametrize(
    ("made", "cause"), [(_with_broken_torch, "ImportError: no libcudart.so"), (_with_another_numpy, r"numpy .* -> 0")]
)
def test_a_sweep_stops_where_no_trainer_starts(
    made: Callable[[Path], Path], cause: str, add_node: Callable[..., Any], tmp_path: Path
) -> None:
    add_node(made(tmp_path))
    with pytest.raises(SweepError, match=cause):
        sweeps.run(sweeps.small_sweep(), tmp_path / "s", local=False)


def test_nodes_that_come_are_used_and_those_that_go_are_not_missed(
    cluster: RayCluster, add_node: Callable[..., Any]
) -> None:
    head = Cluster(ray.get_runtime_context().gcs_address)
    with closing(TrainerPool(CategoryPairs(), RunContext("s"), Resources(n_nodes=2), head)) as pool:

        def has(n_idle: int) -> bool:
            assert pool.reports(0.1) == []
            return len(pool.idle) == n_idle and pool.n_trainers == max(n_idle, 1)

        assert pool.waiting_for == "2 nodes; 1 are up"
        first = add_node()
        wait_until(lambda: has(1), "a trainer on the first node")
        add_node()
        wait_until(lambda: has(2), "a trainer on the second node")
        cluster.remove_node(first)
        wait_until(lambda: has(1), "the first node's trainer to be gone")
