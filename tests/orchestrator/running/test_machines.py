"""A sweep on machines of several types: each row names its own, and is trained again on one of that type."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from attnsweep.orchestrator.ledger.compaction import compact
from attnsweep.orchestrator.ledger.schema import schemas_of
from attnsweep.orchestrator.ledger.writer import LedgerWriter
from attnsweep.orchestrator.running.checkpoints import Checkpoints
from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.running.self_check import replay_some
from attnsweep.orchestrator.running.study import open_study
from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.messages import PackOrder
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.process import processor
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
        loop = SweepLoop(directory, WORKLOAD, study, writer, Fleet(directory, OLD, NEW), pack_size=2, followers=())
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
    machines = Counter(sweep.machine_of(row["environment"]) for row in records(sweep))
    assert set(machines) == {OLD, NEW}
    assert min(machines.values()) >= 2
    assert sweep.machine_of(sweep.environment) == NEW
    assert sweep.alike == set(sweep.environments)


def test_replays_go_to_machines_of_the_type_that_trained(
    sweep: SweepDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = [row["training_id"] for row in records(sweep)]
    machine_of = {row["training_id"]: sweep.machine_of(row["environment"]) for row in records(sweep)}
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


def test_a_pack_that_another_type_of_machine_has_begun_is_begun_anew(sweep: SweepDirectory) -> None:
    """No training is done partly on one type and partly on another."""
    (of_old,) = (name for name, each in sweep.environments.items() if each.machine == OLD)
    place = sweep.place
    order = PackOrder("p", [], environment=of_old)
    Checkpoints(place).put(order, b"state")
    kept = Checkpoints(place)
    (saved,) = kept.load()
    assert saved.environment in sweep.alike
    assert (kept.latest("p", of_old), kept.latest("p", sweep.environment)) == (b"state", None)


RUN = """
from attnsweep.orchestrator.cli import main
main()
"""


@pytest.mark.scale
def test_another_set_of_instructions_is_another_type(no_mlflow: None, tmp_path: Path) -> None:
    """A real one: PyTorch takes its plainest kernels, as on a processor without AVX2."""
    here = torch.backends.cpu.get_cpu_capability()
    if here == "DEFAULT":
        pytest.skip("this processor has the plainest kernels alone")
    path = tmp_path / "s"
    words = ["run", "quickstart", "--local", "--engine", "eager", "--trials", "2", "--replicates", "2"]
    words += ["--set", "n_steps=20", "--dir", str(path)]
    plain = os.environ | {"ATEN_CPU_CAPABILITY": "default"}
    subprocess.run([sys.executable, "-c", RUN, *words], env=plain, check=True, capture_output=True)
    done = subprocess.run(
        [sys.executable, "-c", RUN, "replay", str(path), "0/0"], check=False, capture_output=True, text=True
    )
    assert f"replayed on {processor()}: the last digits may differ" in done.stdout
