"""A sweep on machines of several types: each row names its own, and is trained again on one of that type."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from attnsweep.orchestrator.ledger.compaction import compact
from attnsweep.orchestrator.ledger.schema import schemas_of
from attnsweep.orchestrator.ledger.writer import LedgerWriter
from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.running.self_check import replay_some
from attnsweep.orchestrator.running.study import open_study
from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.category_pairs import CategoryPairs
from tests.orchestrator.running.fleet import Fleet
from tests.orchestrator.small_sweep import small_sweep
from tests.orchestrator.trained_sweep import records

WORKLOAD = CategoryPairs()
OLD, NEW = "x86_64, AVX2", "x86_64, AVX512"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep that a fleet of two types has trained; its driver is on the newer one."""
    path = tmp_path_factory.mktemp("machines") / "s"
    spec = small_sweep("machines", trials=6, sampler="random")
    declared, newest = WORKLOAD.parameters.declared(), Environment.current().on(NEW)
    directory = SweepDirectory.create(
        path,
        spec,
        {name: each.default for name, each in declared.items() if name not in spec.space},
        environments={newest.id: newest},
    )
    with LedgerWriter(directory.place, schemas_of(WORKLOAD), directory.spec_sha256) as writer:
        study = open_study(directory)
        loop = SweepLoop(directory, WORKLOAD, study, writer, Fleet(directory, OLD, NEW), pack_size=2)
        assert loop.run(lambda: False)
        study.save()
    loop.directory.record_run(finished=True, seconds=1.0)
    compact(loop.directory.place)
    return path


@pytest.fixture
def sweep(whole: Path, tmp_path: Path) -> SweepDirectory:
    """A copy, to be changed."""
    return SweepDirectory.open(Path(shutil.copytree(whole, tmp_path / "s")))


def test_each_row_names_the_type_of_machine_that_trained_it(sweep: SweepDirectory) -> None:
    machines = Counter(sweep.environment_of(row["environment"]).machine for row in records(sweep))
    assert set(machines) == {OLD, NEW}
    assert min(machines.values()) >= 2
    assert sweep.environment_of(sweep.environment).machine == NEW
    assert sweep.alike == set(sweep.environments)


def test_replays_go_to_machines_of_the_type_that_trained(
    sweep: SweepDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = [row["training_id"] for row in records(sweep)]
    machine_of = {row["training_id"]: sweep.environment_of(row["environment"]).machine for row in records(sweep)}
    monkeypatch.setattr("attnsweep.orchestrator.running.self_check.to_replay", lambda *_: every)
    fleet = Fleet(sweep, NEW, OLD)
    found = replay_some(sweep, WORKLOAD, fleet, lambda: False)
    assert found is not None
    assert {machine_of[order.pack] == machine for machine, order in fleet.trained} == {True}
    assert found.deviations == dict.fromkeys(every, 0.0)
    assert "no machine" not in str(found)

    fleet = Fleet(sweep, NEW)
    found = replay_some(sweep, WORKLOAD, fleet, lambda: False)
    assert found is not None
    n_old = list(machine_of.values()).count(OLD)
    assert found.left_out == {OLD: n_old}
    assert found.deviations == dict.fromkeys([each for each in every if machine_of[each] == NEW], 0.0)
    assert f"{n_old} of {OLD}" in str(found)

    found = replay_some(sweep, WORKLOAD, Fleet(sweep, "aarch64, DEFAULT"), lambda: False)
    assert found is not None
