"""The trainer, without Ray around it: it trains in slices of time, whatever an evaluation costs."""

from typing import Any

import pytest

from orchestrator import trainer
from orchestrator.tasks import Task
from orchestrator.trainer import PackOrder, Progress, Raised, Trained, Trainer
from workloads.category_pairs import CategoryPairs
from workloads.engine.contract import Training
from workloads.engine.pack import Pack
from workloads.testing import defaults

WORKLOAD = CategoryPairs()


def _order(n_steps: int) -> PackOrder:
    parameters = defaults(WORKLOAD, n_steps=n_steps, stop_when_solved=False)
    return PackOrder("p", [Task(trial=0, replicate=seed, training=Training(parameters, seed)) for seed in range(2)])


def test_a_call_returns_as_soon_as_its_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "SLICE_SECONDS", 0.0)
    worker = Trainer(WORKLOAD, "s", "cpu")
    first = worker.start(_order(1000))
    assert isinstance(first, Progress)
    assert first.step <= 1
    again = worker.proceed()
    assert isinstance(again, Progress)
    assert first.step <= again.step <= 2


def test_slices_come_to_an_end() -> None:
    worker = Trainer(WORKLOAD, "s", "cpu")
    report = worker.start(_order(300))
    while isinstance(report, Progress):
        report = worker.proceed()
    assert isinstance(report, Trained)
    assert report.trainings["n_steps"].to_pylist() == [300, 300]


def test_a_checkpoint_that_cannot_be_taken_is_its_packs_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the GPU answers late that an earlier call has failed: the sweep goes on without this pack."""

    def fail(_: Pack[Any]) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(trainer, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(Pack, "checkpoint", fail)
    report = Trainer(WORKLOAD, "s", "cpu", checkpoint_seconds=0.0).start(_order(1000))
    assert isinstance(report, Raised)
    assert "device-side assert" in report.error
