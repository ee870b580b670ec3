"""Pruned trainings are in no rate: what is asked of a sweep is what is asked of it without its pruned trials."""

from itertools import chain
from typing import Any

import numpy as np
import pytest

from attnsweep import open_sweep
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


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory: pytest.TempPathFactory) -> list[SweepDirectory]:
    """A sweep with and without its pruned trials."""
    folder, trials = tmp_path_factory.mktemp("sweeps"), _trials(0)
    kept = trials[: 40 - N_PRUNED]
    return [sweep_on_disk(folder / name, SPEC, list(chain(*each))) for name, each in (("all", trials), ("kept", kept))]


def _results(directory: SweepDirectory) -> SweepResults:
    return Ledger(directory.place).ask(lambda connection: read_results(connection, directory.spec))


def test_results_are_those_without_the_pruned_trials(sweeps: list[SweepDirectory]) -> None:
    found, expected = (_results(each) for each in sweeps)
    assert found.outcomes == expected.outcomes | {"pruned": 4 * N_PRUNED}
    assert "Pruned: 40 of 160 trainings are in no rate" in found.markdown()
    for name in ("stuck_rate", "solved_rate", "stuck_or_slow", "loss_median"):
        assert getattr(found, name) == getattr(expected, name), name
    assert found.preferred.best == expected.preferred.best
    for name in ("n", "k"):
        assert sum(row[name] for row in found.stuck_rate_by) == sum(row[name] for row in expected.stuck_rate_by)


def test_answers_are_those_without_the_pruned_trials(sweeps: list[SweepDirectory]) -> None:
    found, expected = (open_sweep(each.place) for each in sweeps)
    assert found.outcomes() == expected.outcomes()
    assert found.onset("degenerate_zero") == expected.onset("degenerate_zero")
