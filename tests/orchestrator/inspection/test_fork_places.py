"""Forks of sweeps that are not one directory on this disk: in an object store, merged, opened together."""

from pathlib import Path

import pytest

from attnsweep import open_sweep
from attnsweep.orchestrator.analysis.merging import merge_sweeps
from attnsweep.orchestrator.inspection.fork import Fork, fork
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.errors import UserError
from tests.orchestrator.small_sweep import small_sweep
from tests.orchestrator.storage.object_store import new_prefix
from tests.orchestrator.trained_sweep import trained_sweep


def _forked(directory: SweepDirectory, name: str) -> Fork:
    return fork(directory, name, step=3, redraw="kick", n=3, size=0.1)


def _losses(found: Fork) -> list[float]:
    assert not found.difference
    return [float(loss) for loss in found.trainings["eval_loss"].to_pylist()]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    return trained_sweep(tmp_path_factory.mktemp("here") / "s", small_sweep("pairs", trials=2, replicates=2))


@pytest.mark.usefixtures("s3")
def test_a_fork_in_an_object_store_is_that_on_a_disk(here: SweepDirectory) -> None:
    there = trained_sweep(new_prefix(), small_sweep("pairs", trials=2, replicates=2))
    assert _losses(_forked(there, "1/0")) == _losses(_forked(here, "1/0"))
    assert open_sweep(str(there.place)).committors(1, at=[3], redraw="kick", n=2).differences == ()


def test_a_merged_sweep_names_its_sources_and_sweeps_opened_together_are_forked_at_home(
    here: SweepDirectory, tmp_path: Path
) -> None:
    other = trained_sweep(tmp_path / "other", small_sweep("others", trials=2, replicates=2, seed=1))
    merged = merge_sweeps(tmp_path / "merged", [here.place, other.place])
    with pytest.raises(UserError, match="expected a single sweep; give one of the merged sweeps") as refused:
        _forked(merged, "1/1")
    assert str(other.place) in str(refused.value)
    together = open_sweep(str(here.place), str(other.place))
    assert _losses(together.fork("1000001/1", at=3, redraw="kick", n=3, size=0.1)) == _losses(_forked(other, "1/1"))
    assert together.committors(1_000_001, at=[3], redraw="kick", n=2).sweep == other.sweep
