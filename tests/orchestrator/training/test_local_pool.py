"""Sweeps in this process: without Ray, and without changing the settings of a notebook or debugger."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.session import run_sweep
from attnsweep.orchestrator.storage.errors import SweepError
from attnsweep.orchestrator.training.local_pool import LocalPool
from attnsweep.orchestrator.training.messages import PackOrder, Raised, RunContext
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.orchestrator.training.tasks import Task
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Batch, Training
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.testing import defaults
from tests.fault.sweeps import small_sweep

QUIET = Console(quiet=True)
TORCH_FIRST = """
import torch
torch.ones(9, 9) @ torch.ones(9, 9)
from attnsweep.orchestrator import cli
cli.main()
"""


def _python(program: str, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "MKL_"))}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.scale
@pytest.mark.slow
@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="this PyTorch multiplies without MKL")
@pytest.mark.usefixtures("no_mlflow")
def test_a_process_whose_products_depend_on_the_pack_is_refused(tmp_path: Path) -> None:
    small = ["--trials", "1", "--replicates", "1", "--set", "n_steps=5"]
    done = _python(TORCH_FIRST, tmp_path, "run", "quickstart", "--local", *small, "--dir", "s")
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("attnsweep: MKL_CBWR: got ")
    assert list(tmp_path.iterdir()) == []


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


def _settings() -> tuple[int, torch.dtype, str, bool]:
    precision: str = torch.backends.mkldnn.matmul.fp32_precision  # type: ignore[attr-defined]
    return torch.get_num_threads(), torch.get_default_dtype(), precision, torch.is_grad_enabled()


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
    torch.set_float32_matmul_precision("medium")
    torch.set_grad_enabled(False)
    yield _settings()
    torch.set_num_threads(before[0])
    torch.set_default_dtype(before[1])
    torch.set_float32_matmul_precision("highest")
    torch.set_grad_enabled(before[3])


def test_a_training_has_its_own_settings_and_the_process_keeps_its(notebook: object) -> None:
    seen = []
    pool = _training(lambda: seen.append(_settings()))
    while pool.running:
        pool.reports(0.5)
        assert _settings() == notebook
    # Probes disable gradients themselves.
    assert {each[:3] for each in seen} == {(1, torch.float32, "ieee")}
    assert seen[0][3] or seen[1][3]


def test_a_training_that_exits_has_failed_and_the_sweep_goes_on() -> None:
    pool = _training(SystemExit(0))
    [(_, report)] = pool.reports(0.5)
    assert isinstance(report, Raised)
    assert report.error.endswith("SystemExit: 0\n")
    assert pool.has_idle


@pytest.mark.slow
@pytest.mark.usefixtures("no_mlflow")
def test_a_gpu_that_fails_ends_the_sweep_instead_of_all_its_trainings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(Pack, "advance", fail)
    with pytest.raises(SweepError):
        run_sweep(small_sweep(), tmp_path / "s", Resources(local=True), QUIET)
    assert Ledger(tmp_path / "s").trainings().num_rows == 0
