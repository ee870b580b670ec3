"""A self-check that finds a difference is a fault of the run, wherever the run is looked at; its rows are kept."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from attnsweep import Ledger
from attnsweep.orchestrator.cli import app
from attnsweep.orchestrator.storage.run_records import LIKELY_CAUSES

UNSEEDED = """
from attnsweep import Sweep, Verdicts
from attnsweep.workloads.category_pairs import CategoryPairs

class Unseeded(CategoryPairs):
    name = "unseeded"

    def judge(self, parameters, evidence):
        alone = len(evidence.metrics["eval_loss"]) == 1
        return Verdicts.first_of({"marginal": evidence.metrics["eval_loss"] * alone > 0})

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
    assert fault.startswith("replayed 2 of 2 trainings alone, which end differently, such as ")
    assert fault.endswith("(outcome)")
    assert json.loads((tmp_path / "told").read_text()) == {"directory": str(tmp_path / "s"), "error": fault}
    assert not (tmp_path / "finished").exists()
    assert fault in ended.stderr
    assert all(cause in ended.stderr for cause in LIKELY_CAUSES)
    assert f"attnsweep replay {tmp_path / 's'} " in ended.stderr
    assert Ledger(tmp_path / "s").trainings().num_rows == 4


def test_whoever_looks_at_the_sweep_is_told(ended: Result, tmp_path: Path) -> None:
    fault = json.loads(ended.stdout.splitlines()[-1])["fault"]
    shown = CliRunner().invoke(app, ["status", str(tmp_path / "s")])
    assert "finished, with a fault" in shown.stdout.splitlines()[0]
    assert f"fault       {fault}" in shown.stdout
    assert CliRunner().invoke(app, ["report", str(tmp_path / "s")]).exit_code == 0
    assert fault in (tmp_path / "s" / "report" / "report.html").read_text()
    # A difference once found stays found: that a further attempt may find none proves nothing.
    again = CliRunner().invoke(app, ["resume", str(tmp_path / "s"), "--local", "--no-report", "--json"])
    assert (again.exit_code, json.loads(again.stdout.splitlines()[-1])["fault"]) == (1, fault)
