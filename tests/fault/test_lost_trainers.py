"""Trainers, nodes and raylets that die or are removed during a pack, on a real cluster of several nodes."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster
from ray.core.generated import autoscaler_pb2

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.training.messages import HandedBack, PackOrder, Report, TrainerLost
from attnsweep.orchestrator.training.ray_internals import control_store
from attnsweep.orchestrator.training.ray_pool import TrainerPool
from attnsweep.orchestrator.training.trainer_actor import TrainerActor
from tests.fault import sweeps
from tests.fault.conftest import NODE
from tests.fault.servers import wait_until

pytestmark = pytest.mark.usefixtures("cluster")
ACTOR = "attnsweep.orchestrator.training.ray_pool.TrainerActor"
Received = list[tuple[PackOrder, Report | TrainerLost]]


@pytest.fixture(scope="module")
def cluster(empty_cluster: Cluster) -> Cluster:
    """A head without cores and two nodes with one core each, so each node has one trainer."""
    for _ in range(2):
        empty_cluster.add_node(**NODE)
    return empty_cluster


@pytest.fixture(scope="module")
def undisturbed(no_mlflow: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same sweep trained in this process, undisturbed."""
    path = tmp_path_factory.mktemp("undisturbed") / "long"
    sweeps.run(sweeps.long_sweep(), path)
    return path


def _once(mark: Path, number: signal.Signals) -> type[TrainerActor]:
    class Disturbed(sweeps.sliced(TrainerActor)):  # type: ignore[misc]
        """A trainer whose process is sent a signal once, before the third slice of a pack."""

        n_slices = 0

        def proceed(self) -> Report:
            self.n_slices += 1
            if self.n_slices == 3 and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), number)
            report: Report = super().proceed()
            return report

    return Disturbed


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Received:
    """The reports that the loop gets from its trainers."""
    heard: Received = []
    receive = SweepLoop._receive

    def hear(loop: SweepLoop, order: PackOrder, report: Report | TrainerLost) -> None:
        heard.append((order, report))
        receive(loop, order, report)

    monkeypatch.setattr(SweepLoop, "_receive", hear)
    return heard


def _wait_for_both_trainers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pack is handed out before both are up: each node has one that trains when it goes."""
    monkeypatch.setattr(TrainerPool, "has_idle", property(lambda pool: pool.n_placed == 2 and pool._plan.has_idle))


def _assert_undisturbed(path: Path, undisturbed: Path) -> None:
    assert sweeps.outcomes(path) == sweeps.outcomes(undisturbed)
    assert sweeps.curves(path) == sweeps.curves(undisturbed)


def _is_alive(node: str) -> bool:
    return any(each["NodeID"] == node and each["Alive"] for each in ray.nodes())


def _drain(node: Any) -> None:
    reason = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")  # type: ignore[attr-defined]  # generated
    client = control_store()
    assert client is not None
    accepted, why = client.drain_node(node.node_id, reason, "test", 2**62)
    assert accepted, why


def test_a_killed_trainer_a_drained_node_a_lost_node_and_a_dead_raylet_lose_nothing(
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    received: Received,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One after the other in one sweep; for each node that goes another one comes."""
    spec = sweeps.long_sweep(trials=12)
    sweeps.run(spec, tmp_path / "undisturbed")
    going, second = cluster.worker_nodes
    train, n_trained, added = TrainerPool.train, 0, []

    def train_and_drain(pool: TrainerPool, order: PackOrder) -> None:
        nonlocal n_trained
        train(pool, order)
        n_trained += 1
        # The two packs that began first, of which one lost its trainer; now two are under way again.
        if n_trained == 4:
            added.append(cluster.add_node(**NODE))
            _drain(going)

    def remove() -> None:
        cluster.remove_node(second, allow_graceful=False)
        cluster.add_node(**NODE)

    def kill() -> None:
        (raylet,) = added[0].all_processes["raylet"]
        os.kill(raylet.process.pid, signal.SIGKILL)
        # Its trainer may live on for a moment and could train everything that is left.
        wait_until(lambda: not _is_alive(added[0].node_id), "the loss of the node to be noticed")
        cluster.add_node(**NODE)

    trainer = _once(tmp_path / "mark", signal.SIGKILL)
    _wait_for_both_trainers(monkeypatch)
    monkeypatch.setattr(TrainerPool, "train", train_and_drain)
    monkeypatch.setattr(ACTOR, trainer)
    monkeypatch.setattr("attnsweep.orchestrator.training.ray_pool._LOOK_SECONDS", 0.0)
    monkeypatch.setattr(SweepLoop, "_commit", sweeps.after_commit(4, remove))
    monkeypatch.setattr(SweepLoop, "_commit", sweeps.after_commit(6, kill))
    disturbed = {"local": False, "n_trainers": 2, "pack_size": 2, "checkpoint_seconds": 0.0}
    assert sweeps.run(spec, tmp_path / "s", **disturbed).finished

    first_lost = next(order for order, report in received if isinstance(report, TrainerLost))
    assert any(order.pack == first_lost.pack and order.checkpoint is not None for order, _ in received)
    assert any(isinstance(report, HandedBack) and report.checkpoint is not None for _, report in received)
    told = [line.split(":")[0] for line in capsys.readouterr().err.splitlines() if "the cluster: " in line]
    assert sorted(told) == ["joined the cluster"] * 3 + ["left the cluster"] * 3
    _assert_undisturbed(tmp_path / "s", tmp_path / "undisturbed")
    assert list((tmp_path / "s" / "checkpoints").iterdir()) == []
    cluster.remove_node(going)


@pytest.mark.scale
def test_a_trainer_told_to_go_hands_back_its_pack(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, received: Received
) -> None:
    monkeypatch.setattr(ACTOR, _once(tmp_path / "mark", signal.SIGTERM))
    sweeps.run(sweeps.long_sweep(), tmp_path / "s", **sweeps.ON_RAY)
    (back,) = [report for _, report in received if isinstance(report, HandedBack)]
    assert back.checkpoint is not None
    assert not any(isinstance(report, TrainerLost) for _, report in received)
    _assert_undisturbed(tmp_path / "s", undisturbed)


@pytest.mark.scale
def test_a_training_that_gets_further_each_time_is_not_given_up(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, received: Received
) -> None:
    deaths = tmp_path / "deaths"
    deaths.mkdir()

    class ShortLived(sweeps.sliced(TrainerActor)):  # type: ignore[misc]
        """A trainer that dies in its fifth slice, except in the replays at the end, which have no checkpoints."""

        n_slices = 0

        def proceed(self) -> Report:
            self.n_slices += 1
            if self.n_slices == 5 and len(list(deaths.iterdir())) < 2:
                (deaths / str(os.getpid())).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            report: Report = super().proceed()
            return report

    monkeypatch.setattr(ACTOR, ShortLived)
    monkeypatch.setattr("attnsweep.orchestrator.running.plan.MAX_LOSSES", 1)
    # One trainer adds four to the limit, so that two losses in a row are too many.
    monkeypatch.setattr("attnsweep.orchestrator.running.plan.MAX_LOSSES_IN_A_ROW", 1 - 4)
    assert sweeps.run(sweeps.long_sweep(), tmp_path / "s", **sweeps.ON_RAY, checkpoint_seconds=0.0).finished
    assert sum(isinstance(report, TrainerLost) for _, report in received) == 2
    assert {order.pack for order, _ in received} == {received[0][0].pack}
    _assert_undisturbed(tmp_path / "s", undisturbed)


def _failed(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(row["trial"], row["replicate"]) for row in rows if row["outcome"] == "failed"]


@pytest.mark.scale
def test_a_training_that_kills_its_trainer_fails_alone(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fragile(TrainerActor):
        """A trainer that dies of one particular training."""

        def start(self, order: PackOrder, n_trainers: int = 1) -> Report:
            if any((task.trial, task.replicate) == (1, 2) for task in order.tasks):
                os.kill(os.getpid(), signal.SIGKILL)
            return super().start(order, n_trainers)

    monkeypatch.setattr(ACTOR, Fragile)
    monkeypatch.setattr("attnsweep.orchestrator.running.plan.MAX_LOSSES", 0)
    monkeypatch.setattr("attnsweep.orchestrator.running.plan.MAX_LOSSES_ALONE", 1)
    report = sweeps.run(sweeps.small_sweep(trials=2), tmp_path / "s", **sweeps.ON_RAY, pack_size=8)
    assert report.finished
    rows = sweeps.outcomes(tmp_path / "s")
    assert (len(rows), _failed(rows)) == (8, [(1, 2)])
    (error,) = (each for each in Ledger(tmp_path / "s").trainings()["error"].to_pylist() if each is not None)
    assert "2 times" in error
