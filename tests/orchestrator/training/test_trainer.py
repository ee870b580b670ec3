"""The trainer without Ray: it trains in slices of time, whatever an evaluation costs."""

from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from attnsweep.orchestrator.training import trainer
from attnsweep.orchestrator.training.messages import PackOrder, Progress, Raised, RunContext, Trained
from attnsweep.orchestrator.training.rows import PackContext, failed_rows
from attnsweep.orchestrator.training.tasks import Task
from attnsweep.orchestrator.training.trainer import Trainer
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Batch, Lanes, Training
from attnsweep.workloads.engine.outcomes import Evidence
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.verdicts import Rule, VerdictTable
from attnsweep.workloads.testing import defaults

WORKLOAD = CategoryPairs()


def _order(n_steps: int) -> PackOrder:
    parameters = defaults(WORKLOAD, n_steps=n_steps, stop_when_solved=False)
    return PackOrder("p", [Task(trial=0, replicate=seed, training=Training(parameters, seed)) for seed in range(2)])


def test_a_call_returns_as_soon_as_its_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "SLICE_SECONDS", 0.0)
    worker = Trainer(WORKLOAD, RunContext("s"), "cpu")
    first = worker.start(_order(1000))
    assert isinstance(first, Progress)
    assert first.step <= 1
    again = worker.proceed()
    assert isinstance(again, Progress)
    assert first.step <= again.step <= 2


def test_checkpoints_are_rarer_where_the_driver_takes_long_to_write_them(monkeypatch: pytest.MonkeyPatch) -> None:
    now = count(0.0, 0.5)
    monkeypatch.setattr(trainer, "time", SimpleNamespace(perf_counter=lambda: next(now)))
    worker = Trainer(WORKLOAD, RunContext("s"), "cpu")

    def saves_after(seconds: int) -> bool:
        for _ in range(2 * seconds):
            next(now)
        report = worker.proceed()
        assert isinstance(report, Progress)
        return report.checkpoint is not None

    worker.start(_order(10**6))
    # Every 120 s, until the driver takes 60 s: then every 1,200 s, of which that is 5%.
    assert [saves_after(seconds) for seconds in (0, 120, 60, 200, 1100)] == [False, True, False, False, True]


@pytest.mark.parametrize("checkpoint_seconds", [0.0, 60.0], ids=["while it trains", "when it is handed back"])
def test_a_checkpoint_that_cannot_be_taken_is_its_packs_fault(
    checkpoint_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPU reports the failure of an earlier call late; the sweep continues without this pack."""

    def fail(_: Pack[Any]) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(trainer, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(trainer, "WORTH_KEEPING_SECONDS", 0.0)
    monkeypatch.setattr(Pack, "checkpoint", fail)
    worker = Trainer(WORKLOAD, RunContext("s"), "cpu", checkpoint_seconds)
    report = worker.start(_order(1000))
    if checkpoint_seconds:
        assert isinstance(report, Progress)
        report = worker.hand_back()
    assert isinstance(report, Raised)
    assert "device-side assert" in report.error


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
    rows = failed_rows(WORKLOAD, order.tasks, report.error, PackContext("s", "p")).trainings
    assert rows["error"].to_pylist() == [report.error] * 2


@pytest.mark.parametrize("error", [RuntimeError("DefaultCPUAllocator: can't allocate memory"), MemoryError()])
def test_memory_that_is_wanting_is_told_from_other_errors(error: Exception) -> None:
    report = Trainer(Faulty(error), RunContext("s"), "cpu").start(_order(100))
    assert isinstance(report, Raised)
    assert report.out_of_memory


def test_a_pack_is_judged_once_when_it_has_ended() -> None:
    n_judged = 0

    def never(_: Any, evidence: Evidence) -> NDArray[np.bool_]:
        nonlocal n_judged
        n_judged += 1
        return np.zeros(evidence.metrics["eval_loss"].shape, np.bool_)

    class Counted(CategoryPairs):
        verdicts = VerdictTable((Rule(outcome="runaway", when=never),))

    worker = Trainer(Counted(), RunContext("s"), "cpu")
    report = worker.start(_order(3))
    assert isinstance(report, Trained)
    assert n_judged == 1
