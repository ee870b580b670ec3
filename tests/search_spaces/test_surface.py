"""One surface for phase diagrams and for the sampler `boundary`; tests/orchestrator/analysis/test_coverage.py simulates
its bands."""

import numpy as np
import pytest

from attnsweep.search_spaces.surface import Floats, expit, fit_logit


def _trials(n_trials: int = 80) -> tuple[Floats, Floats, Floats]:
    rng = np.random.default_rng(0)
    x_TD = rng.uniform(-1, 1, (n_trials, 2))
    chance = expit(2 * x_TD[:, 0] - 3 * np.sin(2 * x_TD[:, 1]))
    return x_TD, np.full(n_trials, 8.0), rng.binomial(8, chance).astype(float)


def test_imagined_trainings_make_it_surer_where_they_are_and_move_nothing() -> None:
    there = np.array([[0.3, 0.3], [-0.8, 0.8]])
    before = fit_logit(*_trials(40))
    after = before.believing(there[:1], 32)
    assert after.at(there)[0] == pytest.approx(before.at(there)[0])
    near, far = after.at(there)[1] / before.at(there)[1]
    assert near < 0.9 < 0.98 < far
