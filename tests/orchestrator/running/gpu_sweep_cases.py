"""Whole sweeps as on a GPU: on the pretended device, by captured steps. Collected by `test_devices`."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.plan import PackSizer
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training import pools, trainer
from attnsweep.search_spaces import Categorical, Float, Sweep
from attnsweep.workloads.engine.captured import Graphs
from tests.fault.sweeps import run
from tests.workloads.engine.recorded_graph import RecordedGraph
from tests.workloads.pretend_device import pretend_device

pytestmark = [pytest.mark.scale, pytest.mark.usefixtures("no_mlflow")]

ON_GPU: dict[str, Any] = {"device": "cuda"}
SPEC = Sweep(
    name="captured",
    workload="category_pairs",
    space={
        "n_steps": 24,
        "n_categories": 3,
        "n_positions": 4,
        "optimizer": Categorical(choices=("sgd", "adam")),
        "init_sigma": Float(low=0.1, high=1.0),
        "learning_rate": Float(low=0.01, high=0.3),
    },
    sampler="random",
    trials=14,
    replicates=4,
    seed=5,
)


class Gpu:
    """The pretended device as this process's GPU."""

    def __init__(self) -> None:
        self.n_captured = 0

    def executors_on(self, device: str, engine: str) -> Graphs:  # noqa: ARG002
        assert device == pretend_device()
        return Graphs(self._graph, 4)

    def _graph(self) -> RecordedGraph:
        self.n_captured += 1
        return RecordedGraph()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    # PyTorch takes the device only before its first backward pass.
    pretend_device()
    found = Gpu()
    monkeypatch.setattr(pools, "_device_here", lambda device: pretend_device() if device == "cuda" else "cpu")
    monkeypatch.setattr(trainer, "executors_on", found.executors_on)
    # Packs begin small, and each size seems to pay.
    monkeypatch.setattr(PackSizer, "smallest", 2)
    monkeypatch.setattr(PackSizer, "_min_gain", 0.0)
    return found


def rows_of(path: Path) -> list[dict[str, Any]]:
    keys = [(name, "ascending") for name in ("trial", "replicate")]
    found: list[dict[str, Any]] = Ledger(path).trainings().sort_by(keys).to_pylist()
    return found


def check_replays(path: Path) -> None:
    replays = SweepDirectory.open(path).progress.replays
    assert replays is not None
    assert replays.deviations
    assert set(replays.deviations.values()) == {0.0}
    assert not replays.disagreeing


def test_packs_grow_and_all_trainings_end_as_on_a_cpu(gpu: Gpu, tmp_path: Path) -> None:
    assert run(SPEC, tmp_path / "gpu", **ON_GPU).finished
    rows = rows_of(tmp_path / "gpu")
    assert {2, 4, 8} <= {row["pack_size"] for row in rows}
    assert gpu.n_captured
    check_replays(tmp_path / "gpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "executors_on", lambda *_: None)
        assert run(SPEC, tmp_path / "cpu", engine="eager").finished
    for row, expected in zip(rows, rows_of(tmp_path / "cpu"), strict=True):
        assert row["device"] != expected["device"]
        assert (row["training_id"], row["outcome"]) == (expected["training_id"], expected["outcome"])
        np.testing.assert_allclose(row["eval_loss"] or 0.0, expected["eval_loss"] or 0.0, rtol=1e-6)
