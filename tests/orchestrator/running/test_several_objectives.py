"""A sweep with two objectives and a constraint: told, interrupted, resumed, audited, summarized, reported."""

import io
import json
from pathlib import Path
from typing import Any

from optuna.trial import TrialState
from rich.console import Console

from attnsweep import LossQuantile, Rate, Sweep
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.report.page import make_report
from attnsweep.orchestrator.running.study_storage import read_trials
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tools.audit.audit import audit
from attnsweep.orchestrator.tracking.content import trial_contents
from attnsweep.search_spaces.sweep import Sampler
from tests.fault import sweeps

GOALS: dict[str, Any] = {
    "objective": [Rate("stuck", direction="minimize"), LossQuantile(quantile=0.9)],
    "constraints": ["loss_quantile <= 0.95"],
}


def spec_of(sampler: Sampler) -> Sweep:
    return sweeps.small_sweep(sampler=sampler, trials=13 if sampler == "tpe" else 6, **GOALS)


def told(path: Path) -> list[tuple[dict[str, Any], TrialState, list[float], dict[str, float]]]:
    trials = read_trials(SweepDirectory.open(path))
    return [(each.params, each.state, each.values, each.constraints) for each in trials]


def test_audit_summary_mlflow_and_report_have_each_objective(tmp_path: Path, no_mlflow: None) -> None:
    summary = sweeps.run(spec_of("nsga2"), tmp_path / "s")
    assert [str(each) for each in audit(tmp_path / "s").problems if "mlflow-sync" not in str(each)] == []
    stored = json.loads(summary.to_json())
    assert (stored["best_trial"], 0 < stored["feasible_trials"] < 6) == (None, True)
    assert stored["pareto_front"][0]["values"].keys() == {"rate of stuck", "loss_quantile 0.9"}
    with Ledger(tmp_path / "s").connect() as connection:
        contents = trial_contents(connection, SweepDirectory.open(tmp_path / "s"), range(100))
    in_mlflow = {content.trial: content for content in contents}
    for trial, (_, _, values, excess) in enumerate(told(tmp_path / "s")):
        metrics = in_mlflow[trial].metrics
        assert [metrics["objective/rate of stuck"], metrics["objective/loss_quantile 0.9"]] == values
        assert metrics["constraints_met"] == (excess["loss_quantile <= 0.95"] <= 0)
    made = make_report([tmp_path / "s"])
    page = made.text
    assert f"{len(stored['pareto_front'])} of 6 complete trials meet the constraints and are on the front" in page
    screen = io.StringIO()
    summary.print(Console(file=screen, width=200))
    assert f"{stored['feasible_trials']} of 6 trials meet the constraints: loss_quantile <= 0.95" in screen.getvalue()
    assert f"Pareto front: #{stored['pareto_front'][0]['trial']}" in screen.getvalue()
