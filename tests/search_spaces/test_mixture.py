"""The density of a TPE model and the points drawn from it, beside Optuna's own."""

import numpy as np
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import TPESampler

from attnsweep.search_spaces.batched_tpe import Mixture

FLOATS: dict[str, BaseDistribution] = {
    "init_sigma": FloatDistribution(1e-4, 1.0, log=True),
    "momentum": FloatDistribution(-3.0, 5.0),
}
OTHERS: dict[str, BaseDistribution] = {
    "optimizer": CategoricalDistribution(("sgd", "adam", "adamw")),
    "n_positions": IntDistribution(4, 20),
    "batch_size": IntDistribution(1, 4096, log=True),
}


@pytest.mark.parametrize("space", [FLOATS, OTHERS, OTHERS | FLOATS], ids=["floats", "others", "all"])
@pytest.mark.parametrize("n_trials", [0, 1, 40])
def test_density_and_points_are_optunas(space: dict[str, BaseDistribution], n_trials: int) -> None:
    generator = np.random.RandomState(n_trials)
    sampler = TPESampler()
    estimator_of, settings = sampler._parzen_estimator_cls, sampler._parzen_estimator_parameters
    nothing: dict[str, np.ndarray] = {name: np.empty(0) for name in space}
    observed = estimator_of(nothing, space, settings).sample(generator, n_trials)
    estimator = estimator_of(observed, space, settings)
    mixture = Mixture(estimator)
    for seed in range(2):
        points = estimator.sample(np.random.RandomState(seed), 24)
        drawn = mixture.sample(np.random.RandomState(seed), 24)
        assert list(drawn) == list(points)
        for name, values in points.items():
            np.testing.assert_allclose(drawn[name], values, rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(mixture.log_pdf(points), estimator.log_pdf(points), rtol=1e-11, atol=1e-11)
