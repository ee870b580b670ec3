"""The boundary sampler finds where half of the trainings are stuck, with fewer trainings than random and grid."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import optuna
import pytest
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from attnsweep.search_spaces import Categorical, Conditional, Float, LossQuantile, Sweep
from attnsweep.search_spaces.boundary import BoundarySampler, fit_stuck
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
Logit = Callable[[Array], Array]


def _wave(points: Array) -> Array:
    """The surface `wave`: stuck beyond x = 0.35 + sin(2.5 pi y) / 4."""
    return 12 * (points[:, 0] - 0.35 - 0.25 * np.sin(2.5 * np.pi * points[:, 1]))


def _island(points: Array) -> Array:
    """The surface `island`: stuck within 0.22 of (0.7, 0.3), 15% of the square."""
    return 20 * (0.22 - np.hypot(points[:, 0] - 0.7, points[:, 1] - 0.3))


def _train(points: Array, rng: np.random.Generator, logit: Logit = _wave) -> Array:
    return rng.binomial(N, 1 / (1 + np.exp(-logit(points)))).astype(float)


def _error(points: Array, n_stuck: Array, logit: Logit = _wave) -> float:
    """The share of the square that a surface of these trials puts on the wrong side."""
    mean, _ = fit_stuck(points, np.full(len(points), float(N)), n_stuck).at(2 * GRID - 1)
    return float(np.mean((mean > 0) != (logit(GRID) > 0)))


def _ask(study: optuna.Study, seed: int, space: Mapping[str, BaseDistribution] = SQUARE) -> optuna.Trial:
    """Asks as a sweep does: with a new sampler for each trial, which knows only the study."""
    number = len(study.get_trials(deepcopy=False))
    study.sampler = BoundarySampler(space, seed=1000 * seed + number, layout_seed=seed, n_replicates=N, n_startup=8)
    return study.ask(dict(space))


def _boundary(n_trials: int, seed: int, logit: Logit = _wave) -> float:
    rng, study = np.random.default_rng(seed), optuna.create_study()
    points, n_stuck = np.zeros((0, 2)), np.zeros(0)
    while len(points) < n_trials:
        asked = [_ask(study, seed) for _ in range(8)]
        batch = np.array([[trial.params["x"], trial.params["y"]] for trial in asked])
        found = _train(batch, rng, logit)
        for trial, k in zip(asked, found, strict=True):
            study.tell(trial, k / N)
        points, n_stuck = np.concatenate([points, batch]), np.concatenate([n_stuck, found])
    return _error(points, n_stuck, logit)


def _random(n_trials: int, seed: int) -> float:
    rng = np.random.default_rng(seed)
    points = rng.random((n_trials, 2))
    return _error(points, _train(points, rng))


def _grid(n_trials: int, seed: int) -> float:
    axis = np.linspace(0, 1, round(n_trials**0.5))
    points = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    return _error(points, _train(points, np.random.default_rng(seed)))


def _mean_error(design: Callable[[int, int], float], n_trials: int) -> float:
    return float(np.mean([design(n_trials, seed) for seed in SEEDS]))


@pytest.mark.scale
@pytest.mark.slow
def test_half_the_trainings_of_a_grid_or_random_draws_find_the_boundary_as_well() -> None:
    found = _mean_error(_boundary, 48)
    assert found < 0.03
    assert found < 0.95 * _mean_error(_random, 100)
    assert found < 0.95 * _mean_error(_grid, 100)
    assert found < 0.8 * _mean_error(_random, 48)
    assert found < 0.8 * _mean_error(_grid, 49)


@pytest.mark.scale
@pytest.mark.slow
def test_it_finds_an_island_that_its_first_trials_missed() -> None:
    assert np.mean([_boundary(40, seed, _island) for seed in range(6)]) < 0.03


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


def _finished(study: optuna.Study, n_trials: int, space: Mapping[str, BaseDistribution], side: Any) -> None:
    """Tells a study this many trials; all trainings on one side are stuck."""
    for _ in range(n_trials):
        trial = _ask(study, 0, space)
        study.tell(trial, float(side(trial.params)))


@pytest.mark.scale
def test_each_category_has_a_boundary_of_its_own() -> None:
    space = {"x": FloatDistribution(0, 1), "kind": CategoricalDistribution(("early", "late"))}
    at = {"early": 0.25, "late": 0.75}
    study = optuna.create_study()
    _finished(study, 40, space, lambda params: params["x"] > at[params["kind"]])
    asked = [trial.params for trial in study.trials[-16:]]
    assert {each["kind"] for each in asked} == set(at)
    assert np.median([abs(each["x"] - at[each["kind"]]) for each in asked]) < 0.1


@pytest.mark.slow
@pytest.mark.sample("0.0")
@pytest.mark.parametrize("side", [0.0, 1.0])
def test_without_a_boundary_it_goes_on_looking(side: float) -> None:
    study = optuna.create_study()
    _finished(study, 24, SQUARE, lambda _: side)
    points = np.array([list(trial.params.values()) for trial in study.trials])
    assert np.all(np.ptp(points, axis=0) > 0.8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": LossQuantile()}, "objective"),
        ({"space": {"optimizer": Categorical(choices=("sgd", "adam"))}}, "space"),
        (
            {
                "space": {
                    "optimizer": Categorical(choices=("sgd", "adam")),
                    "learning_rate": Conditional(on="optimizer", among=("adam",), then=Float(low=1e-3, high=1e-2)),
                }
            },
            "space",
        ),
    ],
)
def test_a_sweep_without_a_boundary_to_find_is_refused(changes: dict[str, Any], message: str) -> None:
    fields: dict[str, Any] = {"name": "s", "workload": "category_pairs", "trials": 8, "sampler": "boundary"}
    spec = Sweep(**fields | {"space": {"init_sigma": Float(low=0.1, high=1)}} | changes)
    with pytest.raises(SpecError) as raised:
        check_sweep(spec, load_workload("category_pairs").parameters)
    assert str(raised.value).startswith(message)
