"""The smooth surface of logits: its terms, its maximum, and what it predicts of trials that are held out."""

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.interpolate import BSpline

from attnsweep.orchestrator.analysis.phase import splines
from attnsweep.orchestrator.analysis.phase.splines import Floats, Splines, expit, fit_smooth


def _trials(n_trials: int, seed: int = 0) -> tuple[Floats, Floats, Floats, Floats]:
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(-1, 1, (2, n_trials))
    chance = 1 / (1 + np.exp(-2 * x + 3 * np.sin(2 * y)))
    return x, y, np.full(n_trials, 8.0), rng.binomial(8, chance).astype(float)


@pytest.mark.parametrize("n", [6, 32])
def test_the_terms_are_products_of_cubic_splines(n: int) -> None:
    terms, rng = Splines(n), np.random.default_rng(0)
    x, y = rng.uniform(-1, 1, (2, 50))
    number, value = terms.at(x, y)
    found = np.zeros((50, n**2))
    np.put_along_axis(found, number, value, axis=1)
    knots = -1 + terms.spacing * np.arange(-3, n + 1)
    along_x, along_y = (BSpline.design_matrix(each, knots, 3).toarray() for each in (x, y))
    assert found == pytest.approx(np.einsum("pi,pj->pij", along_y, along_x).reshape(50, -1))


def test_without_bends_it_is_the_regression_of_single_trainings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splines, "_SMOOTHINGS", np.array([1e5]))
    x, y, n, k = _trials(60)
    ended = np.concatenate([np.arange(8) < each for each in k]).astype(float)
    design = np.repeat(np.column_stack([np.ones(60), x, y]), 8, axis=0)
    fitted = sm.GLM(ended, design, family=sm.families.Binomial()).fit()
    found = fit_smooth(x, y, n, k, n)
    assert found.n_effective == pytest.approx(3, abs=0.01)
    assert found.at(x, y)[0] == pytest.approx(design[::8] @ fitted.params, abs=0.01)


def test_what_is_held_out_is_predicted_by_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splines, "_SMOOTHINGS", np.array([0.1]))
    x, y, n, k = _trials(80)
    held_out = fit_smooth(x, y, n, k, n).held_out
    fitted = expit(fit_smooth(x, y, n, k, n).at(x, y)[0])
    for at in range(0, 80, 8):
        others = np.arange(80) != at
        alone = fit_smooth(*(each[others] for each in (x, y, n, k, n)))
        predicted = expit(alone.at(x[at : at + 1], y[at : at + 1])[0])[0]
        assert abs(held_out[at] - predicted) < 0.1 * abs(fitted[at] - predicted) + 0.01


def test_trials_at_one_place_are_held_out_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Splines, "for_trials", lambda _: Splines(9))
    x, y, n, k = _trials(40)
    # The penalty is in the unit of a trial's trainings.
    monkeypatch.setattr(splines, "_SMOOTHINGS", np.array([0.05]))
    once = fit_smooth(x, y, 2 * n, 2 * k, 2 * n)
    monkeypatch.setattr(splines, "_SMOOTHINGS", np.array([0.1]))
    twice = fit_smooth(*(np.tile(each, 2) for each in (x, y, n, k, n)))
    assert twice.held_out[:40] == pytest.approx(once.held_out, abs=1e-4)
    assert twice.dispersion == pytest.approx(once.dispersion / 2, rel=0.25)
