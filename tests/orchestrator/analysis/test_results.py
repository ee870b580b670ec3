"""The results of a sweep in tables: JSON, Markdown, the best trial."""

import json
from pathlib import Path

import pytest

from attnsweep.orchestrator.analysis.rates.intervals import Rate
from attnsweep.orchestrator.analysis.results import SweepResults, read_preferred, read_results, read_stuck_or_slow
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.trial import complete_trials
from attnsweep.search_spaces import Categorical, LossQuantile, Sequential
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows
from tests.present import present

SOLVED, STUCK = ["solved"] * 4, ["runaway"] * 4


def test_the_best_trial_follows_the_objective(tmp_path: Path) -> None:
    trials = [
        trial_rows(0, STUCK, eval_loss=0.1),
        trial_rows(1, SOLVED, eval_loss=0.9, param_init_sigma=0.5),
        trial_rows(2, SOLVED, eval_loss=0.4),
        trial_rows(3, ["solved"], eval_loss=0.0),
        trial_rows(4, ["failed"] * 4),
    ]
    spec = small_sweep("best")
    sweep_on_disk(tmp_path / "sweep", spec, *trials)
    with Ledger(tmp_path / "sweep").connect() as connection:
        fewest_stuck = present(read_preferred(connection, spec).best)
        assert (fewest_stuck.trial, fewest_stuck.value) == (2, 0.0)
        least_loss = present(read_preferred(connection, spec.but(objective=LossQuantile())).best)
        assert (least_loss.trial, least_loss.value, least_loss.rate.k) == (0, 0.1, 4)
        most_loss = present(read_preferred(connection, spec.but(objective=LossQuantile(direction="maximize"))).best)
        assert (most_loss.trial, most_loss.parameters["init_sigma"]) == (1, 0.5)


def test_a_trial_is_not_complete_by_its_failed_trainings(tmp_path: Path) -> None:
    """7 of 8 trainings failed. Counted as not stuck, they would suffice to end the trial."""
    rule = Sequential(width=0.45, at_most=24, batch=8)
    mostly_failed = trial_rows(0, [*["failed"] * 7, "solved"])
    sweep_on_disk(
        tmp_path / "sweep", small_sweep("failed", replicates=rule), mostly_failed, trial_rows(1, ["solved"] * 8)
    )
    with Ledger(tmp_path / "sweep").connect() as connection:
        assert complete_trials(connection, rule) == [1]


def test_an_empty_ledger_has_a_summary(tmp_path: Path) -> None:
    spec = small_sweep("empty")
    sweep_on_disk(tmp_path / "sweep", spec)
    with Ledger(tmp_path / "sweep").connect() as connection:
        summary = read_results(connection, spec)
    assert (summary.n_trainings, summary.best, summary.stuck) == (0, None, Rate(0, 0, None, None))
    assert "| 1e-4..1e-3 | 0 | - |" in summary.markdown()


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> SweepResults:
    spec = small_sweep("figure", space={**small_sweep("x").space, "optimizer": Categorical(choices=("sgd", "adam"))})
    path = tmp_path_factory.mktemp("sweeps") / "sweep"
    sweep_on_disk(path, spec, trial_rows(0, STUCK), trial_rows(1, ["solved", "marginal", "solved", "solved"]))
    with Ledger(path).connect() as connection:
        return read_results(connection, spec)


def test_stuck_or_slow_compares_the_steps_taken_with_those_predicted(tmp_path: Path) -> None:
    predictions = {10: "stuck twenty times over", 70: "undecided", 200: "slow", None: "no law"}
    trials = [
        trial_rows(at, ["degenerate_zero", "runaway"], n_steps=100, predicted_escape_step=step)
        for at, step in enumerate(predictions)
    ]
    solved = trial_rows(9, ["solved"], n_steps=10, predicted_escape_step=20)
    spec = small_sweep("slow")
    sweep_on_disk(tmp_path / "sweep", spec, *trials, solved)
    with Ledger(tmp_path / "sweep").connect() as connection:
        found = present(read_results(connection, spec).stuck_or_slow)
    assert (found.stuck, found.slow, found.unknown) == (2, 1, 5)
    assert found.ratio == pytest.approx(100 / 70)
    assert "of 8 stuck trainings, 2 took at least 2 times" in found.sentence()


def test_stuck_or_slow_is_json_where_trainings_leave_at_once(tmp_path: Path) -> None:
    spec = small_sweep("at_once")
    sweep_on_disk(tmp_path / "sweep", spec, trial_rows(0, ["runaway"], n_steps=100, predicted_escape_step=0))
    with Ledger(tmp_path / "sweep").connect() as connection:
        found = present(read_results(connection, spec).stuck_or_slow)
    assert found.as_json() == {"stuck": 1, "slow": 0, "unknown": 0, "ratio": None}


def test_stuck_or_slow_says_nothing_without_predictions(tmp_path: Path) -> None:
    spec = small_sweep("unknown")
    sweep_on_disk(tmp_path / "sweep", spec, trial_rows(0, STUCK))
    with Ledger(tmp_path / "sweep").connect() as connection:
        assert read_results(connection, spec).stuck_or_slow is None
    old = Path(__file__).parents[2] / "golden" / "0.1.0" / "finished"
    with Ledger(old).connect() as connection:
        assert read_stuck_or_slow(connection) is None


def test_the_summary_is_plain_json_and_markdown(summary: SweepResults) -> None:
    stuck = json.loads(json.dumps(summary.as_json(), allow_nan=False))["stuck_rate"]
    assert (stuck["n"], stuck["k"], stuck["share"]) == (8, 5, 0.625)
    assert "| sgd | 2 | 0.62 [" in summary.markdown()
