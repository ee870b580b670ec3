"""Sweeps in this process leave the settings of a notebook as they are."""

from typing import Any

import pytest
import torch

from attnsweep.orchestrator.storage.errors import PoolError
from attnsweep.orchestrator.training.local_pool import LocalPool
from attnsweep.orchestrator.training.messages import PackOrder, Raised, RunContext
from attnsweep.orchestrator.training.tasks import Task
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Batch, Training
from attnsweep.workloads.testing import defaults


class Watched(CategoryPairs):
    """Does something in each loss, or raises an error there."""

    def __init__(self, action: Any) -> None:
        super().__init__()
        self._action = action

    def loss(self, module: torch.nn.Module, batch: Batch) -> torch.Tensor:
        if isinstance(self._action, BaseException):
            raise self._action
        self._action()
        return super().loss(module, batch)


def _settings() -> tuple[int, torch.dtype, bool]:
    return torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()


def _training(action: Any) -> LocalPool:
    pool = LocalPool(Watched(action), RunContext("s"))
    training = Training(defaults(CategoryPairs(), n_steps=3), seed=0)
    pool.train(PackOrder("p", [Task(trial=0, replicate=0, training=training)]))
    return pool


@pytest.fixture
def notebook() -> Any:
    """A user's settings, which must be unchanged afterwards."""
    before = _settings()
    torch.set_num_threads(2)
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    yield _settings()
    torch.set_num_threads(before[0])
    torch.set_default_dtype(before[1])
    torch.set_grad_enabled(before[2])


def test_a_training_has_its_own_settings_and_the_process_keeps_its(notebook: object) -> None:
    seen = []
    pool = _training(lambda: seen.append(_settings()))
    while pool.running:
        pool.reports(0.5)
        assert _settings() == notebook
    # Probes disable gradients themselves.
    assert {each[:2] for each in seen} == {(1, torch.float32)}
    assert seen[0][2] or seen[1][2]


def test_a_training_that_exits_has_failed_and_the_sweep_goes_on() -> None:
    pool = _training(SystemExit(0))
    [(_, report)] = pool.reports(0.5)
    assert isinstance(report, Raised)
    assert report.error.endswith("SystemExit: 0\n")
    assert pool.idle


def test_a_gpu_that_fails_ends_the_sweep_instead_of_all_its_trainings() -> None:
    pool = _training(RuntimeError("CUDA error: device-side assert triggered"))
    with pytest.raises(PoolError):
        pool.reports(0.5)
