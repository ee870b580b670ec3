"""Samplers of our own beside Optuna's: the same draws."""

from typing import Any

import optuna
import pytest

from attnsweep.orchestrator.running.study import new_trial
from attnsweep.search_spaces import Categorical, Conditional, Float, Int, Sweep
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
