"""The trainer without Ray: it trains in slices of time, whatever an evaluation costs."""

from typing import Any

import pytest

from attnsweep.orchestrator.training import trainer
from attnsweep.orchestrator.training.messages import PackOrder, Raised, RunContext, StillTraining
from attnsweep.orchestrator.training.rows import PackContext, failed_rows
from attnsweep.orchestrator.training.tasks import Task
from attnsweep.orchestrator.training.trainer import Trainer
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Batch, Lanes, Training
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.testing import defaults

WORKLOAD = CategoryPairs()


def _order(n_steps: int) -> PackOrder:
    parameters = defaults(WORKLOAD, n_steps=n_steps, stop_when_solved=False)
    return PackOrder("p", [Task(trial=0, replicate=seed, training=Training(parameters, seed)) for seed in range(2)])


def test_a_call_returns_as_soon_as_its_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "SLICE_SECONDS", 0.0)
    worker = Trainer(WORKLOAD, RunContext("s"), "cpu")
    first = worker.start(_order(1000))
    assert isinstance(first, StillTraining)
    assert first.step <= 1
    again = worker.proceed()
    assert isinstance(again, StillTraining)
    assert first.step <= again.step <= 2


def test_a_checkpoint_that_cannot_be_taken_is_its_packs_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU reports the failure of an earlier call late; the sweep continues without this pack."""

    def fail(_: Pack[Any]) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(trainer, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(Pack, "checkpoint", fail)
    report = Trainer(WORKLOAD, RunContext("s"), "cpu", checkpoint_seconds=0.0).start(_order(1000))
    assert isinstance(report, Raised)
    assert report.has_lost_its_gpu


class PanicException(BaseException):
    """The exception that pyo3 raises if a Rust extension panics; it is no `Exception`."""


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Faulty(CategoryPairs):
    """A workload that raises during the training."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def batch(self, lanes: Lanes[Any], step: int) -> Batch:
        del lanes, step
        raise self._error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("planted \ud800 \0"), "ValueError: planted \\ud800 \\x00\n"),
        (UnspeakableError(), "UnspeakableError: <exception str() failed>\n"),
        (PanicException("index out of bounds"), "PanicException: index out of bounds\n"),
        (ValueError("x" * 1_000_000), "x\n"),
        (OSError("postgresql://ann:secret@host/x"), "OSError: postgresql://...@host/x\n"),
        (ValueError("I can't allocate memory"), "ValueError: I can't allocate memory\n"),
    ],
)
def test_whatever_a_training_raises_is_text_in_its_row(error: BaseException, text: str) -> None:
    order = _order(100)
    report = Trainer(Faulty(error), RunContext("s"), "cpu").start(order)
    assert isinstance(report, Raised)
    assert report.error.endswith(text)
    assert report.error.startswith("Traceback")
    assert len(report.error) < 21_000
    assert not report.out_of_memory
    for row in failed_rows(WORKLOAD, order.tasks, report.error, PackContext("s", "p")).trainings.to_pylist():
        assert (row["outcome"], row["stuck"], row["error"], row["eval_loss"]) == ("failed", False, report.error, None)


@pytest.mark.parametrize("error", [RuntimeError("DefaultCPUAllocator: can't allocate memory"), MemoryError()])
def test_memory_that_is_wanting_is_told_from_other_errors(error: Exception) -> None:
    report = Trainer(Faulty(error), RunContext("s"), "cpu").start(_order(100))
    assert isinstance(report, Raised)
    assert report.out_of_memory
