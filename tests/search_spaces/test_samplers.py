"""Samplers of our own beside Optuna's: the same draws."""

from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
import pytest
from numpy.typing import NDArray
from optuna.samplers import BaseSampler, TPESampler
from scipy import stats

from attnsweep.search_spaces import Categorical, Conditional, Derived, Float, Int, Sweep, Zip
from attnsweep.search_spaces.dimensions import Dimension
from attnsweep.search_spaces.numbered_draws import draws_of
from attnsweep.search_spaces.suggestion import Given, make_sampler, suggest, trial_seed, values_of
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


GRID: dict[str, Dimension] = {
    "init_sigma": Float(1e-4, 1.0, log=True, points=3),
    "n_categories": Int(4, 4, points=1),
    "optimizer": Categorical(choices=("sgd", "adam")),
    "n_positions": Int(4, 20, points=4),
}


@pytest.mark.parametrize(("sampler", "space"), [("random", SPACE), ("qmc", SPACE), ("grid", GRID)])
@pytest.mark.parametrize("where", [(), ("n_positions % 2 == 0",)])
def test_a_draw_depends_on_seed_and_number_alone(
    sampler: Sampler, space: dict[str, Dimension], where: tuple[str, ...]
) -> None:
    sweep = _sweep(sampler=sampler, space=space, where=where)
    alone, shared = draws_of(sweep), [draws_of(sweep) for _ in range(3)]
    drawn = [alone.draw(trial) for trial in range(12)]
    assert drawn == [shared[trial % 3].draw(trial) for trial in range(12)]
    assert drawn != [draws_of(sweep.but(seed=8)).draw(trial) for trial in range(12)]
    for values, distributions in drawn:
        assert values.keys() == distributions.keys()
        assert all(distributions[name]._contains(distributions[name].to_internal_repr(values[name])) for name in values)


def _of_one(sampler: Sampler, dimension: Dimension, n_trials: int = 512) -> NDArray[np.float64]:
    draws = draws_of(_sweep(sampler=sampler, space={"x": dimension}))
    return np.array([draws.draw(trial)[0]["x"] for trial in range(n_trials)], dtype=np.float64)


@pytest.mark.parametrize("sampler", ["random", "qmc"])
def test_draws_have_the_distributions_that_the_space_says(sampler: Sampler) -> None:
    uniform = stats.kstest(_of_one(sampler, Float(-1.0, 3.0)), stats.uniform(-1, 4).cdf)
    logarithms = np.log10(_of_one(sampler, Float(1e-3, 1.0, log=True)))
    in_logarithm = stats.kstest(logarithms, stats.uniform(-3, 3).cdf)
    assert min(uniform.pvalue, in_logarithm.pvalue) > 1e-3
    counts = np.bincount(_of_one(sampler, Int(0, 3)).astype(int), minlength=4)
    assert stats.chisquare(counts).pvalue > 1e-3
    assert stats.chisquare(np.bincount(_of_one(sampler, Categorical((0, 1, 2))).astype(int))).pvalue > 1e-3
    counts, ends = np.bincount(_of_one(sampler, Int(1, 9, log=True)).astype(int))[1:], np.log(np.arange(1, 11) - 0.5)
    assert stats.chisquare(counts, 512 * np.diff(ends) / (ends[-1] - ends[0])).pvalue > 1e-3


CHOICES: dict[str, Dimension] = {
    "optimizer": Categorical(("sgd", "adam")),
    "d_model, n_heads": Zip(((16, 2), (16, 4), (32, 2))),
    "learning_rate": Conditional(on="optimizer", among=("adam",), then=Categorical((0.1, 0.2)), otherwise=0.5),
}


@pytest.mark.parametrize("sampler", ["random", "grid"])
def test_no_configuration_of_choices_is_drawn_twice(sampler: Sampler) -> None:
    space = {name: each for name, each in CHOICES.items() if sampler == "random" or name != "learning_rate"}
    sweep = _sweep(sampler=sampler, space=space)
    n_points = 9 if sampler == "random" else 6
    orders = set()
    for seed in range(3):
        draws = draws_of(sweep.but(seed=seed))
        drawn = [tuple(values_of(sweep, draws.draw(trial)[0]).items()) for trial in range(n_points)]
        assert len({*drawn}) == n_points
        orders.add(tuple(drawn))
    assert len(orders) == 3
    half = draws_of(sweep.but(where="n_heads == 2"))
    points = [tuple(values_of(sweep, half.draw(trial)[0]).items()) for trial in range(n_points * 2 // 3)]
    assert len({*points}) == len(points)
    assert all(dict(point)["n_heads"] == 2 for point in points)


@pytest.mark.parametrize("sampler", ["random", "qmc", "grid", "tpe", "nsga2"])
def test_every_sampler_keeps_to_what_the_space_allows(sampler: Sampler) -> None:
    heads = Categorical((1, 2, 3, 4, 6))
    space: dict[str, Dimension] = {"d_model": Int(8, 64, points=57), "n_heads": heads, "d_ff": Derived("4 * d_model")}
    rows = ((16, None), (32, 0.1), (8, "x"))
    space["a, b"] = Zip(rows)
    sweep = _sweep(sampler=sampler, space=space, where="d_model % n_heads == 0 and n_heads > 2")
    study = optuna.create_study()
    seen = set()
    for trial in range(16):
        learns = sampler in ("tpe", "nsga2")
        study.sampler = make_sampler(sweep, trial) if learns else Given(draws_of(sweep).draw(trial)[0])
        asked = study.ask()
        values: dict[str, Any] = suggest(sweep, asked)
        study.tell(asked.number, float(values["d_model"]))
        assert values["d_model"] % values["n_heads"] == 0
        assert values["n_heads"] > 2
        assert values["d_ff"] == 4 * values["d_model"]
        assert (values["a"], values["b"]) in rows
        seen.add((values["d_model"], values["n_heads"]))
    assert len(seen) > 5


def test_tpe_draws_what_optunas_draws() -> None:
    sweep = _sweep(sampler="tpe")

    def drawn(sampler_of: Callable[[int], BaseSampler]) -> list[Any]:
        values, study = [], optuna.create_study()
        for trial in range(16):
            study.sampler = sampler_of(trial)
            asked = study.ask()
            values.append(suggest(sweep, asked))
            study.tell(asked.number, float(asked.params["init_sigma"]))
        return values

    optunas = drawn(lambda trial: TPESampler(n_startup_trials=10, constant_liar=True, seed=trial_seed(sweep, trial)))
    assert drawn(lambda trial: make_sampler(sweep, trial)) == optunas
