"""Samplers of our own beside Optuna's: the same draws where they must be, and a batch of one model."""

import math
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import TPESampler
from optuna.storages import InMemoryStorage

from attnsweep.orchestrator.running.study import new_trial
from attnsweep.search_spaces import Categorical, Conditional, Float, Int, Sweep
from attnsweep.search_spaces.batched_tpe import BatchedTPESampler, Mixture
from attnsweep.search_spaces.dimensions import Dimension
from attnsweep.search_spaces.numbered_draws import draws_of
from attnsweep.search_spaces.suggestion import make_sampler, suggest, values_of
from attnsweep.search_spaces.sweep import Sampler

SPACE: dict[str, Dimension] = {
    "init_sigma": Float(1e-4, 1.0, log=True),
    "momentum": Float(0.0, 0.9),
    "optimizer": Categorical(choices=("sgd", "adam")),
    "n_positions": Int(4, 20),
    "n_categories": Int(4, 4),
    "learning_rate": Conditional(on="optimizer", among=("adam",), then=Float(1e-4, 1e-2), otherwise=0.5),
}


def _sweep(**changes: Any) -> Sweep:
    return Sweep(name="s", workload="category_pairs", space=SPACE, trials=100, seed=7, sampler="random").but(**changes)


UNCONDITIONAL: dict[str, Dimension] = {
    name: dimension for name, dimension in SPACE.items() if not isinstance(dimension, Conditional)
}
GRID: dict[str, Dimension] = {
    "init_sigma": Float(1e-4, 1.0, log=True, points=3),
    "n_categories": Int(4, 4, points=1),
    "optimizer": Categorical(choices=("sgd", "adam")),
    "n_positions": Int(4, 20, points=4),
}


@pytest.mark.parametrize(
    ("sampler", "space"),
    [("random", SPACE), ("qmc", SPACE), ("qmc", UNCONDITIONAL), ("grid", GRID)],
    ids=["random", "qmc", "qmc-unconditional", "grid"],
)
@pytest.mark.parametrize("n_drivers", [1, 3])
def test_numbered_draws_are_those_of_optunas_sampler(
    sampler: Sampler, space: dict[str, Dimension], n_drivers: int
) -> None:
    sweep = _sweep(sampler=sampler, space=space, trials=24)
    study = optuna.create_study()
    drivers = [draws_of(sweep) for _ in range(n_drivers)]
    for trial in range(24):
        study.sampler = make_sampler(sweep, trial)
        drawn, distributions = drivers[trial % n_drivers].draw(trial)
        asked = new_trial(study, study._storage)
        assert values_of(sweep, drawn) == suggest(sweep, asked)
        assert (drawn, distributions) == (asked.params, asked.distributions)


def test_a_point_of_the_sequence_can_be_drawn_again() -> None:
    draws = draws_of(_sweep(sampler="qmc"))
    first = [draws.draw(trial)[0] for trial in range(5)]
    assert [draws.draw(trial)[0] for trial in (4, 1)] == [first[4], first[1]]


def _study_of(n_trials: int, storage: InMemoryStorage | None = None) -> optuna.Study:
    """Trials whose loss is smallest at x = 0.3."""
    study = optuna.create_study(storage=storage, sampler=TPESampler(seed=0))
    for _ in range(n_trials):
        trial = study.ask()
        study.tell(trial, abs(math.log(trial.suggest_float("x", 1e-3, 1.0, log=True) / 0.3)))
    return study


def test_the_first_trial_of_a_batch_is_optunas_own() -> None:
    values = []
    for sampler in (BatchedTPESampler(), TPESampler(seed=11, constant_liar=True)):
        study = _study_of(30)
        if isinstance(sampler, BatchedTPESampler):
            sampler.begin(11)
        study.sampler = sampler
        values.append(study.ask().suggest_float("x", 1e-3, 1.0, log=True))
    assert values[0] == values[1]


def test_a_batch_is_drawn_by_one_model_and_spreads(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = InMemoryStorage()
    study = _study_of(60, storage)
    fit, n_fits = BatchedTPESampler._fit, 0
    look, n_looks = optuna.Study._get_trials, 0

    def count(*arguments: Any) -> Any:
        nonlocal n_fits
        n_fits += 1
        return fit(*arguments)

    def count_look(*arguments: Any, **options: Any) -> Any:
        nonlocal n_looks
        n_looks += 1
        return look(*arguments, **options)

    monkeypatch.setattr(BatchedTPESampler, "_fit", count)
    monkeypatch.setattr(optuna.Study, "_get_trials", count_look)
    study.sampler = sampler = BatchedTPESampler()
    batch = []
    for seed in range(32):
        sampler.begin(seed)
        batch.append(new_trial(study, storage).suggest_float("x", 1e-3, 1.0, log=True))
    assert n_fits == 1
    # The costs of a trial must not grow with their number.
    assert n_looks < 5
    assert len(set(batch)) == 32
    # Without the liar all quartiles are at one point beside the best.
    lower, upper = sorted(math.log(x / 0.3) for x in batch)[8:25:16]
    assert lower < 0.0 < upper
    assert upper - lower > 0.5


def test_the_first_trial_of_a_batch_is_optunas_own_with_two_objectives_and_a_constraint() -> None:
    """With more than 250 trials, of which Optuna takes more for the better ones where there are several objectives."""
    space: dict[str, BaseDistribution] = {name: FloatDistribution(0.0, 1.0) for name in ("x", "y")}
    rng = TPESampler(seed=1)._rng.rng
    ended = []
    for x, y in rng.uniform(size=(300, 2)):
        values, excess = [(x - 0.3) ** 2 + y, (x - 0.6) ** 2 - y], {"a": 0.2 - x}
        ended.append(
            optuna.trial.create_trial(params={"x": x, "y": y}, distributions=space, values=values, constraints=excess)
        )
    drawn = []
    for sampler in (BatchedTPESampler(), TPESampler(seed=11, constant_liar=True)):
        if isinstance(sampler, BatchedTPESampler):
            sampler.begin(11)
        storage = InMemoryStorage()
        study = optuna.create_study(storage=storage, directions=["minimize", "maximize"], sampler=sampler)
        study.add_trials(ended)
        trial = new_trial(study, storage)
        drawn.append([trial.suggest_float(name, 0.0, 1.0) for name in space])
    assert drawn[0] == drawn[1]


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
