"""The self-check: a hundredth of a sweep's trainings is trained again at its end, in other packs.

A difference is a fault of the run, wherever the run is looked at; its rows are kept.
"""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from attnsweep import Ledger
from attnsweep.orchestrator.cli import app
from attnsweep.orchestrator.running import self_check
from attnsweep.orchestrator.running.self_check import replay_some
from attnsweep.orchestrator.storage.run_records import Replays
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.local_pool import LocalPool
from attnsweep.orchestrator.training.messages import RunContext
from attnsweep.search_spaces import Sweep
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.registry import load_workload
from tests.orchestrator.trained_sweep import FRAGILE, edit_row, records, trained_sweep
from tests.present import present


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    file = tmp_path_factory.mktemp("fragile") / "fragile.py"
    file.write_text(FRAGILE)
    return load_sweep(str(file))


@pytest.fixture(scope="module")
def whole(spec: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained once, in packs of three."""
    path = tmp_path_factory.mktemp("whole") / "s"
    trained_sweep(path, spec, pack_size=3)
    return path


@pytest.fixture
def directory(whole: Path, tmp_path: Path) -> SweepDirectory:
    """A copy, to be changed."""
    return SweepDirectory.open(Path(shutil.copytree(whole, tmp_path / "s")))


def _replayed(directory: SweepDirectory) -> Replays:
    workload = load_workload(directory.spec.workload)
    return present(replay_some(directory, workload, LocalPool(workload, RunContext(directory.sweep)), lambda: False))


@pytest.mark.slow
def test_what_ends_otherwise_alone_is_named(directory: SweepDirectory) -> None:
    chosen = min(present(directory.progress.replays).deviations)
    (row,) = records(directory, training_id=chosen)
    edit_row(directory, "trainings", row["place"], n_steps=7, eval_loss=2 * row["eval_loss"])
    found = _replayed(directory)
    assert found.disagreeing == {chosen: ["n_steps", "eval_loss"]}
    assert found.deviations[chosen] == pytest.approx(0.5)
    assert f"{chosen} (n_steps, eval_loss)" in str(found)


@pytest.mark.slow
def test_a_training_that_raises_only_when_it_is_replayed_is_named(
    directory: SweepDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found although it shares a pack with another one."""
    fine = [row["training_id"] for row in records(directory, outcome="plateau")]
    failed = records(directory, outcome="failed")[:2]
    for row in failed:
        edit_row(directory, "trainings", row["place"], outcome="plateau", error=None)
    raising = [row["training_id"] for row in failed]
    monkeypatch.setattr(self_check, "to_replay", lambda *_: fine[:2] + raising)
    found = _replayed(directory)
    assert found.disagreeing == {raising[0]: ["error"]}
    assert found.deviations == {fine[0]: 0.0, fine[1]: 0.0, raising[0]: None}


UNSEEDED = """
from attnsweep import Rule, Sweep, VerdictTable
from attnsweep.workloads.category_pairs import CategoryPairs

def alone(_, evidence):
    return evidence.metrics["eval_loss"] * (len(evidence.metrics["eval_loss"]) == 1) > 0

class Unseeded(CategoryPairs):
    name = "unseeded"
    verdicts = VerdictTable((Rule(outcome="marginal", when=alone),))

def sweep():
    return Sweep(
        name="unseeded", workload="unseeded.py:Unseeded", sampler="random", trials=2, replicates=2,
        space={"n_steps": 5, "n_categories": 3, "n_positions": 4},
    )
"""
"""How many trainings share the pack decides about the outcome: as a draw outside the seeded streams would."""


@pytest.fixture
def ended(tmp_path: Path, no_mlflow: None) -> Result:
    spec, hook = tmp_path / "unseeded.py", f"cat > {tmp_path / 'told'}"
    spec.write_text(UNSEEDED)
    arguments = ["run", str(spec), "--local", "--dir", str(tmp_path / "s"), "--json", "--no-report"]
    return CliRunner().invoke(app, [*arguments, "--on-failure", hook, "--on-finish", f"touch {tmp_path / 'finished'}"])


def test_the_run_ends_with_its_fault_and_keeps_its_rows(ended: Result, tmp_path: Path) -> None:
    assert ended.exit_code == 1
    fault = json.loads(ended.stdout.splitlines()[-1])["fault"]
    assert "2 of 2 replayed trainings" in fault
    assert fault.endswith("(outcome)")
    assert json.loads((tmp_path / "told").read_text()) == {"directory": str(tmp_path / "s"), "error": fault}
    assert not (tmp_path / "finished").exists()
    assert fault in ended.stderr
    assert f"attnsweep replay {tmp_path / 's'} " in ended.stderr
    assert Ledger(tmp_path / "s").trainings().num_rows == 4
