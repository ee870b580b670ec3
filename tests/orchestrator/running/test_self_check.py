"""The self-check: a hundredth of a sweep's trainings is trained again, alone, at its end."""

import json
from pathlib import Path

import pytest

from attnsweep.orchestrator.running.self_check import replay_some
from attnsweep.orchestrator.storage.replays import Replays, read_replays
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.local_pool import LocalPool
from attnsweep.orchestrator.training.messages import RunContext
from attnsweep.search_spaces import Sweep
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.registry import load_workload
from tests.orchestrator.trained_sweep import FRAGILE, edit_row, records, trained_sweep


@pytest.fixture
def spec(tmp_path: Path) -> Sweep:
    file = tmp_path / "fragile.py"
    file.write_text(FRAGILE)
    return load_sweep(str(file))


def _pool(directory: SweepDirectory) -> LocalPool:
    return LocalPool(load_workload(directory.spec.workload), RunContext(directory.sweep))


@pytest.mark.slow
def test_a_finished_sweep_has_replayed_two_trainings_at_least(spec: Sweep, tmp_path: Path) -> None:
    directory = trained_sweep(tmp_path / "s", spec)
    found = read_replays(directory)
    assert found is not None
    assert list(found.deviations.values()) == [0.0, 0.0]
    assert str(found) == "replayed 2 trainings alone: they end as fused, largest deviation of a loss 0"
    assert found.as_json() == {"trainings": 2, "agreeing": 2, "largest_deviation": 0.0}
    assert found.deviations.keys() <= {row["training_id"] for row in records(directory)}


@pytest.mark.slow
def test_what_ends_otherwise_alone_is_named(spec: Sweep, tmp_path: Path) -> None:
    directory = trained_sweep(tmp_path / "s", spec)
    before = read_replays(directory)
    assert before is not None
    chosen = min(before.deviations)
    (row,) = records(directory, training_id=chosen)
    edit_row(directory, "trainings", row["place"], n_steps=7, eval_loss=2 * row["eval_loss"])
    found = replay_some(directory, load_workload(directory.spec.workload), _pool(directory), lambda: False)
    assert found is not None
    assert found == read_replays(directory)
    assert found.disagreeing == {chosen: ["n_steps", "eval_loss"]}
    assert found.deviations[chosen] == pytest.approx(0.5)
    assert str(found) == f"replayed 1 of 2 trainings alone, which end otherwise, such as {chosen} (n_steps, eval_loss)"


@pytest.mark.slow
def test_a_stop_records_nothing(spec: Sweep, tmp_path: Path) -> None:
    directory = trained_sweep(tmp_path / "s", spec)
    (tmp_path / "s" / "replays.json").unlink()
    assert replay_some(directory, load_workload(directory.spec.workload), _pool(directory), lambda: True) is None
    assert read_replays(directory) is None


def test_a_loss_that_is_no_number_is_written_as_null(tmp_path: Path) -> None:
    found = Replays(deviations={"a": None, "b": 0.5}, disagreeing={"a": ["eval_loss"]})
    assert json.loads(found.model_dump_json())["deviations"] == {"a": None, "b": 0.5}
    assert found.largest is None
