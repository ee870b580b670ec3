"""The conformance suite of the protocol `Pool`, run on both implementations."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from attnsweep.orchestrator.training.cluster import Cluster
from attnsweep.orchestrator.training.local_pool import LocalPool
from attnsweep.orchestrator.training.messages import (
    HandedBack,
    PackOrder,
    Pool,
    Probed,
    Raised,
    Report,
    RunContext,
    StillTraining,
    Trained,
)
from attnsweep.orchestrator.training.ray_pool import TrainerPool
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.orchestrator.training.tasks import Task
from attnsweep.orchestrator.training.trainer import Trainer
from attnsweep.orchestrator.training.trainer_actor import TrainerActor
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.testing import defaults
from tests.fault.sweeps import sliced

WORKLOAD = CategoryPairs()
TIMES = ["finished_at", "train_seconds", "probe_seconds", "host"]


@pytest.fixture(params=["local", pytest.param("ray", marks=pytest.mark.ray)])
def start_pool(request: pytest.FixtureRequest) -> Callable[[], Pool]:
    """Starts a pool of one trainer."""
    if request.param == "local":
        return lambda: LocalPool(WORKLOAD, RunContext("s"))
    cluster = Cluster(request.getfixturevalue("local_ray"))
    return lambda: TrainerPool(WORKLOAD, RunContext("s"), Resources(n_trainers=1), cluster)


def _order(pack: str, n_steps: int, **parameters: Any) -> PackOrder:
    parameters = {"n_steps": n_steps, "stop_when_solved": False, **parameters}
    training = [Training(defaults(WORKLOAD, **parameters), seed) for seed in range(2)]
    return PackOrder(pack, [Task(trial=0, replicate=each.seed, training=each) for each in training])


def _next(pool: Pool) -> tuple[PackOrder, Report]:
    heard = pool.reports(0.5)
    while not heard:
        heard = pool.reports(0.5)
    [(order, report)] = heard
    assert isinstance(report, Report)
    return order, report


def _trained(pool: Pool, order: PackOrder) -> Report:
    """The last report on a pack."""
    while not pool.idle:
        assert pool.reports(0.5) == []
    pool.train(order)
    heard, report = _next(pool)
    while isinstance(report, StillTraining):
        assert pool.running == [order.without_state()]
        assert not pool.idle
        heard, report = _next(pool)
    assert heard == order.without_state()
    assert pool.running == []
    assert pool.idle
    return report


def _rows(report: Report) -> pa.Table:
    assert isinstance(report, Trained)
    return report.rows.trainings.drop_columns(TIMES)


def _alone(order: PackOrder) -> pa.Table:
    """The rows of a trainer without a pool, to compare with."""
    trainer = Trainer(WORKLOAD, RunContext("s"), "cpu")
    report = trainer.start(order)
    while isinstance(report, StillTraining):
        report = trainer.proceed()
    return _rows(report)


def _until_probe(pool: Pool, step: int) -> tuple[PackOrder, Probed]:
    """Answers that nothing is pruned, up to the probe at this step."""
    while True:
        order, report = _next(pool)
        if isinstance(report, Probed):
            assert pool.running == [order]
            assert not pool.idle
            if report.step == step:
                return order, report
            pool.answer(order, [])


def _assert_waits_to_be_told_who_is_pruned(pool: Pool) -> None:
    order = replace(_order("pruned", 40), waits=True)
    pool.train(order)
    _, probed = _until_probe(pool, 8)
    assert list(probed.running) == [0, 1]
    pool.answer(order, [1])
    _, probed = _until_probe(pool, 40)
    assert (list(probed.running), len(probed.reached)) == ([], 2)
    pool.answer(order, [])
    heard, report = _next(pool)
    assert heard is order
    known = [order.tasks[0], replace(order.tasks[1], pruned_step=8)]
    assert _rows(report) == _alone(PackOrder("pruned", known))
    assert _rows(report)["pruned_step"].to_pylist() == [None, 8]


# One test of several things: a pool on Ray takes half a minute to start.
@pytest.mark.slow
def test_what_is_ordered_comes_back_once(start_pool: Callable[[], Pool]) -> None:
    order = _order("p", 60)
    # Two shapes in one pack: no program trains both.
    faulty = PackOrder("faulty", [order.tasks[0], _order("other", 10, n_categories=3).tasks[1]])
    with closing(start_pool()) as pool:
        assert pool.n_trainers == 1
        assert _rows(_trained(pool, order)) == _alone(order)
        raised = _trained(pool, faulty)
        assert isinstance(raised, Raised)
        assert "Traceback" in raised.error
        assert (raised.device, raised.out_of_memory, raised.has_lost_its_gpu) == ("cpu", False, False)
        assert _rows(_trained(pool, order)) == _alone(order)
        assert pool.waiting_for == ""
        assert pool.notices() == []
        _assert_waits_to_be_told_who_is_pruned(pool)
        pool.train(_order("endless", 10**6))
    assert pool.running == []


# On Ray, Ctrl-C in tests/fault has packs handed back.
def test_a_pack_that_is_handed_back_goes_on_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnsweep.orchestrator.training.local_pool.Trainer", sliced())
    order = _order("p", 75)
    with closing(LocalPool(WORKLOAD, RunContext("s"))) as pool:
        pool.train(order)
        assert isinstance(_next(pool)[1], StillTraining)
        [(handed, report)] = pool.hand_back(30.0)
        assert pool.running == []
    assert handed is order
    assert isinstance(report, HandedBack)
    again = LocalPool(WORKLOAD, RunContext("s"))
    assert _rows(_trained(again, PackOrder("p", order.tasks, report.checkpoint))) == _alone(order)


@pytest.mark.ray
def test_what_a_workload_prints_in_a_trainer_comes_to_stderr(
    local_ray: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Loud(TrainerActor):
        def start(self, order: PackOrder) -> Report:
            print("heard")  # noqa: T201
            return super().start(order)

    monkeypatch.setattr("attnsweep.orchestrator.training.ray_pool.TrainerActor", Loud)
    with closing(TrainerPool(WORKLOAD, RunContext("s"), Resources(n_trainers=1), Cluster(local_ray))) as pool:
        assert isinstance(_trained(pool, _order("p", 3)), Trained)
    said = capsys.readouterr()
    assert ("heard" in said.err.splitlines(), said.out) == (True, "")
