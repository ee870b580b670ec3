"""The trainer on an accelerator. Collected by `test_devices`, in a process of its own."""

from typing import Any

import pytest

from attnsweep.orchestrator.training import trainer
from attnsweep.orchestrator.training.messages import PackOrder, Progress, RunContext, Trained
from attnsweep.orchestrator.training.tasks import Task
from attnsweep.orchestrator.training.trainer import Trainer
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Batch, Lanes, Training
from attnsweep.workloads.testing import defaults
from tests.workloads.pretend_device import pretend_device


class Counted(CategoryPairs):
    """Notes the most lanes that a batch is drawn for."""

    width = 0

    def batch(self, lanes: Lanes[Any], step: int) -> Batch:
        self.width = max(self.width, lanes.streams.n_lanes)
        return super().batch(lanes, step)


@pytest.mark.parametrize(("n_trainings", "as_in", "width"), [(3, None, 64), (65, None, 128), (3, 65, 128)])
def test_a_pack_has_the_width_of_the_trainings_it_was_recorded_with(
    n_trainings: int, as_in: int | None, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also from its checkpoint: the width decides the last bits."""
    monkeypatch.setattr(trainer, "SLICE_SECONDS", 0.0)
    workload = Counted()
    parameters = defaults(workload, n_categories=3, n_positions=4, n_steps=4, stop_when_solved=False)
    tasks = [Task(trial=0, replicate=seed, training=Training(parameters, seed)) for seed in range(n_trainings)]
    begun = Trainer(workload, RunContext("s"), pretend_device(), checkpoint_seconds=0.0)
    report: Any = begun.start(PackOrder("p", tasks, as_in=as_in))
    assert isinstance(report, Progress)
    assert report.checkpoint is not None
    assert workload.width == width
    workload.width = 0
    worker = Trainer(workload, RunContext("s"), pretend_device())
    report = worker.start(PackOrder("p", tasks, report.checkpoint, as_in=as_in))
    while isinstance(report, Progress):
        report = worker.proceed()
    assert isinstance(report, Trained), report
    assert report.rows.trainings.num_rows == n_trainings
    assert workload.width == width
