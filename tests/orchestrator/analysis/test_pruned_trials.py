"""Pruned trainings are in no rate: what is asked of a sweep is what is asked of it without its pruned trials."""

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnsweep import open_sweep
from attnsweep.orchestrator.analysis.opened_sweep import SweepData
from attnsweep.orchestrator.analysis.results import SweepResults, read_results
from attnsweep.orchestrator.cli.screen.status import print_status
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.report.page import make_report
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.content import trial_values
from tests.orchestrator.small_sweep import Rows, small_sweep, sweep_on_disk, trial_rows

ENDS = ("solved", "degenerate_zero", "marginal", "plateau", "diverged", "failed")
SPEC = small_sweep("s", trials=40)
N_PRUNED = 10


def _trials(seed: int) -> list[Rows]:
    """Thirty trials with all outcomes, then ten pruned ones that look stuck, with the best losses of all."""
    rng, trials = np.random.default_rng(seed), []
    for trial in range(40):
        is_pruned = trial >= 40 - N_PRUNED
        given: dict[str, Any] = {
            "param_init_sigma": float(10 ** rng.uniform(-4, 0)),
            "param_learning_rate": float(10 ** rng.uniform(-3, -1)),
            "onset_step": None if is_pruned else int(rng.integers(1, 8)),
            "predicted_escape_step": int(rng.integers(1, 30)),
            "pruned_step": 4 if is_pruned else None,
        }
        outcomes = ["pruned"] * 4 if is_pruned else rng.choice(ENDS, 4).tolist()
        rows = trial_rows(trial, outcomes, **given)
        trials.append([row | {"eval_loss": 1e-9, "n_steps": 4} for row in rows] if is_pruned else rows)
    return trials


@pytest.fixture(scope="module", params=[0, 1])
def sweeps(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[SweepDirectory]:
    """A sweep with and without its pruned trials."""
    folder, trials = tmp_path_factory.mktemp("sweeps"), _trials(request.param)
    kept = trials[: 40 - N_PRUNED]
    return [sweep_on_disk(folder / name, SPEC, list(chain(*each))) for name, each in (("all", trials), ("kept", kept))]


def _results(directory: SweepDirectory) -> SweepResults:
    return Ledger(directory.place).ask(lambda connection: read_results(connection, directory.spec))


def test_results_are_those_without_the_pruned_trials(sweeps: list[SweepDirectory]) -> None:
    found, expected = (_results(each) for each in sweeps)
    assert found.outcomes == expected.outcomes | {"pruned": 4 * N_PRUNED}
    assert expected.pruned_note is None
    assert found.pruned_note is not None
    assert found.pruned_note.startswith("pruned: 40 of 160 trainings are in no rate")
    assert found.pruned_note.capitalize() in found.markdown()
    one, other = found.as_json(), expected.as_json()
    for name in ("stuck_rate", "solved_rate", "stuck_or_slow", "loss_median", "best_trial"):
        assert one[name] == other[name], name
    for rates, others in zip(found.by_parameter, expected.by_parameter, strict=True):
        assert sum(each.rate.n for each in rates.bins) == sum(each.rate.n for each in others.bins)
        assert sum(each.rate.k for each in rates.bins) == sum(each.rate.k for each in others.bins)


def test_answers_are_those_without_the_pruned_trials(sweeps: list[SweepDirectory]) -> None:
    found, expected = (open_sweep(each.place) for each in sweeps)
    outcomes = found.outcomes()
    assert outcomes.n_pruned == 4 * N_PRUNED
    assert outcomes.to_arrow() == expected.outcomes().to_arrow()

    def onset(sweep: SweepData) -> Any:
        return sweep.onset("degenerate_zero").to_arrow()

    assert onset(found) == onset(expected)


def test_mlflow_gets_how_many_were_pruned_and_no_rate_of_them(sweeps: list[SweepDirectory]) -> None:
    values, others = (
        Ledger(each.place).ask(lambda connection, each=each: trial_values(connection, each))  # type: ignore[misc]
        for each in sweeps
    )
    assert {trial: values[trial] for trial in others} == others
    for trial in range(40 - N_PRUNED, 40):
        assert values[trial].metrics == {"n_trainings": 4.0, "n_pruned": 4.0, "train_seconds": 1.0}


def test_status_says_how_many(sweeps: list[SweepDirectory], capsys: pytest.CaptureFixture[str]) -> None:
    print_status(sweeps[0].place)
    said = capsys.readouterr().out
    assert "pruned: 40 of 160 trainings are in no rate" in said
    print_status(sweeps[1].place)
    assert "pruned" not in capsys.readouterr().out


def test_status_says_that_rows_of_a_finished_sweep_are_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = sweep_on_disk(tmp_path / "s", SPEC.but(trials=2), trial_rows(0, ["solved"] * 4))
    directory.record_run(finished=True, seconds=1.0)
    print_status(directory.place)
    assert f"missing     4, refused by the workload, or lost: attnsweep audit {tmp_path}/s" in capsys.readouterr().out


@pytest.mark.slow
def test_the_report_says_how_many(tmp_path: Path) -> None:
    spec = SPEC.but(space={"n_steps": 8}, trials=2)
    directory = sweep_on_disk(tmp_path / "s", spec, trial_rows(0, ["solved"] * 4), trial_rows(1, ["pruned"] * 4))
    page, _ = make_report([directory.place])
    assert "Pruned: 4 of 8 trainings are in no rate" in page
