"""Pruned trainings are in no rate: what is asked of a sweep is what is asked of it without its pruned trials."""

from itertools import chain
from typing import Any

import numpy as np
import pytest

from attnsweep import open_sweep
from attnsweep.orchestrator.analysis.opened_sweep import SweepData
from attnsweep.orchestrator.analysis.results import SweepResults, read_results
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
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
