"""What is shown of a sweep without trainings, and of one with two objectives."""

import io
import json
from pathlib import Path

from rich.console import Console

from attnsweep import LossQuantile, Rate
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.report.page import make_report
from attnsweep.orchestrator.running.study import read_trials
from attnsweep.orchestrator.running.summary import summarize
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tools.audit.audit import audit
from attnsweep.orchestrator.tracking.content import trial_contents
from tests.fault import sweeps
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk


def test_a_run_that_ended_before_its_first_training_says_how_to_continue_and_nothing_else(tmp_path: Path) -> None:
    directory = sweep_on_disk(tmp_path / "s", small_sweep("s"))
    summary = summarize(directory, refused={}, finished=False, seconds=1.0, n_before=0, replays=None)
    told = io.StringIO()
    summary.print(Console(file=told, width=200))
    title, last = told.getvalue().strip().splitlines()
    assert title.endswith("0 trainings of 0 trials")
    assert last == f"interrupted; continue with: attnsweep resume {tmp_path / 's'}"


def test_audit_summary_mlflow_and_report_have_each_objective(tmp_path: Path, no_mlflow: None) -> None:
    objectives = [Rate("stuck", direction="minimize"), LossQuantile(quantile=0.9)]
    spec = sweeps.small_sweep(sampler="nsga2", trials=6, objective=objectives, constraints=["loss_quantile <= 0.95"])
    summary = sweeps.run(spec, tmp_path / "s")
    assert [str(each) for each in audit(tmp_path / "s").problems if "mlflow-sync" not in str(each)] == []
    stored = json.loads(summary.to_json())
    assert (stored["best_trial"], 0 < stored["feasible_trials"] < 6) == (None, True)
    assert stored["pareto_front"][0]["values"].keys() == {"rate of stuck", "loss_quantile 0.9"}
    with Ledger(tmp_path / "s").connect() as connection:
        contents = trial_contents(connection, SweepDirectory.open(tmp_path / "s"), range(100))
    in_mlflow = {content.trial: content for content in contents}
    for trial in read_trials(SweepDirectory.open(tmp_path / "s")):
        metrics = in_mlflow[trial.number].metrics
        assert [metrics["objective/rate of stuck"], metrics["objective/loss_quantile 0.9"]] == trial.values
        assert metrics["constraints_met"] == (trial.constraints["loss_quantile <= 0.95"] <= 0)
    made = make_report([tmp_path / "s"])
    page = made.text
    assert f"{len(stored['pareto_front'])} of 6 complete trials meet the constraints and are on the front" in page
    screen = io.StringIO()
    summary.print(Console(file=screen, width=200))
    assert f"{stored['feasible_trials']} of 6 trials meet the constraints: loss_quantile <= 0.95" in screen.getvalue()
    assert f"Pareto front: #{stored['pareto_front'][0]['trial']}" in screen.getvalue()
