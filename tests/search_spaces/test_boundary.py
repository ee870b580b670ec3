"""The boundary sampler finds where half of the trainings are stuck, with fewer trainings than random and grid."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import optuna
import pytest
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, FloatDistribution

from attnsweep.search_spaces import Categorical, Float, LossQuantile, Sweep
from attnsweep.search_spaces.boundary import BoundarySampler, fit_rate
from attnsweep.search_spaces.measured import N_JUDGED
from attnsweep.search_spaces.validation import check_sweep
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.registry import load_workload

N = 8
SEEDS = range(4)
SQUARE: dict[str, BaseDistribution] = {"x": FloatDistribution(0, 1), "y": FloatDistribution(0, 1)}
_AXIS = np.linspace(0.01, 0.99, 50)
GRID = np.stack(np.meshgrid(_AXIS, _AXIS), -1).reshape(-1, 2)

Array = NDArray[np.float64]


def _wave(points: Array) -> Array:
    """Stuck beyond x = 0.35 + sin(2.5 pi y) / 4."""
    return 12 * (points[:, 0] - 0.35 - 0.25 * np.sin(2.5 * np.pi * points[:, 1]))


def _train(points: Array, rng: np.random.Generator) -> Array:
    return rng.binomial(N, 1 / (1 + np.exp(-_wave(points)))).astype(float)


def _error(points: Array, n_stuck: Array) -> float:
    """The share of the square that a surface of these trials puts on the wrong side."""
    mean, _ = fit_rate(points, np.full(len(points), float(N)), n_stuck).at(2 * GRID - 1)
    return float(np.mean((mean > 0) != (_wave(GRID) > 0)))


def _ask(study: optuna.Study, seed: int, space: Mapping[str, BaseDistribution] = SQUARE) -> optuna.Trial:
    """Asks as a sweep does: with a new sampler for each trial, which knows only the study."""
    number = len(study.get_trials(deepcopy=False))
    study.sampler = BoundarySampler(space, seed=1000 * seed + number, layout_seed=seed, n_replicates=N, n_startup=8)
    return study.ask(dict(space))


def _boundary(n_trials: int, seed: int) -> float:
    rng, study = np.random.default_rng(seed), optuna.create_study()
    points, n_stuck = np.zeros((0, 2)), np.zeros(0)
    while len(points) < n_trials:
        asked = [_ask(study, seed) for _ in range(8)]
        batch = np.array([[trial.params["x"], trial.params["y"]] for trial in asked])
        found = _train(batch, rng)
        for trial, k in zip(asked, found, strict=True):
            study.tell(trial, k / N)
        points, n_stuck = np.concatenate([points, batch]), np.concatenate([n_stuck, found])
    return _error(points, n_stuck)


def _random(n_trials: int, seed: int) -> float:
    rng = np.random.default_rng(seed)
    points = rng.random((n_trials, 2))
    return _error(points, _train(points, rng))


def _mean_error(design: Callable[[int, int], float], n_trials: int) -> float:
    return float(np.mean([design(n_trials, seed) for seed in SEEDS]))


@pytest.mark.scale
@pytest.mark.slow
def test_half_the_trainings_of_random_draws_find_the_boundary_as_well() -> None:
    found = _mean_error(_boundary, 48)
    assert found < 0.03
    assert found < 0.95 * _mean_error(_random, 100)
    assert found < 0.8 * _mean_error(_random, 48)


def test_it_leaves_a_boundary_that_it_knows_for_one_that_may_be() -> None:
    """The choice is neither where the mean is nearest to one half (0.15) nor where the deviation is largest (1)."""
    known, doubtful, certain = np.linspace(0.02, 0.3, 8), np.linspace(0.4, 0.7, 5), np.array([0.9, 1.0])
    told = [(x, 1 / (1 + np.exp(0.6 - 4 * x)), 1000) for x in known]
    told += [(x, 0.6, 4) for x in doubtful] + [(x, 1.0, 1000) for x in certain]
    study, space = optuna.create_study(), {"x": SQUARE["x"]}
    for x, rate, n in told:
        study.add_trial(
            optuna.create_trial(
                params={"x": float(x)}, distributions=space, value=float(rate), user_attrs={N_JUDGED: n}
            )
        )
    assert 0.5 < _ask(study, 0, space).params["x"] < 0.65


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"objective": LossQuantile()}, "objective"), ({"space": {"optimizer": Categorical(("sgd", "adam"))}}, "space")],
)
def test_a_sweep_without_a_boundary_to_find_is_refused(changes: dict[str, Any], message: str) -> None:
    fields: dict[str, Any] = {"name": "s", "workload": "category_pairs", "trials": 8, "sampler": "boundary"}
    spec = Sweep(**fields | {"space": {"init_sigma": Float(low=0.1, high=1)}} | changes)
    with pytest.raises(SpecError) as raised:
        check_sweep(spec, load_workload("category_pairs").parameters)
    assert str(raised.value).startswith(message)


def test_imagined_trainings_make_it_surer_where_they_are_and_move_nothing() -> None:
    rng, there = np.random.default_rng(0), np.array([[0.3, 0.3], [-0.8, 0.8]])
    points = rng.random((40, 2))
    before = fit_rate(points, np.full(40, float(N)), _train(points, rng))
    after = before.believing(there[:1], 32)
    assert after.at(there)[0] == pytest.approx(before.at(there)[0])
    near, far = after.at(there)[1] / before.at(there)[1]
    assert near < 0.9 < 0.98 < far
